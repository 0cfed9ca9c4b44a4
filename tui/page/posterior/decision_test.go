package posterior

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// decided is a series of a job's filter, with an alarm that waits at 80 to 83.
func decided(d ...*falconv1.ChangeDecision) *falconv1.Series {
	s := regime(0, 100, 80, 64)
	s.OfJob = true
	s.Alarms = []int64{81, 82, 83}
	s.Decisions = d
	return s
}

// The page says what decided, and draws it as that.
func TestWhatDecidedIsDrawnAsThat(t *testing.T) {
	filter := &falconv1.FilterState{
		Probability:  0.973,
		MapRunLength: 4,
		CentreMs:     143,
		ScaleMs:      2.5,
		From:         12,
		Seen:         71,
		Alarm:        true,
		Removed:      []*falconv1.RemovedIteration{{Iteration: 60, Ms: 402, AsMs: 143}},
	}
	for _, x := range []struct {
		d     *falconv1.ChangeDecision
		wants []string
		not   string
	}{
		{
			&falconv1.ChangeDecision{
				By:               "bocd",
				Kind:             "onset",
				Rank:             -1,
				Iteration:        80,
				DecidedIteration: 83,
				BeforeMs:         143,
				AfterMs:          248,
				Points:           4,
				Opened:           true,
				Filter:           filter,
			},
			[]string{
				"onset at 80, decided at 83 by the change-point filter: 143 ms → 248 ms, 4 iterations",
				"P(change ≤5 steps) 0.973, likeliest stretch 4; fed as (ms - 143.0)/2.50",
				"×",
			},
			" w ",
		},
		{
			&falconv1.ChangeDecision{
				By:               "bocd",
				Kind:             "jitter",
				Rank:             -1,
				Iteration:        80,
				DecidedIteration: 83,
				BeforeMs:         143,
				AfterMs:          150,
				Points:           8,
				Filter:           filter,
			},
			[]string{"alarm at 80, turned down at 83: 143 ms → 150 ms"},
			"onset at 80",
		},
		{
			&falconv1.ChangeDecision{
				By:               "shift",
				Kind:             "onset",
				Rank:             -1,
				Iteration:        30,
				DecidedIteration: 83,
				BeforeMs:         100,
				AfterMs:          102,
				Points:           64,
				Drift:            true,
				Filter:           filter,
			},
			[]string{"by the small-shift detector, which has no", "s small shift"},
			"change-point filter",
		},
		{
			&falconv1.ChangeDecision{
				By:               "early",
				Kind:             "onset",
				Rank:             -1,
				Iteration:        80,
				DecidedIteration: 83,
				BeforeMs:         100,
				AfterMs:          180,
				Points:           3,
				Window:           7,
				Ranks:            []int32{2},
				Confirming:       true,
			},
			[]string{"by an early window, before verif", "w early window"},
			"fed as",
		},
		{
			&falconv1.ChangeDecision{By: "oracle", Kind: "onset", Iteration: 80, DecidedIteration: 83},
			[]string{"something that this console does"},
			"change-point filter",
		},
	} {
		p := New()
		p.SetAt(83)
		wide := screen
		wide.W = 90 + LabelWidth
		out := draw(t, p, stateOf(decided(x.d)), wide)
		wants(t, out, x.wants...)
		if strings.Contains(out, x.not) {
			t.Errorf("%s: %q in:\n%s", x.d.By, x.not, out)
		}
	}
}

// Only an alarm that the engine raised is one: a probability above the line is none by itself.
func TestAnAlarmIsTheEngines(t *testing.T) {
	s := decided()
	s.Probability[50], s.Probability[82] = 0.99, 0.95
	p := New()
	p.SetAt(50)
	if out := draw(t, p, stateOf(s), screen); strings.Contains(out, "ALARM") {
		t.Errorf("an alarm that was never raised:\n%s", out)
	}
	p.SetAt(82)
	wants(t, draw(t, p, stateOf(s), screen), "0.950 ALARM", "RUN-LENGTH POSTERIOR of the job")
	s.OfJob = false // an older engine's
	p.SetAt(50)
	wants(t, draw(t, p, stateOf(s), screen), "0.990 ALARM", "RUN-LENGTH POSTERIOR recomputed")
}
