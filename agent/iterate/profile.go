package iterate

import (
	"cmp"
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
}

// Summarize computes the rank's profile. Self time is the device time outside
// communication per micro-batch: the gaps between the communication intervals
// of an iteration, without what belongs to its end (optimizer, data, host),
// divided by the micro-batches; the median over the window's whole iterations. Pipeline
// bubbles lie inside receives and so count as communication.
func Summarize(w Window) falcon.RankProfile {
	slices.SortStableFunc(w.Calls, func(a, b Timed) int { return cmp.Compare(a.StartMs, b.StartMs) })
	inheritIterations(w.Calls)
	selfs := selfTimes(w)
	slices.SortStableFunc(w.Calls, func(a, b Timed) int { return cmp.Compare(a.Iteration, b.Iteration) })
	p := falcon.RankProfile{
		Rank: w.Rank, Window: w.ID, MicroBatches: w.MicroBatches, Dropped: w.Dropped,
		Calls: make([]falcon.CallTiming, 0, len(w.Calls)),
	}
	queues := make([]float64, 0, len(w.Calls))
	for _, c := range w.Calls {
		p.Calls = append(p.Calls, c.CallTiming)
		queues = append(queues, c.QueueMs)
	}
	p.QueueMs = falcon.Median(queues)
	p.Iterations = len(selfs)
	p.SelfMs = falcon.Median(selfs) / float64(max(w.MicroBatches, 1))
	return p
}

// inheritIterations gives calls of unknown iteration the one of the call before.
func inheritIterations(calls []Timed) {
	for i := 1; i < len(calls); i++ {
		if calls[i].Iteration == UnknownIteration {
			calls[i].Iteration = calls[i-1].Iteration
		}
	}
}
