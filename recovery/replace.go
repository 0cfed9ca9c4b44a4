package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// proposePlan shows what would be done, as far as known before survivors report their shards.
func (w *workflow) proposePlan(now time.Time) {
	c := w.op.rec
	a := w.alloc.assignRanks(now)
	if c.Shrink != nil && !w.reviseShrink(now, a) {
		return
	}
	c.Replaced = map[falcon.Rank]falcon.Device{}
	c.Moves = nil
	for _, r := range a.launch {
		if d := a.placement[r]; !slices.Contains(a.fence, d.Node()) { // else no spare is left
			c.Replaced[r] = d
		}
	}
	w.op.updateSurvivors()
	c.Survivors = slices.DeleteFunc(c.Survivors, func(r falcon.Rank) bool {
		return slices.Contains(a.launch, r)
	})
	if !c.Whole &&
		w.job.Parks &&
		(w.policy.Recovery.Countdown > 0 || w.approval.needsPerson(now) != "") {
		if choice, err := w.alloc.predictMoves(a); err == nil { // a person will look at it
			c.Moves, c.Checkpoint = choice.Moves, choice.Checkpoint
		}
	}
	if hash := planHash(c, a); hash != c.PlanHash {
		c.PlanHash = hash
		w.op.markChanged()
	}
}

// planHash names what a decision agrees to.
func planHash(c *falcon.Recovery, a assignment) string {
	h := sha256.New()
	fmt.Fprintln(h, c.ID, c.JobEpoch, c.Whole, c.Checkpoint, a.fence, a.lack)
	for _, f := range c.Faults {
		fmt.Fprintln(h, f.Kind, f.Node, f.Device, f.Ranks)
	}
	for _, r := range slices.Sorted(maps.Keys(c.Replaced)) {
		fmt.Fprintln(h, r, c.Replaced[r])
	}
	for _, v := range c.Moves {
		fmt.Fprintln(h, v.Rank, v.From)
	}
	if c.Shrink != nil {
		fmt.Fprintln(h, c.Shrink.Kept)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// beginReplace fences what is faulty and launches its replacement, or waits for a spare.
func (w *workflow) beginReplace(now time.Time) bool {
	a := w.alloc.assignRanks(now)
	if a.lack != "" {
		newWaits(w).awaitSpare(now, a)
		return false
	}
	if newWaits(w).awaitReturn(now, a) {
		return false
	}
	w.endWait()
	w.op.enterState(now, falcon.RecoveryReplace, w.cfg.ReplaceMost)
	w.applyAssignment(a)
	w.orders.launchReplacements(now)
	return true
}

// endWait ends a wait for a spare, or for nodes that come back.
func (w *workflow) endWait() {
	if w.op.spare.end() || w.op.rec.Wait != nil {
		w.op.rec.Reason = ""
	}
}

// applyAssignment puts an assignment in force, for the present generation.
func (w *workflow) applyAssignment(a assignment) {
	c := w.op.rec
	c.Fenced = a.fence
	if c.Shrink != nil {
		w.applyShrink()
		return
	}
	for _, r := range a.launch {
		c.Replaced[r] = a.placement[r]
		c.Launched[r] = c.Generation
		w.ends.Replaced(r)
		w.op.replies.Replaced(r) // its next process was not ordered to end
		w.ranks.replaceProcess(r, a.placement[r], c.Generation)
	}
	c.Placement = a.placement
	c.Pending = nil
	w.op.updateSurvivors()
	w.op.arrange()
	w.op.awaitLaunched()
}

func (w *workflow) onLaunched(now time.Time, l Launched) {
	c := w.op.rec
	if c == nil || l.Failed == "" || c.State == falcon.RecoveryProposed {
		return
	}
	if c.Whole &&
		l.Generation == c.Generation &&
		w.gens.highestUsed() > c.Generation &&
		c.Attempts < generationsMost {
		w.launchWhole(now) // a node has seen a newer generation
		return
	}
	if c.Whole && l.Generation == c.Generation && !l.Unproven && c.Attempts < restartsMost {
		w.out.addNote(c.ID, "recovery", 2,
			"%s: the restart did not come up on node %s: %s; it is tried again (%d of %d)",
			c.ID, l.Node, l.Failed, c.Attempts+1, restartsMost)
		w.launchWhole(now)
		return
	}
	if c.Whole && l.Generation == c.Generation {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf("the restart did not come up on node %s: %s; start the job again from its checkpoint",
				l.Node, l.Failed),
		)
		return
	}
	ranks := w.ranks.ranksOnNode(l.Node)
	if !slices.ContainsFunc(ranks, func(r falcon.Rank) bool {
		return w.op.replies.Awaits(r) && c.Launched[r] == l.Generation
	}) {
		return
	}
	if l.Unproven {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf(
				"what node %s started can't be followed: %s; then start the job again from its checkpoint",
				l.Node, l.Failed,
			),
		)
		return
	}
	w.giveUpNode(
		now,
		falcon.FaultNode,
		l.Node,
		fmt.Sprintf("node %s could not start %s: %s", l.Node, rankList(ranks), l.Failed),
	)
}
