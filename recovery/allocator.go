package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// allocator finds a place for the ranks that a recovery replaces. It changes nothing.
type allocator struct {
	*jobState
	op   *operation
	hist *history
}

// assignment is where the faulty ranks go.
type assignment struct {
	placement falcon.Placement
	fence     []falcon.Node // all that are given up, ascending
	launch    []falcon.Rank // that are replaced, ascending
	lack      string        // why it can't be done; empty = it can
}

// assignRanks finds a place for every rank that is to be replaced: its own device where only its
// process ended, else the same index on a spare for its whole node.
func (al *allocator) assignRanks(now time.Time) assignment {
	a := assignment{
		placement: slices.Clone(al.ranks.placementInForce()),
		fence:     slices.Clone(al.op.rec.Fenced),
	}
	var why []string
	for _, n := range al.ranks.nodesOf(al.op.rec.Pending) {
		reason := al.whyNotInPlace(now, n)
		if reason != "" && !slices.Contains(a.fence, n) {
			a.fence = append(a.fence, n)
			why = append(why, reason)
		}
	}
	slices.Sort(a.fence)
	lost := al.useSpares(&a)
	a.launch = al.ranksToLaunch(a)
	if len(lost) > 0 {
		a.lack = lackOfSpares(lost, append(why, al.job.Barred...))
		if _, no := al.shrinkPlan(a); no != "" {
			a.lack += "; fewer replicas are no way out: " + no
		}
	}
	return a
}

// useSpares places the ranks of fenced nodes on spares, and lists nodes for which none is left.
func (al *allocator) useSpares(a *assignment) []falcon.Node {
	spares := al.freeSpares(a.fence)
	var lost []falcon.Node
	for _, n := range a.fence {
		switch {
		case len(al.ranks.ranksOnNode(n)) == 0: // replaced already
		case len(spares) == 0:
			lost = append(lost, n)
		default:
			for _, r := range al.ranks.ranksOnNode(n) {
				a.placement[r] = falcon.NewDevice(spares[0], a.placement[r].Index())
			}
			spares = spares[1:]
		}
	}
	return lost
}

// ranksToLaunch are the pending ranks, and all of nodes that are given up.
func (al *allocator) ranksToLaunch(a assignment) []falcon.Rank {
	out := withRanks(nil, al.op.rec.Pending)
	for _, n := range a.fence {
		out = withRanks(out, al.ranks.ranksOnNode(n))
	}
	return out
}

// freeSpares lists the spares that can take a node's ranks.
func (al *allocator) freeSpares(fenced []falcon.Node) []falcon.Node {
	var out []falcon.Node
	for _, n := range al.preferredSpares() {
		if len(al.ranks.ranksOnNode(n)) == 0 &&
			!slices.Contains(fenced, n) &&
			al.job.CanLaunch[n] &&
			!slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// preferredSpares are the spares with those first that an action has named.
func (al *allocator) preferredSpares() []falcon.Node {
	var first []falcon.Node
	for _, f := range al.op.rec.Faults {
		if slices.Contains(al.job.Spares, f.Spare) {
			first = append(first, f.Spare)
		}
	}
	return append(first, al.job.Spares...)
}

// canLaunch reports whether a node can start processes, as far as is known.
func (al *allocator) canLaunch(n falcon.Node) bool {
	return al.job.CanLaunch[n] || al.op.agentAway(n)
}

// whyNotInPlace is why ranks of a node can't be replaced on it, empty = they can.
func (al *allocator) whyNotInPlace(now time.Time, n falcon.Node) string {
	if !al.canLaunch(n) {
		return fmt.Sprintf("node %s can't start processes", n)
	}
	most := cmp.Or(al.policy.Recovery.InPlace, inPlaceDefault)
	if most < 0 {
		return "policy replaces nothing in place"
	}
	if times := al.hist.exitsWithinHour(now, n); times > most {
		return fmt.Sprintf("processes on node %s have ended %d times within an hour", n, times)
	}
	return ""
}

// predictMoves is the choice that all survivors at the same step would lead to.
func (al *allocator) predictMoves(a assignment) (replica.Choice, error) {
	c := al.op.rec
	holds := map[falcon.Rank]falcon.RankHold{}
	for _, r := range c.Survivors {
		holds[r] = falcon.RankHold{Steps: [2]int64{max(c.Before, 0), falcon.NoIteration}}
	}
	return al.chooseStep(holds, a.placement)
}

func lackOfSpares(lost []falcon.Node, why []string) string {
	text := fmt.Sprintf("no spare is left for %s", nodeList(lost))
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return text
}

// Where no spare comes and policy allows it, the whole replicas go on from the checkpoint in a
// whole restart, as the survivors' groups are of another world. Until that world is there, all that
// is known of ranks is of the one before.

// shrinkPlan is what the job can go on with where an assignment lacks spares; else
// why it can't, empty where the policy does not allow it.
func (al *allocator) shrinkPlan(a assignment) (*falcon.Shrink, string) {
	l := al.job.Layout
	total := 0
	for _, n := range al.op.rec.Splits {
		total += int(n)
	}
	unit := max(al.job.Unit, 1)
	switch {
	case !al.policy.Recovery.AllowShrink:
		return nil, ""
	case !al.job.Parks:
		return nil, "the job has no adapter, so that it is unknown how it shares its batch and state out"
	case al.job.ZeRO.Stage > 0:
		return nil, "ZeRO spreads the optimizer's state over all replicas"
	case l.DP < 2:
		return nil, "the job has one replica"
	case total < unit || total%unit != 0:
		return nil, "not all ranks have said how many micro-batches they take"
	}
	kept := al.wholeReplicas(a)
	if len(kept) == 0 {
		return nil, "no replica is whole"
	}
	kept = kept[:min(len(kept), total/unit)]
	s := &falcon.Shrink{
		Of:     l.DP,
		Kept:   kept,
		Splits: falcon.Deal(total, len(kept), unit),
	}
	s.Layout, s.Placement = l.KeepReplicas(al.ranks.placementInForce(), kept)
	return s, ""
}

// wholeReplicas are those with every rank on a staying node that can start processes, ascending.
func (al *allocator) wholeReplicas(a assignment) []int {
	lost := make([]bool, al.job.Layout.DP)
	for r, d := range al.ranks.placementInForce() {
		if n := d.Node(); slices.Contains(a.fence, n) || !al.canLaunch(n) {
			lost[al.job.Layout.Replica(falcon.Rank(r))] = true
		}
	}
	var out []int
	for i, gone := range lost {
		if !gone {
			out = append(out, i)
		}
	}
	return out
}

// shrinkReason describes what is given up.
func shrinkReason(s *falcon.Shrink) string {
	return fmt.Sprintf("it goes on with %d of %d replicas: no spare came", len(s.Kept), s.Of)
}

// launchedOn is the placement that a recovery launches processes for.
func launchedOn(c *falcon.Recovery) falcon.Placement {
	if c.Shrink != nil {
		return c.Shrink.Placement
	}
	return c.Placement
}
