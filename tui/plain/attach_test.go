package plain

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/phrase"
)

// Who attaches late hears the past as the past: each event with its own iteration.
func TestThePastKeepsItsIterations(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(120)
	s := picture(t, e)
	s.Events = []*falconv1.EventLine{{Seq: 1, Iteration: -1, Kind: "agent", Text: "a"}, {
		Seq:       2,
		Iteration: 40,
		Kind:      "jitter",
		Text:      "b",
	}}
	out := strings.Join(newDiff().linesOf(s), "\n")
	for _, want := range []string{"[start] agent: a", "[iteration 40] jitter: b"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A proposal without other micro-batches says nothing of them.
func TestAProposalWithoutAPlanHasNoEmptyPart(t *testing.T) {
	got := phrase.ActionLogged(&falconv1.Action{
		Rung:        "S3",
		State:       "proposed",
		BeforeMs:    236,
		PredictedMs: 156,
	})
	if strings.Contains(got, "micro-batches ,") ||
		!strings.Contains(got, "proposed: predicted 236 ms → 156 ms") {
		t.Errorf("%q", got)
	}
}

// A job that runs at its baseline's speed is said to run, with how far it is from it.
func TestAJobAtItsBaselineIsNotCalledSlow(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	s := picture(t, e)
	for slowdown, want := range map[float64]string{
		0.01: "running, +1% against the baseline",
		0.06: "running, +6% against the baseline",
	} {
		s.Snap.Job.Slowdown = slowdown
		got := Summary(s, s.Received)
		if !strings.Contains(got, want) || strings.Contains(got, "slow, ") {
			t.Errorf("%+v: %q", slowdown, got)
		}
	}
}
