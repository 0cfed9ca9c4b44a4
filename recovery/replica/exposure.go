package replica

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// Kinds of failure domains.
const (
	KindNode   = "node"
	KindRack   = "rack"
	KindSwitch = "switch"
)

// Domain is what may fail at once.
type Domain struct {
	Kind  string        `json:"kind"`
	Name  string        `json:"name"`
	Nodes []falcon.Node `json:"nodes"`
}

// Label is the domain's name for people: "n3", "rack r2".
func (d Domain) Label() string {
	if d.Kind == KindNode {
		return d.Name
	}
	return d.Kind + " " + d.Name
}

// Exposure is what would follow if a domain were gone now.
type Exposure struct {
	Domain
	Gone []falcon.Rank `json:"gone"` // whose processes would have to be replaced
	// whose shard would have no replica left: the job falls back to its checkpoint
	Lost   []falcon.Rank `json:"lost"`
	Shards int           `json:"shards"` // that would be lost
	Why    string        `json:"why,omitempty"`
}

// Map lists, for every node of the placement, every rack in Domains and every
// domain in more what would be unrecoverable if it were gone now, worst first:
// most lost shards, then fewest nodes, then by name. Shards that have no
// survivor any more are in no list. An error wraps ErrQuery.
func Map(q Query, more ...Domain) ([]Exposure, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if len(q.Placement) == 0 {
		return nil, fmt.Errorf("%w: without a placement it is unknown what is on a node", ErrQuery)
	}
	m := newSurvey(q)
	var out []Exposure
	for _, d := range append(q.domains(m.nodes), more...) {
		out = append(out, m.without(d))
	}
	slices.SortStableFunc(out, func(a, b Exposure) int {
		return cmp.Or(
			-cmp.Compare(a.Shards, b.Shards),
			cmp.Compare(len(a.Nodes), len(b.Nodes)),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return out, nil
}

// domains are the nodes, ascending, and the racks that the query names.
func (q Query) domains(nodes []falcon.Node) []Domain {
	var out []Domain
	racks := map[string][]falcon.Node{}
	var names []string
	for _, n := range nodes {
		out = append(out, Domain{
			Kind:  KindNode,
			Name:  string(n),
			Nodes: []falcon.Node{n},
		})
		if rack := q.Domains[n]; rack != "" {
			if racks[rack] == nil {
				names = append(names, rack)
			}
			racks[rack] = append(racks[rack], n)
		}
	}
	slices.Sort(names)
	for _, rack := range names {
		out = append(out, Domain{Kind: KindRack, Name: rack, Nodes: racks[rack]})
	}
	return out
}

// survey counts the copies of every shard.
type survey struct {
	q           Query
	shards      [][]falcon.Rank
	shardByRank []int // index into shards, by rank
	alive       []int // survivors, by shard
	nodes       []falcon.Node
	on          map[falcon.Node][]falcon.Rank // survivors, ascending
}

func newSurvey(q Query) survey {
	m := survey{
		q:           q,
		shards:      q.Shards(),
		shardByRank: make([]int, q.Layout.World()),
		on:          map[falcon.Node][]falcon.Rank{},
	}
	m.alive = make([]int, len(m.shards))
	for i, ranks := range m.shards {
		for _, r := range ranks {
			m.shardByRank[r] = i
			if q.survives(r) {
				m.alive[i]++
			}
		}
	}
	for r := range q.Placement {
		if r := falcon.Rank(r); q.survives(r) {
			m.on[q.nodeOf(r)] = append(m.on[q.nodeOf(r)], r)
		}
	}
	for n := range m.on {
		m.nodes = append(m.nodes, n)
	}
	slices.Sort(m.nodes)
	return m
}

// without takes a domain away.
func (m survey) without(d Domain) Exposure {
	out := Exposure{Domain: d}
	left := map[int]int{}
	for _, n := range d.Nodes {
		out.Gone = append(out.Gone, m.on[n]...)
	}
	slices.Sort(out.Gone)
	out.Gone = slices.Compact(out.Gone)
	for _, r := range out.Gone {
		i := m.shardByRank[r]
		if _, seen := left[i]; !seen {
			left[i] = m.alive[i]
		}
		if left[i]--; left[i] == 0 {
			out.Shards++
			out.Lost = append(out.Lost, m.shards[i]...)
		}
	}
	slices.Sort(out.Lost)
	out.Why = m.whyLost(out)
	return out
}

func (m survey) whyLost(e Exposure) string {
	if e.Shards == 0 {
		return ""
	}
	text := m.q.whyLost(m.shards[m.shardByRank[e.Lost[0]]])
	if e.Shards > 1 {
		text += fmt.Sprintf(" (1 of %d such shards)", e.Shards)
	}
	return text
}
