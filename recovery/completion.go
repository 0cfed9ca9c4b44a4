package recovery

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// completion is how the ranks of a job epoch have come to their end. A job finishes
// rank by rank: once one has ended with success and no iteration has begun since,
// an unexplained end is taken for one of a job that finishes.
type completion struct {
	over     map[falcon.Rank]bool      // ended with success
	open     map[falcon.Rank]time.Time // ended without an explanation so far, since when
	newest   time.Time                 // end with success
	at       int64                     // newest iteration reported by then; NoIteration = none was
	finished bool                      // all ranks are over: nothing is left to recover in this job epoch
}

// finishWait is how long after a rank's end with success the unexplained ends of
// others are taken for the same.
const finishWait = 30 * time.Second

func newCompletion() completion {
	return completion{over: map[falcon.Rank]bool{}, open: map[falcon.Rank]time.Time{}}
}

// renumber moves the ends to the ranks' new numbers.
func (c *completion) renumber(perm []falcon.Rank) {
	c.over, c.open = rekeyed(c.over, perm), rekeyed(c.open, perm)
}

// any reports whether a rank has ended with success.
func (c *completion) any() bool { return len(c.over) > 0 }

// count is how many ranks have ended with success.
func (c *completion) count() int { return len(c.over) }

// has reports whether rank r has ended with success.
func (c *completion) has(r falcon.Rank) bool { return c.over[r] }

// most reports whether most ranks have ended with success.
func (c *completion) most(world int) bool { return 2*len(c.over) > world }

// finish reports whether all ranks have ended with success now; it does once.
func (c *completion) finish(world int) bool {
	if c.finished || world == 0 || len(c.over) < world {
		return false
	}
	c.finished = true
	return true
}

// finishing reports whether a rank has ended with success and the job does not go
// on. Its peers may still come to the end of the step that was its last.
func (c *completion) finishing(p *progress, beat time.Duration) bool {
	if len(c.over) == 0 {
		return false
	}
	if c.at < 0 {
		c.at = p.newestOwn
	}
	return p.newestOwn <= c.at+1 || !p.grew.After(c.newest.Add(2*beat))
}

// covers reports whether an unexplained end is one of a job that finishes: it came
// soon after one with success, or most of the ranks have ended so.
func (c *completion) covers(now time.Time, p *progress, beat time.Duration, world int) bool {
	return c.finishing(p, beat) && (now.Sub(c.newest) <= finishWait || c.most(world))
}

// succeed enters an end with success, and lists the ranks whose ends it explains.
func (c *completion) succeed(now time.Time, r falcon.Rank, iteration int64) []falcon.Rank {
	out := []falcon.Rank{r}
	c.newest, c.at = now, iteration
	delete(c.open, r)
	out = slices.AppendSeq(out, maps.Keys(c.open))
	clear(c.open)
	for _, r := range out {
		c.over[r] = true
	}
	slices.Sort(out)
	return out
}

// replaced forgets the end of a rank whose process is launched again.
func (c *completion) replaced(r falcon.Rank) { delete(c.over, r) }

// await enters an end that is not explained yet.
func (c *completion) await(r falcon.Rank, now time.Time) { c.open[r] = now }

// awaits reports whether the end of rank r is not explained yet.
func (c *completion) awaits(r falcon.Rank) bool { _, open := c.open[r]; return open }

// anyOpen reports whether an end is not explained yet.
func (c *completion) anyOpen() bool { return len(c.open) > 0 }

// explained closes an open end.
func (c *completion) explained(r falcon.Rank) { delete(c.open, r) }

// forgetOpen closes all open ends.
func (c *completion) forgetOpen() { clear(c.open) }

// restart gives open ends their whole time again.
func (c *completion) restart(now time.Time) {
	for r := range c.open {
		c.open[r] = now
	}
}

// overdue closes and lists the ends that were open for too long.
func (c *completion) overdue(now time.Time, most time.Duration) []falcon.Rank {
	var out []falcon.Rank
	for r, since := range c.open {
		if now.Sub(since) >= most {
			out = append(out, r)
			delete(c.open, r)
		}
	}
	slices.Sort(out)
	return out
}
