package iterate

import (
	"math"

	"github.com/failslow/falcon"
)

// interval is a stretch of time without a moment free of communication.
type interval struct {
	iteration    int64 // of its first call
	start, end   float64
	receives     bool // some call in it receives
	receivesOnly bool // all calls that it starts with do
	closing      bool // a vote over all ranks, or gathering updated weights behind one
}

// intervals joins overlapping calls, but for closing ones with others; calls are
// sorted by start. No interval ends before the one before it.
func intervals(calls []Timed) []interval {
	var out []interval
	for i, c := range calls {
		receives := c.Op == falcon.OpRecv
		end := c.StartMs + c.DurationMs
		closing := c.Control
		if n := len(out); n > 0 {
			v := &out[n-1]
			end = max(end, v.end)
			closing = closing || (v.closing && c.Op == falcon.OpAllGather)
			if c.StartMs <= v.end && closing == v.closing {
				v.end = end
				v.receives = v.receives || receives
				if calls[i-1].StartMs == c.StartMs && c.StartMs == v.start {
					v.receivesOnly = v.receivesOnly && receives
				}
				continue
			}
		}
		out = append(out, interval{
			iteration:    c.Iteration,
			start:        c.StartMs,
			end:          end,
			receives:     receives,
			receivesOnly: receives,
			closing:      closing,
		})
	}
	return out
}

// selfTimes is the computation of each whole iteration, ms: the gaps before
// its intervals. Gaps at the end of a step are no computation, or only in part:
//
//   - before a closing vote: the last backward pass, where a receive came
//     before it; behind a send or a gradient reduction only the host is awaited;
//   - between closing calls: the optimizer;
//   - before the first call of a step: see first.
//
// So the first forward and the last backward pass of a first stage count, and
// the result does not depend on the number of micro-batches.
func selfTimes(w Window, partial map[int64]bool) []float64 {
	all := intervals(w.Calls)
	voted := false
	for _, v := range all {
		voted = voted || v.closing
	}
	var out []float64
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].iteration == all[from].iteration {
			to++
		}
		if k := all[from].iteration; k >= w.First && k <= w.Last && !partial[k] {
			out = append(out, iterationSelf(w, all, from, to, voted))
		}
		from = to
	}
	return out
}

// iterationSelf adds up the gaps before all[from:to], an iteration's intervals.
func iterationSelf(w Window, all []interval, from, to int, voted bool) (ms float64) {
	_, marked := w.BeginMs[all[from].iteration]
	for i := from; i < to; i++ {
		switch {
		case marked && i == from, !marked && afterStep(all, i, voted):
			ms += beforeFirstCall(w, all, i, to)
		case i == 0: // nothing is known before the window
		case all[i].closing && (all[i-1].closing || !all[i-1].receives):
		default:
			ms += max(0, all[i].start-all[i-1].end)
		}
	}
	return ms
}

// afterStep says, without marks, whether interval i is the first of a step.
// Iterations are then cut at their anchor call, which lies at the end of a step
// as rare calls do, so that a step's first interval is the one behind the
// closing votes, or behind the anchor in a job that has none.
func afterStep(all []interval, i int, voted bool) bool {
	switch {
	case i == 0:
		return true
	case voted:
		return all[i-1].closing && !all[i].closing
	}
	return i == 1 || all[i-1].iteration != all[i-2].iteration
}

// beforeFirstCall is the computation before a step's first interval i. There is none
// where that is a receive, which is issued at once, or a vote. From the step
// mark on the whole gap counts. Without a mark it also holds the optimizer and
// the host: it counts as at most the gap behind it, the next forward pass, but
// for jobs that communicate less than once a micro-batch, where nothing else
// delimits the computation. Where the micro-batches are not known, it counts as far
// as it is longer than all gaps behind it: such a job computes there.
func beforeFirstCall(w Window, all []interval, i, to int) float64 {
	begin, marked := w.BeginMs[all[i].iteration]
	if all[i].receivesOnly || all[i].closing || (i == 0 && !marked) {
		return 0
	}
	if !marked {
		begin = math.Inf(-1)
	}
	if i > 0 {
		begin = max(begin, all[i-1].end)
	}
	gap := max(0, all[i].start-begin)
	if few := to-i < max(w.MicroBatches, 2); marked || few || i+1 == to {
		return gap
	}
	next := max(0, all[i+1].start-all[i].end)
	if w.MicroBatches == 0 {
		next = max(next, gap-gapsBehind(all[i:to]))
	}
	return min(gap, next)
}

// gapsBehind adds up the gaps between a step's intervals, but for those before
// closing ones.
func gapsBehind(step []interval) (ms float64) {
	for i := 1; i < len(step); i++ {
		if !step[i].closing {
			ms += max(0, step[i].start-step[i-1].end)
		}
	}
	return ms
}
