package cause

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// Work is what the calls of the slow iterations since an onset say about the job's own
// work, beside those before it. Shares are of the slow iterations.
type Work struct {
	Iterations int     // slow ones, 0 = nothing is known
	LostMs     float64 // of one of them

	// ranks whose hosts wait longer before their first call than before the onset,
	// the longest first
	Waits   []Stop
	WaitMs  float64 // of the middle rank, beyond before
	WaitAll bool    // all ranks wait, and none much longer than the others

	Changed       float64 // share in which calls came more or less often than usual
	ChangedBefore float64 // of the other iterations since some time before the onset
	Ranks         int     // ranks whose calls changed, in the newest such iteration
	Calls, Usual  int     // of these ranks together
	Kinds         []falcon.CallChange
	Kept          int // see falcon.Work

	Sized     float64 // share in which payloads were larger than usual
	SizeRatio float64 // payload of the rank that grew most over its usual one: median
	SizeRanks int     // ranks whose payload differed, at most in one iteration

	// share in which a host stopped inside the iteration, for a good part of what was lost
	Paused     float64
	PauseMs    float64       // median of these
	PauseRanks []falcon.Rank // who did, ascending
	PauseNodes []falcon.Node // on which nodes
	PauseTop   float64       // share of these pauses that the most frequent rank had

	Tail   float64 // share in which all ranks stopped behind their last call, for most of what was lost
	TailMs float64
}

// Stop is a rank whose host made no call for so long an iteration.
type Stop struct {
	Rank falcon.Rank
	Ms   float64
}

// workJudge judges a case by what the calls say about the job's own work.
type workJudge struct{ *Case }

// Rules on what calls and gaps must show.
const (
	waitExplains = 0.5 // of what an iteration lost: a wait for data
	stallLeast   = 0.2 // likewise, of a rank that nothing else makes slow
	waitApart    = 2.0 // over the middle rank's: it is this rank that waits
	mostIts      = 0.8 // of the slow iterations
	someIts      = 0.5 // likewise, where iterations differ by nature
	sizeExplains = 1.0 / 3
	pauseTopMost = 0.7 // of the pauses on one rank: above it the rank is named
	weightWork   = 0.80
	growthSpread = 1.25 // kinds of calls that grew alike
)

// dropStalled takes those ranks off the slow ones whose excess of self time is the wait for
// their data: it lies between the iteration's begin and their first call, where the device has
// nothing to do. A rank that is slow without that wait stays.
func (c workJudge) dropStalled() {
	if c.Timing.AllSlow {
		return
	}
	waits := c.waits()
	c.Timing.Slow = slices.DeleteFunc(slices.Clone(c.Timing.Slow), func(r falcon.Rank) bool {
		i := slices.IndexFunc(waits, func(s Stop) bool { return s.Rank == r })
		if i < 0 ||
			waits[i].Ms < stallLeast*c.Work.LostMs ||
			!c.waitsAlone(waits[i]) {
			return false
		}
		rank := c.Timing.Ranks[r]
		base := rank.SelfMs / rank.Ratio
		rest := rank.SelfMs - waits[i].Ms/float64(max(1, rank.MicroBatches))
		if rank.Ratio <= 0 || rest > stalledRest*base {
			return false
		}
		c.dropped = append(c.dropped, waits[i])
		return true
	})
}

// stalledRest is the self time over its basis, without the wait for data, from which a rank
// is slow besides.
const stalledRest = 1.1

// waits are the ranks that wait before their first call, as their hosts say, or where no host
// does as their devices do: they are idle between the iterations.
func (c workJudge) waits() []Stop {
	if len(c.Work.Waits) > 0 {
		return c.Work.Waits
	}
	return c.idleBetween()
}

// stalled are the ranks that wait for data for a good part of what iterations lose, and those
// that nothing else makes slow.
func (c workJudge) stalled() []Stop {
	out := slices.Clone(c.dropped)
	for _, s := range c.waits() {
		if s.Ms >= waitExplains*c.Work.LostMs &&
			c.waitsAlone(s) &&
			!slices.Contains(out, s) &&
			!slices.Contains(c.Timing.Slow, s.Rank) {
			out = append(out, s)
		}
	}
	return out
}

// waitsAlone reports whether a rank waits much longer than the middle one, and its host is not
// short of CPU: a starved host is late everywhere.
func (c workJudge) waitsAlone(s Stop) bool {
	return s.Ms >= waitApart*c.Work.WaitMs && !c.hostProofs(&opinion{}, s.Rank)
}

// idleBetween are the ranks whose devices idle between iterations longer than when healthy,
// and whose calls take no longer from the first to the last one.
func (c workJudge) idleBetween() []Stop {
	var out []Stop
	if c.Work.Iterations == 0 {
		return nil
	}
	for i := range c.Timing.Ranks {
		r := &c.Timing.Ranks[i]
		if r.OwnInsideMs < insideLeast*r.OwnOutsideMs ||
			r.OwnInsideMs <= 0 ||
			r.InsideMs > r.OwnInsideMs+insideLost*c.Work.LostMs {
			continue
		}
		if ms := r.OutsideMs - r.OwnOutsideMs; ms > 0 {
			out = append(out, Stop{r.Rank, ms})
		}
	}
	if len(out) > idleMost(len(c.Timing.Ranks)) {
		return nil // all together: it is unknown whether for data or for a checkpoint
	}
	return out
}

// insideLost is the share of what an iteration lost that the calls of a rank may take longer
// where it is said to lie between iterations.
const insideLost = 0.25

// insideLeast is how much longer the calls of an iteration must last than the time between
// two: where nearly all computation lies before the first call, a slow device is late there too.
const insideLeast = 2

// idleMost is how many of the ranks are some, and not all.
func idleMost(ranks int) int { return max(1, ranks/4) }

// lostBetween reports whether what iterations lose lies between them on the devices of all ranks,
// while their calls take as long from the first to the last as when healthy.
func (c workJudge) lostBetween() bool {
	for i := range c.Timing.Ranks {
		r := &c.Timing.Ranks[i]
		if r.OwnInsideMs <= 0 ||
			r.InsideMs > r.OwnInsideMs+insideLost*c.Work.LostMs ||
			r.OutsideMs < r.OwnOutsideMs+outsideLost*c.Work.LostMs {
			return false
		}
	}
	return len(c.Timing.Ranks) > 0
}

// outsideLost is the share of what an iteration lost that must lie between two.
const outsideLost = 0.5

// ownWork explains a slowdown by what the job itself does; ok is false where its calls show
// nothing.
func (c workJudge) ownWork() (o opinion, ok bool) {
	if c.Work.Iterations == 0 || c.Work.LostMs <= 0 {
		return opinion{}, false
	}
	o.cause = falcon.CauseNotHardware
	for _, explain := range []func(*opinion) bool{
		c.dataStall, c.changedCalls, c.lengths, c.garbage, c.checkpoint,
	} {
		if explain(&o) {
			c.addClocks(&o)
			return o, true
		}
	}
	return opinion{}, false
}

func (c workJudge) dataStall(o *opinion) bool {
	w := &c.Work
	o.reason = falcon.ReasonData
	if w.WaitAll &&
		w.WaitMs >= waitExplains*w.LostMs &&
		len(c.Timing.Slow) == 0 &&
		c.lostBetween() {
		o.addEvidence(falcon.EvidenceTiming, weightWork,
			"The hosts of all ranks wait %s longer before their first call of an iteration than before: they wait for data",
			falcon.DurationText(w.WaitMs))
		return true
	}
	stalled := c.stalled()
	for _, s := range stalled[:min(len(stalled), stopsShown)] {
		o.addEvidence(falcon.EvidenceTiming, weightWork,
			"%s: it makes its first call of an iteration %s later than before, and the others do not: its host waits for data",
			c.nameOf(s.Rank), falcon.DurationText(s.Ms))
	}
	for _, s := range stalled {
		o.ranks = append(o.ranks, s.Rank)
	}
	slices.Sort(o.ranks)
	return len(stalled) > 0
}

const stopsShown = 4

// changedCalls is more or fewer calls than usual: micro-batches where messages of both
// directions, or gathers and scatters, grew alike, and else an evaluation.
func (c workJudge) changedCalls(o *opinion) bool {
	w := &c.Work
	if w.Changed < mostIts || w.ChangedBefore >= someIts || len(w.Kinds) == 0 {
		return false
	}
	o.reason = falcon.ReasonEvaluation
	text := "calls of other kinds, or in one direction alone: passes besides training, as an evaluation makes"
	if w.Kept == 0 && grewAlike(w.Kinds) {
		o.reason = falcon.ReasonMicroBatches
		text = "all alike: other micro-batches in an iteration"
	}
	o.addEvidence(falcon.EvidenceTiming, weightWork,
		"%d ranks make %d calls in an iteration instead of %d (%s), %s",
		w.Ranks, w.Calls, w.Usual, kindsText(w.Kinds), text)
	return true
}

// grewAlike reports whether all changed kinds came more often, by about the same factor.
func grewAlike(kinds []falcon.CallChange) bool {
	least, most := 0.0, 0.0
	for _, k := range kinds {
		if k.Usual < 2 || k.Calls <= k.Usual {
			return false
		}
		ratio := float64(k.Calls) / float64(k.Usual)
		if least == 0 || ratio < least {
			least = ratio
		}
		most = max(most, ratio)
	}
	return most <= growthSpread*least
}

func kindsText(kinds []falcon.CallChange) string {
	text := ""
	for i, k := range kinds[:min(len(kinds), 3)] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d → %d", k.Op, k.Usual, k.Calls)
	}
	return text
}

// lengths is payloads that grew with as many calls as ever.
func (c workJudge) lengths(o *opinion) bool {
	w := &c.Work
	grew := w.SizeRatio - 1
	if w.Sized < someIts ||
		c.HealthyMs <= 0 ||
		grew < sizeExplains*w.LostMs/c.HealthyMs {
		return false
	}
	o.reason = falcon.ReasonLengths
	o.addEvidence(falcon.EvidenceTiming, weightWork,
		"As many calls as usual carry up to %.2f x the bytes in %.0f %% of the slow iterations, on up to %d ranks: sequences are longer",
		w.SizeRatio, 100*w.Sized, w.SizeRanks)
	return true
}

// garbage is hosts that stop inside iterations, now one, now another.
func (c workJudge) garbage(o *opinion) bool {
	w := &c.Work
	if w.Paused < someIts ||
		len(w.PauseRanks) < 2 ||
		len(w.PauseNodes) < 2 && len(c.Placement.Nodes()) > 1 ||
		w.PauseTop > pauseTopMost {
		return false
	}
	o.reason = falcon.ReasonGarbage
	o.addEvidence(falcon.EvidenceTiming, weightWork,
		"In %.0f %% of the slow iterations one host makes no call for %s where it usually does, now one of %d ranks, now another: pauses of the processes, as of garbage collection",
		100*w.Paused, falcon.DurationText(w.PauseMs), len(w.PauseRanks))
	return true
}

// checkpoint is all ranks that stop behind their last call.
func (c workJudge) checkpoint(o *opinion) bool {
	w := &c.Work
	if w.Tail < mostIts ||
		len(c.Timing.Slow) > 0 ||
		c.Timing.AllSlow ||
		!c.lostBetween() {
		return false
	}
	o.reason = falcon.ReasonCheckpoint
	o.addEvidence(falcon.EvidenceTiming, weightWork,
		"All ranks make no call for %s longer than usual behind the last one of an iteration, and their calls take as long as ever: state is saved there",
		falcon.DurationText(w.TailMs))
	return true
}

// addClocks adds that the GPUs are as before.
func (c workJudge) addClocks(o *opinion) {
	ranks := o.ranks
	if len(ranks) == 0 {
		ranks = make([]falcon.Rank, len(c.Timing.Ranks))
		for i := range ranks {
			ranks[i] = falcon.Rank(i)
		}
	}
	switch known, reduced := c.reducedClocks(ranks); {
	case known == 0:
	case len(reduced) > 0:
		o.addAgainst(falcon.EvidenceCounter, "The SM clocks of %d of %d GPUs fell", len(reduced), known)
	default:
		o.addEvidence(falcon.EvidenceCounter, weightNormal, "The SM clocks of all %d GPUs are as before",
			known)
	}
}

// weighOwn puts what the job's own calls show beside what timing says. It takes the place of
// opinions that know no cause, and of a network's that no test and no port confirms; where timing
// says that work grew it says why; a device that timing, counters or tests accuse stays.
func (c workJudge) weighOwn(all []opinion) []opinion {
	own, ok := c.ownWork()
	if !ok {
		return c.addUneven(all)
	}
	// A pause makes no transfer slower, and no rank slower than its peers time and again; but hosts that
	// wait for each call pause for a slow one.
	named := len(c.Timing.Slow) > 0 && c.Timing.Clear
	if own.reason == falcon.ReasonGarbage && (named || suspectsNetwork(all)) {
		return all
	}
	var out []opinion
	for _, o := range all {
		switch {
		case o.cause == falcon.CauseNotHardware || o.cause == falcon.CauseUnknown && c.Timing.AllSlow:
			own.evidence = append(own.evidence, o.evidence...)
			own.proofs = append(own.proofs, o.proofs...)
		case o.cause == falcon.CauseUnknown:
		case o.cause == falcon.CauseNetwork && own.reason == falcon.ReasonData && c.hasSlowGroup():
			out = append(out, o) // a host that is late makes no transfer slower
		case o.cause == falcon.CauseNetwork && !o.isConfirmed():
		default:
			out = append(out, o)
		}
	}
	own.evidence = slices.CompactFunc(own.evidence, func(a, b falcon.Evidence) bool { return a == b })
	own.last = len(out) > 0
	return append(out, own)
}

// hasSlowGroup reports whether the transfers of a collective are slow. They begin with the last of its
// members.
func (c workJudge) hasSlowGroup() bool {
	return slices.ContainsFunc(c.Timing.Groups, func(g peer.Group) bool {
		return g.Suspect && !c.holdsSlow(g.Ranks)
	})
}

func suspectsNetwork(all []opinion) bool {
	return slices.ContainsFunc(all, func(o opinion) bool { return o.cause == falcon.CauseNetwork })
}

// addUneven says of work that grew, and differs from iteration to iteration besides, that it is as
// with sequences of different length.
func (c workJudge) addUneven(all []opinion) []opinion {
	o := &all[0]
	if len(all) == 1 &&
		o.cause == falcon.CauseNotHardware &&
		o.reason == "" &&
		c.Timing.Uneven {
		more := c.unevenWork(nil)
		o.reason, o.evidence = more.reason, append(o.evidence, more.evidence[0])
	}
	return all
}

// isConfirmed reports whether a test or a counter speaks for an opinion.
func (o *opinion) isConfirmed() bool {
	return slices.ContainsFunc(o.evidence, func(e falcon.Evidence) bool {
		return !e.Against && (e.Kind == falcon.EvidenceTest || e.Kind == falcon.EvidenceCounter)
	})
}
