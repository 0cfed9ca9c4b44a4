package tui

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/key"
)

var linkCount = flag.Int("slow-links", 6, "consoles on slow links that are played")

// hasty presses the keys of an approval without a look; careful waits until the dialog is there.
type operator int

const (
	hasty operator = iota
	repeating
	careful
)

// linkPlay is one console on a link, and what its operator does.
type linkPlay struct {
	rate  int
	delay time.Duration
	ice   [][2]time.Duration
	who   operator
}

func randomLink(r *rand.Rand) linkPlay {
	p := linkPlay{
		rate:  pick(r, []int{300, 600, 1200, 2400, 9600, 30000, 100000}),
		delay: time.Duration(r.IntN(2001)) * time.Millisecond,
		who:   operator(r.IntN(3)),
	}
	for at := time.Duration(0); r.IntN(3) > 0 && len(p.ice) < 4; {
		at += time.Duration(r.IntN(12000)) * time.Millisecond
		end := at + time.Duration(1000+r.IntN(9000))*time.Millisecond
		p.ice = append(p.ice, [2]time.Duration{at, end})
		at = end
	}
	return p
}

// On no link is anything decided before its dialog was on the terminal at the far end; who
// waits for it decides.
func TestNothingIsDecidedBeforeItIsShown(t *testing.T) {
	if testing.Short() {
		t.Skip("a play takes a second: left to the run without -short")
	}
	decided, careless := 0, 0
	for seed := range uint64(*linkCount) {
		p := randomLink(rand.New(rand.NewPCG(seed, 2)))
		l := line{rate: p.rate, delay: p.delay, ice: p.ice}
		startFar(t, openDecisions[0].state(t), key.Overview, l, l, true, func(x *farTerm) {
			x.wants = []string{"APPROVE S2?", "plan 9f2c41d0", "▸ Cancel"}
			var at time.Time
			x.src.decided = func(q *falconv1.DecideRequest) { at = time.Now() }
			p.act(x)
			if at.IsZero() {
				if p.who == careful {
					t.Errorf("seed %d, %+v: who waits for the dialog decides nothing: %s",
						seed, p, x.model.notes.text)
				}
				return
			}
			decided++
			if p.who != careful {
				careless++
			}
			shown := x.whenShown()
			if shown.IsZero() || at.Before(shown.Add(p.delay)) {
				t.Errorf("seed %d, %+v: decided at %s, shown at %s", seed, p, at, shown)
			}
			if q := x.src.decides[0]; q.GetPlanHash() != "9f2c41d0" {
				t.Errorf("seed %d: the plan %q was not the one on the screen", seed, q.GetPlanHash())
			}
		})
	}
	t.Logf("%d of %d decided, %d without a look", decided, *linkCount, careless)
}

// act presses the keys at the terminal.
func (p linkPlay) act(x *farTerm) {
	press := func(keys string) { x.up.in <- []byte(keys) }
	press("a")
	if p.who == careful {
		for end := time.Now().Add(5 * time.Minute); x.whenShown().IsZero() && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
	}
	for range map[operator]int{hasty: 1, repeating: 4, careful: 4}[p.who] {
		time.Sleep(900 * time.Millisecond)
		press("\t")
		time.Sleep(300 * time.Millisecond)
		press("\r")
		if p.who == careful { // looks what comes of it
			p.await(x)
			if len(x.src.decides) > 0 {
				return
			}
			press("a")
			p.await(x)
		}
	}
	p.await(x)
}

// await waits for a decision, or for as long as one may take.
func (p linkPlay) await(x *farTerm) {
	for end := time.Now().Add(4*p.delay + 25*time.Second); len(x.src.decides) == 0 &&
		time.Now().Before(end); {
		time.Sleep(500 * time.Millisecond)
	}
}

func (s *script) Decide(ctx context.Context, r *falconv1.DecideRequest) (*falconv1.Action, error) {
	if s.decided != nil {
		s.decided(r)
	}
	return s.still.Decide(ctx, r)
}
