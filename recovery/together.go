package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// A job whose ranks all end within moments of each other, on nodes that are heard, has lost no node:
// somebody has stopped it, or its program can't start. Policy starts it again for neither.

// together judges ends that come together.
type together struct{ *workflow }

// togetherWait is how long a job that can't park is watched after the first end, before it is started
// again as a whole: its other ranks may end with it, and say why.
const togetherWait = 3 * time.Second

// atOnceMost is from the first to the last of ends that one cause has: a peer's death takes longer to
// end others.
const atOnceMost = 2 * time.Second

// leadLeast is by how much a rank that failed is ahead of SIGTERM to the others where they were ended
// because of it. Reports of nodes come in any order, and who loses a peer that was stopped fails at once.
const leadLeast = 200 * time.Millisecond

// endsSeen is what is known of the ends of all ranks.
type endsSeen struct {
	ordered, unannounced, failed int       // by SIGTERM or SIGINT; nobody knows how; with a status of its own
	interrupted                  int       // of ordered: by SIGINT
	first, last                  time.Time // of all
	firstFailed                  time.Time
	firstOrdered                 time.Time
	firstKilled                  time.Time     // by another signal
	alike                        bool          // all ended with one error of their own
	announced                    falcon.Ending // the first that says why
}

func (s *endsSeen) add(p Process, at time.Time) {
	e := p.Ending
	if s.announced.Words() == "" {
		s.announced = e
	}
	s.alike = s.alike && e.SameError(s.announced)
	earlier := func(of *time.Time) {
		if of.IsZero() || at.Before(*of) {
			*of = at
		}
	}
	earlier(&s.first)
	if at.After(s.last) {
		s.last = at
	}
	switch {
	case e.Ordered():
		s.ordered++
		earlier(&s.firstOrdered)
		if e.Interrupted() {
			s.interrupted++
		}
	case !e.Known:
		s.unannounced++
	case e.Signal == 0:
		s.failed++
		earlier(&s.firstFailed)
	default:
		earlier(&s.firstKilled)
	}
}

// failedFirst reports whether a rank failed so long before the others were ended that it is why.
func (s *endsSeen) failedFirst() bool { return s.ledBy(s.firstFailed) }

// ledBy reports whether another end came so long before the ordered ones that it is why.
func (s *endsSeen) ledBy(other time.Time) bool {
	return !other.IsZero() && s.firstOrdered.Sub(other) >= leadLeast
}

// endsTogether is what the ends of all ranks mean; "" where one of them lives, or may, or where
// something else speaks against a node.
func (w together) endsTogether(now time.Time) falcon.EndsTogether {
	c := w.op.rec
	if len(c.Launched) > 0 ||
		!onlyEnds(c) ||
		w.ranks.worldSize() == 0 ||
		w.nodes.AnyMissing(w.ranks.usedNodes(), now) {
		return ""
	}
	seen := endsSeen{alike: true}
	heard := false
	for r, x := range w.ranks.everyRank() {
		p := x.process()
		if !x.hasEnded() || p.Normal || p.Finished {
			return ""
		}
		heard = heard || x.wasHeard()
		if w.ends.Doubtful(r) { // nobody saw it: it is not known when it was
			continue
		}
		seen.add(p, x.endReported())
	}
	return w.meaningOf(&seen, heard)
}

// meaningOf is what ends of all ranks mean, of which those that nobody saw are not counted.
func (w together) meaningOf(s *endsSeen, heard bool) falcon.EndsTogether {
	all := w.ranks.worldSize()
	switch {
	case (heard || w.job.Unbegun) && w.pace.Newest() < 0:
		// of who was never heard it is not known how far it came
		return falcon.EndsUnbegun
	case s.ordered == all:
		return falcon.EndsStopped
	case s.alike && s.ordered == 0 && s.unannounced+s.failed == all:
		return falcon.EndsAlike
	case s.last.Sub(s.first) > atOnceMost:
		return ""
	case s.ordered+s.unannounced == all && w.job.Parks: // who loses a peer parks
		return falcon.EndsAtOnce
	case s.ordered+s.unannounced+s.failed == all && s.ordered > 0 && !s.failedFirst():
		// who loses a peer that was stopped may fail
		return falcon.EndsAtOnce
	}
	return ""
}

// interrupted is what ends mean of which the first ones are by SIGINT, once the others had their
// time to end too. A rank that waits in a call for one of them runs no handler of its language: it
// would live on, and only the first to end tells that somebody has stopped the job. Survivors that
// park leave their calls, and then end as well.
func (w together) interrupted(now time.Time) falcon.EndsTogether {
	c := w.op.rec
	seen := endsSeen{}
	if w.job.Parks || len(c.Launched) > 0 || !onlyEnds(c) {
		return ""
	}
	if w.ranks.anyProcessAlive() && now.Sub(time.Unix(0, c.StartedNs)) < togetherWait {
		return ""
	}
	for r, x := range w.ranks.everyRank() {
		if x.hasEnded() && !w.ends.Doubtful(r) {
			seen.add(x.process(), x.endReported())
		}
	}
	if seen.interrupted == 0 || seen.ledBy(seen.firstKilled) || seen.failedFirst() {
		return ""
	}
	return falcon.EndsInterrupted
}

// erredAtStart is what ends mean of which the first one is an error of the program, before any rank
// has begun an iteration: a replacement would fail as well. Others may live and wait for those ranks,
// or fail as their peers are gone.
func (w together) erredAtStart(now time.Time) falcon.EndsTogether {
	c := w.op.rec
	if w.pace.Newest() >= 0 ||
		len(c.Launched) > 0 ||
		!onlyEnds(c) ||
		w.nodes.AnyMissing(w.ranks.usedNodes(), now) {
		return ""
	}
	seen := endsSeen{}
	for r, x := range w.ranks.everyRank() {
		if !x.hasEnded() {
			continue
		}
		p := x.process()
		if p.Normal || p.Finished || w.ends.Doubtful(r) {
			return ""
		}
		seen.add(p, x.endReported())
	}
	first := w.firstToEnd(func(Process) bool { return true })
	if first == nil ||
		!first.wasHeard() ||
		!first.process().Ending.OwnError() ||
		seen.ordered > 0 ||
		!seen.firstKilled.IsZero() {
		return ""
	}
	return falcon.EndsErred
}

// noteTogether enters what the ends of all ranks mean; it reports whether policy must leave them to a
// person, who has not decided yet.
func (w together) noteTogether(now time.Time) bool {
	c := w.op.rec
	if c.Together == "" || c.Together == falcon.EndsInterrupted || c.Together == falcon.EndsErred {
		why := cmp.Or(w.endsTogether(now), w.interrupted(now), w.erredAtStart(now))
		if why != "" && why != c.Together {
			c.Together = why
			w.op.markChanged()
		}
	}
	return c.Together != "" && (c.DecidedBy == "" || c.DecidedBy == byPolicyName)
}

// mayEndTogether reports whether the first end is so new that the other ranks of a job which can't park
// may still end with it, or that what they printed last is still to come.
func (w together) mayEndTogether(now time.Time) bool {
	c := w.op.rec
	if w.job.Unbegun && c.Together == "" && onlyEnds(c) {
		return true // the other ends are on their way
	}
	return !w.job.Parks &&
		now.Sub(time.Unix(0, c.StartedNs)) < togetherWait &&
		onlyEnds(c) &&
		(w.ranks.anyProcessAlive() || w.mayBeAlike())
}

// mayBeAlike reports whether all ranks failed, nothing of what is known speaks against one error on all
// of them, and some have not told theirs yet.
func (w together) mayBeAlike() bool {
	seen := endsSeen{alike: true}
	unannounced := false
	for r, x := range w.ranks.everyRank() {
		e := x.process().Ending
		if !e.Known || e.Signal != 0 || e.Ordered() || w.ends.Doubtful(r) {
			return false
		}
		if e.Words() == "" {
			unannounced = true
			continue
		}
		seen.add(x.process(), x.endReported())
	}
	return unannounced && seen.alike
}

// onlyEnds reports whether nothing but ends of processes, which no person has asked for, led to a recovery.
func onlyEnds(c *falcon.Recovery) bool {
	return !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool {
		return f.Kind != falcon.FaultExit || f.AskedBy != ""
	})
}

// describeTogether is what a person is asked, with what the rank says that ended first.
func (s *jobState) describeTogether(why falcon.EndsTogether) string {
	text := togetherTexts[why]
	if why == falcon.EndsStopped || why == falcon.EndsInterrupted {
		return text
	}
	first := s.firstToEnd(func(p Process) bool { return p.Ending.Words() != "" })
	if first == nil {
		return text
	}
	return fmt.Sprintf("rank %d: %s; %s",
		first.process().Rank, first.process().Ending.Words(), text)
}

// firstToEnd returns the rank whose end was reported first, of those whose process is as asked; nil
// where none has ended.
func (s *jobState) firstToEnd(is func(Process) bool) (first *member) {
	for _, x := range s.ranks.everyRank() {
		if !x.hasEnded() || !is(x.process()) {
			continue
		}
		if first == nil || x.endReported().Before(first.endReported()) {
			first = x
		}
	}
	return first
}

// togetherTexts say what a person is asked.
var togetherTexts = map[falcon.EndsTogether]string{
	falcon.EndsStopped: "all ranks were ended by SIGTERM or SIGINT: somebody has stopped the job (scancel, a time limit, Ctrl-C); deny, or approve to start it again",
	falcon.EndsAtOnce: "all ranks ended within moments of each other, while their agents live: somebody may have stopped the job (scancel, a time limit, Ctrl-C), " +
		"or its program has failed on all of them; look at what they printed, then deny, or approve to start them again",
	falcon.EndsInterrupted: "SIGINT has ended a rank, as Ctrl-C sends it: somebody has stopped the job, and ranks that wait for that one in a call can't take theirs; deny, or approve to start it again",
	falcon.EndsAlike:       "all ranks failed by one error of the program, and no node is at fault; mend it, then deny, or approve to start them again",
	falcon.EndsErred:       "it failed before the first iteration by an error of the program, and would again; mend it, then deny, or approve to start such ranks again",
	falcon.EndsUnbegun:     "all ranks ended before the first iteration: the program, or its start, is at fault and no node is; look at what they printed, then deny, or approve to start them again",
}
