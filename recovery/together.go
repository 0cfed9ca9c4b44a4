package recovery

import (
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

// endsTogether is what the ends of all ranks mean; "" where one of them lives, or may, or where
// something else speaks against a node.
func (w together) endsTogether(now time.Time) falcon.EndsTogether {
	c := w.op.rec
	if len(c.Launched) > 0 || !onlyEnds(c) || w.ranks.worldSize() == 0 || w.nodes.AnyMissing(w.ranks.usedNodes(), now) {
		return ""
	}
	ordered, untold, heard := 0, 0, false // the rest has failed, or nobody saw it end
	var first, last time.Time
	for r, x := range w.ranks.everyRank() {
		p := x.process()
		switch {
		case !x.hasEnded() || p.Normal || p.Finished:
			return ""
		case w.ends.Doubtful(r): // nobody saw it: it is not known when it was
		case p.Ending.Ordered():
			ordered++
		case !p.Ending.Known:
			untold++
		}
		heard = heard || x.wasHeard()
		at := x.endReported()
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	switch all := w.ranks.worldSize(); {
	case heard && w.pace.Newest() < 0: // of who was never heard it is not known how far it came
		return falcon.EndsUnbegun
	case ordered == all:
		return falcon.EndsStopped
	case ordered+untold == all && last.Sub(first) <= atOnceMost && (ordered > 0 || w.job.Parks): // whose peer has died parks
		return falcon.EndsAtOnce
	}
	return ""
}

// noteTogether enters what the ends of all ranks mean; it reports whether policy must leave them to a
// person, who has not decided yet.
func (w together) noteTogether(now time.Time) bool {
	c := w.op.rec
	if c.Together == "" {
		if c.Together = w.endsTogether(now); c.Together != "" {
			w.op.markChanged()
		}
	}
	return c.Together != "" && (c.DecidedBy == "" || c.DecidedBy == byPolicyName)
}

// mayEndTogether reports whether the first end is so new that the other ranks of a job which can't park
// may still end with it.
func (w together) mayEndTogether(now time.Time) bool {
	c := w.op.rec
	return !w.job.Parks && w.ranks.anyProcessAlive() && now.Sub(time.Unix(0, c.StartedNs)) < togetherWait && onlyEnds(c)
}

// onlyEnds reports whether nothing but ends of processes, which no person has asked for, led to a recovery.
func onlyEnds(c *falcon.Recovery) bool {
	return !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool { return f.Kind != falcon.FaultExit || f.AskedBy != "" })
}

// togetherTexts say what a person is asked.
var togetherTexts = map[falcon.EndsTogether]string{
	falcon.EndsStopped: "all ranks were ended by SIGTERM or SIGINT: somebody has stopped the job (scancel, a time limit, Ctrl-C); deny, or approve to start it again",
	falcon.EndsAtOnce: "all ranks ended within moments of each other, while their agents live, and how is not told of all: somebody may have stopped the job (scancel, a time limit, Ctrl-C), " +
		"or its program has failed on all of them; look at what they printed, then deny, or approve to start them again",
	falcon.EndsUnbegun: "all ranks ended before the first iteration: the program, or its start, is at fault and no node is; look at what they printed, then deny, or approve to start them again",
}
