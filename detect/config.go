package detect

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// Config holds the detector's thresholds. The zero value of each field means
// the default that DefaultConfig gives. The fields with a YAML name are those of
// the section detect of falcon.yaml, which Check validates.
type Config struct {
	Tracker bocd.TrackerConfig `yaml:",inline"` // change points of every rank's series and of the job's
	Rules   peer.Rules         `yaml:",inline"` // comparison of ranks and groups

	// share of the ranks whose own onsets open an incident without the job's series; 0.5
	Quorum      float64 `yaml:"-"`
	MergeWithin int64   `yaml:"-"` // iterations: onsets this near are one; 8
	// iterations that a slowdown lasts before it is reported although no culprit is known; 8
	TellAfter int64 `yaml:"-"`
	// unexplained slowdowns, the present one included, that are one intermittent fault; 3
	Bursts      int   `yaml:"-"`
	BurstWithin int64 `yaml:"-"` // iterations in which they lie, and without one that end it; 100
	// from an incident's relief to a slowdown that is the same again, at most, or BurstWithin
	// iterations where they take longer; negative = each is an incident of its own; 2 min
	ReturnWithin time.Duration `yaml:"-"`
	History      int           `yaml:"-"` // samples kept per rank; 1024
	// ranks from which a window's profiles are compared by the caller (Ready.Compare), not
	// in the step; 0 = never
	CompareAside int `yaml:"-"`
	// ranks' filters never rest, for comparison: bocd.TrackerConfig.Rest
	Restless bool    `yaml:"-"`
	Settled  float64 `yaml:"-"` // relief: the level is within this of the baseline; 0.05

	Profile  ProfileConfig  `yaml:"-"`
	Early    EarlyConfig    `yaml:"-"`
	Validate ValidateConfig `yaml:",inline"`
	Relief   ReliefConfig   `yaml:"-"`
	Watch    WatchConfig    `yaml:",inline"`

	// share of the best, or of the peak, below which the job is profiled; 0.8
	Throughput float64 `yaml:"throughput"`
	// iteration time that the job should reach, 0 = its own best
	PeakIterationMs float64 `yaml:"peak_iteration_ms"`

	SettleBefore int64 `yaml:"-"` // iterations before an action that belong to it; 2
	SettleAfter  int64 `yaml:"-"` // iterations from its first one on that belong to it; 8
	// iterations after which work that grew by itself is the job's normal level; 500
	AcceptAfter int64 `yaml:"-"`
	CloseAfter  int64 `yaml:"-"` // iterations from relief to close, for actions still on their way; 8
}

// ProfileConfig bounds the windows that seek a culprit or learn the healthy state.
type ProfileConfig struct {
	Iterations int           // of one window; 4
	Tries      int           // windows per onset before the verdict stays "unknown"; 3
	Spacing    int64         // iterations between two tries; 5
	Retry      int64         // iterations after which an open incident without a culprit is tried again; 50
	Deadline   time.Duration // an incomplete window is judged after at least this long; 10 s
}

// EarlyConfig bounds the windows that are asked for before an onset is verified.
type EarlyConfig struct {
	Iterations int     // of one window, negative = none; 1
	Over       float64 // increase over the level before of an iteration that asks for one; 0.15
	Wait       int64   // least iterations between two; doubles with each that no onset follows; 2
	WaitMost   int64   // 512
}

// ValidateConfig bounds the validations that incidents ask for.
type ValidateConfig struct {
	Tries   int   `yaml:"validate_tries"` // per incident, negative = none; 1
	Trees   bool  `yaml:"validate_trees"` // all-reduces are trees where nothing shows NCCL's choice
	Spacing int64 `yaml:"-"`              // iterations between two; 20
}

// ReliefConfig sets how a culprit is profiled while an action holds.
type ReliefConfig struct {
	Iterations int   // of one window; 2
	Every      int64 // iterations between two windows; 20
	Confirm    int64 // the same once a window was healthy or the counters are; 10
	Streak     int   // consecutive healthy windows that mean relief; 3
}

// WatchConfig sets how the ranks of a quiet job are watched.
type WatchConfig struct {
	Every      int64         `yaml:"watch_every"` // iterations between two windows, negative = none; 200
	Iterations int           `yaml:"-"`           // steps of a window; 2
	Spacing    time.Duration `yaml:"-"`           // least time between two windows, negative = none; 60 s
	Over       float64       `yaml:"watch_over"`  // self time over the peers' median that is slow; 1.5
	Steps      int           `yaml:"watch_steps"` // consecutive slow steps that make a rank failing; 3
}

// DefaultConfig is the production setting.
func DefaultConfig() Config {
	return Config{
		Tracker:      bocd.DefaultTrackerConfig(),
		Quorum:       0.5,
		MergeWithin:  8,
		TellAfter:    8,
		Bursts:       3,
		BurstWithin:  100,
		ReturnWithin: 2 * time.Minute,
		History:      1024,
		Settled:      0.05,
		Profile: ProfileConfig{
			Iterations: 4,
			Tries:      3,
			Spacing:    5,
			Retry:      50,
			Deadline:   10 * time.Second,
		},
		Early: EarlyConfig{
			Iterations: 1,
			Over:       0.15,
			Wait:       2,
			WaitMost:   512,
		},
		Validate: ValidateConfig{Tries: 2, Spacing: 20},
		Relief: ReliefConfig{
			Iterations: 2,
			Every:      20,
			Confirm:    10,
			Streak:     3,
		},
		Watch: WatchConfig{
			Every:      200,
			Iterations: 2,
			Spacing:    time.Minute,
			Over:       1.5,
			Steps:      3,
		},
		Throughput:   0.8,
		SettleBefore: 2,
		SettleAfter:  8,
		AcceptAfter:  500,
		CloseAfter:   8,
	}
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	c.Tracker = cmp.Or(c.Tracker, d.Tracker)
	setDefault(&c.Tracker.Verify, d.Tracker.Verify)
	setDefault(&c.Quorum, d.Quorum)
	setDefault(&c.MergeWithin, d.MergeWithin)
	setDefault(&c.TellAfter, d.TellAfter)
	setDefault(&c.Bursts, d.Bursts)
	setDefault(&c.BurstWithin, d.BurstWithin)
	c.ReturnWithin = cmp.Or(c.ReturnWithin, d.ReturnWithin)
	setDefault(&c.History, d.History)
	setDefault(&c.Settled, d.Settled)
	c.Profile.setDefaults(d.Profile)
	c.Early.setDefaults(d.Early)
	c.Validate.setDefaults(d.Validate)
	c.Relief.setDefaults(d.Relief)
	c.Watch.setDefaults(d.Watch)
	setDefault(&c.Throughput, d.Throughput)
	setDefault(&c.SettleBefore, d.SettleBefore)
	setDefault(&c.SettleAfter, d.SettleAfter)
	setDefault(&c.AcceptAfter, d.AcceptAfter)
	setDefault(&c.CloseAfter, d.CloseAfter)
	return c
}

func (c *ProfileConfig) setDefaults(d ProfileConfig) {
	setDefault(&c.Iterations, d.Iterations)
	setDefault(&c.Tries, d.Tries)
	setDefault(&c.Spacing, d.Spacing)
	setDefault(&c.Retry, d.Retry)
	setDefault(&c.Deadline, d.Deadline)
}

func (c *EarlyConfig) setDefaults(d EarlyConfig) {
	setDefault(&c.Iterations, d.Iterations)
	setDefault(&c.Over, d.Over)
	setDefault(&c.Wait, d.Wait)
	setDefault(&c.WaitMost, d.WaitMost)
}

func (c *ValidateConfig) setDefaults(d ValidateConfig) {
	c.Tries = cmp.Or(c.Tries, d.Tries)
	setDefault(&c.Spacing, d.Spacing)
}

func (c *ReliefConfig) setDefaults(d ReliefConfig) {
	setDefault(&c.Iterations, d.Iterations)
	setDefault(&c.Every, d.Every)
	setDefault(&c.Confirm, d.Confirm)
	setDefault(&c.Streak, d.Streak)
}

func (c *WatchConfig) setDefaults(d WatchConfig) {
	c.Every = cmp.Or(c.Every, d.Every)
	c.Spacing = cmp.Or(c.Spacing, d.Spacing)
	setDefault(&c.Iterations, d.Iterations)
	setDefault(&c.Over, d.Over)
	setDefault(&c.Steps, d.Steps)
}

// setDefault gives a setting that is not positive its default.
func setDefault[T int | int64 | float64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Check reports the first invalid value of falcon.yaml. Zero values mean the defaults.
func (c Config) Check() error {
	within := func(v, least, most float64) bool { return v >= least && v <= most }
	share := func(v float64) bool { return v > 0 && v < 1 }
	for _, s := range []struct {
		key   string
		value float64
		ok    bool
		set   string
	}{
		{
			"run_length",
			c.Tracker.Filter.RunLength,
			within(c.Tracker.Filter.RunLength, 1, 1e12),
			"the iterations expected between two changes, from 1 to 1e12",
		},
		{
			"threshold",
			c.Tracker.Filter.Threshold,
			share(c.Tracker.Filter.Threshold),
			"a probability between 0 and 1",
		},
		{
			"verify",
			c.Tracker.Verify,
			c.Tracker.Verify > 0 && c.Tracker.Verify <= 10,
			"a share such as 0.1 for a change of 10 %",
		},
		{
			"floor",
			c.Tracker.Floor,
			within(c.Tracker.Floor, 0.001, 1),
			"a share from 0.001 to 1, such as 0.02 for a change of 2 %",
		},
		{
			"false_alarms",
			c.Tracker.FalseAlarms,
			within(c.Tracker.FalseAlarms, 1e-9, 0.01),
			"changes per iteration from 1e-9 to 0.01, such as 2e-5 for one in 50,000",
		},
		{
			"warm_up",
			float64(c.Tracker.WarmUp),
			within(float64(c.Tracker.WarmUp), 3, 256),
			"iterations from 3 to 256",
		},
		{
			"suspect",
			c.Rules.Suspect,
			c.Rules.Suspect > 1 && c.Rules.Suspect <= 10,
			"a ratio above 1, such as 1.1",
		},
		{
			"validate_tries",
			float64(c.Validate.Tries),
			c.Validate.Tries == none || within(float64(c.Validate.Tries), 1, 100),
			"tests per incident from 1 to 100, or -1 for none",
		},
		{
			"peak_iteration_ms",
			c.PeakIterationMs,
			c.PeakIterationMs > 0 && !math.IsInf(c.PeakIterationMs, 0),
			"the milliseconds that an iteration should take",
		},
		{"throughput", c.Throughput, share(c.Throughput), "a share between 0 and 1"},
		{
			"watch_every",
			float64(c.Watch.Every),
			c.Watch.Every == none || c.Watch.Every > 0,
			"iterations, or -1 for never",
		},
		{"watch_over", c.Watch.Over, c.Watch.Over > 1 && c.Watch.Over <= 100, "a ratio above 1, such as 1.5"},
		{
			"watch_steps",
			float64(c.Watch.Steps),
			within(float64(c.Watch.Steps), 1, 1000),
			"steps from 1 to 1000",
		},
	} {
		if s.value != 0 && !s.ok {
			return fmt.Errorf("detect.%s is %v; set %s", s.key, s.value, s.set)
		}
	}
	if v := c.Tracker.Verification; v != "" && v != bocd.VerifyPaper && v != bocd.VerifyAdaptive {
		return fmt.Errorf("detect.verification is %q; set %s or %s", v, bocd.VerifyPaper, bocd.VerifyAdaptive)
	}
	return nil
}

// none turns off a setting whose zero value is the default.
const none = -1
