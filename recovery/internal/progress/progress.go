// Package progress is how the iterations of a job come: the newest one, how long one
// takes, and since when none has begun.
//
// It guarantees: an iteration counts as confirmed only by two beats of one process,
// far enough apart; a time without iterations that has another cause (a recovery, a
// hold, an engine that slept) is never measured as one. Time comes in as an argument.
// It judges no rank and no node.
package progress

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Tracker follows one job.
type Tracker struct {
	newest    int64     // begun by any rank
	moved     time.Time // when it was last seen to grow
	called    time.Time // when a rank was last seen to make calls
	reported  float64   // usual iteration time in ms by the detector, 0 = unknown
	measured  []float64 // newest measures of it in ms by beats, for where the detector does not know
	from      int64     // iteration that the next measure is counted from
	since     time.Time // when that one was seen
	seen      time.Time // when See took the newest one
	inBeats   int64     // newest in a beat
	confirmed time.Time // an iteration has begun since; see Confirm
	held      bool
	hung      bool // reported, until it moves again
}

// Beat is what a process reports in one beat.
type Beat struct {
	Pid       int
	Iteration int64
	Calls     uint64
	At        time.Time // zero = there was none
}

// NewEpoch forgets the iterations, not the iteration time of the detector.
func (t *Tracker) NewEpoch(now time.Time) {
	*t = Tracker{
		reported: t.reported,
		newest:   falcon.NoIteration,
		inBeats:  falcon.NoIteration,
		moved:    now,
	}
}

// Report takes what the detector knows: the newest iteration and its usual time in ms, 0
// = unknown. With held no progress is expected; with late, it is of some time ago.
func (t *Tracker) Report(now time.Time, iteration int64, ms float64, held, late bool) {
	if t.held || held {
		t.moved = now
	}
	t.held, t.reported = held, ms
	t.See(now, iteration, late)
}

// Restart has the time without progress begin now.
func (t *Tracker) Restart(now time.Time) {
	t.moved = now
}

// Skip takes a pause of the engine itself out of the time without progress.
func (t *Tracker) Skip(gap time.Duration, now time.Time) {
	if t.moved = t.moved.Add(gap); t.moved.After(now) {
		t.moved = now
	}
}

// Rewind takes the job back to before the iteration that it resumes at.
func (t *Tracker) Rewind(resume int64) {
	t.newest = min(t.newest, resume-1)
	t.inBeats = min(t.inBeats, resume-1)
}

// Newest is the newest iteration that any rank has begun; negative = none.
func (t *Tracker) Newest() int64 { return t.newest }

// InBeats is the newest iteration that a beat has reported.
func (t *Tracker) InBeats() int64 { return t.inBeats }

// Moved is since when no iteration has begun.
func (t *Tracker) Moved() time.Time { return t.moved }

// Held reports whether no progress is expected.
func (t *Tracker) Held() bool { return t.held }

// Hung reports whether the job was reported to hang, and has not moved since.
func (t *Tracker) Hung() bool { return t.hung }

// MarkHung has a hang reported once.
func (t *Tracker) MarkHung() {
	t.hung = true
}

// Usual is the iteration time, false where it is unknown.
func (t *Tracker) Usual() (time.Duration, bool) {
	ms := t.reported
	if n := len(t.measured); ms <= 0 && n > 0 {
		ms = t.measured[n-1]
	}
	return time.Duration(ms * float64(time.Millisecond)), ms > 0
}

// Typical is the median iteration time: a hang is recognised by many iterations,
// and a single one with a pause in it must not count.
func (t *Tracker) Typical() time.Duration {
	ms := t.reported
	if n := len(t.measured); ms <= 0 && n > 0 {
		ms = slices.Sorted(slices.Values(t.measured))[(n-1)/2]
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// IdleTime is for how long no iteration has begun and no rank has made calls.
func (t *Tracker) IdleTime(now time.Time) time.Duration {
	if t.called.After(t.moved) {
		return now.Sub(t.called)
	}
	return now.Sub(t.moved)
}

// measureSpan is the least time over which iterations are measured: agents report one boundary one
// after the other, and two beats in one batch measure nothing.
const measureSpan = time.Second

// See takes the newest iteration; one that comes late is not measured.
func (t *Tracker) See(now time.Time, iteration int64, late bool) {
	if iteration <= t.newest {
		return
	}
	// the time in between was no iteration: a recovery, a hold, an engine that slept
	if !t.moved.Equal(t.seen) {
		t.from, t.since = t.newest, t.moved
	}
	switch {
	case t.newest < 0 || iteration <= t.from || late:
		t.from, t.since = iteration, now
	case now.Sub(t.since) >= measureSpan:
		t.addMeasure(float64(now.Sub(t.since).Milliseconds()) / float64(iteration-t.from))
		t.from, t.since = iteration, now
	}
	t.newest = iteration
	t.moved = now
	t.seen = now
	t.hung = false
}

// measuresKept is how many measures are kept.
const measuresKept = 5

func (t *Tracker) addMeasure(ms float64) {
	t.measured = append(t.measured[max(0, len(t.measured)+1-measuresKept):], ms)
}

// Confirm looks for iterations that are certain to have begun: those that a process
// has reported in two beats. One beat alone does not count: it may be the first that
// an engine receives of a job that has stopped, or of an agent that was away. Nor do
// two that come at once: the network held them, and they are of some time ago. Only
// an iteration above least counts: where a job goes back, its numbers come again.
func (t *Tracker) Confirm(before, b Beat, beat time.Duration, least int64) {
	same := before.Pid == b.Pid && !before.At.IsZero()
	if same && b.Calls > before.Calls {
		t.called = b.At
	}
	if same &&
		b.At.Sub(before.At) >= beat/2 &&
		b.Iteration > max(before.Iteration, least) {
		t.confirmed = before.At
	}
	t.inBeats = max(t.inBeats, b.Iteration)
}

// ConfirmedAfter reports whether an iteration is certain to have begun after a time.
func (t *Tracker) ConfirmedAfter(at time.Time) bool {
	return t.confirmed.After(at)
}
