package restart

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/sentencetest"
)

// Each testdata/*.txt is a story: inputs, and below each what it led to. Run with
// -rewrite to write the answers again, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{t: t, now: time.Unix(1000, 0)}
			s.boot(State{})
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				return s.do(d)
			})
		})
	}
}

// What people read decides nothing: with each sentence that the machine is given replaced, be it by an
// agent, a person or the journal, its effects are the same.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	replay := func(file string, blank bool) []string {
		s := &script{t: t, now: time.Unix(1000, 0), blank: blank}
		s.boot(State{})
		datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
			s.do(d)
			return d.Expected
		})
		return s.did
	}
	for _, file := range files {
		want, got := replay(file, false), replay(file, true)
		if !slices.Equal(got, want) {
			t.Errorf("%s: without sentences\n%s\nwith them\n%s",
				file, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// script is the owner of a machine, and the cluster that it asks about.
type script struct {
	t       *testing.T
	m       *Machine
	now     time.Time
	next    uint64
	journal []byte

	running, lost string
	alive         int
	fenced        []falcon.Node
	deaf          bool
	done          map[NodeCommand]bool

	blank bool     // the machine is given no sentence
	did   []string // effects, without sentences
}

// Sentences that people read: what the machine is given has them, or "x" instead.
func (s *script) sentence(text string) string {
	if s.blank {
		return sentencetest.Blank(text)
	}
	return text
}

func (s *script) Running(falcon.Placement) string { return s.sentence(s.running) }
func (s *script) Lost(falcon.Launch) string       { return s.sentence(s.lost) }
func (s *script) Missing(l falcon.Launch) string {
	return s.sentence(fmt.Sprintf("launch %d waits for rank 1 on n2", l.Generation))
}
func (s *script) Alive() int  { return s.alive }
func (s *script) Hears() bool { return !s.deaf }
func (s *script) Fenced(n falcon.Node) bool {
	return slices.Contains(s.fenced, n)
}
func (s *script) Done(c NodeCommand) bool { return s.done[c] }

func (s *script) boot(state State) {
	s.done = map[NodeCommand]bool{}
	s.m = New(Config{}, state, func(time.Time) World { return s }, func() uint64 {
		s.next++
		return s.next
	})
}

func (s *script) do(d *datadriven.TestData) string {
	arg := func(key string) string {
		var v string
		if d.HasArg(key) {
			d.ScanArgs(s.t, key, &v)
		}
		return v
	}
	number := func(key string) (n uint64) {
		if d.HasArg(key) {
			d.ScanArgs(s.t, key, &n)
		}
		return n
	}
	launch := func() *falcon.Launch {
		return &falcon.Launch{Generation: number("generation"), Placement: placement(arg("on"))}
	}
	pass := func() {
		if text := arg("after"); text != "" {
			after, err := time.ParseDuration(text)
			if err != nil {
				s.t.Fatal(err)
			}
			s.now = s.now.Add(after)
		}
	}
	step := func(in Input) string {
		if s.blank {
			in = sentencetest.Blank(in)
		}
		s.m.Step(s.now, in)
		return s.text()
	}
	switch d.Cmd {
	case "checkpoint":
		return step(Checkpointed{
			Order:  number("order"),
			Resume: int64(number("resume")),
			Home:   placement(arg("home")),
		})
	case "demand":
		return step(Demanded{
			Launch: *launch(),
			Home:   placement(arg("home")),
			Reason: "both replicas are lost",
		})
	case "plan":
		return step(Planned{launch()})
	case "answer":
		c := NodeCommand{falcon.Node(arg("node")), number("command")}
		if d.HasArg("done") {
			s.done[c] = true
			return "nothing\n"
		}
		return step(Refused{NodeCommand: c, Reason: arg("refused")})
	case "ended":
		return step(Ended{
			Generation: number("generation"),
			Rank:       falcon.Rank(number("rank")),
		})
	case "described":
		return step(Described{
			Epoch:      2,
			Generation: number("generation"),
			Ranks:      2,
		})
	case "superseded":
		return step(Superseded{})
	case "world":
		s.running = strings.ReplaceAll(arg("running"), "_", " ")
		s.lost = strings.ReplaceAll(arg("lost"), "_", " ")
		s.alive = int(number("alive"))
		s.fenced, s.deaf = nil, d.HasArg("deaf")
		if n := arg("fenced"); n != "" {
			s.fenced = []falcon.Node{falcon.Node(n)}
		}
		return ""
	case "tick":
		pass()
		s.m.Tick(s.now)
		return s.text()
	case "reboot": // the engine starts again on its journal
		var state State
		if err := json.Unmarshal(s.journal, &state); err != nil {
			s.t.Fatal(err)
		}
		pass()
		if s.blank {
			state = sentencetest.Blank(state)
		}
		s.boot(state)
		s.m.Restored(s.now)
		return s.text()
	}
	s.t.Fatalf("%s: no such command", d.Cmd)
	return ""
}

func placement(text string) falcon.Placement {
	var out falcon.Placement
	for name := range strings.SplitSeq(text, ",") {
		if name == "-" {
			out = append(out, "")
			continue
		}
		out = append(out, falcon.Device(name+".g0"))
	}
	return out
}

// text is what an input led to; what is to be durable goes to the journal.
func (s *script) text() string {
	e := s.m.Ready()
	defer s.m.Advance()
	var b strings.Builder
	blank := sentencetest.Blank(e)
	blank.Notes = nil
	did, err := json.Marshal(blank)
	if err != nil {
		s.t.Fatal(err)
	}
	s.did = append(s.did, string(did))
	if e.Changed || e.Ended != nil {
		if s.journal, err = json.Marshal(s.m.State()); err != nil {
			s.t.Fatal(err)
		}
	}
	if e.Changed {
		fmt.Fprintf(&b, "state %s\n", s.m.State().Phase)
	}
	if e.Ended != nil {
		fmt.Fprintf(&b, "rank %d of launch %d ended well\n", e.Ended.Rank, e.Ended.Generation)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "%s/%d: %s\n", n.Kind, n.Severity, n.Text)
	}
	if e.RanToEnd {
		b.WriteString("the job has run to its end\n")
	}
	if v := e.Left; v != nil {
		if v.Reason != "" {
			fmt.Fprintf(&b, "planner: nothing is launched after order %d: %s\n", v.Order, v.Reason)
		} else {
			fmt.Fprintf(&b, "planner: all have left after order %d\n", v.Order)
		}
	}
	if v := e.Launched; v != nil {
		fmt.Fprintf(&b, "launch %d over, of the recovery %t, failed %q\n", v.Generation, v.Recovery, v.Failed)
	}
	if e.Stops {
		fmt.Fprintf(&b, "stop %v\n", s.m.State().Stop.Commands)
	}
	if e.Launches {
		fmt.Fprintf(&b, "launch %v\n", s.m.State().Commands)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
