package bocd

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// ErrNotFinite refuses NaN and the infinities.
var ErrNotFinite = errors.New("bocd: observation is not a finite number")

// ErrConfig refuses a configuration that has no meaning.
var ErrConfig = errors.New("bocd: configuration")

// Defaults of a Filter. The hazard is the one the golden posteriors of
// training jobs were made with.
const (
	DefaultRunLength = 250 // expected iterations between changes
	DefaultWindow    = 5   // a change is recent while r ≤ DefaultWindow
	DefaultThreshold = 0.9 // alarm when P(r ≤ w) exceeds it (FALCON §4.2)
	DefaultPrune     = 1   // times the tolerance at which run lengths are merged
	DefaultMaxRuns   = 256 // run lengths kept at most, when pruning

	// Limit is the largest magnitude that is distinguished: an observation
	// beyond it counts as Limit, so that squares stay finite.
	Limit = 1e140
)

// Prior is the Normal-Gamma prior of a run's mean and precision.
type Prior struct {
	Mu    float64 // mean of the mean
	Kappa float64 // pseudo-observations behind Mu, > 0
	Alpha float64 // shape of the precision, > 0
	Beta  float64 // rate of the precision, > 0
}

// UnitPrior is mu 0 and kappa = alpha = beta = 1, for a standardised series.
var UnitPrior = Prior{Mu: 0, Kappa: 1, Alpha: 1, Beta: 1}

// Config sets up a Filter. The zero value of each field means its default,
// but Prune 0 means no pruning: an exact posterior whose memory and time grow
// with the series.
type Config struct {
	RunLength float64 `yaml:"run_length"` // expected run length; the hazard is 1/RunLength
	Window    int     `yaml:"-"`          // w of P(r ≤ w)
	Threshold float64 `yaml:"threshold"`  // alarm when P(r ≤ w) > Threshold
	Prior     Prior   `yaml:"-"`
	// Prune scales the tolerance at which run lengths that predict alike are
	// merged (see tolerance). The shortest and the most probable always stay.
	Prune   float64 `yaml:"-"`
	MaxRuns int     `yaml:"-"` // most run lengths kept when Prune > 0: the bound rises until they fit
}

// DefaultConfig is the production setting: constant hazard 1/250, w = 5,
// threshold 0.9, unit prior, pruning at its standard tolerance and at most 256
// run lengths, of which noise needs some 40. Against the exact filter P(r ≤ w)
// is off by less than 0.01 at every point of the real records, by up to 0.02 at
// single points of long stationary noise, and no decision of Tracker differs
// (prune_test.go).
func DefaultConfig() Config {
	return Config{
		RunLength: DefaultRunLength,
		Window:    DefaultWindow,
		Threshold: DefaultThreshold,
		Prior:     UnitPrior,
		Prune:     DefaultPrune,
		MaxRuns:   DefaultMaxRuns,
	}
}

func (c Config) withDefaults() Config {
	c.RunLength = cmp.Or(c.RunLength, DefaultRunLength)
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.Threshold = cmp.Or(c.Threshold, DefaultThreshold)
	c.Prior = cmp.Or(c.Prior, UnitPrior)
	c.MaxRuns = max(cmp.Or(c.MaxRuns, DefaultMaxRuns), exactBelow(c.Window)+3+pruneEvery)
	return c
}

// Validate says what is wrong with a configuration, wrapping ErrConfig.
func (c Config) Validate() error {
	c = c.withDefaults()
	p := c.Prior
	switch {
	case !(c.RunLength >= 1 && c.RunLength <= 1e12):
		return fmt.Errorf("%w: expected run length %g must be from 1 to 1e12", ErrConfig, c.RunLength)
	case c.Window < 0:
		return fmt.Errorf("%w: window %d must not be negative", ErrConfig, c.Window)
	case !(c.Threshold > 0 && c.Threshold < 1):
		return fmt.Errorf("%w: threshold %g must lie between 0 and 1", ErrConfig, c.Threshold)
	case !(c.Prune >= 0 && c.Prune <= 100):
		return fmt.Errorf("%w: pruning %g must be from 0, which is none, to 100", ErrConfig, c.Prune)
	case !(math.Abs(p.Mu) <= Limit):
		return fmt.Errorf("%w: prior mu %g must be finite and at most 1e140 in size", ErrConfig, p.Mu)
	case !inRange(p.Kappa) || !inRange(p.Alpha) || !inRange(p.Beta):
		return fmt.Errorf("%w: prior kappa, alpha and beta must each be from 1e-12 to 1e12", ErrConfig)
	}
	return nil
}

func inRange(x float64) bool { return x >= 1e-12 && x <= 1e12 }

// Step is the posterior's summary after one observation.
type Step struct {
	PRecent float64 // P(r ≤ w)
	MAP     int     // most probable run length; the run holds the last MAP observations
	PMAP    float64 // its probability
	Runs    int     // run lengths kept
}

// Filter is the run-length posterior of one series. Run length 0 means a
// change right after the newest observation, so P(r = 0) is the hazard at
// every step and says nothing; alarms are put on P(r ≤ w).
type Filter struct {
	cfg     Config
	terms   *terms
	stay    float64 // log(1 − hazard)
	leave   float64 // log hazard
	logVari float64 // log of the prior's beta/α
	pStay   float64 // 1 − hazard
	pGo     float64 // hazard
	seen    int
	last    Step
	mood    mood
	top     int // entry of the most probable run length, the shortest of equals

	// Weights become probabilities when they are read, without a pass over them:
	// log probability = logw + shift, probability = prob · scale.
	shift, scale float64
	peak         float64 // log weight of weight 1

	// One entry per run length kept, oldest first; the last is r = 0.
	run  []int     // observations in the run
	mu   []float64 // posterior mean
	beta []float64 // posterior rate
	logv []float64 // log of beta/α
	logw []float64 // log weight
	prob []float64 // weight, 1 for the most probable
}

// New returns a filter that has seen nothing: all mass on r = 0. It panics on
// a configuration that Validate refuses.
func New(cfg Config) *Filter {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	cfg = cfg.withDefaults()
	f := &Filter{cfg: cfg, terms: termsFor(cfg.Prior)}
	hazard := min(1/cfg.RunLength, 1-0x1p-53) // some mass stays, to scale by
	f.stay = math.Log1p(-hazard)
	f.leave = math.Log(hazard)
	f.logVari = math.Log(cfg.Prior.Beta / cfg.Prior.Alpha)
	f.pStay = 1 - hazard
	f.pGo = hazard
	f.Reset()
	return f
}

// Reset forgets the series.
func (f *Filter) Reset() {
	f.run = f.run[:0]
	f.mu = f.mu[:0]
	f.beta = f.beta[:0]
	f.logv = f.logv[:0]
	f.logw = f.logw[:0]
	f.prob = f.prob[:0]
	f.seen = 0
	f.top = 0
	f.mood = mood{}
	f.shift = 0
	f.scale = 1
	f.peak = 0
	f.pushRun(0, 1)
	f.last = Step{PRecent: 1, PMAP: 1, Runs: 1}
}

// Seen returns how many observations were taken in.
func (f *Filter) Seen() int { return f.seen }

// Last returns the summary after the newest observation.
func (f *Filter) Last() Step { return f.last }

// Alarm reports whether P(r ≤ w) exceeds the threshold. It can't before more
// than w observations, when every run length is that short.
func (f *Filter) Alarm() bool {
	return f.seen > f.cfg.Window && f.last.PRecent > f.cfg.Threshold
}

// Observe takes one observation; on NaN and infinities it returns ErrNotFinite and changes nothing.
func (f *Filter) Observe(x float64) (Step, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return f.last, fmt.Errorf("%w: %v", ErrNotFinite, x)
	}
	x = min(max(x, -Limit), Limit)
	f.trackFit(x)
	top := f.predict(x)
	f.seen++
	f.normalise(top)
	f.pushRun(f.leave-f.shift, f.pGo/f.scale)
	if last := len(f.prob) - 1; f.prob[last] >= f.prob[f.top] {
		f.top = last
	}
	if f.cfg.Prune > 0 {
		f.pruneRuns()
	}
	f.last = f.currentStep()
	return f.last, nil
}

// predict multiplies every run's weight by its Student-t predictive at x, adds x to
// the run, and returns the largest log weight.
//
// With u = κd²/(2(κ+1)), d = x − μ, the predictive is
// Γ(α+½)/Γ(α) · sqrt(κ/(2π(κ+1))) · β^α / (β+u)^(α+½), and β+u is the run's next β:
// one logarithm per run suffices. What is kept is that of the variance β/α.
func (f *Filter) predict(x float64) float64 {
	short := 0
	for short < len(f.run) && f.run[short] >= seriesFrom {
		short++
	}
	top := f.predictLong(x, short)
	return f.predictShort(x, short, top)
}

// predictShort is predict for the entries from one on, whose runs are shorter than
// seriesFrom. Top is the largest log weight before them.
func (f *Filter) predictShort(x float64, from int, top float64) float64 {
	run, n := f.run[from:], len(f.run)
	mu := f.mu[from:n]
	beta := f.beta[from:n]
	logv := f.logv[from:n]
	logw := f.logw[from:n]
	shift := f.shift
	table := &f.terms.short
	best := f.top
	for i, r := range run {
		c := &table[r&(seriesFrom-1)] // which is r
		d := x - mu[i]
		next := beta[i] + (0.5-0.5*c.step)*d*d
		log, before := fastLog(next*c.byAlpha), logv[i]
		w := logw[i] + shift + c.constant - 0.5*before - c.power*(log-before)
		mu[i] += c.step * d
		beta[i] = next
		logv[i] = log
		logw[i] = w
		run[i] = r + 1
		if w >= top {
			top = w
			best = from + i
		}
	}
	f.top = best
	return top
}

// predictLong is predict for the entries before one. There a large α multiplies the
// change of the logarithm, so that a difference of logarithms is not exact enough.
func (f *Filter) predictLong(x float64, to int) float64 {
	run := f.run[:to]
	mu := f.mu[:to]
	beta := f.beta[:to]
	logv := f.logv[:to]
	logw := f.logw[:to]
	shift, t := f.shift, f.terms
	top := math.Inf(-1)
	best := 0
	for i, r := range run {
		c := t.factorsFor(r)
		d := x - mu[i]
		more := (0.5 - 0.5*c.step) * d * d
		next := beta[i] + more
		grown := 0.0
		if more > seriesMost*beta[i] {
			grown = fastLog(next / beta[i])
		} else {
			grown = logGrowth(more / (next + beta[i]))
		}
		w := logw[i] + shift + c.constant - 0.5*logv[i] - c.power*grown
		mu[i] += c.step * d
		beta[i], logv[i], logw[i] = next, logv[i]+(grown-c.shrink), w
		run[i] = r + 1
		if w >= top {
			top, best = w, i
		}
	}
	f.top = best
	return top
}

// In runs of seriesFrom and more an observation nearly always adds little to β, and a
// short series replaces the logarithm.
const (
	seriesFrom = 128 // a power of 2
	seriesMost = 0.05
)

// logGrowth is log((1+s)/(1−s)) = 2(s + s³/3 + …) for s ≤ seriesMost/2; the remainder
// is below 1e-17 of the result.
func logGrowth(s float64) float64 {
	q := s * s
	return 2 * s * (1 + q*(1.0/3+q*(1.0/5+q*(1.0/7+q*(1.0/9)))))
}

// normalise computes the weights, and the scale by which the probabilities sum to
// 1 − hazard.
func (f *Filter) normalise(top float64) {
	logw := f.logw
	prob := f.prob[:len(logw)]
	sum := 0.0
	for i, w := range logw {
		prob[i] = expNegative(w - top)
		sum += prob[i]
	}
	f.scale, f.shift, f.peak = f.pStay/sum, f.stay-top-fastLog(sum), top
}

// pushRun adds a run of length 0.
func (f *Filter) pushRun(logw, prob float64) {
	p := f.cfg.Prior
	f.run = append(f.run, 0)
	f.mu = append(f.mu, p.Mu)
	f.beta = append(f.beta, p.Beta)
	f.logv = append(f.logv, f.logVari)
	f.logw = append(f.logw, logw)
	f.prob = append(f.prob, prob)
}
