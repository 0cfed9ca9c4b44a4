package falcon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrLayout is wrapped by every error about a layout that can't exist.
var ErrLayout = errors.New("falcon: bad layout")

// Dimension is one way of splitting a job, or "world" for the communicator over all
// ranks.
type Dimension string

// The dimensions of a hybrid-parallel job.
const (
	DimTP    Dimension = "tp"   // tensor parallel
	DimCP    Dimension = "cp"   // context parallel
	DimETP   Dimension = "etp"  // tensor parallel of the experts
	DimEP    Dimension = "ep"   // expert parallel
	DimEDP   Dimension = "edp"  // data parallel of the experts
	DimFSDP  Dimension = "fsdp" // shard of FSDP and HSDP
	DimDP    Dimension = "dp"   // data parallel, replicate of HSDP
	DimPP    Dimension = "pp"   // pipeline stages
	DimVPP   Dimension = "vpp"  // virtual stages of a rank
	DimWorld Dimension = "world"
)

// Rank is a logical position in the layout, counted from 0.
type Rank int

// Coord is a rank's position along the three dimensions of Layout, counted from 0.
type Coord struct {
	TP, DP, PP int
}

// Layout is the shape of a hybrid-parallel job as work is planned on it: DP replicas
// of PP stages of TP ranks. A replica is a unit between which no rank communicates
// inside a micro-batch, so that each can be given other micro-batches than the others.
//
// Without a mesh these are the framework's tp, dp and pp, in Megatron's default order:
// the tensor-parallel coordinate varies fastest, the pipeline stage slowest. With one,
// TP is the ranks of one replica's stage (tp × cp × fsdp, and more where experts are
// spread over dp), and the mesh says which ranks these are.
type Layout struct {
	TP   int  `json:"tp"`
	CP   int  `json:"cp,omitempty"` // given for information, as EP is: it does not count into the ranks
	EP   int  `json:"ep,omitempty"`
	DP   int  `json:"dp"`
	PP   int  `json:"pp"`
	Mesh Mesh `json:"mesh,omitzero"` // zero = none
}

// LayoutOf is the layout of a mesh. One of tp, dp and pp alone in their usual order
// needs no mesh.
func LayoutOf(m Mesh) Layout {
	l := Layout{
		TP: m.product(axisInner),
		DP: m.product(axisUnit),
		PP: m.product(axisStage),
	}
	plain, err := NewMesh(Dim{DimTP, l.TP}, Dim{DimDP, l.DP}, Dim{DimPP, l.PP})
	if err == nil && plain == m {
		return l
	}
	l.Mesh = m
	if n := m.Size(DimCP); n > 1 {
		l.CP = n
	}
	if n := m.Size(DimEP); n > 1 {
		l.EP = n
	}
	return l
}

// Usual reports whether TP, DP and PP alone say which ranks are where, as they do for
// programs that know no mesh.
func (l Layout) Usual() bool {
	return slices.IsSortedFunc(l.Mesh.parts[:l.Mesh.partCount()], func(a, b meshPart) int {
		return int(a.of) - int(b.of)
	})
}

// Validate reports, in one sentence, why the layout can't exist.
func (l Layout) Validate() error {
	if l.TP < 1 || l.DP < 1 || l.PP < 1 {
		return fmt.Errorf("%w: tp %d, dp %d and pp %d must each be at least 1", ErrLayout, l.TP, l.DP, l.PP)
	}
	m := LayoutOf(l.Mesh)
	if l.Mesh != (Mesh{}) && (m.TP != l.TP || m.DP != l.DP || m.PP != l.PP) {
		return fmt.Errorf("%w: tp %d, dp %d and pp %d are not those of the mesh %s: %d, %d and %d",
			ErrLayout, l.TP, l.DP, l.PP, l.Mesh, m.TP, m.DP, m.PP)
	}
	return nil
}

// World is the number of ranks.
func (l Layout) World() int {
	return l.TP * l.DP * l.PP
}

// Coord is the position of rank r; r must be in [0, World).
func (l Layout) Coord(r Rank) Coord {
	if l.Mesh != (Mesh{}) {
		return l.Mesh.coord(r)
	}
	n := int(r)
	return Coord{
		TP: n % l.TP,
		DP: n / l.TP % l.DP,
		PP: n / (l.TP * l.DP),
	}
}

// RankOf is the inverse of Coord.
func (l Layout) RankOf(c Coord) Rank {
	if l.Mesh != (Mesh{}) {
		return l.Mesh.rankOf(c)
	}
	return Rank(c.TP + l.TP*(c.DP+l.DP*c.PP))
}

// Replica is the unit that r belongs to.
func (l Layout) Replica(r Rank) int { return l.Coord(r).DP }

// Alike are the ranks that do the same work, each set ascending: those of one stage and,
// as experts get different tokens, of one expert-parallel position. Without a mesh they
// also have one tensor-parallel coordinate.
func (l Layout) Alike() [][]Rank {
	stride, size := l.span(DimEP)
	if l.Mesh == (Mesh{}) {
		stride, size = l.span(DimTP)
	}
	out := make([][]Rank, l.PP*size)
	for r := range Rank(l.World()) {
		at := l.Coord(r).PP*size + int(r)/stride%size
		out[at] = append(out[at], r)
	}
	return out
}

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
	if m, err := l.Mesh.withUnits(l.DP); l.Mesh != (Mesh{}) && err == nil {
		l = LayoutOf(m)
	}
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
	var out []Group
	stride, size := l.span(d)
	for r := Rank(0); int(r) < l.World(); r++ {
		if int(r)/stride%size == 0 {
			out = append(out, Group{Dimension: d, Ranks: ranksFrom(r, stride, size)})
		}
	}
	return out
}

// Peers lists the ranks of r's group along d, r included.
func (l Layout) Peers(r Rank, d Dimension) []Rank {
	stride, size := l.span(d)
	return ranksFrom(r-Rank(int(r)/stride%size*stride), stride, size)
}

func ranksFrom(first Rank, stride, size int) []Rank {
	out := make([]Rank, size)
	for i := range out {
		out[i] = first + Rank(i*stride)
	}
	return out
}

// span is how far apart the ranks of a group along d are, and how many they are.
func (l Layout) span(d Dimension) (stride, size int) {
	switch {
	case d == DimWorld:
		return 1, l.World()
	case l.Mesh != (Mesh{}):
		return l.Mesh.span(d)
	case d == DimTP:
		return 1, l.TP
	case d == DimDP:
		return l.TP, l.DP
	case d == DimPP:
		return l.TP * l.DP, l.PP
	}
	return 1, 1
}

func (l Layout) String() string {
	if l.Mesh == (Mesh{}) {
		return fmt.Sprintf("tp%d dp%d pp%d", l.TP, l.DP, l.PP)
	}
	return strings.NewReplacer("=", "", ",", " ").Replace(l.Mesh.String())
}
