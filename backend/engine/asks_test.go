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
	"github.com/failslow/falcon/detect"
)

// inLoop changes what belongs to the engine's goroutine.
func (b *bench) inLoop(f func()) {
	b.t.Helper()
	if err := b.engine.readInLoop(context.Background(), f); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// window has the detector ask for a profile that the agents do not answer.
func (b *bench) window() {
	for _, a := range b.job.agents {
		a.noWindow = true
	}
	b.inLoop(func() {
		b.det.ready.Requests = append(b.det.ready.Requests, detect.ProfileRequest{
			Window:     9,
			Iterations: 2,
		})
	})
	b.turn()
}

// answerWindows has the agents answer what they have left open.
func (b *bench) answerWindows() {
	for _, it := range b.engine.outbox.Items(windowCommand) {
		for _, a := range b.job.agents {
			a.noWindow = false
			a.send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Profile{Profile: &falconv1.Profile{Window: it.ID}},
			})
		}
	}
	synctest.Wait()
}

// waits asks for a validation while a window is in flight.
func (b *bench) waits() string {
	b.t.Helper()
	b.until(6)
	b.window()
	v, err := b.validate(allTests)
	if err != nil ||
		v.GetState() != string(falcon.ValidationSurveying) ||
		v.GetReason() != "waits: a profile window is in progress" ||
		v.GetBy() != "tester" {
		b.t.Fatalf("%v, %v", v, err)
	}
	for range 5 {
		b.turn()
	}
	now := b.newest()
	if now.GetId() != v.GetId() || now.GetReason() != v.GetReason() {
		b.t.Fatalf("the snapshot shows %v", now)
	}
	if len(b.job.agents[0].hold.phases) > 0 {
		b.t.Fatal("the agents have the request already")
	}
	return v.GetId()
}

// What passes is no refusal: the request is taken, and begins when it has
// passed. Windows that are asked for meanwhile make way.
func TestRequestWaitsForItsMoment(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		id := b.waits()
		b.inLoop(func() {
			b.det.ready.Requests = append(b.det.ready.Requests, detect.ProfileRequest{
				Window:     10,
				Iterations: 2,
			})
		})
		b.turn()
		_, err := b.validate(allTests)
		if !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), id+", which tester asked for, waits already") {
			t.Errorf("a second request: %v", err)
		}
		before := b.job.agents[0].profiled
		b.answerWindows()
		v := b.settleTests()
		if v.GetId() != id ||
			v.GetState() != string(falcon.ValidationDone) ||
			v.GetReason() != "" ||
			len(v.GetLinks()) != 8 {
			t.Errorf("%v", v)
		}
		if b.job.agents[0].profiled == before {
			t.Error("the window that made way never came")
		}
		b.free()
		b.onceEach()
	})
}

func TestRequestWaitsForTheAutomaticOne(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.tests, b.ask = Validation{Auto: true, CoolDown: 1}, gemmAsk()
		b.start()
		b.job.agents[1].hold.silent = falconv1.TestKind_TEST_KIND_GEMM
		b.until(9)
		for range 5 {
			b.turn()
		}
		v, err := b.validate(allTests)
		if err != nil ||
			v.GetId() != "VAL-0002" ||
			v.GetReason() != "waits: VAL-0001 is in progress (testing)" {
			t.Fatalf("%v, %v", v, err)
		}
		// and the detector wants another one
		b.inLoop(func() {
			b.det.ready.Asks = append(b.det.ready.Asks, *gemmAsk())
		})
		b.turn()
		b.job.agents[1].hold.obey()
		if _, err := b.validate(&falconv1.ValidateRequest{Cancel: "VAL-0001"}); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			b.turn()
		}
		var ids []string
		for _, v := range b.det.tests {
			ids = append(ids, v.ID+" "+v.Ask.By)
		}
		if want := []string{
			"VAL-0001 engine",
			"VAL-0002 tester",
			"VAL-0003 engine",
		}; !slices.Equal(ids, want) {
			t.Errorf("the detector was sent %v, want %v", ids, want)
		}
		b.free()
	})
}

// A wait has an end, with a reason, and so has every change for good.
func TestRequestThatCannotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b *bench, id string)
		turns int
		say   string
	}{
		"too long": {
			func(*bench, string) {},
			int(askPatience/(100*time.Millisecond)) + 2,
			"it could not begin within 10s: a profile window is in progress",
		},
		"frozen": {func(b *bench, _ string) {
			if _, err := b.engine.SetPolicy(context.Background(), tester, true, &falconv1.Policy{
				Mode:    "approve",
				Frozen:  true,
				Version: 1,
			}); err != nil {
				b.t.Fatal(err)
			}
		}, 2, "frozen"},
		"ended": {func(b *bench, id string) {
			v, err := b.validate(&falconv1.ValidateRequest{Cancel: id})
			if err != nil || v.GetState() != string(falcon.ValidationRefused) {
				b.t.Errorf("%v, %v", v, err)
			}
		}, 0, "ended by tester"},
		"another job": {func(b *bench, _ string) {
			b.job.pid += 1000
			for _, a := range b.job.agents {
				for _, r := range a.ranks {
					a.send(b.job.rankState(a.node, r))
				}
			}
		}, 30, "asked for in job epoch 1 and this is epoch 2"},
		"a rank gone": {func(b *bench, _ string) {
			b.rankWith(func(s *falconv1.RankState) {
				s.Alive, s.Exit = false, "killed"
			})
		}, 2, "lost"},
		"restart": {func(b *bench, _ string) {
			if err := b.halt(); err != nil {
				b.t.Fatal(err)
			}
			b.start()
		}, 2, "the engine was started again before the job was held"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.start()
				id := b.waits()
				c.spoil(b, id)
				for range c.turns {
					b.turn()
				}
				v := b.newest()
				if v.GetId() != id ||
					v.GetState() != string(falcon.ValidationRefused) ||
					!strings.Contains(v.GetReason(), c.say) {
					t.Errorf("%v", v)
				}
				synctest.Wait()
				if n := len(b.det.tests); n != 1 || b.det.tests[0].ID != id {
					t.Errorf("the detector was sent %v", b.det.tests)
				}
				if slices.Contains(b.job.agents[0].hold.phases, falconv1.PausePhase_PAUSE_PHASE_ARM) {
					t.Error("the job was held")
				}
				if err := b.halt(); err != nil {
					t.Fatal(err)
				}
				if rec := b.records()[kindValidation]; len(rec) != 2 { // promised, refused
					t.Errorf("%d records", len(rec))
				}
			})
		})
	}
}

// One that ends by the clock, in the very tick in which the next one may begin,
// leaves its result in the journal all the same.
func TestResultIsKeptWhereTheNextFollowsAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.tests, b.ask = Validation{Auto: true, CoolDown: 1}, gemmAsk()
		b.start()
		states[falcon.ValidationResuming](&b.job.agents[1].hold)
		b.until(10)
		for b.engine.validations.machine.Ends().IsZero() ||
			time.Until(b.engine.validations.machine.Ends()) > 5*time.Second {
			b.turn()
		}
		b.job.agents[1].expire()
		if v, err := b.validate(allTests); err != nil || v.GetId() != "VAL-0002" {
			t.Fatalf("%v, %v", v, err)
		}
		for range 80 {
			b.turn()
			now := b.engine.validations.machine.Active()
			if now && len(b.det.tests) == 1 {
				b.job.agents[1].hold.obey()
			}
		}
		if len(b.det.tests) != 2 ||
			b.det.tests[0].ID != "VAL-0001" ||
			b.det.tests[0].State != falcon.ValidationDone ||
			b.det.tests[1].ID != "VAL-0002" {
			t.Errorf("the detector was sent %+v", b.det.tests)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.records()[kindValidation] {
			body := string(r.Body)
			if strings.Contains(body, "VAL-0001") && strings.Contains(body, `"done"`) {
				return
			}
		}
		t.Error("the journal does not know how VAL-0001 ended")
	})
}
