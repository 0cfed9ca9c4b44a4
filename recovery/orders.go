package recovery

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// orders gives the present state's orders, from the recovery's record alone: an engine that starts
// again gives the same ones under the same generation.
type orders struct {
	*jobState
	op  *operation
	out *outbox
}

// suspendNodes has all nodes that are not given up suspend.
func (o *orders) suspendNodes() {
	nodes := o.op.stayingNodes()
	o.op.replies.Suspend(nodes)
	o.out.addCommand(Suspend{
		Generation: o.op.rec.Generation,
		Nodes:      nodes,
		WaitMs:     o.cfg.OptimizerWait.Milliseconds(),
	})
}

// stopReplaced ends pending processes still alive on a device kept; true = none is left.
func (o *orders) stopReplaced() (stop []falcon.Rank, done bool) {
	done = true
	for _, r := range o.op.rec.Pending {
		if !o.ranks.memberOf(r).isAlive() || o.op.isFenced(o.ranks.nodeOf(r)) {
			continue
		}
		done = false
		if o.op.replies.Stop(r) {
			stop = append(stop, r)
		}
	}
	if len(stop) > 0 {
		o.out.addCommand(Stop{
			Generation: o.op.rec.Generation,
			Nodes:      o.ranks.nodesOf(stop),
			Ranks:      stop,
		})
	}
	return stop, done
}

// launchReplacements fences what is faulty and launches what replaces it.
func (o *orders) launchReplacements(now time.Time) {
	c, ranks := o.op.rec, o.launchedRanks()
	if len(c.Fenced) > 0 || len(ranks) > 0 {
		o.out.addCommand(Fence{
			Generation: c.Generation,
			Nodes:      slices.Clone(c.Fenced),
			Ranks:      ranks,
		})
	}
	o.stopFenced(now)
	if len(ranks) == 0 {
		return
	}
	l := Launch{
		Generation: c.Generation,
		Ranks:      map[falcon.Rank]falcon.Device{},
		World:      o.ranks.worldSize(),
	}
	for _, r := range ranks {
		l.Ranks[r] = c.Placement[r]
	}
	o.out.addCommand(l)
	o.out.addNote(c.ID, "recovery", 1, "%s: generation %d: %s replaced on %s, %d survivors stay",
		c.ID, c.Generation, rankList(ranks), nodeList(o.ranks.nodesOf(ranks)), len(c.Survivors))
}

// repeatLaunches orders again what an earlier generation launched and did not park, with what comes
// before it, as either order may be lost. Where a later generation was launched on the same node,
// the agent refuses the earlier one.
func (o *orders) repeatLaunches(now time.Time) {
	again := o.awaitedLaunches()
	for _, g := range slices.Sorted(maps.Keys(again)) {
		o.out.addCommand(Fence{
			Generation: g,
			Nodes:      returns{o.op}.refusedNodes(now),
			Ranks:      slices.Sorted(maps.Keys(again[g])),
		})
		o.stopFenced(now)
		o.out.addCommand(Launch{
			Generation: g,
			Ranks:      again[g],
			World:      o.ranks.worldSize(),
		})
	}
}

// awaitedLaunches are the launches of earlier generations that have not parked, with all
// ranks that the same command named on their nodes.
func (o *orders) awaitedLaunches() map[uint64]map[falcon.Rank]falcon.Device {
	c := o.op.rec
	newest := map[falcon.Node]uint64{}
	for r, g := range c.Launched {
		n := c.Placement[r].Node()
		newest[n] = max(newest[n], g)
	}
	again := map[uint64]map[falcon.Rank]falcon.Device{}
	for _, r := range o.op.replies.Awaited() {
		n, g := c.Placement[r].Node(), c.Launched[r]
		if g == c.Generation || g < newest[n] || o.op.isFenced(n) {
			continue
		}
		if again[g] == nil {
			again[g] = map[falcon.Rank]falcon.Device{}
		}
		for _, other := range o.ranks.ranksOnNode(n) {
			if c.Launched[other] == g {
				again[g][other] = c.Placement[other]
			}
		}
	}
	return again
}

// stopFenced ends what runs on the nodes that are given up for good.
func (o *orders) stopFenced(now time.Time) {
	if nodes := (returns{o.op}).refusedNodes(now); len(nodes) > 0 {
		o.out.addCommand(Stop{Generation: o.op.rec.Generation, Nodes: nodes})
	}
}

// stopForProof ends what runs on the nodes that are given up, where nothing else proves that the job
// has stopped. Those that are only silent are suspended when they are heard again.
func (o *orders) stopForProof(now time.Time) {
	nodes := slices.DeleteFunc(slices.Clone(o.op.rec.Fenced), func(n falcon.Node) bool {
		rt := returns{o.op}
		return rt.onlySilence(now, n) && !rt.hasFrozen(n)
	})
	if len(nodes) > 0 {
		o.out.addCommand(Stop{Generation: o.op.rec.Generation, Nodes: nodes})
	}
}

// sendTable has the rank table of the generation brought to all nodes.
func (o *orders) sendTable() {
	o.op.replies.Table()
	o.out.addCommand(Table{
		Generation: o.op.rec.Generation,
		Placement:  slices.Clone(o.op.rec.Placement),
	})
}

// sendRejoin has all ranks build their groups, restore and train.
func (o *orders) sendRejoin() {
	c := o.op.rec
	o.op.replies.Rejoin()
	o.out.addCommand(Rejoin{
		Generation: c.Generation,
		Order:      c.Generation,
		Resume:     c.Resume,
		Checkpoint: c.Checkpoint,
		Moves:      slices.Clone(c.Moves),
		Splits:     slices.Clone(c.Splits),
		Placement:  slices.Clone(c.Placement),
	})
}

// restartWhole has the whole job end and start from its checkpoint.
func (o *orders) restartWhole() {
	c := o.op.rec
	o.out.addCommand(Fence{
		Generation: c.Generation,
		Nodes:      slices.Clone(c.Fenced),
		Ranks:      o.launchedRanks(),
	})
	o.out.addCommand(Stop{Generation: c.Generation, Nodes: o.op.stayingNodes()})
	o.out.addCommand(Restart{
		Generation: c.Generation,
		Placement:  slices.Clone(launchedOn(c)),
		Reason:     c.Reason,
	})
}

// stopEveryone ends all processes of a recovery without success, on the nodes that
// were given up too, as they may not be fenced yet.
func (o *orders) stopEveryone() {
	nodes := append(slices.Clone(o.ranks.usedNodes()), o.op.rec.Fenced...)
	slices.Sort(nodes)
	o.out.addCommand(Stop{
		Generation: o.op.rec.Generation,
		Nodes:      slices.Compact(nodes),
	})
}

// launchedRanks are the ranks launched in the present generation, ascending.
func (o *orders) launchedRanks() []falcon.Rank {
	var out []falcon.Rank
	for r, g := range o.op.rec.Launched {
		if g == o.op.rec.Generation {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}
