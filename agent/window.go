package agent

import (
	"math"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/detect/period"
)

// Bounds of a profile window.
const (
	// records remembered per rank, to know each timing's iteration
	windowCallsMax = 1 << 16
	iterationsMax  = 64               // whole iterations of one window
	profileMax     = 30 * time.Second // from the request to the window's end
	// for the device to finish what was timed, and the hook to write it
	timingsWait   = ring.DrainMax + 500*time.Millisecond
	frameCallsMax = 24_000 // timings in one profile frame (about 2 MiB)
	// a larger reduction over all ranks is no mere vote or loss
	controlBytesMax = 4096
)

// callKey names a call the way all ranks name it, but by slot.
type callKey struct {
	comm    uint32
	ordinal uint64
}

type callSeen struct {
	iteration int64
	enterNs   int64
	op        falcon.Op
	captured  bool // into a graph: not timed
}

// callKind is one operation on one communicator, by slot.
type callKind struct {
	comm uint32
	op   falcon.Op
}

// window is one rank's part of a profile: what the records and marks said
// while the device timings were being written.
type window struct {
	id      uint32
	seen    map[callKey]callSeen
	begins  map[int64]int64 // monotonic ns of step marks
	first   int64           // first whole iteration by marks
	newest  int64           // newest iteration begun, by marks
	order   uint64          // committed to before the start
	lostAt  uint64          // the process's counters at the start
	wroteAt uint64
	unread  uint64 // the process's records overwritten before they were read, at the start

	opened     bool    // a call was timed
	late       int64   // iterations that began before
	cut        bool    // ends now, with what it has: the job is to be held
	moved      bool    // the rank changed while it was open
	timed      int     // calls that the hook timed
	closed     int     // iterations closed by the anchor since the start
	single     bool    // iterations have one call
	lead       int     // 1 where no call before the first of them was timed: see firstInferred
	boundaries []int64 // calls entered from then on belong to the next one, ns
	overflow   uint64
}

// newWindow opens a window. The hook knows it by the low half of its id, but
// for 0 and for the window that it ended last, which a killed predecessor of
// this agent may have asked for under the same id.
func newWindow(id uint64, st ring.Control, unread uint64) *window {
	low := uint32(id)
	if low == 0 || low == st.ProfileDone {
		low ^= 1 << 31
	}
	return &window{
		id:      low,
		seen:    map[callKey]callSeen{},
		begins:  map[int64]int64{},
		first:   st.Iteration + 1,
		newest:  st.Iteration,
		order:   st.CommittedOrder,
		lostAt:  st.TimingsLost,
		wroteAt: st.TimingsWritten,
		unread:  unread,
	}
}

// droppedTimings is how many timings of the window did not come through: lost by the
// hook, overwritten before they were read, or beyond what is remembered.
func (w *window) droppedTimings(st ring.Control, got int) uint64 {
	lost := st.TimingsLost - min(w.lostAt, st.TimingsLost)
	wrote := st.TimingsWritten - min(w.wroteAt, st.TimingsWritten)
	return lost + wrote - min(uint64(got), wrote) + w.overflow
}

// addRecord remembers which iteration issued a call.
func (w *window) addRecord(r *ring.Record) {
	if len(w.seen) >= windowCallsMax {
		w.overflow++
		return
	}
	w.awaitOpening(r)
	w.seen[callKey{r.Comm, r.Ordinal}] = callSeen{
		iteration: iterate.StepOf(r.Step, w.newest),
		enterNs:   r.EnterNs,
		op:        r.Op,
		captured:  r.Flags&ring.FlagCapturing != 0,
	}
}

// openingMost is how many iterations may pass before the hook times its first call.
const openingMost = 2

// awaitOpening puts the first whole iteration behind one that began before the hook
// had opened the window: its first calls were not timed, and are no loss.
func (w *window) awaitOpening(r *ring.Record) {
	if r.Flags&ring.FlagTimed != 0 {
		w.opened = true
		w.timed++
	}
	at := iterate.StepOf(r.Step, w.newest)
	if !w.opened &&
		r.Flags&ring.FlagCapturing == 0 &&
		at >= w.first &&
		w.late < openingMost {
		w.late += at + 1 - w.first
		w.first = at + 1
	}
}

func (w *window) addMark(m ring.Mark) {
	if len(w.begins) >= 4*iterationsMax {
		return
	}
	w.begins[m.Iteration] = m.StartNs
	w.newest = max(w.newest, m.Iteration)
}

// addBoundary takes in the end of an iteration: its closing anchor call begins the next one,
// but where an iteration has no other call, it is that of the iteration that it closes.
func (w *window) addBoundary(it period.Iteration) {
	at := it.EndNs
	before := w.timed - 1
	if w.single {
		at++
		before = w.timed
	}
	if w.closed == 0 && before < 1 {
		w.lead = 1
	}
	w.closed++
	w.boundaries = append(w.boundaries, at)
}

// firstCounted is the first iteration that counts, by marks. An order that was applied
// meanwhile may have changed the micro-batches: what came before it would be
// divided by the wrong number.
func (w *window) firstCounted(st ring.Control) int64 {
	if w.reordered(st) {
		return max(w.first, st.CommittedIteration)
	}
	return w.first
}

func (w *window) reordered(st ring.Control) bool {
	return st.CommittedOrder != w.order && st.CommittedStatus == 0
}

// wholeIterations is how many whole iterations the window holds so far.
func (w *window) wholeIterations(marked bool, st ring.Control) int {
	if marked {
		return int(min(max(0, w.newest-w.firstCounted(st)), iterationsMax))
	}
	return max(0, w.closed-w.firstInferred())
}

// firstInferred is the first whole iteration, without marks: the one before began before the
// window. Its computation before its first call is known by the call before that: where
// that was not timed, the next iteration is the first.
func (w *window) firstInferred() int { return 1 + w.lead }

// summarize joins timings with records. Timings of calls that are not in the
// communicator table keep 0 as their communicator's id.
func (p *process) summarize(id uint64, timings []ring.Timing) falcon.RankProfile {
	w := p.window
	out := iterate.Window{
		ID:           id,
		Rank:         p.rank,
		MicroBatches: p.status.MicroBatches,
		Dropped:      w.droppedTimings(p.status, len(timings)),
		First:        w.firstCounted(p.status),
		Last:         w.newest - 1,
		BeginMs:      map[int64]float64{},
	}
	out.Dropped += p.lost - min(w.unread, p.lost)
	for _, t := range timings {
		out.Calls = append(out.Calls, p.timedCall(t))
	}
	switch {
	case p.hasMarks():
		w.placeMarks(timings, out.BeginMs)
	case w.reordered(p.status): // from which call on is not known
		out.First, out.Last = 1, 0
	default:
		out.First, out.Last = int64(w.firstInferred()), int64(w.closed)-1
		p.numberCalls(out.Calls)
	}
	out.Partial = p.partialIterations(timings)
	return iterate.Summarize(out)
}

// partialIterations are those of which the record of a call came and no timing,
// though others of its kind were timed.
func (p *process) partialIterations(timings []ring.Timing) map[int64]bool {
	timed := make(map[callKey]bool, len(timings))
	kinds := map[callKind]bool{}
	for _, t := range timings {
		timed[callKey{t.Comm, t.Ordinal}] = true
		kinds[callKind{t.Comm, t.Op}] = true
	}
	out := map[int64]bool{}
	bounds := p.window.boundaries
	for k, s := range p.window.seen {
		switch {
		case timed[k] || s.captured || !kinds[callKind{k.comm, s.op}]:
		case p.hasMarks():
			out[s.iteration] = true
		default:
			out[iterationAt(bounds, s.enterNs)] = true
		}
	}
	return out
}

func (p *process) timedCall(t ring.Timing) iterate.Timed {
	comm := p.comms.commInSlot(t.Comm)
	out := iterate.Timed{
		Iteration: iterate.UnknownIteration,
		Control: comm.Size == p.worldSize() &&
			t.Bytes <= controlBytesMax &&
			t.Op == falcon.OpAllReduce,
		CallTiming: falcon.CallTiming{
			Comm:       comm.ID,
			Ordinal:    t.Ordinal,
			Op:         t.Op,
			Peer:       int(t.Peer),
			Bytes:      int64(min(t.Bytes, math.MaxInt64)),
			StartMs:    float64(t.StartNs) / 1e6,
			DurationMs: float64(t.DurationNs) / 1e6,
			QueueMs:    float64(t.QueueNs) / 1e6,
		},
	}
	if s, ok := p.window.seen[callKey{t.Comm, t.Ordinal}]; ok {
		out.Iteration = s.iteration
	}
	return out
}

// placeMarks puts the step marks on the device's timeline: a call's device start is
// its host enter plus its queueing, on both clocks the same instant.
func (w *window) placeMarks(timings []ring.Timing, beginMs map[int64]float64) {
	for _, t := range timings {
		s, ok := w.seen[callKey{t.Comm, t.Ordinal}]
		if !ok {
			continue
		}
		zeroNs := s.enterNs + t.QueueNs - t.StartNs
		for i, ns := range w.begins {
			beginMs[i] = float64(ns-zeroNs) / 1e6
		}
		return
	}
}

// numberCalls counts iterations of a job without marks.
func (p *process) numberCalls(calls []iterate.Timed) {
	if _, ok := p.iterations.infer.Anchor(); !ok {
		return
	}
	bounds := p.window.boundaries
	for i := range calls {
		if s, ok := p.window.seen[callKey{p.comms.slotOfComm(calls[i].Comm), calls[i].Ordinal}]; ok {
			calls[i].Iteration = iterationAt(bounds, s.enterNs)
		}
	}
}

// iterationAt numbers a call by the boundaries that were passed when it was entered.
func iterationAt(bounds []int64, enterNs int64) (n int64) {
	for _, ns := range bounds {
		if enterNs >= ns {
			n++
		}
	}
	return n
}
