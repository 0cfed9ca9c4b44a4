package iterate

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// UnknownIteration marks a timed call whose record was overwritten before it
// was read; it is counted with the call before it.
const UnknownIteration = math.MinInt64

// Timed is a call timed on the device and the iteration that issued it.
type Timed struct {
	falcon.CallTiming
	Iteration int64
	// Control marks a small reduction over all ranks (a loss, a norm, a
	// vote): what lies between such calls at the end of an iteration is the
	// optimizer and the host, not the micro-batches.
	Control bool
}

// Window is what one rank left behind in one profile window.
type Window struct {
	ID           uint64
	Rank         falcon.Rank
	Calls        []Timed // any order; Summarize sorts it
	First, Last  int64   // whole iterations, inclusive; First > Last for none
	MicroBatches int     // per iteration, 0 = the job does not say
	// BeginMs is where an iteration begins on the device's timeline, where
	// step marks say so.
	BeginMs map[int64]float64
	Dropped uint64
	// Partial are the iterations of which some call was not timed.
	Partial map[int64]bool
}

// Summarize computes the rank's profile. Self time is the device time outside
// communication per micro-batch: the gaps between the communication intervals
// of an iteration, without what belongs to its end (optimizer, data, host),
// divided by the micro-batches; the median over the window's whole iterations. Pipeline
// bubbles lie inside receives and so count as communication.
//
// Only the calls of whole iterations are kept, so that no time and no count per
// iteration is more or less than it was; where calls were dropped, those that lack
// one are left out.
func Summarize(w Window) falcon.RankProfile {
	slices.SortStableFunc(w.Calls, func(a, b Timed) int {
		return cmp.Compare(a.StartMs, b.StartMs)
	})
	partial := inheritIterations(w)
	selfs := selfTimes(w, partial)
	slices.SortStableFunc(w.Calls, func(a, b Timed) int {
		return cmp.Compare(a.Iteration, b.Iteration)
	})
	p := falcon.RankProfile{
		Rank:         w.Rank,
		Window:       w.ID,
		MicroBatches: w.MicroBatches,
		Dropped:      w.Dropped,
		Calls:        make([]falcon.CallTiming, 0, len(w.Calls)),
	}
	queues := make([]float64, 0, len(w.Calls))
	for _, c := range w.Calls {
		if (len(selfs) > 0 || w.Dropped > 0) &&
			(c.Iteration < w.First || c.Iteration > w.Last || partial[c.Iteration]) {
			continue
		}
		p.Calls = append(p.Calls, c.CallTiming)
		queues = append(queues, c.QueueMs)
	}
	p.QueueMs = falcon.Median(queues)
	p.Iterations = len(selfs)
	p.SelfMs = falcon.Median(selfs) / float64(max(w.MicroBatches, 1))
	return p
}

// inheritIterations gives calls of unknown iteration the one of the call before,
// and returns the iterations that are not whole: those given, and those between
// which such calls lie, as where one ended is not known then. Without step marks
// the iteration behind one that is not whole is not either: its first gap begins
// with the last call before it.
func inheritIterations(w Window) map[int64]bool {
	partial := maps.Clone(w.Partial)
	if partial == nil {
		partial = map[int64]bool{}
	}
	known := int64(UnknownIteration)
	unknown := false
	for i := range w.Calls {
		c := &w.Calls[i]
		if c.Iteration == UnknownIteration {
			c.Iteration, unknown = known, true
			continue
		}
		if unknown && known != c.Iteration && w.Dropped > 0 {
			partial[known], partial[c.Iteration] = true, true
		}
		known = c.Iteration
		unknown = false
	}
	if unknown && w.Dropped > 0 {
		partial[known] = true
	}
	// what came before the first and after the last may be lost too
	if n := len(w.Calls); w.Dropped > 0 && n > 0 {
		partial[w.Calls[0].Iteration], partial[w.Calls[n-1].Iteration] = true, true
		missingNumbers(w.Calls, partial)
	}
	if len(w.BeginMs) == 0 {
		for k := range maps.Clone(partial) {
			partial[k+1] = true
		}
	}
	return partial
}

// missingNumbers adds the iterations in which a call's number is missing among those
// of its communicator; each that lies between two iterations, to both.
func missingNumbers(calls []Timed, partial map[int64]bool) {
	byComm := map[uint64][]Timed{}
	for _, c := range calls {
		byComm[c.Comm] = append(byComm[c.Comm], c)
	}
	for _, v := range byComm {
		slices.SortFunc(v, func(a, b Timed) int {
			return cmp.Compare(a.Ordinal, b.Ordinal)
		})
		for i := 1; i < len(v); i++ {
			if v[i].Ordinal > v[i-1].Ordinal+1 {
				for k := v[i-1].Iteration; k != UnknownIteration &&
					k <= v[i].Iteration &&
					k-v[i-1].Iteration < iterationsApart; k++ {
					partial[k] = true
				}
				partial[v[i].Iteration] = true
			}
		}
	}
}

// iterationsApart bounds the iterations between two calls of a window.
const iterationsApart = 4096
