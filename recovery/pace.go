package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// progress is how the job's iterations come.
type progress struct {
	newest int64     // begun by any rank
	moved  time.Time // when it was last seen to grow
	called time.Time // when a rank was last seen to make calls
	ms     float64   // usual iteration time by the detector, 0 = unknown
	own    []float64 // newest measures of it by beats, for where the detector does not know
	from   int64     // iteration that the next one is counted from
	since  time.Time // when it was seen
	seen   time.Time // when see took the newest in
	told   int64     // newest in a beat
	grew   time.Time // an iteration has begun since, by two beats of one process; see grows
	held   bool
	hung   bool // told, until it moves again
}

// usual is the iteration time, false where nobody knows.
func (p *progress) usual() (time.Duration, bool) {
	ms := p.ms
	if n := len(p.own); ms <= 0 && n > 0 {
		ms = p.own[n-1]
	}
	return time.Duration(ms * float64(time.Millisecond)), ms > 0
}

// typical is the same for a hang, which is told by many iterations: one with a
// pause in it is none to go by.
func (p *progress) typical() time.Duration {
	ms := p.ms
	if n := len(p.own); ms <= 0 && n > 0 {
		ms = slices.Sorted(slices.Values(p.own))[(n-1)/2]
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// ownKept is how many measures are kept.
const ownKept = 5

func (p *progress) measure(ms float64) {
	p.own = append(p.own[max(0, len(p.own)+1-ownKept):], ms)
}

// still is for how long nothing has moved.
func (p *progress) still(now time.Time) time.Duration {
	if p.called.After(p.moved) {
		return now.Sub(p.called)
	}
	return now.Sub(p.moved)
}

// see takes an iteration in. One that is late is of some time ago, and no measure.
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
	case now.Sub(p.since) >= ownSpan:
		p.measure(float64(now.Sub(p.since).Milliseconds()) / float64(iteration-p.from))
		p.from, p.since = iteration, now
	}
	p.newest, p.moved, p.seen, p.hung = iteration, now, now, false
}

// ownSpan is over how long iterations are counted at least: agents tell of the
// same boundary one after the other, and two of their beats in one batch are no
// measure of an iteration.
const ownSpan = time.Second

// grows looks for iterations that are certain to have begun: those that a process
// has told one after the other. One word alone is none: it may be the first that an
// engine hears of a job that stands, or of an agent that was away. Nor are two
// that come at once: the network held them, and they are of some time ago. Only an
// iteration above least counts: where a job goes back, its numbers come again.
func (p *progress) grows(now time.Time, beat time.Duration, x *member, b Beat, least int64) {
	if x.beat.Pid == b.Pid && !x.beatAt.IsZero() && b.Calls > x.beat.Calls {
		p.called = now
	}
	if x.beat.Pid == b.Pid && !x.beatAt.IsZero() && now.Sub(x.beatAt) >= beat/2 && b.Iteration > max(x.beat.Iteration, least) {
		p.grew = x.beatAt
	}
	p.told = max(p.told, b.Iteration)
}

// growsAbove is the iteration above which one is new. Those of a rejoin come after
// the one that it resumes at: that has begun on each rank by itself.
func (m *Machine) growsAbove() int64 {
	if m.cur != nil && m.cur.State == falcon.RecoveryRejoin {
		return m.cur.Resume
	}
	return m.pace.told
}
