package agent

import (
	"math"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/detect/period"
	"github.com/failslow/falcon/detect/work"
)

// inferrer finds iterations in a rank's calls; *period.Tracker is one.
type inferrer interface {
	Observe(c period.Call) []period.Iteration
	Period() int
	Anchor() (period.Anchor, bool)
	Expect(calls int)
	Reset()
}

// iterationTracker finds one process's iterations: by its step marks where it gives
// any, else by the period of its calls.
type iterationTracker struct {
	marks    *iterate.Marks
	nextMark uint64 // to be read

	infer     inferrer
	census    *iterate.Census
	tally     *iterate.Tally
	work      *work.Tracker
	tallied   int64 // iteration that the tally is in
	micro     int   // micro-batches per iteration, as last seen
	shift     int64 // added to inferred numbers so that they only grow
	last      int64 // newest inferred number
	published int   // period in the process's memory

	newestMs float64 // of the newest iteration, without pauses
	endedNs  int64   // when that ended, by the monotonic clock

	begun   int64 // newest iteration of which a mark says when it began
	begunNs int64 // when, by the monotonic clock; 0 = no mark came
}

func newIterationTracker() iterationTracker {
	return iterationTracker{
		marks:  iterate.NewMarks(-1),
		infer:  period.NewTracker(period.Config{Op: period.LiveOp}),
		census: iterate.NewCensus(),
		tally:  iterate.NewTally(),
		work:   work.NewTracker(),
		last:   math.MinInt64,
	}
}

// startMarks begins the series of marks of a process whose rank became known.
func (t *iterationTracker) startMarks(rank falcon.Rank) {
	t.marks = iterate.NewMarks(rank)
	t.nextMark = 0
}

func (t *iterationTracker) readMarks(seg Segment, out []ring.Mark) (marks []ring.Mark, lost uint64) {
	marks, t.nextMark, lost = seg.Marks(t.nextMark, out)
	return marks, lost
}

func (t *iterationTracker) addMark(m ring.Mark) (falcon.Sample, bool) {
	t.begun = m.Iteration
	t.begunNs = m.StartNs
	return t.marks.Add(iterate.Mark{
		Iteration: m.Iteration,
		StartNs:   uint64(max(m.StartNs, 0)),
		PausedNs:  uint64(max(m.PausedNs, 0)),
	})
}

// expectMicroBatches announces the period that other micro-batches will bring.
func (t *iterationTracker) expectMicroBatches(to int) {
	from := t.micro
	if t.micro = to; from == to {
		return
	}
	t.work.Reset()
	if t.infer.Period() == 0 {
		return
	}
	if n := t.census.Predict(from, to); n > 0 {
		t.infer.Expect(n)
	}
}

// observeCall takes one call, and returns the iterations that ended with it.
func (t *iterationTracker) observeCall(c period.Call) []period.Iteration {
	t.census.Add(iterate.Kind{Op: c.Op, Comm: c.Comm, Bytes: c.Bytes})
	ended := t.infer.Observe(c)
	if len(ended) > 0 {
		t.census.Close()
	}
	return ended
}

// numberOf is an inferred iteration's. Numbers only grow, also where the period was
// learned again, on another call.
func (t *iterationTracker) numberOf(it period.Iteration) int64 {
	if it.Number+t.shift <= t.last {
		t.shift = t.last + 1 - it.Number
	}
	t.last = it.Number + t.shift
	return t.last
}

// forgetPeriod forgets what was learned on communicators that have gone.
func (t *iterationTracker) forgetPeriod() {
	t.infer.Reset()
	t.census = iterate.NewCensus()
	t.tally.Reset()
	t.work.Reset()
}

// tallyCall counts a call of an iteration, known or not, for what communicators carry.
func (t *iterationTracker) tallyCall(c period.Call, peer int32, iteration int64, known bool) {
	if known && iteration != t.tallied {
		t.tallied = iteration
		t.tally.Close()
	}
	t.tally.Add(
		c.Comm,
		falcon.Op(c.Op),
		c.Bytes,
		peer,
	) //#nosec G115 -- it came as an Op
}

// renumberFrom has inferred iterations begin with first: new communicators count from 0,
// on all ranks alike.
func (t *iterationTracker) renumberFrom(first int64) {
	t.shift = first
}

// rewindTo is renumber where the iterations from first on are done again.
func (t *iterationTracker) rewindTo(first int64) {
	t.shift = first
	t.last = first - 1
}

// publishPeriod puts the period into the process's memory, for the record, when it
// changes.
func (t *iterationTracker) publishPeriod(seg Segment) {
	if n := t.infer.Period(); n != t.published {
		t.published = n
		a, _ := t.infer.Anchor()
		seg.SetPeriod(uint32(n), anchorHash(a.Class))
	}
}
