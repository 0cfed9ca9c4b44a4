package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/outbox"
)

// clusterView answers where ranks, processes and agents are, from what agents
// have described and what the journal keeps. It decides nothing and changes
// nothing, and it sends frames to nodes by their names.
type clusterView struct {
	cfg      *Config
	state    *journalState
	job      *job
	nodes    *fleet.Registry
	attached map[falcon.Node]time.Time // since when each agent's stream is open
	holders  holders
	left     leftovers
}

// holders are the nodes that hold ranks, as long as nothing changes of what they follow from.
type holders struct {
	of      holdersOf
	version uint64        // goes up with each change
	byRank  []falcon.Node // in the order of their lowest ranks
	sorted  []falcon.Node
}

// holdersOf is what nodeOf looks at.
type holdersOf struct {
	changes          uint64
	world            int
	described, moved *falcon.Device // first of the job's and of a recovery's placement
}

// nodeOf is where a rank lives: as its agent reports it, or, before the agent
// has after a restart of the engine, as the journal has it.
func (c *clusterView) nodeOf(r falcon.Rank) falcon.Node {
	if p := c.job.ranks[r]; p != nil {
		return p.node
	}
	if v := c.recovering(); v != nil && r >= 0 && int(r) < len(v.Placement) {
		return v.Placement[r].Node()
	}
	if r >= 0 && int(r) < len(c.state.job.Placement) {
		return c.state.job.Placement[r].Node()
	}
	return ""
}

// nodeAtIteration is where a rank lived at an iteration, under the newest placement or
// the one before.
func (c *clusterView) nodeAtIteration(r falcon.Rank, iteration int64) falcon.Node {
	job := &c.state.job
	if iteration < job.PlacedIteration && r >= 0 && int(r) < len(job.Before) {
		return job.Before[r].Node()
	}
	return c.nodeOf(r)
}

// rankNodes are the nodes that hold ranks, in the order of their lowest ranks. The list must not be
// changed.
func (c *clusterView) rankNodes() []falcon.Node {
	return c.holdersNow().byRank
}

// jobNodes are the nodes that hold ranks, sorted. The list must not be changed.
func (c *clusterView) jobNodes() []falcon.Node {
	return c.holdersNow().sorted
}

// holdersNow finds the nodes that hold ranks, where they are not known.
func (c *clusterView) holdersNow() *holders {
	of := holdersOf{
		changes:   c.job.changes,
		world:     c.state.job.Layout.World(),
		described: firstSeat(c.state.job.Placement),
	}
	h := &c.holders
	if v := c.recovering(); v != nil {
		of.moved = firstSeat(v.Placement)
	}
	if h.of == of {
		return h
	}
	seen := map[falcon.Node]bool{}
	*h = holders{of: of, version: h.version + 1}
	for r := range of.world {
		if n := c.nodeOf(falcon.Rank(r)); !seen[n] {
			seen[n], h.byRank = true, append(h.byRank, n)
		}
	}
	h.sorted = slices.Sorted(slices.Values(h.byRank))
	return h
}

func firstSeat(p falcon.Placement) *falcon.Device {
	if len(p) == 0 {
		return nil
	}
	return &p[0]
}

// ranksOn lists a node's ranks in the order of their devices.
func (c *clusterView) ranksOn(node falcon.Node) []falcon.Rank {
	var out []falcon.Rank
	for r := range c.job.world() {
		if c.job.ranks[falcon.Rank(r)].node == node {
			out = append(out, falcon.Rank(r))
		}
	}
	slices.SortStableFunc(out, func(a, b falcon.Rank) int {
		return c.job.ranks[a].device.Index() - c.job.ranks[b].device.Index()
	})
	return out
}

func (c *clusterView) rankText(r falcon.Rank) string {
	return fmt.Sprintf("rank %d on %s", r, c.nodeOf(r))
}

func (c *clusterView) connected(name falcon.Node) bool {
	n := c.nodes.Node(name)
	return n != nil && n.Connected()
}

// blindNode is a node with live ranks whose agent has been away for long; ""
// when there is none.
func (c *clusterView) blindNode(now time.Time) falcon.Node {
	if c.job.alive == 0 {
		return ""
	}
	for _, n := range c.nodes.Nodes() {
		if !n.Connected() && n.Age(now) > staleAfter && c.job.livesOn(n.Name) {
			return n.Name
		}
	}
	return ""
}

// otherJobs says which agents follow a job of another name than the engine's; "" where none does.
func otherJobs(all []*fleet.Node, name string) string {
	var nodes []falcon.Node
	other := ""
	for _, n := range all {
		if job := n.Hello.GetJob(); n.Connected() && followsOther(job, name) {
			nodes = append(nodes, n.Name)
			other = job
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"agents follow job %q and this engine's is %q: make job: the same in agent.yaml and falcon.yaml (%s)",
		clean(other), name, cleanNodes(nodes),
	)
}

// followsOther reports whether an agent follows another job than the engine's, where both name one.
func followsOther(job, name string) bool {
	return job != "" && name != "" && job != name
}

// launchSlots is how many processes a node can start now.
func (c *clusterView) launchSlots(name falcon.Node) int {
	if n := c.nodes.Node(name); n != nil && n.Connected() {
		return int(n.Hello.GetLaunchRanks())
	}
	return 0
}

// send sends commands to the nodes that are connected; the others are sent them
// when they come back.
func (c *clusterView) send(list []outbox.Message) {
	for _, m := range list {
		if n := c.nodes.Node(m.Node); n != nil && n.Connected() {
			m.Command.Epoch, m.Command.Record = c.state.Epoch, c.cfg.Journal.Head().Seq
			n.Session.Send(&falconv1.EngineFrame{Body: &falconv1.EngineFrame_Command{Command: m.Command}})
		}
	}
}

// unsettledRank is a rank whose process has not reported yet which communicators it
// uses since the newest placement; -1 when there is none.
func (c *clusterView) unsettledRank() falcon.Rank {
	for r := range c.job.world() {
		p := c.job.ranks[falcon.Rank(r)]
		if p == nil || !p.settled() || p.next != nil {
			return falcon.Rank(r)
		}
	}
	return -1
}

// recovering is the recovery that is at work on the job; nil while there is
// none, or one only waits for a decision.
func (c *clusterView) recovering() *falcon.Recovery {
	if v := c.state.current(); v != nil && v.State != falcon.RecoveryProposed {
		return v
	}
	return nil
}

// unadopted is a recovery that has succeeded and whose job epoch has not begun.
func (c *clusterView) unadopted() *falcon.Recovery {
	n := len(c.state.recoveries)
	if n == 0 {
		return nil
	}
	v := &c.state.recoveries[n-1]
	if v.State == falcon.RecoveryResumed &&
		v.Generation > c.state.job.Rejoined &&
		v.JobEpoch == c.state.job.Epoch {
		return v
	}
	return nil
}

// descriptionFrozen reports whether the job's description must not change: a recovery is at work,
// and not by a whole restart.
func (c *clusterView) descriptionFrozen() bool {
	return c.recovering() != nil && !c.state.restart.Active()
}

// newestGeneration is the highest one ever used.
func (c *clusterView) newestGeneration() uint64 {
	g := max(c.state.Generation, c.state.job.Newest())
	if l := c.state.restart.Launch; l != nil {
		g = max(g, l.Generation)
	}
	for i := range c.state.actions {
		g = max(g, c.state.actions[i].Generation)
	}
	return g
}

// finishedBefore reports whether all ranks of the job have ended with success, as
// far as the journal knows.
func (c *clusterView) finishedBefore() bool {
	ended := map[falcon.Rank]bool{}
	for _, r := range c.state.ended.ranksOf(c.state.job.Epoch) {
		ended[r] = true
	}
	return len(ended) > 0 && len(ended) == len(c.state.job.Placement)
}

// stillRunning finds a rank whose process is not known to have ended. One that
// its agent has not reported on its present stream, although it had the time and has beaten,
// has ended; one on a fenced node is not waited for.
func (c *clusterView) stillRunning(now time.Time, home falcon.Placement) (falcon.Rank, bool) {
	for i, device := range home {
		rank := falcon.Rank(i)
		if device == "" || c.state.fences.nodeFenced(device.Node()) {
			continue
		}
		if p := c.job.ranks[rank]; p != nil {
			if p.state.GetAlive() {
				return rank, true
			}
			continue
		}
		if !c.listed(now, device.Node(), reportWait) {
			return rank, true
		}
	}
	return 0, false
}

// endedRank says which rank has ended, so that no order can take effect any
// more; "" while all live.
func (c *clusterView) endedRank(now time.Time) string {
	for r := range c.state.job.Layout.World() {
		p := c.job.ranks[falcon.Rank(r)]
		if p != nil && !p.state.GetAlive() && now.Sub(p.endedAt) > goneAfter {
			return fmt.Sprintf("rank %d on %s has ended", r, p.node)
		}
	}
	return ""
}

// placed reports whether a recovery in progress has a rank on a node, even if
// another one claims it.
func (c *clusterView) placed(node falcon.Node, r falcon.Rank) bool {
	v := c.recovering()
	return v != nil &&
		r >= 0 &&
		int(r) < len(v.Placement) &&
		v.Placement[r].Node() == node
}

// ownAcks leaves only acknowledgements of ranks that live on the node, cleaned. A
// rank whose process has ended since still counts: it has voted.
func (c *clusterView) ownAcks(n *fleet.Node, in *falconv1.CommandResult) *falconv1.CommandResult {
	in.Ranks = slices.DeleteFunc(in.Ranks, func(a *falconv1.RankAck) bool {
		p := c.job.ranks[falcon.Rank(a.GetRank())]
		return c.nodeOf(falcon.Rank(a.GetRank())) != n.Name ||
			p != nil && c.state.fences.processFenced(p.name)
	})
	for _, a := range in.Ranks {
		for i, ms := range a.StepMs {
			a.StepMs[i] = finite(ms, msMost)
		}
	}
	in.Detail = clean(in.GetDetail())
	return in
}

// profiling reports whether some node that holds ranks has not answered a profile window.
func (c *clusterView) profiling(now time.Time, b *outbox.Box) bool {
	return b.InFlight(now, windowCommand, c.holdersNow().version, c.jobNodes)
}

// goneAfter is how long the answers of ranks that took an order before one of them
// ended may take to come.
const goneAfter = 15 * time.Second

// staleAfter is how long nothing may come from a node before what it last said is
// taken for old.
const staleAfter = 5 * time.Second
