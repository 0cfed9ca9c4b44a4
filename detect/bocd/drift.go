package bocd

import (
	"math"

	"github.com/failslow/falcon"
)

// A change point is where the series differs from what it was just before, so
// neither a slow drift nor a ladder of steps below Verify has one, however far
// they lead: the one miss of FALCON §7.2. So the newest points are compared with
// the reference as well, what the present level was when it began.
const (
	driftLeast   = 32  // points beyond the middle that show a drift
	givenLeast   = 12  // those that show that the level is off a reference that was given
	driftLarge   = 2   // times Verify from which patience and one more do
	driftMost    = 128 // points that show a shallow one, and that give the reference
	driftEvery   = 8   // points between two looks
	driftForgive = 4   // points beyond that make up for one that is not

	sure        = 2.5    // standard errors of its median by which a change must exceed Verify
	medianError = 1.2533 // of a median, to that of a mean
	corrMost    = 0.9
)

// drift counts how lastingly the series is off the reference. The counters go
// up by one with a point beyond the middle between the reference and Verify on
// their side, and down by driftForgive with one that is not.
type drift struct {
	reference float64
	settled   bool // the reference comes from beforeMost points or more
	given     bool // by Compare
	slower    int
	faster    int
}

// observe takes in one observation.
func (d *drift) observe(ms, verify float64) {
	if d.reference <= 0 {
		return
	}
	d.slower = nextCount(d.slower, ms > d.reference*(1+verify/2))
	if ms < d.reference*(1+verify) { // a pause says nothing about a level that fell
		d.faster = nextCount(d.faster, ms < d.reference/(1+verify/2))
	}
}

func nextCount(n int, beyond bool) int {
	if beyond {
		return min(n+1, driftMost)
	}
	return max(n-driftForgive, 0)
}

// findDrift looks for a level without a change point of its own: the median of the newest
// points is off the reference by Verify and a margin for noise.
func (t *Tracker) findDrift() (Change, bool) {
	d := &t.drift
	n := max(d.slower, d.faster)
	if n <= patience ||
		n < driftMost && (n-patience-1)%driftEvery != 0 ||
		n == driftMost && t.next%driftEvery != 0 {
		return Change{}, false
	}
	least := driftLeast
	if d.given {
		least = givenLeast
	}
	for ; n > patience; n /= 2 {
		c := t.measureAgainst(d.reference, t.next-n)
		large := relative(c.BeforeMs, c.AfterMs) >= driftLarge*t.cfg.Verify
		if (large || n >= least) &&
			t.exceedsNoise(c) &&
			t.holdsAfter(c) &&
			!t.small.explains(c, n) {
			return t.measureAgainst(d.reference, t.crossing(c)), true
		}
	}
	return Change{}, false
}

// measureAgainst measures what came from an index on against a level.
func (t *Tracker) measureAgainst(level float64, index int) Change {
	c := Change{
		Index:       index,
		BeforeMs:    level,
		AfterMs:     falcon.Median(t.observations(index, t.next)),
		Probability: t.filter.Last().PRecent,
		DetectedAt:  t.next - 1,
	}
	c.Change = relativeChange(c.BeforeMs, c.AfterMs)
	return c
}

// crossing is where a drift went past Verify: the index that has most points on
// its side, those within before it and those beyond from it on.
func (t *Tracker) crossing(c Change) int {
	score := 0
	best := 0
	at := c.Index
	for i := c.Index; i < t.next-patience; i++ {
		past := relative(c.BeforeMs, t.past[i%history]) >= t.cfg.Verify &&
			(t.past[i%history] > c.BeforeMs) == (c.AfterMs > c.BeforeMs)
		if past {
			score--
		} else if score++; score > best {
			best = score
			at = i + 1
		}
	}
	return at
}

// exceedsNoise reports whether a change exceeds Verify by a margin for noise: for n points, sure
// standard errors of their median: 1.2533 σ/√n for normal noise, widened for the correlation of
// neighbours as for a first-order autoregression, √((1+ρ)/(1−ρ)).
func (t *Tracker) exceedsNoise(c Change) bool {
	rho := min(max(t.filter.mood.corr, 0), corrMost)
	margin := sure * medianError * t.noise * math.Sqrt((1+rho)/(1-rho)/float64(t.next-c.Index))
	return relative(c.BeforeMs, c.AfterMs) >= t.cfg.Verify+margin
}

// updateReference takes the reference of a young level: its first beforeMost points, then
// its first driftMost, unless it is off by then.
func (t *Tracker) updateReference() {
	d := &t.drift
	n := t.next - t.from
	if !d.settled && n >= beforeMost && !t.alarm.raised ||
		n == driftMost && max(d.slower, d.faster) <= patience && !d.given {
		d.reference = falcon.Median(t.observations(t.from, t.next))
		d.settled = true
	}
}

// checkReference reports whether a change that is too small by itself is one against the
// reference, as the last step of a ladder is; then c is that one.
func (t *Tracker) checkReference(c *Change) bool {
	r := t.drift.reference
	if r <= 0 || (c.AfterMs > c.BeforeMs) != (c.BeforeMs > r) {
		return false
	}
	if c.AfterMs < r && !t.slow {
		// nothing was slow that could end by steps: a level that sank is for
		// drifted, which looks longer
		return false
	}
	whole := *c
	whole.BeforeMs = r
	whole.Change = relativeChange(r, c.AfterMs)
	if !t.verified(whole) || !t.holdsAfter(*c) {
		return false
	}
	*c = whole
	return true
}
