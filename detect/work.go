package detect

import (
	"cmp"
	"maps"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
)

// Bounds of what is kept of the job's own work.
const (
	workKept   = 256 // iterations
	workWaits  = 8   // longest waits of each
	workBefore = 64  // iterations before an onset that its own are compared with
)

// workLog keeps what the ranks' calls said of the newest iterations, summed up over the
// ranks: a few numbers for each, however many ranks there are.
type workLog struct {
	job     *jobState
	samples *sampleLog
	open    map[int64]*iterationWork // not complete yet
	done    []iterationWork          // oldest first
}

// iterationWork is one iteration of all ranks.
type iterationWork struct {
	iteration int64
	ms        float64
	waits     []cause.Stop // longest first
	waiting   []float64    // of the ranks that do, while it is open
	middle    float64      // wait of the middle rank
	pause     cause.Stop   // the longest
	tails     int          // ranks that stopped behind their last call
	tailMs    float64      // the shortest of these

	changed, calls, usual int
	kinds                 []falcon.CallChange
	kept                  int
	sized                 int
	sizeRatio             float64
}

func (l *workLog) startEpoch() {
	l.open = map[int64]*iterationWork{}
	l.done = nil
}

// add takes in one sample; nothing is kept of one that is as usual.
func (l *workLog) add(s *falcon.Sample) {
	if s.Work == nil || s.PausedMs > 0 {
		return
	}
	w := l.open[s.Iteration]
	if w == nil {
		if len(l.open) >= foldKeep {
			delete(l.open, slices.Min(slices.Collect(maps.Keys(l.open))))
		}
		w = &iterationWork{iteration: s.Iteration, sizeRatio: 1}
		l.open[s.Iteration] = w
	}
	w.take(s)
}

func (w *iterationWork) take(s *falcon.Sample) {
	own := s.Work
	if own.WaitMs > 0 {
		w.waits = append(w.waits, cause.Stop{Rank: s.Rank, Ms: own.WaitMs})
		slices.SortFunc(w.waits, func(a, b cause.Stop) int {
			return cmp.Or(cmp.Compare(b.Ms, a.Ms), cmp.Compare(a.Rank, b.Rank))
		})
		w.waits = w.waits[:min(len(w.waits), workWaits)]
		w.waiting = append(w.waiting, own.WaitMs)
	}
	if own.PauseMs > w.pause.Ms {
		w.pause = cause.Stop{Rank: s.Rank, Ms: own.PauseMs}
	}
	if own.TailMs > 0 {
		if w.tails++; w.tails == 1 || own.TailMs < w.tailMs {
			w.tailMs = own.TailMs
		}
	}
	if own.Calls > 0 {
		w.changed, w.calls, w.usual = w.changed+1, w.calls+own.Calls, w.usual+own.UsualCalls
		w.kept = max(w.kept, own.Kept)
		if len(own.Changed) > len(w.kinds) {
			w.kinds = own.Changed
		}
	}
	if own.UsualBytes > 0 {
		w.sized++
		w.sizeRatio = max(w.sizeRatio, float64(own.Bytes)/float64(own.UsualBytes))
	}
}

// close ends an iteration of the job.
func (l *workLog) close(iteration int64, ms float64) {
	w := l.open[iteration]
	delete(l.open, iteration)
	if w == nil {
		w = &iterationWork{iteration: iteration, sizeRatio: 1}
	}
	w.ms = ms
	silent := max(0, len(l.samples.ranks)-len(w.waiting))
	w.middle = falcon.Median(append(w.waiting, make([]float64, silent)...))
	w.waiting = nil
	l.done = append(l.done[max(0, len(l.done)-workKept+1):], *w)
}

// since sums up the slow iterations of an onset.
func (l *workLog) since(onset int64, healthyMs, slowMs float64) cause.Work {
	var slow, other []*iterationWork
	lost := 0.0
	for i := range l.done {
		w := &l.done[i]
		switch {
		case w.iteration >= onset && w.ms > (healthyMs+slowMs)/2:
			slow = append(slow, w)
			lost += w.ms - healthyMs
		case w.iteration >= onset-workBefore:
			other = append(other, w)
		}
	}
	if len(slow) == 0 || healthyMs <= 0 {
		return cause.Work{}
	}
	out := cause.Work{Iterations: len(slow), LostMs: lost / float64(len(slow))}
	l.sumWaits(&out, slow, other)
	sumChanges(&out, slow, other)
	l.sumPauses(&out, slow)
	return out
}

func shareOf(list []*iterationWork, is func(*iterationWork) bool) float64 {
	n := 0
	for _, w := range list {
		if is(w) {
			n++
		}
	}
	return float64(n) / float64(max(1, len(list)))
}

func medianOf(list []*iterationWork, of func(*iterationWork) float64) float64 {
	out := make([]float64, len(list))
	for i, w := range list {
		out[i] = of(w)
	}
	return falcon.Median(out)
}

// waitOf is how long a rank waited in an iteration, 0 where it is not among the longest.
func (w *iterationWork) waitOf(r falcon.Rank) float64 {
	for _, s := range w.waits {
		if s.Rank == r {
			return s.Ms
		}
	}
	return 0
}

func (l *workLog) sumWaits(out *cause.Work, slow, other []*iterationWork) {
	seen := map[falcon.Rank]bool{}
	for _, w := range slow {
		for _, s := range w.waits {
			seen[s.Rank] = true
		}
	}
	for _, r := range slices.Sorted(maps.Keys(seen)) {
		of := func(w *iterationWork) float64 { return w.waitOf(r) }
		if ms := medianOf(slow, of) - medianOf(other, of); ms > 0 {
			out.Waits = append(out.Waits, cause.Stop{Rank: r, Ms: ms})
		}
	}
	slices.SortStableFunc(out.Waits, func(a, b cause.Stop) int {
		return cmp.Compare(b.Ms, a.Ms)
	})
	middle := func(w *iterationWork) float64 { return w.middle }
	out.WaitMs = max(0, medianOf(slow, middle)-medianOf(other, middle))
	out.WaitAll = out.WaitMs > 0 &&
		len(out.Waits) > 0 &&
		out.Waits[0].Ms < waitsAlike*out.WaitMs
}

// waitsAlike is the longest wait over the middle one, below which all ranks wait alike.
const waitsAlike = 2

func sumChanges(out *cause.Work, slow, other []*iterationWork) {
	changed := func(w *iterationWork) bool { return w.changed > 0 }
	out.Changed, out.ChangedBefore = shareOf(slow, changed), shareOf(other, changed)
	for _, w := range slow {
		if w.changed > 0 {
			out.Ranks = w.changed
			out.Calls = w.calls
			out.Usual = w.usual
			out.Kinds = w.kinds
			out.Kept = w.kept
		}
		out.SizeRanks = max(out.SizeRanks, w.sized)
	}
	out.Sized = shareOf(slow, func(w *iterationWork) bool { return w.sizeRatio > 1 })
	out.SizeRatio = medianOf(slow, func(w *iterationWork) float64 { return w.sizeRatio })
}

// longestStop is the longest time in which a host made no call where it usually does, inside
// the iteration or, beyond the middle rank, before its first call.
func (w *iterationWork) longestStop() cause.Stop {
	if len(w.waits) > 0 && w.waits[0].Ms-w.middle > w.pause.Ms {
		return cause.Stop{Rank: w.waits[0].Rank, Ms: w.waits[0].Ms - w.middle}
	}
	return w.pause
}

// pauseLeast is the share of what an iteration lost that a pause must have taken.
const pauseLeast = 1.0 / 3

func (l *workLog) sumPauses(out *cause.Work, slow []*iterationWork) {
	paused := func(w *iterationWork) bool {
		s := w.longestStop()
		return s.Ms >= pauseLeast*out.LostMs && s.Ms > 0
	}
	out.Paused = shareOf(slow, paused)
	var ms []float64
	times := map[falcon.Rank]int{}
	nodes := map[falcon.Node]bool{}
	for _, w := range slow {
		if !paused(w) {
			continue
		}
		s := w.longestStop()
		ms = append(ms, s.Ms)
		times[s.Rank]++
		if r := int(s.Rank); r < len(l.job.desc.Placement) {
			nodes[l.job.desc.Placement[r].Node()] = true
		}
	}
	out.PauseMs = falcon.Median(ms)
	out.PauseRanks = slices.Sorted(maps.Keys(times))
	out.PauseNodes = slices.Sorted(maps.Keys(nodes))
	for _, n := range times {
		out.PauseTop = max(out.PauseTop, float64(n)/float64(len(ms)))
	}
	all := func(w *iterationWork) bool {
		return 10*w.tails >= 9*len(l.samples.ranks) && w.tailMs >= tailLeast*out.LostMs
	}
	out.Tail = shareOf(slow, all)
	out.TailMs = medianOf(slow, func(w *iterationWork) float64 { return w.tailMs })
}

// tailLeast is the share of what an iteration lost that passed behind the last call.
const tailLeast = 0.5
