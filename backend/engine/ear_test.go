package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/learn"
	"github.com/failslow/falcon/recovery"
)

// heeds records what the recovery machine is sent.
type heeds struct {
	asleep
	in []recovery.Input
}

func (h *heeds) Step(_ time.Time, in recovery.Input) {
	h.in = append(h.in, in)
}

// listener is an engine whose recovery machine only records.
func listener(t *testing.T) (*Engine, *heeds) {
	t.Helper()
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	h := &heeds{}
	e, err := New(Config{
		Journal:   j,
		Recoverer: h,
		Now:       func() time.Time { return t0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.learnNothing(t0)
	return e, h
}

// learnNothing has an engine act at once.
func (e *Engine) learnNothing(now time.Time) {
	e.learner.machine.Attach(now, "none", learn.Report{})
	e.learner.machine.Agree()
	e.learner.learnsOn(now)
}

func count[T recovery.Input](h *heeds) (n int) {
	for _, in := range h.in {
		if _, is := in.(T); is {
			n++
		}
	}
	return n
}

// lines are the texts that wait for the journal.
func (e *Engine) lines(t *testing.T) string {
	t.Helper()
	if err := e.settleMachines(t0); err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, l := range e.state.events {
		out += fmt.Sprintf("%d %s\n", l.GetSeverity(), l.GetText())
	}
	return out
}

func goodbye() *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Goodbye{Goodbye: &falconv1.Goodbye{Reason: "stopping"}},
	}
}

func beatAt(at time.Time) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{AtUnixNs: at.UnixNano()}},
	}
}

// How a stream ended is distinguished, and only a goodbye is no warning.
func TestEndsOfStreams(t *testing.T) {
	cases := []struct {
		name    string
		goodbye bool
		cause   error
		after   time.Duration
		want    recovery.How
		line    string
	}{
		{"goodbye", true, io.EOF, 0, recovery.Goodbye, "0 the agent of node n0 stopped in order"},
		{
			"reset",
			false,
			status.Error(codes.Unavailable, "connection reset"),
			time.Second,
			recovery.Reset,
			"2 the agent of node n0 is gone",
		},
		{"end of stream", false, io.EOF, time.Second, recovery.Reset, "2 the agent of node n0 is gone"},
		{
			"silent before",
			false,
			io.EOF,
			5 * time.Second,
			recovery.TimedOut,
			"2 the agent of node n0 is gone",
		},
		{"ended here", false, fleet.ErrSlow, 0, recovery.Closed, "2 the agent of node n0 is gone"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, h := listener(t)
			s := fleet.NewSession(context.Background(), hello("n0").GetHello())
			e.handleArrival(arrival{session: s, what: arriveAttach}, t0)
			e.handleArrival(arrival{session: s, what: arriveFrame, frame: beatAt(t0)}, t0)
			if c.goodbye {
				e.handleArrival(arrival{session: s, what: arriveFrame, frame: goodbye()}, t0)
			}
			s.End(c.cause)
			e.handleArrival(arrival{session: s, what: arriveDetach}, t0.Add(c.after))
			last, is := h.in[len(h.in)-1].(recovery.Node)
			if !is || last.Alive || last.How != c.want {
				t.Errorf("the machine gets %+v, wants how %d", h.in[len(h.in)-1], c.want)
			}
			if text := e.lines(t); !strings.Contains(text, c.line) {
				t.Errorf("no line %q in:\n%s", c.line, text)
			}
		})
	}
}

// A goodbye is of one stream: the next one must say its own.
func TestGoodbyeEndsWithItsStream(t *testing.T) {
	e, h := listener(t)
	for _, says := range []bool{true, false} {
		s := fleet.NewSession(context.Background(), hello("n0").GetHello())
		e.handleArrival(arrival{session: s, what: arriveAttach}, t0)
		if says {
			e.handleArrival(arrival{session: s, what: arriveFrame, frame: goodbye()}, t0)
		}
		s.End(errors.New("broken"))
		e.handleArrival(arrival{session: s, what: arriveDetach}, t0)
	}
	last := h.in[len(h.in)-1].(recovery.Node)
	if last.How == recovery.Goodbye {
		t.Error("the second stream ended without a goodbye and is reported as one")
	}
}

// An engine that takes frames long after they came, or ticks late, says so to the
// machine, and not more often than it ticks.
func TestEngineKnowsThatItIsLate(t *testing.T) {
	e, h := listener(t)
	s := fleet.NewSession(context.Background(), hello("n0").GetHello())
	e.handleArrival(arrival{session: s, what: arriveAttach, at: t0}, t0.Add(400*time.Millisecond))
	e.onTick(t0.Add(time.Second))
	e.onTick(t0.Add(2 * time.Second))
	if n := count[recovery.Late](h); n != 0 {
		t.Fatalf("late %d times, and it was in time", n)
	}
	at := t0.Add(3 * time.Second)
	for range 10 {
		e.handleArrival(
			arrival{
				session: s,
				what:    arriveFrame,
				frame:   beatAt(t0),
				at:      at.Add(-600 * time.Millisecond),
			},
			at,
		)
	}
	if n := count[recovery.Late](h); n != 1 {
		t.Errorf("ten late frames of one moment are reported %d times", n)
	}
	e.onTick(at)
	e.onTick(at.Add(time.Second))
	e.onTick(at.Add(3 * time.Second))
	if n := count[recovery.Late](h); n != 2 {
		t.Errorf("late %d times after a late tick, wants 2", n)
	}
}

// A clock that differs is logged once, and once when it agrees again.
func TestSkewIsMeasured(t *testing.T) {
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		e, _ := listener(t)
		s := fleet.NewSession(context.Background(), hello("n0").GetHello())
		e.handleArrival(arrival{session: s, what: arriveAttach}, t0)
		say := func(skew, travels time.Duration) {
			e.handleArrival(
				arrival{
					session: s,
					what:    arriveFrame,
					frame:   beatAt(t0.Add(skew)),
					at:      t0.Add(travels),
				},
				t0.Add(travels),
			)
		}
		for range 3 { // beats that were held on their way are no skew
			say(0, 3*time.Second)
			say(0, 0)
		}
		if text := e.lines(t); strings.Contains(text, "clock") {
			t.Fatalf("logged a skew: %s", text)
		}
		for range 10 {
			say(ahead, 0)
		}
		if got := e.views.nodeViews(t0)[0].GetSkewMs(); got != float64(ahead.Milliseconds()) {
			t.Errorf("the console shows %v ms, wants %v", got, ahead)
		}
		for range 10 {
			say(0, 0)
		}
		text := e.lines(t)
		if strings.Count(text, "1 the clock of node n0 is 600.0 s") != 1 ||
			strings.Count(text, "agrees with the engine's again") != 1 {
			t.Errorf("the lines are:\n%s", text)
		}
		if got := e.views.nodeViews(t0)[0].GetSkewMs(); got != 0 {
			t.Errorf("the console still shows %v ms", got)
		}
	}
}

// What a rank waits for comes to the machine, and nothing wild does.
func TestBeatsSayWhatRanksWaitFor(t *testing.T) {
	e, h := listener(t)
	s := fleet.NewSession(context.Background(), hello("n0").GetHello())
	e.handleArrival(arrival{session: s, what: arriveAttach}, t0)
	j := newFakeJob(t)
	e.handleArrival(arrival{session: s, what: arriveFrame, frame: j.rankState("n0", 1)}, t0)
	for _, ms := range []float64{2500, -1, 1e300} {
		f := &falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{Ranks: []*falconv1.RankBeat{
				{
					Rank:         1,
					Pid:          j.pidOf("n0", 1),
					Iteration:    3,
					StepTag:      3,
					Calls:        77,
					WaitingMs:    ms,
					WaitingKnown: true,
				},
			}}},
		}
		e.handleArrival(arrival{session: s, what: arriveFrame, frame: f}, t0)
	}
	var got []float64
	for _, in := range h.in {
		if b, is := in.(recovery.Beat); is {
			got = append(got, b.WaitingMs)
			if b.Calls != 77 || !b.WaitingKnown {
				t.Errorf("beat %+v", b)
			}
		}
	}
	if len(got) != 3 || got[0] != 2500 || got[1] < 0 || got[2] > msMost {
		t.Errorf("ranks wait for %v ms", got)
	}
}

// harm is a bench with the real machine, whose job must be left alone.
func harm(t *testing.T) *bench {
	b := newBench(t)
	recoverBench(b)
	b.each = func(*bench) {}
	b.start()
	b.playTurns(30)
	return b
}

func (b *bench) unharmed() {
	b.t.Helper()
	if list := b.recoveries(); len(list) > 0 {
		b.t.Errorf("a job that trains is recovered: %+v", list)
	}
	b.inLoop(func() {
		if n := len(b.engine.state.fences.nodes); n > 0 {
			b.t.Errorf("%d nodes are fenced", n)
		}
	})
	if err := b.halt(); err != nil {
		b.t.Error(err)
	}
}

// Agents that stop in order, or whose streams break, cost a job nothing: one, or
// all of them, for long.
func TestAgentsThatAreAwayHarmNobody(t *testing.T) {
	for _, says := range []bool{true, false} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("goodbye=%v all=%v", says, all), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := harm(t)
					away := b.job.agents[1:2]
					if all {
						away = b.job.agents
					}
					for _, a := range away {
						if says {
							a.stream.in <- goodbye()
						}
						synctest.Wait()
						a.leave()
					}
					b.playTurns(120)
					for i, a := range away {
						b.attach(a)
						b.playTurns(20 + i)
					}
					b.playTurns(100)
					b.unharmed()
				})
			})
		}
	}
}

// All ranks pause while an agent can't be reached: the stall says nothing of its
// node.
func TestPauseOfAllHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := harm(t)
		b.job.agents[1].leave()
		b.job.pauses = true
		b.playTurns(120)
		b.job.pauses = false
		b.playTurns(50)
		b.attach(b.job.agents[1])
		b.playTurns(100)
		b.unharmed()
	})
}

// A job that has ended with success stays so, no matter who saw it and when the
// engine starts.
func TestFinishedJobStaysFinished(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts=%v", restarts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := harm(t)
				n0, n1 := b.job.agents[0], b.job.agents[1]
				n0.crash(0, b.job, falconv1.ExitedNormally)
				n1.crash(2, b.job, "")
				b.playTurns(5)
				if restarts {
					if err := b.halt(); err != nil {
						t.Fatal(err)
					}
					b.start()
					b.playTurns(50)
				}
				n1.crash(3, b.job, "")
				b.playTurns(3)
				n0.crash(1, b.job, falconv1.ExitedInOrder)
				b.playTurns(400)
				if list := b.recoveries(); len(list) > 0 {
					t.Fatalf("a finished job is recovered: %+v", list)
				}
				_, err := b.engine.Recover(context.Background(), tester, &falconv1.RecoverRequest{
					Verb:   "fence",
					Node:   "n1",
					Rank:   -1,
					Reason: "test",
				})
				if err == nil || !strings.Contains(err.Error(), "the job has finished") {
					t.Errorf("a demand for a finished job: %v", err)
				}
				b.inLoop(func() {
					got := slices.Sorted(slices.Values(b.engine.state.ended.ranksOf(1)))
					if !slices.Equal(got, []falcon.Rank{0, 1, 2, 3}) {
						t.Errorf("the journal has the ends of %v", got)
					}
				})
				b.unharmed()
			})
		})
	}
}

// All agents restart in the middle of a recovery: it waits for them, and succeeds
// with every node.
func TestAllAgentsRestartInARecovery(t *testing.T) {
	for _, says := range []bool{true, false} {
		for _, turns := range []int{20, 120, 700} {
			t.Run(fmt.Sprintf("goodbye=%v turns=%d", says, turns), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := harm(t)
					b.job.agents[1].crash(2, b.job, "killed by signal 9")
					synctest.Wait()
					for _, a := range b.job.agents {
						if says {
							a.stream.in <- goodbye()
						}
						synctest.Wait()
						a.leave()
					}
					b.playTurns(turns)
					for _, a := range b.job.agents {
						b.attach(a)
						b.playTurns(15)
					}
					b.playTurns(300)
					list := b.recoveries()
					if len(list) != 1 ||
						list[0].State != falcon.RecoveryResumed ||
						len(list[0].Fenced) > 0 ||
						list[0].Whole {
						t.Errorf("recoveries %+v", list)
					}
					b.onceEach()
					if err := b.halt(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
