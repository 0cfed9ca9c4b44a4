package falcon

import (
	"errors"
	"fmt"
	"slices"
)

// ErrLayout is wrapped by every error about a layout that can't exist.
var ErrLayout = errors.New("falcon: bad layout")

// Dimension is one way of splitting a job: "tp", "dp", "pp", or "world" for
// the communicator over all ranks.
type Dimension string

// The dimensions of a hybrid-parallel job.
const (
	DimTP    Dimension = "tp"
	DimDP    Dimension = "dp"
	DimPP    Dimension = "pp"
	DimWorld Dimension = "world"
)

// Rank is a logical position in the layout, counted from 0.
type Rank int

// Coord is a rank's position along each dimension, counted from 0.
type Coord struct {
	TP, DP, PP int
}

// Layout is the shape of a hybrid-parallel job. Rank order is Megatron's
// default "tp-cp-ep-dp-pp": the tensor-parallel coordinate varies fastest,
// the pipeline stage slowest. CP and EP are carried for jobs that name them;
// they count into the data-parallel coordinate, as their ranks hold replicas
// of the dense weights.
type Layout struct {
	TP int `json:"tp"`
	CP int `json:"cp,omitempty"`
	EP int `json:"ep,omitempty"`
	DP int `json:"dp"`
	PP int `json:"pp"`
}

// Validate reports, in one sentence, why the layout can't exist.
func (l Layout) Validate() error {
	if l.TP < 1 || l.DP < 1 || l.PP < 1 {
		return fmt.Errorf("%w: tp %d, dp %d and pp %d must each be at least 1", ErrLayout, l.TP, l.DP, l.PP)
	}
	return nil
}

// World is the number of ranks.
func (l Layout) World() int { return l.TP * l.DP * l.PP }

// Coord is the position of rank r; r must be in [0, World).
func (l Layout) Coord(r Rank) Coord {
	n := int(r)
	return Coord{TP: n % l.TP, DP: n / l.TP % l.DP, PP: n / (l.TP * l.DP)}
}

// RankOf is the inverse of Coord.
func (l Layout) RankOf(c Coord) Rank {
	return Rank(c.TP + l.TP*(c.DP+l.DP*c.PP))
}

// Replica is the data-parallel coordinate of r: which copy of the model it
// belongs to.
func (l Layout) Replica(r Rank) int { return l.Coord(r).DP }

// KeepReplicas is l with the named replicas alone, ascending, on the devices
// that they have in p: their ranks move up, and keep their order.
func (l Layout) KeepReplicas(p Placement, replicas []int) (Layout, Placement) {
	var out Placement
	for r, d := range p {
		if slices.Contains(replicas, l.Replica(Rank(r))) {
			out = append(out, d)
		}
	}
	l.DP = len(replicas)
	return l, out
}

// Deal shares a global batch of total micro-batches out over replicas, in whole
// units, as evenly as can be: the first ones have one unit more. total must be a
// multiple of unit, and have a unit for each.
func Deal(total, replicas, unit int) []int32 {
	out := make([]int32, replicas)
	for i := range out {
		out[i] = int32(total / unit / replicas * unit)
		if i < total/unit%replicas {
			out[i] += int32(unit)
		}
	}
	return out
}

// Group is a set of ranks that communicate along one dimension, ascending.
type Group struct {
	Dimension Dimension `json:"dimension"`
	Ranks     []Rank    `json:"ranks"`
}

// Groups lists the groups of one dimension in ascending order of their first
// rank. Groups of one rank are listed too; they never communicate.
func (l Layout) Groups(d Dimension) []Group {
	byFirst := map[Rank]int{}
	var out []Group
	for r := Rank(0); int(r) < l.World(); r++ {
		first := l.RankOf(l.Coord(r).without(d))
		i, ok := byFirst[first]
		if !ok {
			i = len(out)
			byFirst[first] = i
			out = append(out, Group{Dimension: d})
		}
		out[i].Ranks = append(out[i].Ranks, r)
	}
	return out
}

// Peers lists the ranks of r's group along d, r included.
func (l Layout) Peers(r Rank, d Dimension) []Rank {
	want := l.Coord(r).without(d)
	var out []Rank
	for q := Rank(0); int(q) < l.World(); q++ {
		if l.Coord(q).without(d) == want {
			out = append(out, q)
		}
	}
	return out
}

func (c Coord) without(d Dimension) Coord {
	switch d {
	case DimTP:
		c.TP = 0
	case DimDP:
		c.DP = 0
	case DimPP:
		c.PP = 0
	case DimWorld:
		c = Coord{}
	}
	return c
}

func (l Layout) String() string {
	return fmt.Sprintf("tp%d dp%d pp%d", l.TP, l.DP, l.PP)
}
