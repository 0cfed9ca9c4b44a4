package recovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/sentencetest"
)

// Each testdata/*.txt is a story: commands, and below each, after "----", what
// the machine says. Run with -rewrite to write the answers, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := newScript(t)
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				return s.do(d)
			})
		})
	}
}

// script plays the agents and the journal. "restart" goes on with a machine
// that knows no more than the journal and what agents tell when they are back.
type script struct {
	t         *testing.T
	m         *Machine
	start     time.Time
	now       time.Time
	job       Job
	policy    falcon.Policy
	procs     map[falcon.Rank]Process
	journal   map[string][]byte
	launch    Launch // newest
	launches  map[uint64]Launch
	rejoin    Rejoin
	suspend   uint64
	iteration int64
	calls     uint64
	waiting   float64 // ms without an iteration
	ended     []falcon.Rank
	devices   []Seen            // fatal reports, as the journal keeps them
	given     func(Input) Input // what the machine is given of an input
	did       []string          // what was persisted and ordered, without sentences
}

func scriptConfig() Config {
	return Config{
		ReplaceMost: 30 * time.Second,
		SpareWait:   30 * time.Second,
		RejoinMost:  30 * time.Second,
		RestartMost: time.Minute,
	}
}

func newScript(t *testing.T) *script {
	now := time.Unix(1000, 0)
	return &script{
		t:        t,
		m:        New(scriptConfig()),
		start:    now,
		now:      now,
		procs:    map[falcon.Rank]Process{},
		journal:  map[string][]byte{},
		launches: map[uint64]Launch{},
		given:    func(in Input) Input { return in },
	}
}

// What people read decides nothing: with each sentence that the machine is given replaced, be it by an
// agent, a person or the journal, it orders the same.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	sentencetest.Check(t, files, 100, func(file string, given func(Input) Input) []string {
		s := newScript(t)
		s.given = given
		s.replay(file)
		return slices.Compact(s.did) // a sentence that is another one is persisted once more
	}, func(in Input) Input { return sentencetest.Blank(in, scriptNames...) })
}

// scriptNames are the fields that name a thing, a person or a mode; and what a program said of its end,
// which falcon.Ending classifies.
var scriptNames = []string{
	"ID", "Recovery", "PlanHash", "By", "From", "DecidedBy", "DecidedFrom", "StatedBy", "Action",
	"Approval", "Hours", "Raised", "Said",
}

// replay plays a script whatever it answers.
func (s *script) replay(file string) {
	datadriven.RunTest(s.t, file, func(_ *testing.T, d *datadriven.TestData) string {
		s.do(d)
		return d.Expected
	})
}

func (s *script) step(in Input) string {
	s.m.Step(s.now, s.given(in))
	return s.drain()
}

// words are the arguments of one command, "key=value".
type words map[string]string

func (s *script) do(d *datadriven.TestData) string {
	w := words{}
	for _, a := range d.CmdArgs {
		w[a.Key] = strings.ReplaceAll(strings.Join(a.Vals, ""), "_", " ")
	}
	switch d.Cmd {
	case "show":
		return s.show(w["id"])
	case "restart":
		return s.restart(list(w["except"]))
	case "forget": // nobody will tell of this rank's process again
		delete(s.procs, s.rank(w["rank"]))
		return ""
	case "run":
		return s.run(w)
	case "exposure":
		return s.exposure()
	}
	return s.feed(d.Cmd, w)
}

func (s *script) feed(verb string, w words) string {
	var out string
	for _, in := range s.inputs(verb, w) {
		if d, ok := in.(Decision); ok {
			if err := s.m.Check(d); err != nil {
				out += "refused: " + err.Error() + "\n"
			}
		}
		out += s.step(in)
	}
	return out
}

// run lets time pass in half seconds: agents are heard every two, but those in
// except, and tell an iteration more each time, unless it stands still.
func (s *script) run(w words) string {
	out := ""
	beats := s.num(w, "beats", 1)
	for range 4 * beats {
		s.now = s.now.Add(500 * time.Millisecond)
		s.m.Tick(s.now)
		out += s.drain()
		if s.now.Sub(s.start)%(2*time.Second) != 0 {
			continue
		}
		if s.waiting += 2000; w["still"] != "true" {
			s.iteration += 10
			s.waiting = 0
		}
		for _, in := range s.beats(w) {
			out += s.step(in)
		}
	}
	return out
}

func (s *script) beats(w words) []Input {
	var out []Input
	except := list(w["except"])
	heard := s.nodes(words{})
	for _, n := range list(w["back"]) {
		heard = append(heard, falcon.Node(n))
	}
	for _, n := range heard {
		if !slices.Contains(except, string(n)) {
			out = append(out, Node{Node: n, Alive: true})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(s.procs)) {
		p := s.procs[r]
		if slices.Contains(except, string(p.Node)) {
			continue
		}
		b := Beat{
			Rank:         r,
			Pid:          p.Pid,
			Iteration:    s.iteration,
			Tag:          s.iteration,
			HookAgeMs:    1,
			Calls:        uint64(s.iteration),
			WaitingMs:    s.waiting,
			WaitingKnown: true,
		}
		if w["iteration"] == "none" {
			b.Iteration, b.Tag = falcon.NoIteration, falcon.NoIteration
		}
		if slices.Contains(list(w["busy"]), fmt.Sprint(int(r))) {
			b.WaitingMs = 0
		}
		mute := list(w["mute"])
		if w["mute"] == "all" || slices.Contains(mute, fmt.Sprint(int(r))) {
			b.WaitingMs, b.WaitingKnown = 0, false
		}
		if slices.Contains(list(w["calls"]), fmt.Sprint(int(r))) {
			s.calls++
			b.Calls += s.calls
		}
		if slices.Contains(list(w["frozen"]), fmt.Sprint(int(r))) {
			b.HookAgeMs = float64(s.num(w, "age", 5000))
		}
		if p.Alive {
			out = append(out, b)
		}
	}
	return out
}

// restart is the engine's way of bringing a machine back; agents of except are not back yet.
func (s *script) restart(except []string) string {
	s.m = New(scriptConfig())
	back := Restored{
		NextID:  len(s.journal) + 1,
		Devices: s.devices,
		Ended:   s.ended,
	}
	for _, id := range slices.Sorted(maps.Keys(s.journal)) {
		var c falcon.Recovery
		if err := json.Unmarshal(s.journal[id], &c); err != nil {
			s.t.Fatal(err)
		}
		back.Recoveries = append(back.Recoveries, c)
	}
	out := ""
	in := []Input{s.job, SetPolicy{s.policy}, back}
	for _, r := range slices.Sorted(maps.Keys(s.procs)) {
		if p := s.procs[r]; !slices.Contains(except, string(p.Node)) {
			in = append(in, p)
		}
	}
	for _, v := range in {
		out += s.step(v)
	}
	return out
}

// drain prints what the machine wants, and has it done.
func (s *script) drain() string {
	r := s.m.Ready()
	s.m.Advance()
	out := ""
	for _, n := range r.Notes {
		out += fmt.Sprintf("%s %d: %s\n", n.Kind, n.Severity, n.Text)
	}
	if len(r.Ended) > 0 {
		s.ended = append(s.ended, r.Ended...)
		out += fmt.Sprintf("persist the end of ranks %v\n", r.Ended)
	}
	for _, c := range r.Recoveries {
		out += fmt.Sprintf("persist %s %s generation %d\n", c.ID, c.State, c.Generation)
		b, err := json.Marshal(c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.journal[c.ID] = b
		s.did = append(s.did, fmt.Sprintln(c.ID, c.State, c.Generation, c.Placement, c.Fenced))
		if c.State == falcon.RecoveryResumed {
			s.job.Placement = c.Placement
		}
	}
	for _, c := range r.Commands {
		out += s.command(c) + "\n"
		s.did = append(s.did, fmt.Sprintf("%T %+v", c, sentencetest.Blank(c, scriptNames...)))
	}
	return out
}

func (s *script) command(c Command) string {
	switch c := c.(type) {
	case Suspend:
		s.suspend = c.Generation
		return fmt.Sprintf("-> suspend %d on %v, optimizer %d ms", c.Generation, c.Nodes, c.WaitMs)
	case Fence:
		return fmt.Sprintf("-> fence below %d nodes %v ranks %v", c.Generation, c.Nodes, c.Ranks)
	case Launch:
		s.launch, s.launches[c.Generation] = c, c
		return fmt.Sprintf("-> launch %d %v of %d", c.Generation, c.Ranks, c.World)
	case Table:
		return fmt.Sprintf("-> table %d %v", c.Generation, c.Placement)
	case Rejoin:
		s.rejoin = c
		text := fmt.Sprintf("-> rejoin %d order %d at %d checkpoint %v splits %v",
			c.Generation, c.Order, c.Resume, c.Checkpoint, c.Splits)
		for _, v := range c.Moves {
			text += fmt.Sprintf(" %d<-%d", v.Rank, v.From)
		}
		return text
	case Stop:
		return fmt.Sprintf("-> stop %d on %v ranks %v", c.Generation, c.Nodes, c.Ranks)
	case Restart:
		s.launch = Launch{Generation: c.Generation}
		return fmt.Sprintf("-> restart %d on %v: %s", c.Generation, c.Placement, c.Reason)
	}
	s.t.Fatalf("command %T", c)
	return ""
}

func (s *script) show(id string) string {
	c, ok := s.m.Recovery(id)
	if !ok {
		return "none\n"
	}
	out := fmt.Sprintf("%s %s generation %d attempts %d by %q reason %q\n",
		c.ID, c.State, c.Generation, c.Attempts, c.DecidedBy, c.Reason)
	for _, f := range c.Faults {
		out += fmt.Sprintf("  fault %s node %q device %q ranks %v after %.1f s: %s\n",
			f.Kind, f.Node, f.Device, f.Ranks, float64(f.DetectedNs-f.FirstNs)/1e9,
			strings.Join(f.Evidence, "; "))
	}
	out += fmt.Sprintf("  replaced %v survivors %v fenced %v\n  on %v\n",
		c.Replaced, c.Survivors, c.Fenced, c.Placement)
	out += fmt.Sprintf(
		"  before %d resume %d checkpoint %v no return %v pending %v launched %v failed rejoins %d\n",
		c.Before, c.Resume, c.Checkpoint, c.NoReturn, c.Pending, c.Launched, c.FailedRejoins,
	)
	for _, v := range c.Moves {
		out += fmt.Sprintf("  move %d<-%d\n", v.Rank, v.From)
	}
	if v := c.Wait; v != nil {
		out += fmt.Sprintf("  waits for %v spare %v for %.1f s, then %s (redo %.0f ms, launch %.0f ms)\n",
			v.Nodes, v.Spare, time.Unix(0, v.UntilNs).Sub(s.now).Seconds(), v.Then, v.RedoMs,
			v.LaunchMs)
	}
	if v := c.Shrink; v != nil {
		out += fmt.Sprintf("  replicas %v of %d on %v, splits %v\n", v.Kept, v.Of, v.Placement, v.Splits)
	}
	return out + fmt.Sprintf("  phases %v predicted %v\n", c.PhaseMs, c.PredictMs)
}

func (s *script) exposure() string {
	list, err := s.m.Exposure()
	if err != nil {
		return err.Error() + "\n"
	}
	out := ""
	for _, e := range list {
		out += fmt.Sprintf("%s gone %v lost %v\n", e.Label(), e.Gone, e.Lost)
	}
	return out
}
