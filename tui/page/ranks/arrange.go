package ranks

import (
	"sync"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/roster"
)

// Level is what one mark of the map stands for.
type Level int

// The levels, from far to near.
const (
	Job    Level = iota // a replica, or several side by side
	Stage               // a stage of a replica; rows are stages
	Node                // the ranks of a node
	Rank                // a rank
	Detail              // a rank with numbers
	Table               // a rank a row, with all its numbers
	levels
)

// auto picks the nearest level that shows every rank.
const auto Level = -1

var levelNames = [levels]string{"job", "stages", "nodes", "ranks", "detail", "table"}

// Order is how nodes, ranks and details follow each other.
type Order int

// The orders. Places depend on the layout and on which rank is where, never on
// what was measured: nothing moves when numbers change.
const (
	Topology Order = iota // stage by stage, each beginning a row where it fits
	Host                  // by the names of nodes and devices
	Number                // by rank, rows filled
	orders
)

var orderNames = [orders]string{"by topology", "by host", "by rank"}

// arrangement maps ranks to the items of a level, which are laid out row by row.
type arrangement struct {
	place []int32 // by rank: its item
	first []int32 // by item: its lowest rank
	line  int     // items that a topological row holds; 0 = rows are filled
}

// shape is all that an arrangement depends on.
type shape struct {
	level   Level
	order   Order
	per, by int // replicas and stages an item
	n       int
	tp, dp  int
	pp      int
	mesh    falcon.Mesh
	hosts   *roster.Hosts
}

// arrangements are shared by all who show jobs of the same shape.
var arrangements struct {
	sync.Mutex
	of map[shape]*arrangement
}

// arrangementsMax bounds what is remembered; a console uses one or two.
const arrangementsMax = 16

func arrangeRanks(s *page.State, level Level, order Order, per, by int) *arrangement {
	k := shape{
		level: level,
		order: order,
		per:   per,
		by:    by,
		n:     s.Roster.World(),
		tp:    s.TP,
		dp:    s.DP,
		pp:    s.PP,
		mesh:  s.Roster.Mesh,
	}
	if level <= Stage {
		k.order = Topology
	}
	if level == Node || level > Node && order == Host {
		k.hosts = s.Roster.Hosts()
	}
	arrangements.Lock()
	defer arrangements.Unlock()
	if a := arrangements.of[k]; a != nil {
		return a
	}
	if arrangements.of == nil || len(arrangements.of) >= arrangementsMax {
		arrangements.of = map[shape]*arrangement{}
	}
	a := k.makeArrangement()
	arrangements.of[k] = a
	return a
}

func (k shape) makeArrangement() *arrangement {
	a := &arrangement{place: make([]int32, k.n)}
	across := (k.dp + k.per - 1) / k.per
	layout := falcon.Layout{
		TP:   k.tp,
		DP:   k.dp,
		PP:   k.pp,
		Mesh: k.mesh,
	}
	for r := range k.n {
		at := layout.Coord(falcon.Rank(r))
		dp, pp := at.DP, at.PP
		switch {
		case k.level == Job:
			a.place[r] = int32(dp / k.per)
		case k.level == Stage:
			a.place[r] = int32(pp/k.by*across + dp/k.per)
		case k.level == Node:
			a.place[r] = k.hosts.NodeOf[r]
		case k.order == Host:
			a.place[r] = k.hosts.Place[r]
		default:
			a.place[r] = int32(r)
		}
	}
	if k.level == Node && k.order != Host {
		a.rowByFirst(len(k.hosts.Names))
	}
	a.findRank()
	a.line = k.stageLength(across, len(a.first))
	return a
}

// rowByFirst numbers items in the order in which ranks name them first.
func (a *arrangement) rowByFirst(items int) {
	number := make([]int32, items)
	next := int32(0)
	for r, i := range a.place {
		if number[i] == 0 {
			next++
			number[i] = next
		}
		a.place[r] = number[i] - 1
	}
}

// findRank notes each item's lowest rank.
func (a *arrangement) findRank() {
	items := int32(0)
	for _, i := range a.place {
		items = max(items, i+1)
	}
	a.first = make([]int32, items)
	for r := len(a.place) - 1; r >= 0; r-- {
		a.first[a.place[r]] = int32(r)
	}
}

// stageLength is how many items a stage has, where that can be said.
func (k shape) stageLength(across, items int) int {
	switch {
	case k.level == Stage:
		return across
	case k.level == Job || k.order != Topology:
		return 0
	case k.level > Node:
		return k.tp * k.dp
	case items%k.pp == 0:
		return items / k.pp
	}
	return 0
}

// aggregate shows the worst of each item from lo on: out holds a code an item.
// Items that hold no rank stay as they are.
func (a *arrangement) aggregate(codes []roster.Code, lo int32, out []uint8) {
	n := uint32(len(out))
	for r, i := range a.place {
		if at := uint32(i - lo); at < n {
			if c := uint8(codes[r]); c > out[at] {
				out[at] = c
			}
		}
	}
}

// aggregateOf does it for some ranks only.
func (a *arrangement) aggregateOf(ranks []int32, codes []roster.Code, lo int32, out []uint8) {
	n := uint32(len(out))
	for _, r := range ranks {
		if at := uint32(a.place[r] - lo); at < n {
			out[at] = max(out[at], uint8(codes[r]))
		}
	}
}
