package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/recovery"
)

// Fencing is refusal: what a fenced node or process says does not count any
// more, whatever it believes itself. Nothing is killed from here; a fenced node
// that comes back is ordered to end what it still runs.

// fenceRecord is one fence, or the lifting of one.
type fenceRecord struct {
	Generation uint64        `json:"generation"`
	Nodes      []falcon.Node `json:"nodes,omitempty"`     // as a whole, until lifted
	Processes  []string      `json:"processes,omitempty"` // by name, on any node, for ever
	Stop       uint64        `json:"stop_command,omitempty"`
	Lifted     falcon.Node   `json:"lifted,omitempty"` // nothing else is set then
	By         string        `json:"by,omitempty"`
	From       string        `json:"from,omitempty"`
	Reason     string        `json:"reason,omitempty"`
}

// processesFenced bounds the names that are kept: processes of so long ago are
// not known any more.
const processesFenced = 1 << 16

// fences is what is refused now.
type fences struct {
	nodes  map[falcon.Node]fenceRecord
	names  map[string]falcon.Node // fenced processes and where they are
	order  []string               // names, oldest first
	newest uint64                 // generation of the newest fence
}

func newFences() fences {
	return fences{
		nodes: map[falcon.Node]fenceRecord{},
		names: map[string]falcon.Node{},
	}
}

func (f *fences) nodeFenced(n falcon.Node) bool {
	_, is := f.nodes[n]
	return is
}

func (f *fences) processFenced(name string) bool {
	_, is := f.names[name]
	return is
}

// apply folds a record in. A lifted fence admits those processes again that
// the job still has; others were replaced, and stay fenced for ever.
func (f *fences) apply(v fenceRecord, job []string) {
	if v.Lifted != "" {
		delete(f.nodes, v.Lifted)
		f.order = slices.DeleteFunc(f.order, func(name string) bool {
			back := f.names[name] == v.Lifted && slices.Contains(job, name)
			if back {
				delete(f.names, name)
			}
			return back
		})
		return
	}
	f.newest = max(f.newest, v.Generation)
	for _, n := range v.Nodes {
		f.nodes[n] = v
	}
	for _, name := range v.Processes {
		if !f.processFenced(name) {
			f.order = append(f.order, name)
		}
		f.names[name] = nodeOfProcess(name)
	}
	for len(f.order) > processesFenced {
		delete(f.names, f.order[0])
		f.order = f.order[1:]
	}
}

// nodeOfProcess reads a process's name; see processName.
func nodeOfProcess(name string) falcon.Node {
	node, _, _ := strings.Cut(name, "/")
	return falcon.Node(node)
}

// misplaced reports whether a process is none that a recovery in progress knows of:
// its rank belongs elsewhere, or its generation was never given out.
func (c *clusterView) misplaced(node falcon.Node, r falcon.Rank, s *falconv1.RankState) bool {
	v := c.recovering()
	if v == nil ||
		c.state.restart.Active() ||
		r < 0 ||
		int(r) >= len(v.Placement) ||
		c.job.named[processName(node, s)] != nil {
		return false
	}
	return v.Placement[r].Node() != node || s.GetGeneration() > v.Generation
}

// fenceOf makes the record of a fence: who is meant by it is settled now.
func (dr *recoveryDriver) fenceOf(now time.Time, c recovery.Fence) fenceRecord {
	out := fenceRecord{Generation: c.Generation, Nodes: slices.Clone(c.Nodes)}
	add := func(name string) {
		if name != "" &&
			!dr.state.fences.processFenced(name) &&
			!slices.Contains(out.Processes, name) {
			out.Processes = append(out.Processes, name)
		}
	}
	for _, r := range sortedKeys(dr.job.ranks) {
		p := dr.job.ranks[r]
		old := p.state.GetGeneration() < c.Generation
		if old && (slices.Contains(c.Nodes, p.node) || slices.Contains(c.Ranks, r)) {
			add(p.name)
		}
	}
	for r, name := range dr.state.job.Processes { // those that no agent has reported since the engine started
		if dr.job.ranks[falcon.Rank(r)] == nil &&
			(slices.Contains(c.Nodes, nodeOfProcess(name)) || slices.Contains(c.Ranks, falcon.Rank(r))) {
			add(name)
		}
	}
	for range c.Nodes {
		if id := dr.batch.commandID(now); out.Stop == 0 {
			out.Stop = id
		}
	}
	return out
}

// applyFence applies a fence to the picture once it is durable.
func (dr *recoveryDriver) applyFence(now time.Time, v fenceRecord) {
	for _, r := range sortedKeys(dr.job.ranks) {
		p := dr.job.ranks[r]
		if p.state.GetAlive() && slices.Contains(v.Processes, p.name) {
			s := proto.CloneOf(p.state)
			s.Alive = false
			s.Exit = "fenced"
			s.Park = nil
			p.endedAt = now
			dr.job.putState(p, s)
		}
	}
	for _, n := range v.Nodes {
		if it := dr.putStop(n); it != nil {
			dr.cluster.send(it.SendAll(dr.cfg.Now()))
		}
	}
	dr.fenceStore(v.Generation)
}

// fenceStore has the job's rendezvous store refuse what is older.
func (dr *recoveryDriver) fenceStore(generation uint64) {
	if dr.cfg.Recovery.Store == nil || generation == 0 {
		return
	}
	if err := dr.cfg.Recovery.Store.Fence(generation); err != nil {
		dr.oplog.logf("recovery", 2, "", "the store does not refuse generations before %d: %s",
			generation, err)
	}
}

// logStoreNews passes on what the job's rendezvous store has to say.
func (dr *recoveryDriver) logStoreNews() {
	s, is := dr.cfg.Recovery.Store.(newsworthy)
	if !is {
		return
	}
	for _, line := range s.News() {
		dr.oplog.logf("recovery", 2, "", "%s", line)
	}
}

// putStop puts the order to end what a fenced node still runs into the outbox; nil
// where its fence has none. It is sent again whenever the node comes back.
func (dr *recoveryDriver) putStop(n falcon.Node) *outbox.Item {
	v := dr.state.fences.nodes[n]
	if v.Stop == 0 {
		return nil
	}
	dr.outbox.Remove(isStopOf(n))
	return dr.outbox.Put(outbox.Item{
		Class: fenceCommand,
		To: []outbox.To{{
			Node: n,
			ID:   v.Stop + uint64(slices.Index(v.Nodes, n)),
		}},
		Life:   commandLife,
		Renew:  true,
		Repeat: true,
		About:  stopOf(n),
		Body:   func(falcon.Node) *falconv1.Command { return stopOlder(v.Generation) },
	})
}

// stopOf is the node that is ordered to end what it still runs.
type stopOf falcon.Node

// isStopOf reports whether a command is that order to a node.
func isStopOf(n falcon.Node) func(*outbox.Item) bool {
	return func(it *outbox.Item) bool { return it.About == stopOf(n) }
}

// refuses reports whether a frame does not count because its node or process is
// fenced. What only describes the node is taken all the same.
func (dr *recoveryDriver) refuses(n *fleet.Node, f frame) bool {
	name := ""
	switch body := f.GetBody().(type) {
	case *falconv1.AgentFrame_Hello, *falconv1.AgentFrame_Beat, *falconv1.AgentFrame_Telemetry,
		*falconv1.AgentFrame_Goodbye:
		return false
	case *falconv1.AgentFrame_Rank:
		name = processName(n.Name, body.Rank)
	}
	v, whole := dr.state.fences.nodes[n.Name]
	if !whole && !dr.state.fences.processFenced(name) {
		return false
	}
	if s := f.GetRank(); s != nil {
		dr.cluster.left.note(dr.cfg.Now(), n.Name, s)
		if whole {
			dr.back.note(n.Name, v, s)
		}
	}
	what := "what node " + string(n.Name) + " says of the job"
	if !whole {
		what = "what process " + name + " says"
	}
	key := fmt.Sprintf("%s/%d", what, v.Generation)
	if !dr.loggedOnce[key] && len(dr.loggedOnce) < loggedOnceMax {
		dr.loggedOnce[key] = true
		dr.oplog.logf("recovery", 1, string(n.Name), "%s is refused: it is fenced", clean(what))
	}
	return true
}

// loggedOnceMax bounds the lines about it in the life of one engine.
const loggedOnceMax = 1024

// liftFence takes a node back after a person has looked at it.
func (rd *recoveryDemands) liftFence(now time.Time, who Actor, node falcon.Node, reason string) error {
	if !rd.state.fences.nodeFenced(node) {
		return fmt.Errorf("%w: node %q is not fenced", ErrNotFound, clean(string(node)))
	}
	if v := rd.cluster.recovering(); v != nil && slices.Contains(v.Fenced, node) {
		return fmt.Errorf("%w: %s has fenced node %s and is in progress (%s); lift it when that is over",
			ErrStale, v.ID, node, v.State)
	}
	if why := rd.cluster.leftRunning(now, node); why != "" {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	rec := fenceRecord{
		Lifted: node,
		By:     who.Name,
		From:   who.From,
		Reason: reason,
	}
	rd.takeBack(now, rec)
	rd.oplog.audit(now, who, auditEntry{
		Verb:   verbLift,
		About:  string(node),
		Reason: reason,
	})
	rd.describer.means = means{}
	return nil
}

// liftOutdated lifts fences of an older journal from nodes whose processes train in a later
// generation: they were taken back since.
func (dr *recoveryDriver) liftOutdated(now time.Time, held []arrival) {
	for _, a := range held {
		n, s := falcon.Node(a.session.Hello.GetNode()), a.frame.GetRank()
		v, fenced := dr.state.fences.nodes[n]
		if !fenced ||
			!s.GetAlive() ||
			max(s.GetGeneration(), s.GetRejoinedGeneration()) <= v.Generation {
			continue
		}
		dr.batch.apply(record(now, kindFence, fenceRecord{
			Lifted: n,
			Reason: "the journal is older than its processes",
		}))
		dr.oplog.logf("recovery", 2, string(n),
			"the fence of node %s is lifted: its processes are of generation %d, and the fence is of %d",
			n, max(s.GetGeneration(), s.GetRejoinedGeneration()), v.Generation)
	}
}

// leftRunning says in one sentence what a fenced node still holds of the job, ""
// when it holds nothing: a process that was replaced must have ended before its
// node can be a spare, and only the node's own agent can say so.
func (c *clusterView) leftRunning(now time.Time, node falcon.Node) string {
	n := c.nodes.Node(node)
	if n == nil ||
		!n.Connected() ||
		n.Beat == nil ||
		n.Age(now) > 2*c.cfg.beatPeriod() {
		return fmt.Sprintf(
			"the agent of node %s is not heard, and what still runs there is not known; start it, then lift the fence",
			node,
		)
	}
	for _, b := range n.Beat.GetRanks() {
		prefix := fmt.Sprintf("%s/%d", node, b.GetPid())
		for name, on := range c.state.fences.names {
			runs := on == node && (name == prefix || strings.HasPrefix(name, prefix+"/"))
			if runs && !slices.Contains(c.state.job.Processes, name) {
				return fmt.Sprintf(
					"process %d on node %s was replaced and still runs; it was ordered to end: wait, or kill it, then lift the fence",
					b.GetPid(), node,
				)
			}
		}
	}
	return ""
}
