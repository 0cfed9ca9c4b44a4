package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/validate"
)

// inEach plays a story in each state; node n1 keeps the validation there.
func inEach(t *testing.T, story func(b *bench, at falcon.ValidationState, id string)) {
	for at, keep := range states {
		t.Run(string(at), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.start()
				b.until(6)
				keep(&b.job.agents[1].hold)
				v, err := b.validate(allTests)
				if err != nil {
					t.Fatal(err)
				}
				for range 12 {
					b.turn()
				}
				if now := b.newest(); now.GetState() != string(at) {
					t.Errorf("it is %s (%s)", now.GetState(), now.GetReason())
					return
				}
				story(b, at, v.GetId())
			})
		})
	}
}

// over fails unless the validation ended as it must where something went wrong
// in a state: what was measured is kept.
func over(t *testing.T, v *falconv1.Validation, at falcon.ValidationState, say string) {
	t.Helper()
	state := falcon.ValidationState(v.GetState())
	ok := false
	switch at {
	case falcon.ValidationSurveying, falcon.ValidationArming:
		ok = state == falcon.ValidationRefused ||
			state == falcon.ValidationFailed && at == falcon.ValidationArming
	case falcon.ValidationWaiting:
		ok = state == falcon.ValidationFailed || state == falcon.ValidationRefused
	case falcon.ValidationTesting:
		ok = state == falcon.ValidationFailed && len(v.GetGemm()) == 4
	case falcon.ValidationResuming: // everything was measured
		ok = state == falcon.ValidationDone &&
			len(v.GetLinks()) == 8 &&
			v.GetReason() == ""
		say = ""
	}
	if !ok || !strings.Contains(v.GetReason(), say) {
		t.Errorf("in %s: %s with reason %q, %d devices",
			at, v.GetState(), v.GetReason(), len(v.GetGemm()))
	}
}

func (h *fakeHold) obey() {
	h.mute = nil
	h.stuck = false
	h.silent = 0
}

func TestAgentDiesInEachState(t *testing.T) {
	inEach(t, func(b *bench, at falcon.ValidationState, _ string) {
		b.job.agents[1].stream.cancel()
		b.job.agents[1].stream = nil
		b.settleTests()
		b.job.agents[1].expire() // its hooks let go by themselves
		over(b.t, b.newest(), at, "the agent of node n1 is gone")
		if h := b.job.agents[0].hold; h.arm != nil {
			b.t.Error("node n0 still holds")
		}
		b.job.agents[1].hold.obey()
		b.attach(b.job.agents[1])
		b.settleTests()
		b.free()
		b.onceEach()
	})
}

func TestProcessDiesInEachState(t *testing.T) {
	inEach(t, func(b *bench, at falcon.ValidationState, _ string) {
		b.job.agents[1].hold.obey()
		b.rankWith(func(s *falconv1.RankState) {
			s.Alive, s.Exit = false, "signal: killed"
		})
		if at == falcon.ValidationResuming {
			b.job.agents[1].expire()
			time.Sleep(15 * time.Second)
		}
		v := b.settleTests()
		over(b.t, v, at, "rank 3 on node n1 has ended")
		b.free()
	})
}

func TestCancelInEachState(t *testing.T) {
	inEach(t, func(b *bench, at falcon.ValidationState, id string) {
		b.job.agents[1].hold.obey()
		v, err := b.validate(&falconv1.ValidateRequest{Cancel: id})
		if err != nil || v.GetId() != id {
			b.t.Fatalf("%v, %v", v, err)
		}
		if at == falcon.ValidationResuming {
			b.job.agents[1].expire()
			time.Sleep(15 * time.Second)
		}
		over(b.t, b.settleTests(), at, "ended by tester")
		b.free()
		if _, err := b.validate(&falconv1.ValidateRequest{Cancel: id}); !errors.Is(err, ErrStale) {
			b.t.Errorf("ended twice: %v", err)
		}
	})
}

// Nobody helps: every state has an end.
func TestDeadlineOfEachState(t *testing.T) {
	inEach(t, func(b *bench, at falcon.ValidationState, _ string) {
		for range 250 {
			b.turn()
		}
		b.job.agents[1].expire()
		for range 20 {
			b.turn()
		}
		say := map[falcon.ValidationState]string{
			falcon.ValidationSurveying: "node n1 did not answer the survey within 3s",
			falcon.ValidationArming:    "node n1 did not answer the order within 10s",
			falcon.ValidationWaiting:   "rank 2 had not come to the boundary after 10s (2 ranks were late)",
			falcon.ValidationTesting:   "on node n1 did not answer a test in time",
		}[at]
		over(b.t, b.newest(), at, say)
		b.free()
	})
}

// A restarted engine releases what the one before it held, and says so.
func TestEngineRestartsInEachState(t *testing.T) {
	inEach(t, func(b *bench, at falcon.ValidationState, id string) {
		if err := b.halt(); err != nil {
			b.t.Fatal(err)
		}
		b.job.agents[1].hold.obey()
		b.start()
		v := b.settleTests()
		want := falcon.ValidationFailed
		if at == falcon.ValidationSurveying {
			want = falcon.ValidationRefused
		}
		if v.GetId() != id ||
			v.GetState() != string(want) ||
			!strings.Contains(v.GetReason(), "started again") {
			b.t.Errorf("%v", v)
		}
		b.free()
		b.onceEach()
		next, err := b.validate(allTests)
		if err != nil || next.GetId() != "VAL-0002" {
			b.t.Fatalf("the next one: %v, %v", next, err)
		}
		if v := b.settleTests(); v.GetState() != string(falcon.ValidationDone) {
			b.t.Errorf("the next one: %v", v)
		}
	})
}

// A node that falls silent while the job is held for a test, and is not reset,
// is known once the order that holds its ranks has run out: until then a healthy
// node that is only out of reach would look the same.
func TestNodeFallsSilentInAValidation(t *testing.T) {
	inBubble(t, func(b *bench) {
		recoverBench(b)
		b.start()
		b.until(6)
		states[falcon.ValidationWaiting](&b.job.agents[1].hold)
		if _, err := b.validate(allTests); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			b.turn()
		}
		if now := b.newest(); now.GetState() != string(falcon.ValidationWaiting) {
			t.Fatalf("it is %s (%s)", now.GetState(), now.GetReason())
		}
		n1 := b.job.agents[1]
		struck := time.Now()
		n1.crew.gone, b.job.stalled = true, true
		for range 40 {
			b.turn()
		}
		v := b.newest()
		if v.GetState() != string(falcon.ValidationFailed) ||
			!strings.Contains(v.GetReason(), "the agent of node n1 is gone") {
			t.Errorf("the validation is %s: %s", v.GetState(), v.GetReason())
		}
		for range 100 {
			b.turn()
		}
		list := b.recoveries()
		if len(list) != 1 || !slices.Equal(list[0].Fenced, []falcon.Node{"n1"}) {
			t.Fatalf("recoveries %+v", list)
		}
		took := time.Unix(0, list[0].Faults[0].DetectedNs).Sub(struck)
		if took < validate.LifeDefault || took > validate.LifeDefault+4*time.Second {
			t.Errorf("known after %s", took)
		}
	})
}
