package main

import (
	"fmt"
	"math"

	"github.com/failslow/falcon/detect"
)

// detectConfig are the settings of the detector that sites change. Zero values
// are the detector's defaults.
type detectConfig struct {
	RunLength float64 `yaml:"run_length"` // expected iterations between changes: the hazard is 1/run_length
	Threshold float64 `yaml:"threshold"`  // alarm when P(r ≤ w) exceeds it
	Verify    float64 `yaml:"verify"`     // relative change that makes an alarm an onset
	WarmUp    int     `yaml:"warm_up"`    // iterations that give the first scale

	Suspect       float64 `yaml:"suspect"`        // ratio over peers that makes a rank or a group suspicious
	ValidateTries int     `yaml:"validate_tries"` // tests asked for per incident, -1 = none

	PeakIterationMs float64 `yaml:"peak_iteration_ms"` // iteration time that the job should reach
	Throughput      float64 `yaml:"throughput"`        // share of the best, or of the peak, below which the job is looked at

	WatchEvery int64   `yaml:"watch_every"` // iterations between two looks at a quiet job's ranks, -1 = none
	WatchOver  float64 `yaml:"watch_over"`  // self time over the peers' median that is slow for the watch
	WatchSteps int     `yaml:"watch_steps"` // slow steps running that make a rank failing
}

// none is what turns off a setting whose zero value is the default.
const none = -1

// check wants every value that is set to make sense; the detector itself
// relies on that.
func (d detectConfig) check() error {
	whole := func(v, least, most float64) bool { return v >= least && v <= most }
	for _, s := range []struct {
		key    string
		value  float64
		ok     bool
		remedy string
	}{
		{"run_length", d.RunLength, whole(d.RunLength, 1, 1e12), "the iterations expected between two changes, from 1 to 1e12"},
		{"threshold", d.Threshold, d.Threshold > 0 && d.Threshold < 1, "a probability between 0 and 1"},
		{"verify", d.Verify, d.Verify > 0 && d.Verify <= 10, "a share such as 0.1 for a change of 10 %"},
		{"warm_up", float64(d.WarmUp), whole(float64(d.WarmUp), 3, 256), "iterations from 3 to 256"},
		{"suspect", d.Suspect, d.Suspect > 1 && d.Suspect <= 10, "a ratio above 1, such as 1.1"},
		{"validate_tries", float64(d.ValidateTries), d.ValidateTries == none || whole(float64(d.ValidateTries), 1, 100), "tests per incident from 1 to 100, or -1 for none"},
		{"peak_iteration_ms", d.PeakIterationMs, d.PeakIterationMs > 0 && !math.IsInf(d.PeakIterationMs, 0), "the milliseconds that an iteration should take"},
		{"throughput", d.Throughput, d.Throughput > 0 && d.Throughput < 1, "a share between 0 and 1"},
		{"watch_every", float64(d.WatchEvery), d.WatchEvery == none || d.WatchEvery > 0, "iterations, or -1 for never"},
		{"watch_over", d.WatchOver, d.WatchOver > 1 && d.WatchOver <= 100, "a ratio above 1, such as 1.5"},
		{"watch_steps", float64(d.WatchSteps), whole(float64(d.WatchSteps), 1, 1000), "steps from 1 to 1000"},
	} {
		if s.value != 0 && !s.ok {
			return fmt.Errorf("%w: detect.%s is %v; set %s", errUsage, s.key, s.value, s.remedy)
		}
	}
	return nil
}

// detector is the production setting with what the file changes in it.
func (d detectConfig) detector() detect.Config {
	out := detect.DefaultConfig()
	override(&out.Tracker.Filter.RunLength, d.RunLength)
	override(&out.Tracker.Filter.Threshold, d.Threshold)
	override(&out.Tracker.Verify, d.Verify)
	override(&out.Tracker.WarmUp, d.WarmUp)
	override(&out.Rules.Suspect, d.Suspect)
	override(&out.Validate.Tries, d.ValidateTries)
	override(&out.PeakIterationMs, d.PeakIterationMs)
	override(&out.Throughput, d.Throughput)
	override(&out.Watch.Every, d.WatchEvery)
	override(&out.Watch.Over, d.WatchOver)
	override(&out.Watch.Steps, d.WatchSteps)
	return out
}

func override[T int | int64 | float64](v *T, set T) {
	if set != 0 {
		*v = set
	}
}
