package sshserver

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

var sshStreams = flag.Int("ssh-streams", 8, "streams of characters that are sent into sessions over SSH")

// streamTexts are what gets into a session by mistake: a table, a program, a log, answers.
var streamTexts = []string{
	strings.Repeat("a\t32\r", 200),
	strings.Repeat("v\r", 400),
	strings.Repeat("F\r\rq\r", 200),
	strings.Repeat("func main() {\r\tx := 32\r\treturn\t\r}\r", 40),
	strings.Repeat("2026-11-21 14:00:30Z\tn1.g0\tslow\t\r", 40),
	"\x1b[200~" + strings.Repeat("a\t\r", 100) + "\x1b[201~\t\r",
}

// stream is one of them at a speed, in bytes/s, with the approval's dialog open before it or not.
type stream struct {
	text  string
	speed int
	open  bool
}

func (s stream) String() string {
	return fmt.Sprintf("%d_B-s_open_%v_%.12q", s.speed, s.open, s.text)
}

func streamOf(i int) stream {
	speeds := []int{1, 3, 5, 8, 12, 50, 1000, 100_000}
	return stream{streamTexts[i%len(streamTexts)], speeds[i*5%len(speeds)], i/len(streamTexts)%2 == 0}
}

// Characters that are sent into a session over SSH, at any speed, confirm nothing.
func TestStreamsOverSSHConfirmNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a stream takes seconds: left to the run without -short")
	}
	for i := range *sshStreams {
		s := streamOf(i)
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, Limits{})
			p.engine.AdvanceTo(enginetest.Proposed)
			x := sit(t, p.dial(p.person("maria", "approver")), 120, 40, "")
			x.shows("S2 PROPOSED")
			if s.open {
				x.press("a")
				x.shows("APPROVE S2?")
				time.Sleep(2 * time.Second) // for a dialog that takes keys by then
			}
			x.types(s.text, s.speed, 10*time.Second)
			time.Sleep(2 * time.Second)
			if done := p.effects(); len(done) > 0 {
				t.Errorf("%v", done)
			}
		})
	}
}

// A person's keys confirm what is read.
func TestAPersonConfirmsOverSSH(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed)
	x := sit(t, p.dial(p.person("maria", "approver")), 120, 40, "")
	x.shows("S2 PROPOSED")
	x.press("a")
	x.shows("APPROVE S2?")
	time.Sleep(time.Second) // a look at it
	x.types("\t\r", 8, time.Second)
	x.until("the decision", func(string) bool {
		return len(p.engine.Decides()) == 1
	})
	d := p.engine.Decides()[0]
	if !d.GetApprove() || d.GetPlanHash() == "" {
		t.Errorf("decided %v", d)
	}
}

// types sends a text at a speed, of a slow one what there is time for.
func (x *seat) types(text string, speed int, most time.Duration) {
	step := max(1, speed/100) // bytes at once
	for end := time.Now().Add(most); len(text) > 0 && time.Now().Before(end); {
		n := min(step, len(text))
		if _, err := x.keys.Write([]byte(text[:n])); err != nil {
			return // a text may end its session
		}
		text = text[n:]
		time.Sleep(time.Duration(n) * time.Second / time.Duration(speed))
	}
}

// effects is what the engine was asked to do.
func (p *place) effects() (out []string) {
	for _, d := range p.engine.Decides() {
		out = append(out, "decided: "+d.String())
	}
	for _, r := range p.engine.Recovers() {
		out = append(out, "recovery: "+r.String())
	}
	for _, s := range p.engine.Said() {
		out = append(out, "said: "+s.String())
	}
	if p.engine.Policy().GetFrozen() {
		out = append(out, "frozen")
	}
	return out
}
