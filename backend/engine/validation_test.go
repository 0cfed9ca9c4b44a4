package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// inBubble plays a story on a fresh bench and stops the engine behind it.
func inBubble(t *testing.T, story func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		story(b)
		if !b.halted {
			if err := b.halt(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func (b *bench) until(iteration int64) {
	for b.job.iteration < iteration {
		b.turn()
	}
}

func (b *bench) validate(q *falconv1.ValidateRequest) (*falconv1.Validation, error) {
	return b.engine.Validate(context.Background(), tester, q)
}

// newest is the validation that consoles are shown.
func (b *bench) newest() *falconv1.Validation {
	time.Sleep(time.Second) // older pictures may be shown for so long
	s, err := b.engine.Latest(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return s.For(tester, nil).GetValidation()
}

// settleTests lets the validation in progress come to its end.
func (b *bench) settleTests() *falconv1.Validation {
	for range 20 {
		b.turn()
	}
	return b.newest()
}

// free fails while anything is held.
func (b *bench) free() {
	b.t.Helper()
	at := b.job.iteration
	b.turn()
	if b.job.iteration == at {
		b.t.Error("the job is still held")
	}
	for _, a := range b.job.agents {
		if a.hold.arm != nil {
			b.t.Errorf("agent %s still holds", a.node)
		}
	}
}

var allTests = &falconv1.ValidateRequest{
	Gemm:     true,
	LinkTest: true,
	Reason:   "try",
}

func TestValidationOnDemand(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		b.job.agents[1].hold.slow = map[int32]float64{2: 3}
		b.until(6)
		v, err := b.validate(allTests)
		if err != nil ||
			v.GetId() != "VAL-0001" ||
			v.GetBy() != "tester" ||
			v.GetState() != string(falcon.ValidationSurveying) {
			t.Fatalf("%v, %v", v, err)
		}
		if _, err := b.validate(allTests); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "VAL-0001 is in progress") {
			t.Errorf("a second one: %v", err)
		}
		v = b.settleTests()
		if v.GetState() != string(falcon.ValidationDone) ||
			v.GetPasses() != 3 ||
			v.GetExtraPasses() != 1 ||
			v.GetPassesDone() != 3 ||
			v.GetPausedMs() < healthyMs ||
			v.GetQuietMs() != 12 {
			t.Fatalf("%v", v)
		}
		if len(v.GetGemm()) != 4 || len(v.GetLinks()) != 8 {
			t.Fatalf("%d devices and %d directions", len(v.GetGemm()), len(v.GetLinks()))
		}
		for _, g := range v.GetGemm() {
			if g.GetSlow() != (g.GetRank() == 2) {
				t.Errorf("device %v", g)
			}
		}
		b.free()
		if n := len(b.det.tests); n != 1 || b.det.tests[0].ID != "VAL-0001" {
			t.Errorf("the detector was sent %v", b.det.tests)
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		rec := b.records()[kindValidation]
		if len(rec) != 3 { // begun, about to hold, over
			t.Errorf("%d records", len(rec))
		}
		body := string(rec[len(rec)-1].Body)
		if !strings.Contains(body, `"by":"tester"`) ||
			!strings.Contains(body, `"role":"approver"`) ||
			!strings.Contains(body, `"slow":true`) {
			t.Errorf("the last record is %s", body)
		}
	})
}

// Within one node there is no port to share, and a link's two ends are both
// directions. The rails of the only link can't clear each other, and accuse the one
// that is slower than they are.
func TestValidationOfALink(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		b.until(6)
		if _, err := b.validate(&falconv1.ValidateRequest{
			Links:    []string{"n1-n0"},
			LinkTest: true,
		}); err != nil {
			t.Fatal(err)
		}
		v := b.settleTests()
		if v.GetState() != string(falcon.ValidationDone) ||
			len(v.GetLinks()) != 4 ||
			v.GetExtraPasses() != 1 {
			t.Fatalf("%v", v)
		}
		for _, l := range v.GetLinks() {
			if l.GetLink() != "n0-n1" ||
				l.GetClass() != string(falcon.LinkSameRail) ||
				l.GetUnjudged() != falcon.NothingToCompare ||
				l.GetMs() != 2 {
				t.Errorf("%v", l)
			}
		}
		b.job.agents[0].hold.slow = map[int32]float64{0: 2}
		if _, err := b.validate(&falconv1.ValidateRequest{Links: []string{"n0-n1"}}); err != nil {
			t.Fatal(err)
		}
		for _, l := range b.settleTests().GetLinks() {
			if l.GetSlow() != (l.GetTo() == 0) || (l.GetUnjudged() == "") != l.GetSlow() {
				t.Errorf("the second time: %v", l)
			}
		}
	})
}

func gemmAsk() *falcon.ValidationAsk {
	return &falcon.ValidationAsk{
		By:   "engine",
		Why:  "which one?",
		GEMM: []falcon.Rank{0, 1, 2},
	}
}

func TestValidationByItself(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.tests, b.ask = Validation{Auto: true, GEMMSide: 128, CoolDown: 1000}, gemmAsk()
		b.start()
		b.until(12)
		if len(b.det.tests) != 1 ||
			b.det.tests[0].State != falcon.ValidationDone ||
			len(b.det.tests[0].GEMM) != 4 ||
			b.det.tests[0].Ask.GEMMSide != 128 {
			t.Fatalf("the detector was sent %+v", b.det.tests)
		}
		for _, a := range b.job.agents {
			if slices.Contains(a.hold.tests, falconv1.TestKind_TEST_KIND_LINK) {
				t.Error("links were tested that were not asked for")
			}
		}
		// Too soon for another: it waits a while and is then declined.
		b.det.ask = gemmAsk()
		b.until(b.job.iteration + int64(askPatience/(100*time.Millisecond)) + 2)
		n := len(b.det.tests)
		if n != 2 ||
			b.det.tests[1].State != falcon.ValidationRefused ||
			!strings.Contains(b.det.tests[1].Reason, "must lie between") {
			t.Errorf("the second: %+v", b.det.tests)
		}
	})
}

func TestAtMostSoManyByThemselvesAnHour(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.tests = Validation{Auto: true, PerHour: 2, CoolDown: 1}
		b.start()
		b.until(6)
		for range 3 {
			b.det.ask = gemmAsk()
			b.until(b.job.iteration + 12)
		}
		n := len(b.det.tests)
		if n != 3 ||
			b.det.tests[1].State != falcon.ValidationDone ||
			!strings.Contains(b.det.tests[2].Reason, "in the last hour") {
			t.Errorf("%+v", b.det.tests)
		}
	})
}

func TestManualValidationIsOnlyAdvised(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.ask = gemmAsk()
		b.start()
		b.until(12)
		n := len(b.det.tests)
		if n != 1 || b.det.tests[0].State != falcon.ValidationRefused {
			t.Errorf("the detector was sent %v", b.det.tests)
		}
		if len(b.job.agents[0].hold.phases) != 0 {
			t.Errorf("the agents were sent %v", b.job.agents[0].hold.phases)
		}
		if _, err := b.engine.Latest(context.Background()); err != nil {
			t.Fatal(err)
		}
		s, _ := b.engine.Latest(context.Background())
		if !slices.ContainsFunc(s.Reply.GetEvents(), func(e *falconv1.EventLine) bool {
			return e.GetKind() == "validation" &&
				strings.Contains(e.GetText(), "falcon validate --ranks 0,1,2 --gemm")
		}) {
			t.Errorf("no advice in %v", s.Reply.GetEvents())
		}
	})
}

func TestRefusedRequests(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		if _, err := b.validate(allTests); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "the engine has started") {
			t.Errorf("before the job: %v", err)
		}
		b.until(2)
		if _, err := b.validate(allTests); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "not steady") {
			t.Errorf("too early: %v", err)
		}
		b.until(6)
		for name, c := range map[string]struct {
			q    *falconv1.ValidateRequest
			want error
			say  string
		}{
			"nothing": {&falconv1.ValidateRequest{Ranks: []int32{1}}, ErrInvalid, "nothing to test"},
			"one end": {
				&falconv1.ValidateRequest{Ranks: []int32{1}, LinkTest: true},
				ErrInvalid,
				"two ends",
			},
			"no such rank": {
				&falconv1.ValidateRequest{Ranks: []int32{9}, Gemm: true},
				ErrInvalid,
				"rank 9 is none of the job's 4",
			},
			"no such node": {
				&falconv1.ValidateRequest{Links: []string{"n0-n7"}},
				ErrInvalid,
				"no rank of the job lives on node n7",
			},
			"no link": {
				&falconv1.ValidateRequest{Links: []string{"n0\x1b"}},
				ErrInvalid,
				"joined by a dash",
			},
			"huge matrix": {
				&falconv1.ValidateRequest{Gemm: true, GemmN: 1 << 30},
				ErrInvalid,
				"matrix side",
			},
			"huge message": {
				&falconv1.ValidateRequest{LinkTest: true, MessageBytes: -1},
				ErrInvalid,
				"bytes",
			},
			"no incident": {
				&falconv1.ValidateRequest{Gemm: true, Incident: "INC-0009"},
				ErrNotFound,
				"INC-0009",
			},
			"nothing to end": {&falconv1.ValidateRequest{Cancel: "VAL-0001"}, ErrNotFound, "VAL-0001"},
		} {
			_, err := b.validate(c.q)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.say)
			}
		}
	})
}

func TestObstaclesOfTheMoment(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b *bench)
		say   string
	}{
		"frozen": {func(b *bench) {
			_, err := b.engine.SetPolicy(context.Background(), tester, true, &falconv1.Policy{
				Mode:    "approve",
				Frozen:  true,
				Version: 1,
			})
			if err != nil {
				b.t.Fatal(err)
			}
		}, "frozen"},
		"unhooked": {func(b *bench) {
			b.rankWith(func(s *falconv1.RankState) { s.Unhooked = true })
		}, "rank 3 runs NCCL without the hook"},
		"plug-in": {func(b *bench) {
			b.rankWith(func(s *falconv1.RankState) { s.Bound = boundProfiler })
		}, "rank 3 is only watched, by NCCL's profiler plug-in"},
		"no workspace": {func(b *bench) {
			b.rankWith(func(s *falconv1.RankState) { s.TestWorkspace = 0 })
		}, "FALCON_TEST_MB"},
		"agent away": {func(b *bench) {
			b.job.agents[1].stream.cancel()
			b.job.agents[1].stream = nil
			synctest.Wait()
		}, "agent of node n1 is away"},
		"rank gone": {func(b *bench) {
			b.rankWith(func(s *falconv1.RankState) {
				s.Alive, s.Exit = false, "killed"
			})
		}, "lost"},
		"standstill": {func(*bench) {
			time.Sleep(time.Minute)
			synctest.Wait()
		}, "no iteration has ended for 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.start()
				b.until(6)
				c.spoil(b)
				v, err := b.validate(allTests)
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.say) {
					t.Errorf("%v, %v", v, err)
				}
			})
		})
	}
}

// rankWith has rank 3's agent say something else about it.
func (b *bench) rankWith(change func(*falconv1.RankState)) {
	f := b.job.rankState("n1", 3)
	change(f.GetRank())
	b.job.agents[1].send(f)
	synctest.Wait()
}

func TestNoConsistentBoundary(t *testing.T) {
	for name, c := range map[string]struct {
		wrong func(*falconv1.RankPause)
		say   string
	}{
		"unsteady": {func(p *falconv1.RankPause) {
			p.Counts[0].Steady = false
		}, "unequally often"},
		"more calls": {func(p *falconv1.RankPause) {
			p.Counts[0].CollectivesPerIteration, p.Counts[0].PerIteration = 21, 21
		}, "does 1 collectives an iteration on communicator 000000000000004d and rank"},
		"shifted": {func(p *falconv1.RankPause) {
			p.Counts[0].Collectives, p.Counts[0].Calls = 3, 3
		}, "will have done"},
		"refused": {func(p *falconv1.RankPause) {
			p.State = falconv1.PauseState_PAUSE_STATE_REFUSED
			p.Reason = "it captures a graph\x1b"
		}, "it captures a graph"},
		"hostile": {func(p *falconv1.RankPause) {
			p.Counts[0].Calls = 1 << 60
		}, "can't be"},
		"unknown": {func(p *falconv1.RankPause) {
			p.Counts[0].Comm = 5
		}, "not described"},
		"inferred": {func(p *falconv1.RankPause) {
			p.Exact, p.Counts[0].Whole = false, false
		}, "not seen from the start"},
		"not its own": {func(p *falconv1.RankPause) {
			if p.Rank == 3 {
				p.Rank = 0
			}
		}, "rank 3 is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.start()
				b.until(6)
				b.job.agents[1].hold.survey = c.wrong
				if _, err := b.validate(allTests); err != nil {
					t.Fatal(err)
				}
				v := b.settleTests()
				if v.GetState() != string(falcon.ValidationRefused) ||
					!strings.HasPrefix(v.GetReason(), "no consistent boundary: ") ||
					!strings.Contains(v.GetReason(), c.say) ||
					strings.Contains(v.GetReason(), "\x1b") {
					t.Errorf("%s: %s", v.GetState(), v.GetReason())
				}
				if slices.Contains(b.job.agents[0].hold.phases, falconv1.PausePhase_PAUSE_PHASE_ARM) {
					t.Error("ranks were held all the same")
				}
				b.free()
			})
		})
	}
}

// A missed cut is taken back everywhere and tried again, three times at most.
func TestMissedCuts(t *testing.T) {
	for late, want := range map[int]falcon.ValidationState{
		1: falcon.ValidationDone,
		2: falcon.ValidationDone,
		3: falcon.ValidationRefused,
	} {
		inBubble(t, func(b *bench) {
			b.start()
			b.until(6)
			b.job.agents[1].hold.late = late
			if _, err := b.validate(allTests); err != nil {
				t.Fatal(err)
			}
			v := b.settleTests()
			if v.GetState() != string(want) &&
				!(want == falcon.ValidationRefused && v.GetState() == string(falcon.ValidationFailed)) {
				t.Errorf("%d late: %v", late, v)
			}
			if v.GetAttempts() != int32(min(late+1, 3)) ||
				b.job.agents[0].hold.letGo != min(late+1, 3) {
				t.Errorf("%d late: %d attempts, let go %d times",
					late, v.GetAttempts(), b.job.agents[0].hold.letGo)
			}
			b.free()
		})
	}
}

// states are the moments at which something goes wrong below: what keeps the
// validation there.
var states = map[falcon.ValidationState]func(h *fakeHold){
	falcon.ValidationSurveying: func(h *fakeHold) {
		h.mute = map[falconv1.PausePhase]bool{falconv1.PausePhase_PAUSE_PHASE_SURVEY: true}
	},
	falcon.ValidationArming: func(h *fakeHold) {
		h.mute = map[falconv1.PausePhase]bool{falconv1.PausePhase_PAUSE_PHASE_ARM: true}
	},
	falcon.ValidationWaiting: func(h *fakeHold) { h.stuck = true },
	falcon.ValidationTesting: func(h *fakeHold) { h.silent = falconv1.TestKind_TEST_KIND_LINK },
	falcon.ValidationResuming: func(h *fakeHold) {
		h.mute = map[falconv1.PausePhase]bool{falconv1.PausePhase_PAUSE_PHASE_RESUME: true}
	},
}

// An order waits until the job goes on, and a validation until an order is
// agreed on.
func TestOnePlanAtATime(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		for b.job.iteration < 60 {
			b.turn()
			a := b.action()
			if a != nil && a.GetState() == string(falcon.ActionProposed) {
				break
			}
		}
		b.job.agents[1].hold.silent = falconv1.TestKind_TEST_KIND_GEMM
		if _, err := b.validate(allTests); err != nil {
			t.Fatal(err)
		}
		if !approveIfProposed(b) {
			t.Fatal("nothing to approve")
		}
		for range 6 {
			b.turn()
		}
		if len(b.job.agents[0].mailbox)+len(b.job.agents[1].mailbox) != 0 {
			t.Error("an order was sent into a validation")
		}
		b.job.agents[1].hold.obey()
		if _, err := b.validate(&falconv1.ValidateRequest{Cancel: "VAL-0001"}); err != nil {
			t.Fatal(err)
		}
		held := false
		for range 10 {
			b.job.step()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for _, a := range b.job.agents {
				a.poll(b.job)
			}
			synctest.Wait()
			if len(b.engine.orders.open()) > 0 && len(b.job.commits) == 0 && !held {
				v, err := b.validate(allTests)
				held = err == nil && strings.Contains(v.GetReason(), "being agreed on")
			}
		}
		if !held || len(b.job.commits) != 1 {
			t.Errorf("a validation waited: %v; commits %v", held, b.job.commits)
		}
		if v := b.settleTests(); v.GetId() != "VAL-0002" || v.GetState() != string(falcon.ValidationDone) {
			t.Errorf("after the order: %v", v)
		}
	})
}

// A long story of samples, telemetry and a validation leaves in the journal
// what was decided, and nothing per iteration.
func TestJournalHoldsNoTelemetry(t *testing.T) {
	size := func(iterations int64) (n int) {
		inBubble(t, func(b *bench) {
			b.start()
			b.until(6)
			if _, err := b.validate(allTests); err != nil {
				t.Fatal(err)
			}
			for b.job.iteration < iterations {
				for _, a := range b.job.agents {
					a.send(&falconv1.AgentFrame{
						Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{
							Nics: []*falconv1.Nic{{
								Name:     a.node + ".nic0",
								XmitWait: uint64(b.job.iteration),
							}},
						}},
					})
				}
				b.turn()
			}
			if s := b.newest(); s.GetState() != string(falcon.ValidationDone) {
				t.Errorf("%v", s)
			}
			if err := b.halt(); err != nil {
				t.Fatal(err)
			}
			for _, rs := range b.records() {
				n += len(rs)
			}
		})
		return n
	}
	if a, b := size(40), size(58); a == 0 || b > a+2 {
		t.Errorf("%d records after few iterations and %d after more", a, b)
	}
}

func TestPortsOfOtherNodesAreNotBelieved(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		b.until(3)
		b.job.agents[0].send(&falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{
				Nics: []*falconv1.Nic{
					{Name: "n0.nic0", CnpSent: 5, Err: "x\x1b[31m"},
					{Name: "n1.nic0"},
					{Name: "n0.nic99"},
					{Name: "n0.nic"},
				},
			}},
		})
		b.turn()
		time.Sleep(time.Second)
		s, err := b.engine.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		nics := s.For(tester, nil).GetNics()
		if len(nics) != 1 ||
			nics[0].GetName() != "n0.nic0" ||
			nics[0].GetCnpSent() != 5 ||
			nics[0].GetErr() != "x[31m" {
			t.Errorf("ports %v", nics)
		}
	})
}

// Policy decides whether a test holds the job: by itself, when a person asks, or never. Whatever forbids
// it is said to the detector as a value.
func TestPolicyOfTests(t *testing.T) {
	for name, c := range map[string]struct {
		auto   bool
		policy *falconv1.Policy
		alone  bool
		asked  bool
		spoil  func(*falconv1.RankState)
		bar    falcon.TestBar
	}{
		"as configured": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "approve"},
			alone:  true,
			asked:  true,
		},
		"manual": {
			policy: &falconv1.Policy{Mode: "auto"},
			asked:  true,
			bar:    falcon.BarPolicy,
		},
		"policy wins": {
			policy: &falconv1.Policy{Mode: "approve", Tests: "auto"},
			alone:  true,
			asked:  true,
		},
		"person": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "auto", Tests: "person"},
			asked:  true,
			bar:    falcon.BarPolicy,
		},
		"never": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "auto", Tests: "never"},
			bar:    falcon.BarPolicy,
		},
		"observe": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "observe"},
			asked:  true,
			bar:    falcon.BarPolicy,
		},
		"observe, tests": {
			policy: &falconv1.Policy{Mode: "observe", Tests: "auto"},
			alone:  true,
			asked:  true,
		},
		"frozen": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "approve", Frozen: true},
			bar:    falcon.BarPolicy,
		},
		"no memory": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "approve"},
			spoil:  func(s *falconv1.RankState) { s.TestWorkspace = 0 },
			bar:    falcon.BarMemory,
		},
		"watched": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "approve"},
			spoil:  func(s *falconv1.RankState) { s.Bound = boundProfiler },
			bar:    falcon.BarWatched,
		},
		"without a hook": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "approve"},
			spoil:  func(s *falconv1.RankState) { s.Unhooked = true },
			bar:    falcon.BarNone,
		},
		"no such setting": {
			auto:   true,
			policy: &falconv1.Policy{Mode: "approve", Tests: "perhaps"},
			alone:  true,
			asked:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.tests = Validation{Auto: c.auto, CoolDown: 1}
				b.start()
				b.until(6)
				c.policy.Version = 1
				_, err := b.engine.SetPolicy(context.Background(), tester, true, c.policy)
				if wrong := c.policy.Tests == "perhaps"; (err != nil) != wrong {
					t.Fatal(err)
				}
				if c.spoil != nil {
					b.rankWith(c.spoil)
				}
				b.det.ask = gemmAsk()
				b.det.ask.GEMM = []falcon.Rank{0, 3}
				b.until(b.job.iteration + 12)
				n := len(b.det.tests)
				if n != 1 ||
					(b.det.tests[0].State == falcon.ValidationDone) != c.alone ||
					b.det.tests[0].Bar != c.bar {
					t.Fatalf("the detector was sent %+v", b.det.tests)
				}
				if _, err := b.validate(allTests); (err == nil) != c.asked {
					t.Errorf("asked for by a person: %v", err)
				}
			})
		})
	}
}
