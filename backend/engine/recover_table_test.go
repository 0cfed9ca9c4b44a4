package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/recovery/ranktable"
	"github.com/failslow/falcon/recovery/ranktable/ranktabletest"
)

// asNode follows the tables that a node is brought, as an agent does, and names
// them: w0 is the whole one of generation 0, d0-1 what makes that of generation
// 1 of it.
type asNode struct {
	names []string
	text  []byte
}

func (n *asNode) take(t *testing.T, c *falconv1.TableCommand) {
	t.Helper()
	if n.text = slices.Clone(n.text); len(c.GetTable()) > 0 {
		n.names = append(n.names, fmt.Sprint("w", c.GetGeneration()))
		n.text = c.GetTable()
		return
	}
	n.names = append(n.names, fmt.Sprintf("d%d-%d", c.GetBaseGeneration(), c.GetGeneration()))
	var err error
	if n.text, err = ranktabletest.Apply(n.text, c.GetDelta()); err != nil {
		t.Errorf("%s: %v", n.names, err)
	}
}

// placed64 are 64 ranks on 8 nodes of 8; those of node n3 may be elsewhere.
func placed64(third string) falcon.Placement {
	var out falcon.Placement
	for r := range 64 {
		node := fmt.Sprint("n", r/8)
		if r/8 == 3 {
			node = third
		}
		out = append(out, falcon.Device(fmt.Sprintf("%s.g%d", node, r%8)))
	}
	return out
}

func tableText(t *testing.T, p falcon.Placement) []byte {
	t.Helper()
	text, err := ranktable.Encode(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Nodes that have the table of before are brought what changes, others the
// whole; who refuses the change is brought the whole, once.
func everyNode(falcon.Node) bool { return true }

func TestTableBook(t *testing.T) {
	book := newTableBook()
	bring := func(n *asNode, name falcon.Node, v rankTable, failed string) (again bool) {
		t.Helper()
		n.take(t, book.commands(v, everyNode)(name).GetTable())
		return book.answered(name, v.generation, failed)
	}
	zero, one := rankTable{0, tableText(t, placed64("n3"))}, rankTable{1, tableText(t, placed64("n9"))}
	two := rankTable{2, tableText(t, placed64("n10"))}
	var stays, refuses, spare asNode
	book.addTable(zero)
	bring(&stays, "n0", zero, "")
	bring(&refuses, "n1", zero, "")
	book.addTable(one)
	if bring(&stays, "n0", one, "") ||
		!bring(&refuses, "n1", one, "not mine") ||
		bring(&spare, "n9", one, "") {
		t.Error("the wrong one is brought the whole again")
	}
	if bring(&refuses, "n1", one, "") {
		t.Error("it was taken")
	}
	book.addTable(two)
	if bring(&stays, "n0", two, ""); bring(&refuses, "n1", two, "no space left") != true ||
		bring(&refuses, "n1", two, "no space left") {
		t.Error("a refusal is answered once")
	}
	for want, n := range map[string]*asNode{
		"w0 d0-1 d1-2":       &stays,
		"w0 d0-1 w1 d1-2 w2": &refuses,
		"w1":                 &spare,
	} {
		if got := strings.Join(n.names, " "); got != want {
			t.Errorf("brought %q, want %q", got, want)
		}
	}
	if string(stays.text) != string(two.text) {
		t.Error("changes do not add up to the newest table")
	}
}

// brought names the tables that a node of the fake job has got.
func brought(t *testing.T, a *fakeAgent) string {
	t.Helper()
	var n asNode
	for _, c := range a.crew.tables {
		n.take(t, c)
	}
	return strings.Join(n.names, " ")
}

// A table goes to nodes that put it into a file, and to agents too old to say; the others are told
// the generation alone.
func TestTablesGoWhereTheyAreNeeded(t *testing.T) {
	now := time.Unix(1000, 0)
	c := &clusterView{nodes: fleet.NewRegistry()}
	for name, h := range map[string]*falconv1.Hello{
		"old":    {},
		"before": {Protocol: tableSaid - 1},
		"file":   {Protocol: tableSaid, RankTable: true},
		"none":   {Protocol: tableSaid},
	} {
		h.Node, h.Boot = name, "b"
		if _, _, err := c.nodes.Attach(&fleet.Session{Hello: h}, now); err != nil {
			t.Fatal(err)
		}
	}
	book := newTableBook()
	bring := book.commands(rankTable{1, []byte("{}")}, c.needsTable)
	for name, want := range map[falcon.Node]bool{
		"old":        true,
		"before":     true,
		"file":       true,
		"never seen": true,
		"none":       false,
	} {
		got := bring(name).GetTable()
		if got.GetNone() == want ||
			(len(got.GetTable()) > 0) != want ||
			got.GetGeneration() != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A job's table is at its nodes before anything fails. (With four ranks a
// change is longer than the whole.)
func TestTableIsLaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outages()[1]
		b := suffer(t, o)
		b.playTo(60)
		checkRecovered(b, o)
		for i, want := range []string{"w0 w1", "w0", "w1"} {
			if got := brought(t, b.job.agents[i]); got != want {
				t.Errorf("node n%d was brought %q, want %q", i, got, want)
			}
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// After a start of the engine it does not know what the nodes have, until they have
// said it: an agent that lives answers from memory, another one is brought the
// table again.
func TestTableAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		recoverBench(b)
		b.playTo(10)
		_ = b.halt()
		clear(b.job.agents[1].answers)
		b.playTo(30)
		for i, want := range []string{"w0", "w0 w0"} {
			if got := brought(t, b.job.agents[i]); got != want {
				t.Errorf("node n%d was brought %q, want %q", i, got, want)
			}
		}
		b.inLoop(func() {
			if held := b.engine.recoveries.tables.held; len(held) != 2 {
				t.Errorf("the engine knows of tables on %v", held)
			}
		})
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}
