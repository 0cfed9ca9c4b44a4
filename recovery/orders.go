package recovery

import (
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// s gives the orders of the present state. They are made from the recovery's
// record alone, so that an engine that starts again gives the same ones under the
// same generation.
type orders struct {
	*jobState
	op  *operation
	out *outbox
}

// suspend has all nodes that are not given up suspend.
func (o *orders) suspend() {
	nodes := o.op.staying()
	o.op.replies.Suspend(nodes)
	o.out.command(Suspend{Generation: o.op.rec.Generation, Nodes: nodes, WaitMs: o.cfg.OptimizerWait.Milliseconds()})
}

// stop has pending processes end that still live and are to be replaced on their
// device; true = none is left.
func (o *orders) stop() (stop []falcon.Rank, done bool) {
	done = true
	for _, r := range o.op.rec.Pending {
		if !o.ranks.member(r).alive() || o.op.isFenced(o.ranks.node(r)) {
			continue
		}
		done = false
		if o.op.replies.Stop(r) {
			stop = append(stop, r)
		}
	}
	if len(stop) > 0 {
		o.out.command(Stop{Generation: o.op.rec.Generation, Nodes: o.ranks.nodesOf(stop), Ranks: stop})
	}
	return stop, done
}

// replace fences what is faulty and launches what replaces it.
func (o *orders) replace() {
	c, ranks := o.op.rec, o.launched()
	if len(c.Fenced) > 0 || len(ranks) > 0 {
		o.out.command(Fence{Generation: c.Generation, Nodes: slices.Clone(c.Fenced), Ranks: ranks})
	}
	o.stopFenced()
	if len(ranks) == 0 {
		return
	}
	l := Launch{Generation: c.Generation, Ranks: map[falcon.Rank]falcon.Device{}, World: o.ranks.world()}
	for _, r := range ranks {
		l.Ranks[r] = c.Placement[r]
	}
	o.out.command(l)
	o.out.note("recovery", 1, "%s: generation %d: %s made anew on %s, %d survivors stay", c.ID, c.Generation, rankList(ranks), nodeList(o.ranks.nodesOf(ranks)), len(c.Survivors))
}

// awaited orders again what an earlier generation launched and what has not
// parked so far, and what must come before it: either order may never have arrived.
// Where a later generation was launched on the same node, the agent refuses the
// earlier one.
func (o *orders) awaited() {
	again := o.awaitedLaunches()
	for _, g := range slices.Sorted(maps.Keys(again)) {
		o.out.command(Fence{Generation: g, Nodes: slices.Clone(o.op.rec.Fenced), Ranks: slices.Sorted(maps.Keys(again[g]))})
		o.stopFenced()
		o.out.command(Launch{Generation: g, Ranks: again[g], World: o.ranks.world()})
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
		for _, other := range o.ranks.ranksOn(n) {
			if c.Launched[other] == g {
				again[g][other] = c.Placement[other]
			}
		}
	}
	return again
}

// stopFenced ends what runs on the nodes that are given up.
func (o *orders) stopFenced() {
	if len(o.op.rec.Fenced) > 0 {
		o.out.command(Stop{Generation: o.op.rec.Generation, Nodes: slices.Clone(o.op.rec.Fenced)})
	}
}

// table has the rank table of the generation brought to all nodes.
func (o *orders) table() {
	o.op.replies.Table()
	o.out.command(Table{Generation: o.op.rec.Generation, Placement: slices.Clone(o.op.rec.Placement)})
}

// rejoin has all ranks build their groups, restore and train.
func (o *orders) rejoin() {
	c := o.op.rec
	o.op.replies.Rejoin()
	o.out.command(Rejoin{
		Generation: c.Generation, Order: c.Generation, Resume: c.Resume, Checkpoint: c.Checkpoint,
		Moves: slices.Clone(c.Moves), Splits: slices.Clone(c.Splits), Placement: slices.Clone(c.Placement),
	})
}

// restart has the whole job end and start from its checkpoint.
func (o *orders) restart() {
	c := o.op.rec
	o.out.command(Fence{Generation: c.Generation, Nodes: slices.Clone(c.Fenced), Ranks: o.launched()})
	o.out.command(Stop{Generation: c.Generation, Nodes: o.op.staying()})
	o.out.command(Restart{Generation: c.Generation, Placement: slices.Clone(launchedOn(c)), Reason: c.Reason})
}

// stopAll ends all processes of a recovery without success, on the nodes that
// were given up too, as they may not be fenced yet.
func (o *orders) stopAll() {
	nodes := append(slices.Clone(o.ranks.usedNodes()), o.op.rec.Fenced...)
	slices.Sort(nodes)
	o.out.command(Stop{Generation: o.op.rec.Generation, Nodes: slices.Compact(nodes)})
}

// launched are the ranks launched in the present generation, ascending.
func (o *orders) launched() []falcon.Rank {
	var out []falcon.Rank
	for r, g := range o.op.rec.Launched {
		if g == o.op.rec.Generation {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}
