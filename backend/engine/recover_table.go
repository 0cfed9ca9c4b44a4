package engine

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/ranktable"
)

// tablesKept bounds the rank tables that deltas are made from.
const tablesKept = 4

// rankTable is an encoded one.
type rankTable struct {
	generation uint64
	text       []byte
}

// tableBook knows the newest rank tables, and which one each node has in its
// file by its own report. After a restart nothing is known and tables go whole.
type tableBook struct {
	made    []rankTable
	held    map[falcon.Node]uint64 // generation
	retried map[falcon.Node]uint64 // generation that was sent again, whole
}

func newTableBook() tableBook {
	return tableBook{
		held:    map[falcon.Node]uint64{},
		retried: map[falcon.Node]uint64{},
	}
}

// rankTable encodes the rank table of a placement.
func (c *clusterView) rankTable(p falcon.Placement) ([]byte, error) {
	hosts := map[falcon.Node]string{}
	for _, n := range p.SortedNodes() {
		if x := c.nodes.Node(n); x != nil {
			hosts[n] = x.Host
		}
	}
	return ranktable.Encode(p, hosts)
}

// needsTable reports whether a node puts rank tables into a file, as far as is known.
func (c *clusterView) needsTable(n falcon.Node) bool {
	x := c.nodes.Node(n)
	return x == nil || x.Hello.GetProtocol() < tableSaid || x.Hello.GetRankTable()
}

// tableSaid is the revision from which on agents say whether they need rank tables.
const tableSaid = 3

// addTable keeps a table.
func (b *tableBook) addTable(t rankTable) {
	b.made = slices.DeleteFunc(b.made, func(o rankTable) bool {
		return o.generation == t.generation
	})
	b.made = keepNewest(append(b.made, t), tablesKept)
}

func (b *tableBook) tableOf(generation uint64) (rankTable, bool) {
	i := slices.IndexFunc(b.made, func(o rankTable) bool { return o.generation == generation })
	if i < 0 {
		return rankTable{}, false
	}
	return b.made[i], true
}

// commands make the frames of a table: what changed for nodes that have an
// older one, the whole for others. Nodes with the same base share one delta.
// A node that needs none is sent the generation alone: a table for each of thousands of nodes
// is gigabytes.
func (b *tableBook) commands(t rankTable, needs func(falcon.Node) bool) func(falcon.Node) *falconv1.Command {
	deltas := map[uint64][]byte{}
	return func(n falcon.Node) *falconv1.Command {
		out := &falconv1.TableCommand{Generation: t.generation}
		if !needs(n) {
			out.None = true
			return &falconv1.Command{Body: &falconv1.Command_Table{Table: out}}
		}
		held, holds := b.held[n]
		base, known := b.tableOf(held)
		if holds && known && base.generation < t.generation && b.retried[n] < t.generation {
			if deltas[base.generation] == nil {
				// numbers and bytes always encode
				deltas[base.generation], _ = ranktable.Diff(
					base.text,
					base.generation,
					t.text,
					t.generation,
				).Encode()
			}
			out.BaseGeneration = base.generation
			out.Delta = deltas[base.generation]
		}
		if len(out.Delta) == 0 || len(out.Delta) > len(t.text) {
			out.BaseGeneration = 0
			out.Delta = nil
			out.Table = t.text
		}
		return &falconv1.Command{Body: &falconv1.Command_Table{Table: out}}
	}
}

// answered notes a node's answer. It reports whether the table is to be sent again,
// whole: once.
func (b *tableBook) answered(node falcon.Node, generation uint64, failed string) bool {
	if failed == "" {
		b.held[node] = generation
		return false
	}
	delete(b.held, node)
	if b.retried[node] >= generation {
		return false
	}
	b.retried[node] = generation
	return true
}

// composeTable fills in a command that brings a table; false where there is
// none to bring.
func (dr *recoveryDriver) composeTable(t *nodeCommand, p falcon.Placement) bool {
	text, err := dr.cluster.rankTable(p)
	if err != nil {
		dr.oplog.logf("recovery", 3, "", "generation %d has no rank table: %s", t.Generation, err)
		return false
	}
	made := rankTable{t.Generation, text}
	dr.tables.addTable(made)
	t.body = dr.tables.commands(made, dr.cluster.needsTable)
	return true
}

// tablesPerTick is how many nodes are sent a whole table per tick: those of
// thousands of nodes together are gigabytes.
const tablesPerTick = 32

// distributeTable brings the rank table of a job that has just been described to its
// nodes, so that a recovery has no more to bring than what changes by it.
func (dr *recoveryDriver) distributeTable() {
	if dr.state.current() != nil || len(dr.state.job.Placement) == 0 {
		return
	}
	dr.tableSent = true
	if t := dr.compose(recovery.Table{
		Generation: dr.cluster.newestGeneration(),
		Placement:  dr.state.job.Placement,
	}); t != nil {
		t.batch = tablesPerTick
		dr.resend = append(dr.resend, t)
	}
}

// resendWhole has a node's table sent again, under another id, as agents answer
// what they know from memory.
func (dr *recoveryDriver) resendWhole(t *nodeCommand, node falcon.Node) {
	again := &nodeCommand{sentRecord: t.sentRecord, body: t.body}
	again.Nodes, again.First, again.Hash = []falcon.Node{node}, 0, fmt.Sprintf("%s/%s", t.Hash, node)
	dr.resend = append(dr.resend, again)
}
