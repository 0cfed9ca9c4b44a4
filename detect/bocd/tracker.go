package bocd

import (
	"cmp"
	"fmt"
	"math"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/shift"
)

// Kind says what a verified change point is.
type Kind string

// The kinds of Change.
const (
	KindOnset   Kind = "onset"   // slower from here on
	KindRelief  Kind = "relief"  // faster from here on, or back at the baseline
	KindJitter  Kind = "jitter"  // an alarm that verification turned down
	KindSettled Kind = "settled" // verified, but it belongs to an action (see Settle)
)

// Change is one judged alarm. Indexes count observations from 0.
type Change struct {
	Index       int     // first observation of the new level
	Kind        Kind    //
	BeforeMs    float64 // median before
	AfterMs     float64 // median after
	Change      float64 // AfterMs/BeforeMs − 1
	Probability float64 // highest P(r ≤ w) of the alarm
	DetectedAt  int     // last observation seen when it was judged
	Why         *Decision
}

// TrackerConfig sets up a Tracker; zero fields mean their defaults.
type TrackerConfig struct {
	Filter  Config  `yaml:",inline"` // of the standardised series; Prune 0 means exact here too
	WarmUp  int     `yaml:"warm_up"` // observations that give the first scale, ≥ 3
	Verify  float64 `yaml:"verify"`  // |after − before| / min(before, after) that makes a change real
	Settled float64 `yaml:"-"`       // an incident ends when the level is within this of the baseline
	// Verification is by what the series' own noise proves (VerifyAdaptive, the default):
	// changes from Floor on. Or by Verify alone (VerifyPaper).
	Verification string  `yaml:"verification"`
	Floor        float64 `yaml:"floor"` // least share that is worth telling; 0 = shift.DefaultFloor
	// changes reported per iteration without a change, at most; 0 = shift.DefaultRate
	FalseAlarms float64 `yaml:"false_alarms"`
	// Raw feeds the filter the observations as they are, from the first on,
	// and never starts it over: its posterior is then that of the bare series.
	Raw bool `yaml:"-"`
	// Rest drops the filter while the series is near its level (rest.go), for trackers of
	// which there are thousands: PRecent is 0 then. With VerifyPaper alone, and not with Raw.
	Rest bool `yaml:"-"`
	// Keep is how many of the newest states of the filter are kept, see StateAt.
	Keep int `yaml:"-"`
}

// DefaultTrackerConfig is the production setting.
func DefaultTrackerConfig() TrackerConfig {
	return TrackerConfig{
		Filter:  DefaultConfig(),
		WarmUp:  defaultWarmUp,
		Verify:  0.10,
		Settled: 0.05,

		Verification: VerifyAdaptive,
		Floor:        shift.DefaultFloor,
		FalseAlarms:  shift.DefaultRate,
	}
}

const (
	defaultWarmUp = 10
	sideMin       = 3         // points on each side of a change, at least
	beforeMost    = 32        // points before a change that give its median
	patience      = 8         // points after which an alarm that was not verified is jitter
	lastPatience  = 24        // points after which it is even where the newest are off the level
	manyPoints    = 16        // points of which one in five may lie off a new level; of fewer, one in eight
	refeed        = 64        // newest observations of a level that start the filter over
	history       = driftMost // observations kept: also beforeMost + lastPatience
	recent        = 5         // points whose median is the present level
	scaleFloor    = 0.01
)

// Tracker watches one series of iteration times.
type Tracker struct {
	cfg    *TrackerConfig   // shared by trackers that are alike
	filter *Filter          // nil while it rests
	past   [history]float64 // ring of observations, by index
	next   int              // index of the next observation

	centre, scale float64 // of standardisation
	noise         float64 // share of the level that its noise is, without scale's floor
	from          int     // first index of the present level
	refined       bool    // centre and scale come from beforeMost points of it
	baseline      float64
	slow          bool // an onset is open
	alarm         alarm
	drift         drift
	restarts      int // how often the filter was started over
	jitter        int // index of the newest alarm turned down
	settleFrom    int // changes in [settleFrom, settleTo) belong to an action
	settleTo      int
	settleMost    float64 // but not those to levels above, ms

	small *small  // with VerifyAdaptive
	rest  rest    // with Rest
	corr  float64 // the filter's, while it rests

	fedFrom int       // first observation that the filter was fed since it was started over
	removed []Removed // of those from there on
	states  *states   // with Keep
}

// alarm is a change point that waits for its verification.
type alarm struct {
	raised      bool
	index       int
	first       int // earliest place it had: a hiccup's, when index moved past it
	probability float64
}

// NewTracker returns a tracker that has seen nothing. It panics on a filter
// configuration that Config.Validate refuses.
func NewTracker(cfg TrackerConfig) *Tracker {
	cfg.WarmUp = min(max(cmp.Or(cfg.WarmUp, defaultWarmUp), sideMin), history)
	cfg.Verify = cmp.Or(cfg.Verify, 0.10)
	cfg.Settled = cmp.Or(cfg.Settled, 0.05)
	return newTracker(&cfg)
}

// Another returns a tracker of the same kind that has seen nothing: the two share what does
// not change.
func (t *Tracker) Another() *Tracker { return newTracker(t.cfg) }

func newTracker(cfg *TrackerConfig) *Tracker {
	t := &Tracker{cfg: cfg, filter: New(cfg.Filter)}
	if cfg.Verification == VerifyAdaptive {
		t.small = &small{watch: shift.New(shift.Config{
			Floor: cfg.Floor,
			Rate:  cfg.FalseAlarms,
		})}
	}
	return t
}

// Observe takes in one iteration time in milliseconds, pauses taken out, and
// returns the changes that it settled, usually none. NaN and infinities return
// ErrNotFinite and are not counted as an observation.
func (t *Tracker) Observe(ms float64) ([]Change, error) {
	if math.IsNaN(ms) || math.IsInf(ms, 0) {
		return nil, fmt.Errorf("%w: %v", ErrNotFinite, ms)
	}
	t.past[t.next%history] = ms
	t.next++
	if t.atRest() {
		return t.observeAtRest(ms), nil
	}
	defer t.noteCalm(ms)
	proof, proven := t.observeSmall(ms)
	if t.cfg.Raw {
		t.feedFilter(ms)
	}
	if t.next < t.cfg.WarmUp {
		return nil, nil
	}
	if t.next == t.cfg.WarmUp {
		t.learnWarmUp()
		t.noteState()
		return nil, nil
	}
	if !t.cfg.Raw {
		t.feedFilter(ms)
	}
	t.updateAlarm()
	t.drift.observe(ms, t.cfg.Verify)
	t.refineLevel()
	t.updateReference()
	t.noteState()
	if changes := t.verifyAlarm(); len(changes) > 0 || !proven {
		return changes, nil
	}
	return []Change{t.acceptChange(t.smallChange(proof))}, nil
}

// learnWarmUp takes scale and baseline from the warm-up and feeds it to the filter.
func (t *Tracker) learnWarmUp() {
	window := t.observations(0, t.next)
	t.centre = falcon.Median(window)
	t.scale = spreadOf(window, t.centre)
	t.noise = clampFinite(noiseOf(window, t.centre) / math.Abs(t.centre))
	t.baseline, t.drift.reference = t.centre, t.centre
	t.refilter()
}

// refilter starts the filter over with the observations of the present level.
func (t *Tracker) refilter() {
	if t.cfg.Raw {
		return
	}
	t.filter.Reset()
	t.restarts++
	t.fedFrom = max(t.from, t.next-refeed, 0)
	t.forgetRemoved()
	for _, ms := range t.observations(t.fedFrom, t.next) {
		t.feedFilter(ms)
	}
}

// refineLevel takes centre and scale from a level's first beforeMost points, once
// it has them and nothing is under suspicion. The first level's median is the
// baseline.
func (t *Tracker) refineLevel() {
	if t.refined || t.alarm.raised || t.next-t.from < beforeMost {
		return
	}
	t.refined = true
	window := t.observations(t.from, t.next)
	t.centre = falcon.Median(window)
	t.scale = spreadOf(window, t.centre)
	t.noise = clampFinite(noiseOf(window, t.centre) / math.Abs(t.centre))
	if t.from == 0 {
		t.baseline = t.centre
	}
	t.refilter()
}

func (t *Tracker) feedFilter(ms float64) {
	_, _ = t.filter.Observe(t.standard(ms)) // finite: standard sees to it
}

// standard is an observation as the filter gets it.
func (t *Tracker) standard(ms float64) float64 {
	if t.cfg.Raw {
		return ms
	}
	// A finite ms over a floored scale overflows only beyond Limit.
	return min(max(ms/t.scale-t.centre/t.scale, -Limit), Limit)
}

// updateAlarm notes an alarm, or moves the pending one to its most probable place.
func (t *Tracker) updateAlarm() {
	step := t.filter.Last()
	probability := step.PRecent
	if !t.filter.Alarm() {
		if probability = t.detectRamp(step); probability <= t.filter.cfg.Threshold {
			return
		}
	}
	index := t.next - step.MAP
	if index-t.from < sideMin {
		return
	}
	if !t.alarm.raised {
		t.alarm = alarm{raised: true, first: index}
	}
	t.alarm.index = index
	t.alarm.first = min(index, t.alarm.first)
	t.alarm.probability = max(t.alarm.probability, probability)
}

// detectRamp catches a change that came as a ramp over a few points, so that
// P(r ≤ w) never reached the threshold. It returns the probability of a run
// that began no more than w points before the most probable one, when that one
// began within the last patience points, else 0.
func (t *Tracker) detectRamp(step Step) float64 {
	w := t.filter.cfg.Window
	if t.alarm.raised ||
		step.MAP <= w ||
		step.MAP > patience ||
		t.next-step.MAP <= t.jitter+w {
		return 0
	}
	near := 0.0
	for r, p := range t.filter.Runs {
		if r <= step.MAP+w {
			near += p
		}
	}
	return min(near, 1)
}

// acceptChange makes a verified change the present level.
func (t *Tracker) acceptChange(c Change) Change {
	switch {
	case c.Index >= t.settleFrom &&
		c.Index < t.settleTo &&
		c.AfterMs <= t.settleMost:
		c.Kind = KindSettled
	case c.AfterMs > c.BeforeMs:
		c.Kind = KindOnset
		t.small.open(t.slow, c)
		t.slow = true
	default:
		c.Kind = KindRelief
		t.baseline = min(t.baseline, c.AfterMs)
		t.slow = t.slow && t.isOff(c.AfterMs)
	}
	t.setLevel(c.Index, c.AfterMs)
	return c
}

// setLevel moves centre and scale to a new level, keeping the relative noise.
func (t *Tracker) setLevel(index int, ms float64) {
	noise := t.scale / math.Abs(t.centre)
	if t.centre != 0 && !math.IsInf(noise, 0) {
		t.scale = noise * math.Abs(ms)
	}
	t.scale = max(t.scale, scaleFloor*math.Abs(ms), math.SmallestNonzeroFloat64)
	t.centre = ms
	t.alarm = alarm{}
	t.drift = drift{}
	t.from, t.refined = index, false
	t.small.setLevel(index)
	t.refilter()
}

// checkRelief reports relief when an open incident's level has crept back to within
// the settled share of its own baseline without a change point of its own.
func (t *Tracker) checkRelief() []Change {
	if !t.slow || t.next-t.from < recent {
		return nil
	}
	level := t.reliefLevel()
	if t.isOff(level) {
		return nil
	}
	t.slow = false
	c := Change{
		Index:       t.next - recent,
		Kind:        KindRelief,
		BeforeMs:    t.centre,
		AfterMs:     level,
		Change:      relativeChange(t.centre, level),
		Probability: t.filter.Last().PRecent,
		DetectedAt:  t.next - 1,
		Why:         t.decide(ByReference, recent),
	}
	t.setLevel(c.Index, level)
	return []Change{c}
}

// Settle marks that changes whose first observation is index … index+n−1
// belong to an action: they are reported as KindSettled, become the present
// level, and neither open nor end an incident. A change to a level above most ms
// does not belong to it; +Inf takes all.
func (t *Tracker) Settle(index, n int, most float64) {
	t.settleFrom = index
	t.settleTo = index + n
	t.settleMost = most
	if t.small != nil {
		t.small.watch.Act(index)
	}
}

// Rebase makes ms, or with 0 the present level, the baseline and ends an open incident.
func (t *Tracker) Rebase(ms float64) {
	if ms == 0 {
		ms = t.LevelMs()
	}
	t.baseline, t.slow = ms, false
}

// Compare makes ms what the present level is held against, instead of what it
// was when it began: a level that is lastingly off it by Verify is a change.
func (t *Tracker) Compare(ms float64) {
	t.drift = drift{reference: ms, settled: true, given: true}
}

// Learning reports whether the warm-up is not over.
func (t *Tracker) Learning() bool { return t.next < t.cfg.WarmUp }

// Seen returns how many observations were taken in.
func (t *Tracker) Seen() int { return t.next }

// Slow reports whether an onset was reported whose relief was not.
func (t *Tracker) Slow() bool { return t.slow }

// BaselineMs is the lowest verified level, 0 during the warm-up.
func (t *Tracker) BaselineMs() float64 { return t.baseline }

// LevelMs is the median of the newest observations of the present level, or 0.
func (t *Tracker) LevelMs() float64 {
	return falcon.Median(t.observations(max(t.from, t.next-recent), t.next))
}

// PRecent is P(r ≤ w) after the newest observation, 0 while every run length
// is that short (at the start and right after a verified change) and while the filter rests.
func (t *Tracker) PRecent() float64 {
	if t.atRest() || t.filter.Seen() <= t.filter.cfg.Window {
		return 0
	}
	return t.filter.Last().PRecent
}

// observations copies observations from … to−1 in order, as far as they are held.
func (t *Tracker) observations(from, to int) []float64 {
	from = max(from, t.next-history, 0)
	out := make([]float64, 0, max(0, to-from))
	for i := from; i < to; i++ {
		out = append(out, t.past[i%history])
	}
	return out
}

// Runs calls yield with each run length kept and its probability: see
// Filter.Runs. It yields nothing before the filter has seen an observation.
func (t *Tracker) Runs(yield func(runLength int, probability float64) bool) {
	if !t.atRest() && t.filter.Seen() > 0 {
		t.filter.Runs(yield)
	}
}
