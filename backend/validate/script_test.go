package validate

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
	"github.com/failslow/falcon/detect/sentencetest"
)

// Each testdata/*.txt is a script: commands, and below each, after "----", what
// the machine says. Run with -rewrite to replace the answers, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := newScript(t)
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				return s.do(fields(d))
			})
		})
	}
}

func fields(d *datadriven.TestData) []string {
	out := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		out = append(out, a.String())
	}
	return out
}

// script plays all nodes of a job of four ranks on two nodes, in one
// communicator, an iteration every 100 ms with one collective and one message
// from each rank to the next.
type script struct {
	t    *testing.T
	m    *Machine
	now  time.Time
	next uint64
	sent map[falcon.Node][]Command // newest last

	world int
	own   map[string]passes.Earlier // by "n0.g0→n1.g0"

	given func(Input) Input // what becomes of an input before the machine gets it
	did   []string          // what the machine persisted and ordered, without sentences
}

// What people read decides nothing: with each sentence that the machine is given replaced, be it by an
// agent, a hook or a person, it orders the same.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	sentencetest.Check(t, files, 20, func(file string, given func(Input) Input) []string {
		s := newScript(t)
		s.given = given
		s.replay(file)
		return s.did
	}, func(in Input) Input { return sentencetest.Blank(in, "ID", "By") })
}

// replay plays a script whatever it answers.
func (s *script) replay(file string) {
	datadriven.RunTest(s.t, file, func(_ *testing.T, d *datadriven.TestData) string {
		s.do(fields(d))
		return d.Expected
	})
}

func (s *script) step(in Input) {
	s.m.Step(s.now, s.given(in))
}

func newScript(t *testing.T) *script {
	s := &script{
		t:     t,
		now:   time.Unix(1000, 0),
		sent:  map[falcon.Node][]Command{},
		world: scriptRanks,
		own:   map[string]passes.Earlier{},
		given: func(in Input) Input { return in },
	}
	s.m = New(Config{GEMMSide: 128, Repeats: 3, MessageBytes: 1 << 20}, func() uint64 {
		s.next++
		return s.next
	})
	return s
}

const scriptRanks = 4

func (s *script) members() []Member {
	out := make([]Member, s.world)
	for r := range out {
		node := fmt.Sprintf("n%d", r/2)
		out[r] = Member{
			Device: falcon.NewDevice(falcon.Node(node), r%2),
			NIC:    falcon.NIC(node + ".nic0"),
			Comms:  []falcon.Comm{{ID: 7, Size: s.world, RankInComm: r}},
		}
	}
	return out
}

// do plays one command; of one for the nodes "all" the answers come one after the other.
func (s *script) do(f []string) string {
	s.t.Helper()
	if len(f) < 2 || f[1] != "all" {
		return s.doOne(f)
	}
	out := ""
	for n := range s.world / 2 {
		out += s.doOne(append([]string{f[0], fmt.Sprintf("n%d", n)}, f[2:]...))
	}
	return out
}

func (s *script) doOne(f []string) string {
	s.t.Helper()
	switch f[0] {
	case "world": // ranks, two a node
		s.world = int(s.number(f[1]))
		return ""
	case "own": // direction ms [fine]
		ms, _ := strconv.ParseFloat(f[2], 64)
		s.own[f[1]] = passes.Earlier{
			Ms:    ms,
			From:  "VAL-0000",
			Fine:  len(f) > 3,
			Known: true,
		}
		return ""
	case "begin": // gemm=0,1 ring=0,1,2,3 pair=0,1
		s.step(Begin{
			ID:      "VAL-0001",
			Ask:     s.ask(f[1:]),
			Members: s.members(),
			Own:     s.earlier,
		})
	case "recover":
		s.step(Recover{
			Validation: falcon.Validation{ID: "VAL-0001", State: falcon.ValidationArming},
			Pause:      s.number(f[1]),
			Nodes:      []falcon.Node{"n0", "n1"},
		})
	case "survey": // node newest [key=value]
		s.survey(falcon.Node(f[1]), f[2:])
	case "arm": // node state [text]
		s.arm(falcon.Node(f[1]), f[2], strings.Join(f[3:], " "))
	case "test": // node [rank=ms | rank=failed]
		s.test(falcon.Node(f[1]), f[2:])
	case "resume":
		s.reply(
			falcon.Node(f[1]),
			phaseOf(falconv1.PausePhase_PAUSE_PHASE_RESUME),
			done0(),
		)
	case "lost":
		s.step(Lost{Node: falcon.Node(f[1])})
	case "stop":
		s.step(Stop{Why: strings.Join(f[1:], " ")})
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
		s.m.Tick(s.now)
	case "open":
		return s.commands(slices.DeleteFunc(slices.Clone(s.sent[falcon.Node(f[1])]), func(c Command) bool {
			return !s.m.SendsAgain(c)
		}))
	case "show":
		return s.show()
	default:
		s.t.Fatalf("no command %q", f[0])
	}
	return s.drain()
}

func (s *script) earlier(from, to falcon.Device, _ int64) passes.Earlier {
	return s.own[string(from)+"→"+string(to)]
}

func done0() *falconv1.CommandResult {
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
}

func (s *script) number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) ask(f []string) falcon.ValidationAsk {
	a := falcon.ValidationAsk{By: "engine", Why: "test"}
	for _, kv := range f {
		key, list, _ := strings.Cut(kv, "=")
		var ranks []falcon.Rank
		for x := range strings.SplitSeq(list, ",") {
			ranks = append(ranks, falcon.Rank(s.number(x)))
		}
		switch key {
		case "gemm":
			a.GEMM = ranks
		case "ring":
			a.Rings = append(a.Rings, ranks)
		case "pair":
			a.Pairs = append(a.Pairs, [2]falcon.Rank{ranks[0], ranks[1]})
		}
	}
	return a
}

// reply answers the newest command of a node that matches.
func (s *script) reply(node falcon.Node, match func(Command) bool, r *falconv1.CommandResult) {
	for _, c := range slices.Backward(s.sent[node]) {
		if match(c) {
			r.Id = c.ID
			s.step(Answer{Node: node, Result: r})
			return
		}
	}
	s.t.Fatalf("nothing of that kind was sent to %s", node)
}

func phaseOf(p falconv1.PausePhase) func(Command) bool {
	return func(c Command) bool { return c.Pause.GetPhase() == p }
}

func (s *script) ranksOn(node falcon.Node) []int32 {
	first := int32(node[1]-'0') * 2
	return []int32{first, first + 1}
}

func (s *script) survey(node falcon.Node, f []string) {
	r := done0()
	newest := s.number(f[0])
	if len(f) > 1 && f[1] == "refused" {
		r.Status, r.Detail = falconv1.CommandStatus_COMMAND_STATUS_REFUSED, strings.Join(f[2:], " ")
	}
	for _, rank := range s.ranksOn(node) {
		prev := (rank + int32(s.world) - 1) % int32(s.world)
		next := (rank + 1) % int32(s.world)
		r.Pauses = append(r.Pauses, &falconv1.RankPause{
			Rank:        rank,
			State:       falconv1.PauseState_PAUSE_STATE_RUNNING,
			Newest:      int64(newest),
			Boundary:    int64(newest),
			Exact:       true,
			IterationMs: 100,
			Counts: []*falconv1.CommCount{{
				Comm:                    7,
				Calls:                   3 * newest,
				PerIteration:            3,
				Steady:                  true,
				CollectivesPerIteration: 1,
				Collectives:             newest,
				Whole:                   true,
				Peers: []*falconv1.PeerCount{
					{Peer: prev, RecvsPerIteration: 1, Recvs: newest},
					{Peer: next, SendsPerIteration: 1, Sends: newest},
				},
			}},
		})
	}
	s.reply(node, phaseOf(falconv1.PausePhase_PAUSE_PHASE_SURVEY), r)
}

// arm's text may begin with the code of a refusal, "capture: ...".
func (s *script) arm(node falcon.Node, state, text string) {
	code := falconv1.PauseReason_PAUSE_REASON_MISSED
	if name, rest, coded := strings.Cut(text, ": "); coded {
		code = falconv1.PauseReason(falconv1.PauseReason_value["PAUSE_REASON_"+strings.ToUpper(name)])
		text = rest
	}
	r := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED, Detail: text}
	p := falconv1.PauseState(falconv1.PauseState_value["PAUSE_STATE_"+strings.ToUpper(state)])
	switch p {
	case falconv1.PauseState_PAUSE_STATE_RELEASED, falconv1.PauseState_PAUSE_STATE_EXPIRED:
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_DONE
	case falconv1.PauseState_PAUSE_STATE_REFUSED:
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
	}
	for _, rank := range s.ranksOn(node) {
		out := &falconv1.RankPause{
			Rank:    rank,
			State:   p,
			Reason:  text,
			QuietMs: 210,
		}
		if p == falconv1.PauseState_PAUSE_STATE_REFUSED {
			out.ReasonCode = code
		}
		if r.Status == falconv1.CommandStatus_COMMAND_STATUS_DONE {
			out.HeldMs = 90 + float64(rank)
		}
		r.Pauses = append(r.Pauses, out)
	}
	s.reply(node, phaseOf(falconv1.PausePhase_PAUSE_PHASE_ARM), r)
}

func (s *script) test(node falcon.Node, f []string) {
	say := map[string]string{}
	for _, kv := range f {
		k, v, _ := strings.Cut(kv, "=")
		say[k] = v
	}
	s.reply(
		node,
		func(c Command) bool { return c.Test != nil },
		s.results(node, say),
	)
}

func (s *script) results(node falcon.Node, say map[string]string) *falconv1.CommandResult {
	r := done0()
	for _, c := range slices.Backward(s.sent[node]) {
		if c.Test == nil {
			continue
		}
		for _, x := range c.Test.GetTests() {
			out := &falconv1.TestResult{
				Test:     c.Test.GetTest(),
				Rank:     x.GetRank(),
				Kind:     x.GetKind(),
				Status:   falconv1.TestStatus_TEST_STATUS_DONE,
				MedianMs: 2,
				Bytes:    x.GetBytes() * int64(max(1, x.GetN())),
			}
			switch v := say[fmt.Sprint(x.GetRank())]; {
			case v == "failed":
				out.Status = falconv1.TestStatus_TEST_STATUS_FAILED
				out.Reason = "a call returned an error"
			case v == "none":
				continue
			case v != "": // of one message
				out.MedianMs, _ = strconv.ParseFloat(v, 64)
				if x.GetKind() == falconv1.TestKind_TEST_KIND_LINK {
					out.MedianMs *= float64(max(1, x.GetN()))
				}
			}
			if x.GetKind() == falconv1.TestKind_TEST_KIND_ID {
				out.ForwardId = bytes.Repeat([]byte{1}, idBytes)
				out.BackwardId = bytes.Repeat([]byte{2}, idBytes)
			}
			r.Tests = append(r.Tests, out)
		}
		return r
	}
	return r
}

// drain prints what the machine wants, and has it done.
func (s *script) drain() string {
	r := s.m.Ready()
	s.m.Advance()
	out := ""
	for _, n := range r.Notes {
		out += fmt.Sprintf("note %d: %s\n", n.Severity, n.Text)
	}
	if r.Persist != nil {
		persisted := fmt.Sprintf("persist %s pause %d over %v\n", r.Persist.State, r.Pause, r.Over)
		out += persisted
		s.did = append(s.did, persisted)
	}
	for _, c := range r.Commands {
		s.sent[c.Node] = append(s.sent[c.Node], c)
	}
	commands := s.commands(r.Commands)
	out += commands
	s.did = append(s.did, commands)
	if v, _ := s.m.View(); s.m.Active() {
		out += fmt.Sprintf("%s\n", v.State)
	}
	return out
}

func (s *script) commands(list []Command) string {
	out := ""
	for _, c := range list {
		out += fmt.Sprintf("%s #%d within %s: ", c.Node, c.ID, c.Deadline.Sub(s.now))
		if c.Test != nil {
			out += fmt.Sprintf("test %d in pause %d:", c.Test.GetTest(), c.Test.GetPause())
			for _, t := range c.Test.GetTests() {
				out += " " + testText(t)
			}
		} else {
			out += fmt.Sprintf("%s pause %d",
				strings.TrimPrefix(c.Pause.GetPhase().String(), "PAUSE_PHASE_"),
				c.Pause.GetPause())
			for _, cut := range c.Pause.GetCuts() {
				out += fmt.Sprintf(" rank %d@%d", cut.GetRank(), cut.GetIteration())
				for _, l := range cut.GetLimits() {
					out += fmt.Sprintf(" %d:%d", l.GetComm(), l.GetCalls())
				}
			}
		}
		out += "\n"
	}
	return out
}

func testText(t *falconv1.RankTest) string {
	s := fmt.Sprintf("[rank %d %s ×%d",
		t.GetRank(), strings.TrimPrefix(t.GetKind().String(), "TEST_KIND_"), t.GetRepeats())
	if t.GetN() > 0 {
		s += fmt.Sprintf(" n %d", t.GetN())
	}
	if t.GetBytes() > 0 {
		s += fmt.Sprintf(" %d bytes side %d ids %d,%d",
			t.GetBytes(), t.GetSide(), len(t.GetForwardId()), len(t.GetBackwardId()))
	}
	return s + "]"
}

func (s *script) show() string {
	v, _ := s.m.View()
	out := fmt.Sprintf(
		"%s at %d: passes %d of %d (%d extra), paused %.0f ms, quiet %.0f ms, attempts %d, reason %q\n",
		v.State, v.Iteration, v.PassesDone, v.Passes, v.ExtraPasses, v.PausedMs, v.QuietMs,
		v.Attempts, v.Reason,
	)
	for _, g := range v.GEMM {
		out += fmt.Sprintf("  %s %.1f ms of %.1f slow %v%s %s%s\n",
			g.Device, g.Ms, g.MedianMs, g.Slow, reference(g.Reference), g.Unjudged, g.Err)
	}
	for _, l := range v.Links {
		out += fmt.Sprintf("  pass %d %s→%s %s %.1f ms of %.1f (%s) slow %v%s %s%s\n",
			l.Pass, l.FromDevice, l.ToDevice, l.Class, l.Ms, l.BaseMs, l.Basis, l.Slow,
			reference(l.Reference), l.Unjudged, l.Err)
	}
	return out
}

func reference(is bool) string {
	if is {
		return " (reference)"
	}
	return ""
}
