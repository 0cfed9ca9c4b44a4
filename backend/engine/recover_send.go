package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/recovery"
)

// What the recovery machine wants done goes to the nodes as commands whose ids
// are promised first, in the batch of the recovery that they belong to: the same
// command has the same id after any restart, and is executed once.

// Kinds of commands of a recovery, in records.
const (
	suspendKind = "suspend"
	launchKind  = "launch"
	tableKind   = "table"
	rejoinKind  = "rejoin"
	stopKind    = "stop"
)

// sentRecord promises the ids of one command's frames.
type sentRecord struct {
	Generation uint64                `json:"generation"`
	Kind       string                `json:"kind"`
	Hash       string                `json:"hash"`          // of what it says
	First      uint64                `json:"first_command"` // of Nodes[0]; the others follow
	Nodes      []falcon.Node         `json:"nodes"`
	Pids       map[falcon.Rank]int32 `json:"pids,omitempty"` // rejoins: the processes that are meant
}

// sentKept bounds the promises in memory: a recovery in progress has a few for
// each of its generations.
const (
	sentKept        = 256
	sentGenerations = 4 // of which nothing is sent again
)

func (m *journalState) setSent(v sentRecord) {
	m.sent = keepNewest(slices.DeleteFunc(append(m.sent, v), func(o sentRecord) bool {
		return o.Generation+sentGenerations <= v.Generation
	}), sentKept)
}

func (m *journalState) sentAs(generation uint64, kind, hash string) (sentRecord, bool) {
	for _, v := range m.sent {
		if v.Generation == generation && v.Kind == kind && v.Hash == hash {
			return v, true
		}
	}
	return sentRecord{}, false
}

// nodeCommand is a command of a recovery, with what each node gets of it.
type nodeCommand struct {
	sentRecord
	deadline time.Time
	body     func(n falcon.Node) *falconv1.Command
	batch    int // nodes that it is sent to per tick, 0 = all at once
}

// putCommand puts a command into the outbox. What older generations were sent is
// void, but for what ends processes, and what started those that are still awaited.
func (dr *recoveryDriver) putCommand(t *nodeCommand) *outbox.Item {
	dr.outbox.Remove(func(it *outbox.Item) bool {
		o, is := it.About.(*nodeCommand)
		return is && o.Kind != stopKind && o.Kind != launchKind && o.Generation < t.Generation
	})
	to := make([]outbox.To, len(t.Nodes))
	for i, n := range t.Nodes {
		to[i] = outbox.To{Node: n, ID: t.First + uint64(i)}
	}
	return dr.outbox.Put(outbox.Item{
		Class:    recoveryCommand,
		To:       to,
		Body:     t.body,
		Deadline: t.deadline,
		Life:     commandLife,
		Renew:    true,
		Batch:    t.batch,
		About:    t,
	})
}

// forgetCommands ends all commands up to a generation: the next recovery's may be out already.
// Those that end processes stay where the recovery has failed.
func (dr *recoveryDriver) forgetCommands(upTo uint64, keepStops bool) {
	dr.outbox.Remove(func(it *outbox.Item) bool {
		t, is := it.About.(*nodeCommand)
		return is && t.Generation <= upTo && (!keepStops || t.Kind != stopKind)
	})
}

// prepare prepares what the machine wants carried out.
func (dr *recoveryDriver) prepare(now time.Time, c recovery.Command, r *decidedRound) {
	switch c := c.(type) {
	case recovery.Fence:
		v := dr.fenceOf(now, c)
		if len(v.Processes) == 0 &&
			!slices.ContainsFunc(v.Nodes, func(n falcon.Node) bool {
				return !dr.state.fences.nodeFenced(n)
			}) {
			return // given again
		}
		dr.batch.addRecords(record(now, kindFence, v))
		r.fences = append(r.fences, v)
	case recovery.Restart:
		dr.restart.demanded(now, c)
	default:
		if t := dr.compose(c); t != nil {
			dr.promise(now, t, r)
			r.commands = append(r.commands, t)
		}
	}
}

// promise gives a command its ids: those of before when it was given before.
func (dr *recoveryDriver) promise(now time.Time, t *nodeCommand, r *decidedRound) {
	if was, known := dr.state.sentAs(t.Generation, t.Kind, t.Hash); known {
		t.sentRecord = was
	} else {
		for range t.Nodes {
			if id := dr.batch.commandID(now); t.First == 0 {
				t.First = id
			}
		}
		dr.batch.addRecords(dr.state.sentRecord(now, t.sentRecord))
	}
	t.deadline = now.Add(commandLife)
	v := dr.state.current()
	if v != nil && v.DeadlineNs > t.deadline.UnixNano() {
		t.deadline = time.Unix(0, v.DeadlineNs)
	}
}

func (dr *recoveryDriver) compose(c recovery.Command) *nodeCommand {
	t := &nodeCommand{}
	switch c := c.(type) {
	case recovery.Suspend:
		t.Generation = c.Generation
		t.Kind = suspendKind
		t.Nodes = slices.Clone(c.Nodes)
		t.body = func(falcon.Node) *falconv1.Command {
			return &falconv1.Command{Body: &falconv1.Command_Suspend{Suspend: &falconv1.SuspendCommand{
				Generation:      c.Generation,
				OptimizerWaitMs: c.WaitMs,
			}}}
		}
	case recovery.Launch:
		t.Generation = c.Generation
		t.Kind = launchKind
		t.Nodes = falcon.Placement(slices.Collect(maps.Values(c.Ranks))).SortedNodes()
		t.body = func(n falcon.Node) *falconv1.Command { return joinCommand(c, n) }
	case recovery.Table:
		t.Generation, t.Kind, t.Nodes = c.Generation, tableKind, c.Placement.SortedNodes()
		if !dr.composeTable(t, c.Placement) {
			return nil
		}
	case recovery.Rejoin:
		t.Generation = c.Generation
		t.Kind = rejoinKind
		t.Nodes = c.Placement.SortedNodes()
		t.Pids = dr.cluster.livePids()
		on := seats(c.Placement)
		t.body = func(n falcon.Node) *falconv1.Command {
			return rejoinCommand(c, on[n], t.Pids)
		}
	case recovery.Stop:
		t.Generation, t.Kind, t.Nodes = c.Generation, stopKind, dr.cluster.stopNodes(c)
		t.body = func(n falcon.Node) *falconv1.Command {
			return stopOlder(c.Generation, dr.cluster.stopRanks(c, n)...)
		}
	default:
		dr.log.Error("the recovery machine wants something unknown", "command", fmt.Sprintf("%T", c))
		return nil
	}
	t.Hash = shortHash(c)
	return t
}

func joinCommand(c recovery.Launch, n falcon.Node) *falconv1.Command {
	l := &falconv1.LaunchCommand{
		Generation: c.Generation,
		World:      int32(c.World),
		Join:       true,
	}
	for _, r := range sortedKeys(c.Ranks) {
		addLaunch(l, n, r, c.Ranks[r])
	}
	return &falconv1.Command{Body: &falconv1.Command_Launch{Launch: l}}
}

// livePids are the processes that hold the ranks now.
func (c *clusterView) livePids() map[falcon.Rank]int32 {
	out := make(map[falcon.Rank]int32, len(c.job.ranks))
	for r, p := range c.job.ranks {
		if p.state.GetAlive() {
			out[r] = p.state.GetPid()
		}
	}
	return out
}

// seats sorts a placement's ranks by node.
func seats(p falcon.Placement) map[falcon.Node][]falcon.Rank {
	out := map[falcon.Node][]falcon.Rank{}
	for r, d := range p {
		out[d.Node()] = append(out[d.Node()], falcon.Rank(r))
	}
	return out
}

func rejoinCommand(c recovery.Rejoin, ranks []falcon.Rank, pids map[falcon.Rank]int32) *falconv1.Command {
	out := &falconv1.RejoinCommand{
		Generation:      c.Generation,
		ResumeIteration: c.Resume,
		Checkpoint:      c.Checkpoint,
		MicroBatches:    c.Splits,
		Moves:           convert.MovesToProto(c.Moves),
	}
	for _, r := range ranks {
		out.Seats = append(out.Seats, &falconv1.RankSeat{
			Rank: int32(r),
			Pid:  pids[r],
		})
	}
	return &falconv1.Command{Body: &falconv1.Command_Rejoin{Rejoin: out}}
}

// stopNodes are those that a stop goes to: the nodes named, or those of the
// ranks named, or all that hold ranks.
func (c *clusterView) stopNodes(stop recovery.Stop) []falcon.Node {
	seen := map[falcon.Node]bool{}
	for _, n := range stop.Nodes {
		seen[n] = true
	}
	for _, r := range stop.Ranks {
		if len(stop.Nodes) == 0 {
			seen[c.nodeOf(r)] = true
		}
	}
	if len(seen) == 0 {
		return c.jobNodes()
	}
	delete(seen, "")
	return sortedKeys(seen)
}

// stopRanks are those of a node that are meant; none = all.
func (c *clusterView) stopRanks(stop recovery.Stop, n falcon.Node) []int32 {
	var out []int32
	for _, r := range stop.Ranks {
		if c.nodeOf(r) == n || len(stop.Nodes) > 0 {
			out = append(out, int32(r))
		}
	}
	return out
}

// sendCommands sends commands to their nodes.
func (dr *recoveryDriver) sendCommands(list []*nodeCommand) {
	for _, t := range list {
		if it := dr.putCommand(t); t.batch == 0 {
			dr.cluster.send(it.SendAll(dr.cfg.Now()))
		}
	}
}

// wanted reports whether a command still leads to what the recovery is about: a rank
// may have been launched elsewhere since.
func (c *clusterView) wanted(t *nodeCommand, n falcon.Node) bool {
	v := c.state.current()
	if t.Kind != launchKind || v == nil {
		return true
	}
	return !slices.ContainsFunc(t.body(n).GetLaunch().GetRanks(), func(r *falconv1.RankLaunch) bool {
		rank := falcon.Rank(r.GetRank())
		return v.Launched[rank] != t.Generation ||
			int(rank) >= len(v.Placement) ||
			v.Placement[rank].Node() != n
	})
}

// onAnswer takes a node's answer to a command.
func (dr *recoveryDriver) onAnswer(
	now time.Time,
	it *outbox.Item,
	node falcon.Node,
	in *falconv1.CommandResult,
) {
	t := it.About.(*nodeCommand)
	failed := ""
	switch in.GetStatus() {
	case falconv1.CommandStatus_COMMAND_STATUS_DONE:
	case falconv1.CommandStatus_COMMAND_STATUS_REFUSED, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED:
		failed = cmp.Or(clean(in.GetDetail()), noReason)
	default:
		dr.rejoinedRanks(now, t, node, in)
		return
	}
	if t.Kind == tableKind && dr.tables.answered(node, t.Generation, failed) {
		dr.resendWhole(t, node)
		return
	}
	it.Close(node)
	dr.commandDone(now, t, node, in, failed)
}

// commandDone steps the machine with the outcome of a command on one node.
func (dr *recoveryDriver) commandDone(
	now time.Time,
	t *nodeCommand,
	node falcon.Node,
	in *falconv1.CommandResult,
	failed string,
) {
	switch t.Kind {
	case suspendKind:
		dr.rec.Step(now, recovery.Suspended{
			Node:       node,
			Generation: t.Generation,
			Refused:    failed,
			Late:       in.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_EXPIRED,
		})
	case launchKind:
		dr.rec.Step(now, recovery.Launched{
			Node:       node,
			Generation: t.Generation,
			Failed:     failed,
			Unproven:   failed != "" && in.GetUnproven() != nil,
		})
	case tableKind:
		dr.rec.Step(now, recovery.Tabled{
			Node:       node,
			Generation: t.Generation,
			Failed:     failed,
		})
	case rejoinKind:
		dr.rejoinedRanks(now, t, node, in)
		if failed != "" {
			dr.rejoinRefused(now, t, node, failed)
		}
	}
}

// rejoinedRanks passes on the acknowledgements of the ranks that were meant.
func (dr *recoveryDriver) rejoinedRanks(
	now time.Time,
	t *nodeCommand,
	node falcon.Node,
	in *falconv1.CommandResult,
) {
	if t.Kind != rejoinKind {
		return
	}
	for _, a := range in.GetRanks() {
		r := falcon.Rank(a.GetRank())
		p := dr.job.ranks[r]
		mine := dr.cluster.nodeOf(r) == node &&
			(p == nil || p.state.GetPid() == t.Pids[r] && !dr.state.fences.processFenced(p.name))
		if !mine ||
			a.GetGeneration() != t.Generation ||
			a.GetIteration() < falcon.NoIteration ||
			a.GetIteration() > iterationMost {
			continue
		}
		dr.rec.Step(now, recovery.Rejoined{
			Rank:       r,
			Generation: t.Generation,
			Status:     a.GetStatus(),
			Iteration:  a.GetIteration(),
			GroupsMs:   finite(a.GetGroupsMs(), msMost),
			RestoreMs:  finite(a.GetRestoreMs(), msMost),
			Bytes:      a.GetMovedBytes(),
		})
		dr.rejoinAcks[r] = rejoinAck{t.Generation, a.GetStatus()}
	}
}

// rejoinRefused takes a refusal for the answer of every rank of the node that has
// not spoken.
func (dr *recoveryDriver) rejoinRefused(now time.Time, t *nodeCommand, node falcon.Node, why string) {
	dr.oplog.logf("recovery", 2, string(node), "node %s does not let its ranks rejoin: %s", node, why)
	for _, r := range sortedKeys(t.Pids) {
		if dr.cluster.nodeOf(r) == node && dr.rejoinAcks[r].generation != t.Generation {
			dr.rec.Step(now, recovery.Rejoined{
				Rank:       r,
				Generation: t.Generation,
				Status:     statusRefused,
				Iteration:  falcon.NoIteration,
			})
			dr.rejoinAcks[r] = rejoinAck{t.Generation, statusRefused}
		}
	}
}

// statusRefused is the status of a rank whose agent refused the order.
const statusRefused = -1

// rejoinAck is what a rank has said of the newest rejoin.
type rejoinAck struct {
	generation uint64
	status     int32
}
