package work

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Bounds and rules of a Tracker.
const (
	callsMost   = 1 << 14 // calls kept until their iteration ends; one with more is not described
	kindsMost   = 512     // kinds of calls of one iteration
	placesMost  = 1 << 13 // gaps of an iteration whose usual length is kept
	learnAfter  = 3       // iterations in a row with the same calls that are the usual ones
	relearn     = 512     // iterations in a row with others, after which these are
	gapsAfter   = 8       // usual iterations after which gaps are compared
	sizesKept   = 16      // payloads of usual iterations that are compared with
	gapMemory   = 8       // iterations that the usual length of a gap is averaged over
	habitMemory = 512     // likewise, of lengths worth telling
	leastMs     = 1.0     // of a wait, a pause or a tail
	leastShare  = 0.03    // of the iteration, likewise
	sizeLeast   = 0.02    // share of the usual payload that a difference must exceed
	sizeSpreads = 1.5     // and times what usual iterations differ by
)

// Call is one communication call as the host made it, ns of one clock.
type Call struct {
	Comm            uint64
	Op              falcon.Op
	Peer            int32
	Bytes           int64
	EnterNs, ExitNs int64
}

type kind struct {
	comm uint64
	op   falcon.Op
	peer int32
}

// Tracker compares the iterations of one process with its usual ones.
type Tracker struct {
	pending []Call
	closing []Call // of the iteration that ends; its memory serves the next
	lost    bool   // of the running iteration, some

	usual   map[kind]int
	now     map[kind]int // of the iteration that ends, and of the one before
	last    map[kind]int
	alike   int // iterations in a row like last
	gaps    []float64
	seen    int     // usual iterations since they are
	sizes   []int64 // payloads of the newest usual iterations, ascending once they are enough
	scratch []float64
}

// NewTracker knows no usual iteration yet.
func NewTracker() *Tracker {
	return &Tracker{now: map[kind]int{}, last: map[kind]int{}}
}

// Reset forgets the usual iteration: the communicators, or the micro-batches, are others.
// Calls of the running one are kept.
func (t *Tracker) Reset() {
	pending, closing, lost := t.pending, t.closing, t.lost
	*t = *NewTracker()
	t.pending = pending
	t.closing = closing
	t.lost = lost
}

// Add takes a call of the running iteration, or of one that began after it.
func (t *Tracker) Add(c Call) {
	if len(t.pending) >= callsMost {
		t.lost = true
		return
	}
	c.ExitNs = max(c.ExitNs, c.EnterNs) // of some records only one is known
	t.pending = append(t.pending, c)
}

// Forget drops the calls so far: some were lost.
func (t *Tracker) Forget() {
	t.pending = t.pending[:0]
	t.lost = true
}

// Close ends the iteration [beginNs, endNs) and says how it differs, nil where it does not
// or nothing is usual yet. marked says that it began where the framework says so, and not
// at a call.
func (t *Tracker) Close(beginNs, endNs int64, marked bool) *falcon.Work {
	calls := t.take(beginNs, endNs)
	lost := t.lost
	t.lost = false
	if lost || len(calls) == 0 || endNs <= beginNs {
		return nil
	}
	if !t.countKinds(calls) {
		return nil
	}
	t.learn()
	if t.usual == nil {
		return nil
	}
	var out falcon.Work
	ms := float64(endNs-beginNs) / 1e6
	if wait := float64(calls[0].EnterNs-beginNs) / 1e6; marked {
		out.WaitMs = worthTelling(wait, ms)
	}
	if maps.Equal(t.last, t.usual) {
		t.compareSizes(&out, calls)
		t.compareGaps(&out, calls, endNs, ms)
	} else {
		t.compareKinds(&out, t.last, len(calls))
	}
	if out.WaitMs == 0 &&
		out.PauseMs == 0 &&
		out.TailMs == 0 &&
		out.Calls == 0 &&
		out.UsualBytes == 0 {
		return nil
	}
	reported := out // a steady iteration allocates nothing
	return &reported
}

// take removes the calls that began before endNs, and returns those of the iteration by
// when the host made them.
func (t *Tracker) take(beginNs, endNs int64) []Call {
	calls := t.closing[:0]
	rest := t.pending[:0]
	for _, c := range t.pending {
		switch {
		case c.EnterNs >= endNs:
			rest = append(rest, c)
		case c.EnterNs >= beginNs:
			calls = append(calls, c)
		}
	}
	t.pending, t.closing = rest, calls
	slices.SortStableFunc(calls, func(a, b Call) int {
		return cmp.Compare(a.EnterNs, b.EnterNs)
	})
	return calls
}

// countKinds counts the calls by kind; ok is false where there are too many kinds.
func (t *Tracker) countKinds(calls []Call) (ok bool) {
	clear(t.now)
	for i := range calls {
		k := kind{comm: calls[i].Comm, op: calls[i].Op, peer: -1}
		if k.op == falcon.OpSend || k.op == falcon.OpRecv {
			k.peer = calls[i].Peer
		}
		t.now[k]++
	}
	return len(t.now) <= kindsMost
}

// learn takes the calls that came again and again as the usual ones; the newest are the last ones
// then.
func (t *Tracker) learn() {
	if maps.Equal(t.now, t.last) {
		t.alike++
	} else {
		t.alike = 1
	}
	t.now, t.last = t.last, t.now
	if t.usual == nil && t.alike >= learnAfter ||
		t.alike >= relearn && !maps.Equal(t.last, t.usual) {
		t.usual = maps.Clone(t.last)
		t.gaps = nil
		t.seen = 0
		t.sizes = nil
	}
}

// worthTelling is a time, 0 where it is short.
func worthTelling(ms, iterationMs float64) float64 {
	if ms < math.Max(leastMs, leastShare*iterationMs) {
		return 0
	}
	return ms
}

// compareSizes compares the payload with that of usual iterations.
func (t *Tracker) compareSizes(out *falcon.Work, calls []Call) {
	var bytes int64
	for _, c := range calls {
		bytes += c.Bytes
	}
	if len(t.sizes) < sizesKept {
		if t.sizes = append(t.sizes, bytes); len(t.sizes) == sizesKept {
			slices.Sort(t.sizes)
		}
		return
	}
	usual := t.sizes[len(t.sizes)/2]
	spread := float64(t.sizes[len(t.sizes)-1] - t.sizes[0])
	off := math.Abs(float64(bytes - usual))
	if off > sizeLeast*float64(usual) && off > sizeSpreads*spread {
		out.Bytes, out.UsualBytes = bytes, usual
	}
}

// compareGaps finds the longest gap beyond what is usual, but where the host usually waits
// longest, and what is longer behind the last call.
func (t *Tracker) compareGaps(out *falcon.Work, calls []Call, endNs int64, ms float64) {
	if len(calls) > placesMost {
		return
	}
	t.scratch = gapsOf(t.scratch[:0], calls, endNs)
	if t.seen++; t.seen > gapsAfter {
		waits, tail := longest(t.gaps), len(t.gaps)-1
		for i, gap := range t.scratch {
			if i != waits && i != tail {
				out.PauseMs = math.Max(out.PauseMs, gap-t.gaps[i])
			}
		}
		out.PauseMs = worthTelling(out.PauseMs, ms)
		out.TailMs = worthTelling(t.scratch[tail]-t.gaps[tail], ms)
	}
	if t.gaps == nil {
		t.gaps = slices.Clone(t.scratch)
		return
	}
	for i, gap := range t.scratch {
		memory := float64(gapMemory)
		if worthTelling(gap-t.gaps[i], ms) > 0 { // long ones are no habit yet
			memory = habitMemory
		}
		t.gaps[i] += (gap - t.gaps[i]) / memory
	}
}

// gapsOf are the times between the calls in which the host made none, and behind the last
// one, ms.
func gapsOf(out []float64, calls []Call, endNs int64) []float64 {
	left := calls[0].ExitNs
	for _, c := range calls[1:] {
		out = append(out, math.Max(0, float64(c.EnterNs-left)/1e6))
		left = max(left, c.ExitNs)
	}
	return append(out, math.Max(0, float64(endNs-left)/1e6))
}

func longest(v []float64) (at int) {
	for i, x := range v {
		if x > v[at] {
			at = i
		}
	}
	return at
}

// compareKinds says which kinds of calls came more or less often than usual.
func (t *Tracker) compareKinds(out *falcon.Work, now map[kind]int, calls int) {
	out.Calls = calls
	for k, usual := range t.usual {
		out.UsualCalls += usual
		switch n := now[k]; {
		case n != usual:
			out.Changed = append(out.Changed, falcon.CallChange{
				Op:    k.op,
				Calls: n,
				Usual: usual,
			})
		case usual > 1:
			out.Kept++
		}
	}
	for k, n := range now {
		if t.usual[k] == 0 {
			out.Changed = append(out.Changed, falcon.CallChange{Op: k.op, Calls: n})
		}
	}
	slices.SortFunc(out.Changed, func(a, b falcon.CallChange) int {
		return cmp.Or(
			cmp.Compare(differenceOf(b), differenceOf(a)),
			cmp.Compare(a.Op, b.Op),
			cmp.Compare(a.Usual, b.Usual),
			cmp.Compare(a.Calls, b.Calls),
		)
	})
	out.Changed = out.Changed[:min(len(out.Changed), falcon.ChangesMost)]
}

func differenceOf(c falcon.CallChange) int {
	return max(c.Calls-c.Usual, c.Usual-c.Calls)
}
