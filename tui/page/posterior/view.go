package posterior

import (
	"math"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// following is the end of a view that goes on with the newest iteration.
const following int64 = -1

// view maps columns to iterations: the newest shown at the right edge.
type view struct {
	s     *falconv1.Series
	hi    int // one past the place in the series of the newest shown
	n     int // iterations on screen
	width int // columns
}

// newSeriesView shows the iterations up to end, or the newest; where that is further
// back than the series goes, its oldest.
func newSeriesView(r widget.Rect, s *falconv1.Series, end int64) view {
	if s == nil {
		s = &falconv1.Series{}
	}
	v := view{s: s, width: max(0, r.W-LabelWidth), hi: len(s.Ms)}
	if end != following {
		v.hi = max(min(v.width, len(s.Ms)), min(len(s.Ms), int(end-s.FirstIteration)+1))
	}
	v.n = min(v.width, v.hi)
	return v
}

func (v view) newestIteration() int64 {
	return v.s.FirstIteration + int64(v.hi) - 1
}

func (v view) oldestIteration() int64 {
	return v.newestIteration() - int64(v.n) + 1
}

// lastKnownIteration is the newest iteration of all that is known.
func (v view) lastKnownIteration() int64 {
	return v.s.FirstIteration + int64(len(v.s.Ms)) - 1
}

// laterIterations is how many known iterations lie right of the screen.
func (v view) laterIterations() int {
	return len(v.s.Ms) - v.hi
}

// holdsIteration reports whether an iteration is on screen.
func (v view) holdsIteration(i int64) bool {
	return v.n > 0 && i >= v.oldestIteration() && i <= v.newestIteration()
}

// columnOf is where an iteration is drawn, -1 if it isn't.
func (v view) columnOf(i int64) int {
	if !v.holdsIteration(i) {
		return -1
	}
	return v.width - 1 - int(v.newestIteration()-i)
}

// indexOfColumn is the place in the series of what a column shows, -1 for none.
func (v view) indexOfColumn(col int) int {
	i := v.hi - (v.width - col)
	if col < v.width-v.n || i < 0 {
		return -1
	}
	return i
}

// indexOfIteration is the place in the series of an iteration on screen.
func (v view) indexOfIteration(i int64) int {
	return int(i - v.s.FirstIteration)
}

func (v view) threshold() float64 {
	if v.s.Threshold > 0 {
		return v.s.Threshold
	}
	return 0.9
}

// isAlarm reports whether an alarm waited for its verification after the i-th observation. Of an
// older engine that is not known: there it is taken from the threshold.
func (v view) isAlarm(i int) bool {
	if !v.s.OfJob {
		return i >= 0 &&
			i < len(v.s.Probability) &&
			float64(v.s.Probability[i]) > v.threshold()
	}
	_, found := slices.BinarySearch(v.s.Alarms, v.s.FirstIteration+int64(i))
	return found
}

// decisionAt is what is to be said of decisions at an iteration: one that was made or placed there;
// without a hairline the newest on screen. Nil for none.
func (v view) decisionAt(at int64, chosen bool) *falconv1.ChangeDecision {
	for _, d := range slices.Backward(v.s.Decisions) {
		if d.DecidedIteration == at ||
			d.Iteration == at ||
			!chosen && v.holdsIteration(d.DecidedIteration) {
			return d
		}
	}
	return nil
}

func (v view) columnValues(from []float32) []float64 {
	out := make([]float64, v.width)
	for col := range out {
		out[col] = math.NaN()
		if i := v.indexOfColumn(col); i >= 0 && i < len(from) {
			out[col] = float64(from[i])
		}
	}
	return out
}

// columnTimes are the iteration times; what is not known is no number.
func (v view) columnTimes() []float64 {
	out := v.columnValues(v.s.GetMs())
	for i, ms := range out {
		if ms <= 0 {
			out[i] = math.NaN()
		}
	}
	return out
}

// clockOf is the time of an iteration by the clock, "" where that is not known.
func (v view) clockOf(iteration int64, s *page.State) string {
	at := page.TimeOf(v.s, iteration)
	if at == 0 {
		return ""
	}
	return phrase.Clock(time.Unix(0, at), s.EngineNow(), s.Zone)
}

// column of the posterior after the i-th observation, nil where it was not
// sent. The last entry holds the tail.
func (v view) posterior(i int) []float32 {
	n := int(v.s.RunLengths)
	if n <= 0 || i < 0 || (i+1)*n > len(v.s.Posterior) {
		return nil
	}
	return v.s.Posterior[i*n : (i+1)*n]
}

// run is a run length with its probability.
type run struct {
	length int
	p      float64
}

// mostProbableRuns lists run lengths after the i-th observation, most probable first.
func (v view) mostProbableRuns(i, most int) []run {
	var out []run
	for r, p := range v.posterior(i) {
		if p > 0 && !math.IsNaN(float64(p)) {
			out = append(out, run{r, float64(p)})
		}
	}
	slices.SortStableFunc(out, func(a, b run) int {
		switch {
		case a.p > b.p:
			return -1
		case a.p < b.p:
			return 1
		}
		return a.length - b.length
	})
	return out[:min(most, len(out))]
}

// wasBefore is the most probable run length before it last fell, up to the i-th
// observation: how long the regime before this one had lasted.
func (v view) wasBefore(i int) (length int32, ok bool) {
	m := v.s.MapRunLength
	for ; i > 0 && i < len(m); i-- {
		if m[i] < m[i-1] {
			return m[i-1], true
		}
	}
	return 0, false
}

// Point puts the hairline on an iteration on screen.
func (p *Page) Point(t widget.Target, _ *page.State) {
	if t.Kind == widget.TargetIteration {
		p.hair = t.N
	}
}

// targetAt is the iteration in a column of the page.
func (v view) targetAt(x int) widget.Target {
	i := v.indexOfColumn(x - LabelWidth)
	if x < LabelWidth || x >= LabelWidth+v.width || i < 0 {
		return widget.Target{}
	}
	return widget.Target{Kind: widget.TargetIteration, N: v.s.FirstIteration + int64(i)}
}
