package agent

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const (
	survey1 = falconv1.PausePhase_PAUSE_PHASE_SURVEY
	arm1    = falconv1.PausePhase_PAUSE_PHASE_ARM
	resume1 = falconv1.PausePhase_PAUSE_PHASE_RESUME
)

func pauseCommand(id, pause uint64, phase falconv1.PausePhase, ranks ...int32) *falconv1.Command {
	body := &falconv1.PauseCommand{
		Pause:  pause,
		Phase:  phase,
		LifeMs: 4000,
	}
	for _, r := range ranks {
		body.Cuts = append(body.Cuts, &falconv1.RankCut{
			Rank:      r,
			Iteration: 9,
			Limits:    []*falconv1.CommLimit{{Comm: 77, Calls: 40}},
		})
	}
	return &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(2 * time.Second).UnixNano(),
		Body:           &falconv1.Command_Pause{Pause: body},
	}
}

func testCommand(id, pause, test uint64, tests ...*falconv1.RankTest) *falconv1.Command {
	return &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(2 * time.Second).UnixNano(),
		Body: &falconv1.Command_Test{Test: &falconv1.TestCommand{
			Pause: pause,
			Test:  test,
			Tests: tests,
		}},
	}
}

// of picks one command's results.
func (n *node) of(id uint64) []*falconv1.CommandResult {
	var out []*falconv1.CommandResult
	for _, r := range n.ship.results() {
		if r.Id == id {
			out = append(out, r)
		}
	}
	return out
}

func (n *node) last(t *testing.T, id uint64, want falconv1.CommandStatus) *falconv1.CommandResult {
	t.Helper()
	got := n.of(id)
	if len(got) == 0 || got[len(got)-1].Status != want {
		t.Fatalf("command %d: %v, want %v at the end", id, got, want)
	}
	return got[len(got)-1]
}

// two puts ranks 0 and 1 on the node.
func (n *node) two() (a, b *fakeSegment) {
	a, b = n.dir.add(100, 0, "n1.g0"), n.dir.add(101, 1, "n1.g1")
	wait(time.Second)
	return a, b
}

func TestSurveyCommand(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		run(s, 0, 6, 4, 15, 30, 60)
		s.set(func() { s.comms[0].Calls, s.comms[1].Calls = 18, 48 })
		s.mark(6, 7000)
		n.Command(pauseCommand(1, 5, survey1))
		wait(time.Millisecond)
		p := n.last(t, 1, done).Pauses
		if len(p) != 1 ||
			p[0].Rank != 2 ||
			p[0].State != falconv1.PauseState_PAUSE_STATE_RUNNING ||
			p[0].Newest != 6 ||
			p[0].Boundary != 6 ||
			!p[0].Exact {
			t.Fatalf("survey %v", p)
		}
		for i, want := range []*falconv1.CommCount{
			{Comm: 77, Calls: 18, PerIteration: 3, Collectives: 18},
			{Comm: 88, Calls: 48, PerIteration: 8},
		} {
			c := p[0].Counts[i]
			if c.Comm != want.Comm ||
				c.Calls != want.Calls ||
				c.PerIteration != want.PerIteration ||
				c.Collectives != want.Collectives ||
				!c.Steady ||
				!c.Whole {
				t.Errorf("count %v, want %v", c, want)
			}
		}
		if s.cuts != nil || s.pause.Wanted != 0 {
			t.Error("a survey held something")
		}
	})
}

// Without marks the boundary is the anchor call that closed the last iteration.
func TestSurveyOfInferredIterations(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 1, "")
		feed(s, 0, 30, 4, func(int) float64 { return 100 })
		s.set(func() { s.comms[0].Calls, s.comms[1].Calls = 30, 240 })
		wait(time.Second)
		n.Command(pauseCommand(1, 5, survey1))
		wait(time.Millisecond)
		p := n.last(t, 1, done).Pauses[0]
		if p.Exact ||
			len(p.Counts) != 2 ||
			p.Newest != p.Boundary ||
			math.Abs(p.IterationMs-100) > 1e-6 {
			t.Fatalf("survey %v", p)
		}
		// The anchor is the all-reduce: the 30th one closes an iteration before it counts.
		c := p.Counts
		if c[0].Calls != 29 ||
			c[0].PerIteration != 1 ||
			c[1].Calls != 240 ||
			c[1].PerIteration != 8 ||
			!c[1].Steady ||
			!c[1].Whole {
			t.Fatalf("counts %v", c)
		}
	})
}

// Only a rank that marks its steps can hold its hook to the boundary.
func TestArmTellsTheBoundaryToMarkedRanks(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		b.mark(7, 2000)
		wait(time.Second)
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		if a.pause.Wanted != 5 ||
			b.pause.Wanted != 5 ||
			a.boundary != -1 ||
			b.boundary != 9 {
			t.Fatalf("orders %d %d, boundaries %d %d",
				a.pause.Wanted, b.pause.Wanted, a.boundary, b.boundary)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		if a.pause.Wanted != 5 ||
			len(a.cuts) != 1 ||
			a.cuts[0] != (ring.Cut{Comm: 77, Calls: 40}) ||
			b.pause.Wanted != 5 {
			t.Fatalf("cuts %v, order %d %d", a.cuts, a.pause.Wanted, b.pause.Wanted)
		}
		for _, s := range []*fakeSegment{a, b} {
			s.hold(ring.PauseArmed)
			s.hold(ring.PauseReached)
			wait(3 * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		a.hold(ring.PauseQuiet)
		wait(3 * time.Millisecond)
		announced := len(n.of(1))
		wait(500 * time.Millisecond) // nothing changes: nothing is said
		if len(n.of(1)) != announced || announced > 8 {
			t.Fatalf("%d results, then %d", announced, len(n.of(1)))
		}
		if p := n.last(t, 1, accepted).Pauses; p[0].State != falconv1.PauseState_PAUSE_STATE_QUIET ||
			p[1].State != falconv1.PauseState_PAUSE_STATE_REACHED ||
			p[0].QuietMs < 20 ||
			p[0].QuietMs > 40 {
			t.Fatalf("pauses %v", p)
		}
		n.Command(pauseCommand(2, 5, resume1))
		wait(5 * time.Millisecond)
		for _, id := range []uint64{1, 2} {
			p := n.last(t, id, done).Pauses
			if len(p) != 2 ||
				p[0].State != falconv1.PauseState_PAUSE_STATE_RELEASED ||
				p[0].HeldMs < 500 ||
				p[0].HeldMs > 600 {
				t.Fatalf("command %d ended with %v", id, p)
			}
		}
		n.Command(pauseCommand(3, 6, arm1, 0, 1)) // and another may come
		wait(time.Millisecond)
		n.last(t, 3, accepted)
		if a.pause.Wanted != 6 {
			t.Fatalf("order %d", a.pause.Wanted)
		}
	})
}

// A rank that comes and goes at its cut does not flood the engine.
func TestReportsAreBounded(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.Command(pauseCommand(1, 5, arm1, 0))
		wait(time.Millisecond)
		for range 100 {
			s.hold(ring.PauseReached)
			wait(time.Millisecond)
			s.hold(ring.PauseArmed)
			wait(time.Millisecond)
		}
		s.hold(ring.PauseQuiet)
		wait(reportEvery + heldPollEvery)
		got := n.of(1)
		if len(got) > 50 ||
			n.last(t, 1, accepted).Pauses[0].State != falconv1.PauseState_PAUSE_STATE_QUIET {
			t.Fatalf("%d results, the last %v", len(got), got[len(got)-1])
		}
	})
}

// One missed cut, and nothing on this node is held.
func TestMissedCutTakesAllBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		b.set(func() {
			b.armErr = errors.Join(ring.ErrPause, ring.ErrMissed)
		})
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		r := n.last(t, 1, refused)
		if !strings.Contains(r.Detail, "rank 1") ||
			!strings.Contains(r.Detail, "missed") ||
			a.pause.Wanted != 0 {
			t.Fatalf("%v, rank 0's order %d", r, a.pause.Wanted)
		} else if p := r.Pauses; len(p) != 1 ||
			p[0].Rank != 1 ||
			p[0].ReasonCode != falconv1.PauseReason_PAUSE_REASON_MISSED {
			t.Errorf("the refusal says %v", p)
		}
		b.set(func() { b.armErr = nil })
		n.Command(pauseCommand(2, 5, arm1, 0, 1))
		wait(time.Millisecond)
		n.last(t, 2, accepted)
	})
}

// A hook that refuses later takes the others with it.
func TestRefusalOfAHookTakesAllBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		a.hold(ring.PauseQuiet)
		wait(time.Millisecond)
		b.set(func() {
			b.pause.Seen = 5
			b.pause.State = ring.PauseRefused
			b.pause.Reason = 1
		})
		wait(5 * time.Millisecond)
		r := n.last(t, 1, refused)
		if !strings.Contains(r.Detail, "graph") ||
			len(r.Pauses) != 2 ||
			r.Pauses[0].State != falconv1.PauseState_PAUSE_STATE_RELEASED ||
			a.pause.Wanted != 0 {
			t.Fatalf("%v", r)
		}
		if r.Pauses[1].ReasonCode != falconv1.PauseReason_PAUSE_REASON_CAPTURE ||
			r.Pauses[0].ReasonCode != 0 {
			t.Errorf("codes %v", r.Pauses)
		}
	})
}

// A hook that does not even take up the order holds nobody, and nobody waits
// for it to the deadline.
func TestDeafHookRefuses(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		a.hold(ring.PauseQuiet)
		wait(takeUpWait + 100*time.Millisecond)
		r := n.last(t, 1, refused)
		if !strings.Contains(r.Detail, "rank 1") ||
			!strings.Contains(r.Detail, "does not take up") ||
			a.pause.Wanted != 0 ||
			b.pause.Wanted != 0 ||
			r.Pauses[1].ReasonCode != falconv1.PauseReason_PAUSE_REASON_NOT_TAKEN_UP {
			t.Fatalf("%v", r)
		}
	})
}

func TestPauseRefusals(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.Command(pauseCommand(1, 5, arm1, 0))
		wait(time.Millisecond)
		n.last(t, 1, refused)
		a, _ := n.two()
		for id, c := range map[uint64]struct {
			cmd *falconv1.Command
			say string
		}{
			2: {pauseCommand(2, 5, arm1, 0), "rank 1 (pid 101) has 0 cuts"},
			3: {pauseCommand(3, 5, arm1, 0, 1, 7), "cuts for 3 ranks, 2 are here"},
			4: {pauseCommand(4, 5, arm1, 0, 0, 1), "rank 0 (pid 100) has 2 cuts"},
			5: {pauseCommand(5, 5, 9, 0, 1), "phase"},
			6: {testCommand(6, 5, 1, &falconv1.RankTest{}), "not in force"},
		} {
			n.Command(c.cmd)
			wait(time.Millisecond)
			if r := n.last(t, id, refused); !strings.Contains(r.Detail, c.say) {
				t.Errorf("command %d: %q lacks %q", id, r.Detail, c.say)
			}
		}
		if a.pause.Wanted != 0 {
			t.Fatal("a refused order is in force")
		}
		n.Command(pauseCommand(10, 5, arm1, 0, 1))
		n.Command(pauseCommand(11, 6, arm1, 0, 1))
		n.Command(pauseCommand(12, 6, resume1))
		n.Command(profileCommand(13, 3))
		wait(time.Millisecond)
		for id, say := range map[uint64]string{
			11: "already: number 5",
			12: "pause 6 is not in force here, 5 is",
			13: "already",
		} {
			if r := n.last(t, id, refused); !strings.Contains(r.Detail, say) {
				t.Errorf("command %d: %q lacks %q", id, r.Detail, say)
			}
		}
		n.last(t, 10, accepted)
	})
}

// Nobody resumes: the hooks let go at the deadline, long after the command's
// own, and the agent says so. One hook that says nothing does not block it.
func TestPauseExpires(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		a.hold(ring.PauseQuiet)
		b.hold(ring.PauseArmed)
		wait(4 * time.Second)
		a.hold(ring.PauseExpired)
		wait(overdueWait + 100*time.Millisecond)
		p := n.last(t, 1, done).Pauses
		if p[0].State != falconv1.PauseState_PAUSE_STATE_EXPIRED ||
			p[0].HeldMs < 3900 ||
			p[1].Reason == "" ||
			b.pause.Wanted != 0 ||
			n.held != nil {
			t.Fatalf("%v", p)
		}
	})
}

// A rank that dies in a pause does not keep it open, and the agent's own end
// releases.
func TestPauseOfADyingRankAndAnEndingAgent(t *testing.T) {
	var left *fakeSegment
	onNode(t, func(t *testing.T, n *node) {
		a, _ := n.two()
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		a.hold(ring.PauseQuiet)
		n.dir.exits[101].die("killed by signal 9 (SIGKILL)")
		wait(100 * time.Millisecond)
		p := n.last(t, 1, accepted).Pauses
		if p[1].State != falconv1.PauseState_PAUSE_STATE_RELEASED ||
			p[1].Reason == "" ||
			p[0].State != falconv1.PauseState_PAUSE_STATE_QUIET {
			t.Fatalf("%v", p)
		}
		left = a
	})
	if left.pause.Wanted != 0 || left.pause.State != ring.PauseReleased {
		t.Errorf("the agent ended and left %+v", left.pause)
	}
}

func TestAKilledAgentsPauseIsTakenBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.set(func() {
			s.pause = ring.Pause{
				Wanted:    3,
				Seen:      3,
				State:     ring.PauseQuiet,
				TrappedNs: 5,
			}
		})
		wait(time.Second)
		if s.pause.Wanted != 0 {
			t.Fatal("the pause of the last agent is still in force")
		}
		n.Command(pauseCommand(1, 3, arm1, 0)) // its number was used here already
		wait(time.Millisecond)
		if s.pause.Wanted != 4 {
			t.Fatalf("order %d", s.pause.Wanted)
		}
		n.Command(pauseCommand(2, 9, resume1))
		wait(time.Millisecond)
		n.last(t, 2, refused)
	})
}

func TestActiveTests(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.two()
		n.Command(pauseCommand(1, 5, arm1, 0, 1))
		wait(time.Millisecond)
		a.hold(ring.PauseQuiet)
		b.hold(ring.PauseReached)
		wait(5 * time.Millisecond)
		gemm := func(rank int32) *falconv1.RankTest {
			return &falconv1.RankTest{
				Rank:    rank,
				Kind:    falconv1.TestKind_TEST_KIND_GEMM,
				Repeats: 5,
				N:       512,
				LifeMs:  1000,
			}
		}
		n.Command(testCommand(2, 5, 21, gemm(0), gemm(1), gemm(7)))
		wait(time.Millisecond)
		if len(a.tests) != 1 ||
			a.tests[0].ID != 21 ||
			a.tests[0].N != 512 ||
			a.tests[0].UntilNs > time.Now().Add(time.Second).UnixNano() ||
			len(b.tests) != 0 {
			t.Fatalf("mailboxes %v %v", a.tests, b.tests)
		}
		a.set(func() {
			a.result = ring.TestResult{
				ID:       21,
				Kind:     ring.TestGEMM,
				Status:   ring.TestDone,
				Repeats:  5,
				MedianNs: 2e6,
				BestNs:   1e6,
				SetupNs:  3e6,
			}
		})
		wait(3 * time.Millisecond)
		got := map[int32]*falconv1.TestResult{}
		for _, r := range n.last(t, 2, done).Tests {
			got[r.Rank] = r
		}
		if r := got[0]; r.Status != falconv1.TestStatus_TEST_STATUS_DONE ||
			r.MedianMs != 2 ||
			r.BestMs != 1 ||
			r.SetupMs != 3 ||
			r.Repeats != 5 ||
			r.Test != 21 ||
			r.Kind != falconv1.TestKind_TEST_KIND_GEMM {
			t.Errorf("rank 0: %v", r)
		}
		if got[1].Reason != "this rank is not quiet" ||
			got[7].Reason != "this rank is not held here" ||
			got[7].Status != falconv1.TestStatus_TEST_STATUS_REFUSED {
			t.Errorf("ranks 1 and 7: %v", got)
		}
	})
}

// A link test's ids travel both ways; a hook that stays silent is late, long
// after the command's own deadline; an answer of another kind is a failure.
func TestLinkTestsAndSilence(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.Command(pauseCommand(1, 5, arm1, 0))
		wait(time.Millisecond)
		a.hold(ring.PauseQuiet)
		wait(5 * time.Millisecond)
		id := func(b byte) []byte {
			return bytes.Repeat([]byte{b}, ring.UniqueIDBytes)
		}
		n.Command(testCommand(2, 5, 1, &falconv1.RankTest{Kind: falconv1.TestKind_TEST_KIND_ID}))
		wait(time.Millisecond)
		a.set(func() {
			a.result = ring.TestResult{
				ID:     1,
				Kind:   ring.TestMint,
				Status: ring.TestDone,
				IDs:    [2][]byte{id(1), id(2)},
			}
		})
		wait(3 * time.Millisecond)
		minted := n.last(t, 2, done).Tests[0]
		n.Command(testCommand(3, 5, 2, &falconv1.RankTest{
			Kind:       falconv1.TestKind_TEST_KIND_LINK,
			Repeats:    3,
			Bytes:      1 << 20,
			Side:       1,
			ForwardId:  minted.ForwardId,
			BackwardId: minted.BackwardId,
			LifeMs:     2500,
		}))
		wait(time.Millisecond)
		x := a.tests[1]
		if x.Side != 1 ||
			x.Bytes != 1<<20 ||
			!bytes.Equal(x.IDs[0], id(1)) ||
			!bytes.Equal(x.IDs[1], id(2)) {
			t.Fatalf("mailbox %v", x)
		}
		wait(2500*time.Millisecond + testWait)
		r := n.last(t, 3, done).Tests[0]
		if r.Status != falconv1.TestStatus_TEST_STATUS_LATE || r.Reason == "" {
			t.Fatalf("%v", r)
		}
	})
}

// The hook's reasons keep their numbers on the wire; what it has no name for,
// and what only agents say, is no reason that a decision may rest on.
func TestReasonCodes(t *testing.T) {
	for in, want := range map[ring.PauseReason]falconv1.PauseReason{
		0:              falconv1.PauseReason_PAUSE_REASON_UNSPECIFIED,
		1:              falconv1.PauseReason_PAUSE_REASON_CAPTURE,
		2:              falconv1.PauseReason_PAUSE_REASON_GROUP,
		3:              falconv1.PauseReason_PAUSE_REASON_ABORTED,
		4:              falconv1.PauseReason_PAUSE_REASON_NO_CUDA,
		5:              falconv1.PauseReason_PAUSE_REASON_LATE,
		9:              falconv1.PauseReason_PAUSE_REASON_FAILED,
		10:             falconv1.PauseReason_PAUSE_REASON_UNEVEN,
		11:             falconv1.PauseReason_PAUSE_REASON_ENVIRONMENT,
		12:             0,
		16:             0,
		17:             0,
		math.MaxUint32: 0,
	} {
		if got := reasonCode(in); got != want {
			t.Errorf("reason %d is reported as %v, want %v", in, got, want)
		}
	}
}
