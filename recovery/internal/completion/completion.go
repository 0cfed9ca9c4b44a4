// Package completion is how the ranks of a job epoch have come to their end. A job
// finishes rank by rank: once one has ended with success and no iteration has begun
// since, an unexplained end is taken for one of a job that finishes.
//
// It guarantees: the epoch is finished once all ranks have ended with success, and
// stays so; an unexplained end is open until it is explained, covered by an end with
// success, or overdue. One that is overdue and was not watched stays in doubt: an end
// with success explains it later. Time comes in as an argument. What an end means for a recovery
// is for others to decide.
package completion

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/progress"
)

// Tracker follows one job epoch.
type Tracker struct {
	over     map[falcon.Rank]bool    // ended with success
	open     map[falcon.Rank]openEnd // ended without an explanation so far
	newest   time.Time               // end with success
	at       int64                   // newest iteration reported by then; NoIteration = none was
	finished bool                    // all ranks are over: nothing is left to recover in this job epoch
}

// openEnd is an end that is not explained yet.
type openEnd struct {
	since   time.Time
	watched bool // an agent was there when it came
	overdue bool // it was listed as such, and stays open as it was not watched
}

// coverTime is how long after one rank's success unexplained ends of others count as the same.
const coverTime = 30 * time.Second

// New knows of no end.
func New() Tracker {
	return Tracker{over: map[falcon.Rank]bool{}, open: map[falcon.Rank]openEnd{}}
}

// Renumber gives the end of rank r to rank perm[r].
func (t *Tracker) Renumber(perm []falcon.Rank) {
	t.over, t.open = renumber(t.over, perm), renumber(t.open, perm)
}

func renumber[V any](of map[falcon.Rank]V, perm []falcon.Rank) map[falcon.Rank]V {
	out := make(map[falcon.Rank]V, len(of))
	for r, v := range of {
		out[perm[r]] = v
	}
	return out
}

// Count is how many ranks have ended with success.
func (t *Tracker) Count() int { return len(t.over) }

// Has reports whether rank r has ended with success.
func (t *Tracker) Has(r falcon.Rank) bool { return t.over[r] }

// Most reports whether most ranks have ended with success.
func (t *Tracker) Most(world int) bool {
	return 2*len(t.over) > world
}

// Finished reports whether the job epoch is finished.
func (t *Tracker) Finished() bool { return t.finished }

// Finish reports whether all ranks have ended with success now; it does once.
func (t *Tracker) Finish(world int) bool {
	if t.finished || world == 0 || len(t.over) < world {
		return false
	}
	t.finished = true
	return true
}

// Finishing reports whether a rank has ended with success and the job does not go
// on. Its peers may still come to the end of the step that was its last.
func (t *Tracker) Finishing(p *progress.Tracker, beat time.Duration) bool {
	if len(t.over) == 0 {
		return false
	}
	if t.at < 0 {
		t.at = p.InBeats()
	}
	return p.InBeats() <= t.at+1 || !p.ConfirmedAfter(t.newest.Add(2*beat))
}

// Covers reports whether an unexplained end is one of a job that finishes: it came
// soon after one with success, or most of the ranks have ended so.
func (t *Tracker) Covers(now time.Time, p *progress.Tracker, beat time.Duration, world int) bool {
	return t.Finishing(p, beat) && (now.Sub(t.newest) <= coverTime || t.Most(world))
}

// Succeed enters an end with success, and lists the ranks whose ends it explains,
// ascending. The iteration is the newest that was reported so far.
func (t *Tracker) Succeed(now time.Time, r falcon.Rank, iteration int64) []falcon.Rank {
	out := []falcon.Rank{r}
	t.newest, t.at = now, iteration
	delete(t.open, r)
	out = slices.AppendSeq(out, maps.Keys(t.open))
	clear(t.open)
	for _, r := range out {
		t.over[r] = true
	}
	slices.Sort(out)
	return out
}

// Replaced forgets the end of a rank whose process is launched again.
func (t *Tracker) Replaced(r falcon.Rank) {
	delete(t.over, r)
	delete(t.open, r)
}

// Await enters an end that is not explained yet, and whether its agent watched it.
func (t *Tracker) Await(r falcon.Rank, now time.Time, watched bool) {
	t.open[r] = openEnd{since: now, watched: watched}
}

// Explain closes the open end of a rank.
func (t *Tracker) Explain(r falcon.Rank) {
	delete(t.open, r)
}

// Open reports whether the end of rank r is not explained yet.
func (t *Tracker) Open(r falcon.Rank) bool {
	_, open := t.open[r]
	return open
}

// Doubt enters an end that was not watched, and that is in doubt already.
func (t *Tracker) Doubt(r falcon.Rank) {
	t.open[r] = openEnd{overdue: true}
}

// Doubtful reports whether the end of rank r is overdue and was not watched.
func (t *Tracker) Doubtful(r falcon.Rank) bool { return t.open[r].overdue }

// AnyOpen reports whether an end is not explained yet.
func (t *Tracker) AnyOpen() bool { return len(t.open) > 0 }

// ForgetOpen closes all open ends.
func (t *Tracker) ForgetOpen() {
	clear(t.open)
}

// Restart gives open ends their whole time again.
func (t *Tracker) Restart(now time.Time) {
	for r, x := range t.open {
		x.since = now
		t.open[r] = x
	}
}

// Overdue lists the ends that were open for too long, each once, ascending, and closes those
// that were watched.
func (t *Tracker) Overdue(now time.Time, most time.Duration) []falcon.Rank {
	var out []falcon.Rank
	for r, x := range t.open {
		if x.overdue || now.Sub(x.since) < most {
			continue
		}
		out = append(out, r)
		if x.watched {
			delete(t.open, r)
			continue
		}
		x.overdue = true
		t.open[r] = x
	}
	slices.Sort(out)
	return out
}
