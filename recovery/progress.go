package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// progress is how the job's iterations come.
type progress struct {
	newest    int64     // begun by any rank
	moved     time.Time // when it was last seen to grow
	called    time.Time // when a rank was last seen to make calls
	reported  float64   // usual iteration time in ms by the detector, 0 = unknown
	measured  []float64 // newest measures of it in ms by beats, for where the detector does not know
	from      int64     // iteration that the next measure is counted from
	since     time.Time // when that one was seen
	seen      time.Time // when see took the newest one
	newestOwn int64     // newest in a beat
	grew      time.Time // an iteration has begun since, by two beats of one process; see confirm
	held      bool
	hung      bool // reported, until it moves again
}

// newEpoch forgets the iterations, not how long one takes.
func (p *progress) newEpoch(now time.Time) {
	*p = progress{reported: p.reported, newest: falcon.NoIteration, newestOwn: falcon.NoIteration, moved: now}
}

// report takes what the fail-slow detector knows. With late, it is of some time ago.
func (p *progress) report(now time.Time, in Pace, late bool) {
	if p.held || in.Held {
		p.moved = now
	}
	p.held, p.reported = in.Held, in.Ms
	p.see(now, in.Iteration, late)
}

// restart has the time without progress begin now.
func (p *progress) restart(now time.Time) { p.moved = now }

// skip takes a pause of the console itself out of the time without progress.
func (p *progress) skip(gap time.Duration, now time.Time) { p.moved = earlier(p.moved.Add(gap), now) }

// rewind takes the job back to before the iteration that it resumes at.
func (p *progress) rewind(resume int64) {
	p.newest, p.newestOwn = min(p.newest, resume-1), min(p.newestOwn, resume-1)
}

// usual is the iteration time, false where it is unknown.
func (p *progress) usual() (time.Duration, bool) {
	ms := p.reported
	if n := len(p.measured); ms <= 0 && n > 0 {
		ms = p.measured[n-1]
	}
	return time.Duration(ms * float64(time.Millisecond)), ms > 0
}

// typical is the median iteration time: a hang is recognised by many iterations,
// and a single one with a pause in it must not count.
func (p *progress) typical() time.Duration {
	ms := p.reported
	if n := len(p.measured); ms <= 0 && n > 0 {
		ms = slices.Sorted(slices.Values(p.measured))[(n-1)/2]
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// measuresKept is how many measures are kept.
const measuresKept = 5

func (p *progress) measure(ms float64) {
	p.measured = append(p.measured[max(0, len(p.measured)+1-measuresKept):], ms)
}

// idleTime is for how long no iteration has begun and no rank has made calls.
func (p *progress) idleTime(now time.Time) time.Duration {
	if p.called.After(p.moved) {
		return now.Sub(p.called)
	}
	return now.Sub(p.moved)
}

// see takes the newest iteration. One that is late is of some time ago, and is not
// measured.
func (p *progress) see(now time.Time, iteration int64, late bool) {
	if iteration <= p.newest {
		return
	}
	if !p.moved.Equal(p.seen) { // the time in between was no iteration: a recovery, a hold, a console that slept
		p.from, p.since = p.newest, p.moved
	}
	switch {
	case p.newest < 0 || iteration <= p.from || late:
		p.from, p.since = iteration, now
	case now.Sub(p.since) >= measureSpan:
		p.measure(float64(now.Sub(p.since).Milliseconds()) / float64(iteration-p.from))
		p.from, p.since = iteration, now
	}
	p.newest, p.moved, p.seen, p.hung = iteration, now, now, false
}

// measureSpan is the least time over which iterations are measured: agents report
// the same boundary one after the other, and two of their beats in one batch
// measure nothing.
const measureSpan = time.Second

// confirm looks for iterations that are certain to have begun: those that a process
// has reported in two beats. One beat alone does not count: it may be the first that
// an engine receives of a job that has stopped, or of an agent that was away. Nor do
// two that come at once: the network held them, and they are of some time ago. Only
// an iteration above least counts: where a job goes back, its numbers come again.
func (p *progress) confirm(now time.Time, beat time.Duration, x *member, b Beat, least int64) {
	if x.beat.Pid == b.Pid && !x.beatAt.IsZero() && b.Calls > x.beat.Calls {
		p.called = now
	}
	if x.beat.Pid == b.Pid && !x.beatAt.IsZero() && now.Sub(x.beatAt) >= beat/2 && b.Iteration > max(x.beat.Iteration, least) {
		p.grew = x.beatAt
	}
	p.newestOwn = max(p.newestOwn, b.Iteration)
}
