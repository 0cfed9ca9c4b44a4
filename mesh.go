package falcon

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrMesh is wrapped by every error about a mesh that can't exist.
var ErrMesh = errors.New("falcon: bad mesh")

// Bounds of a mesh.
const (
	MeshTextMost  = 128     // bytes of its text
	MeshRanksMost = 1 << 18 // ranks
	partsMost     = 8       // parts that it divides ranks into
)

// Dim is one dimension of a mesh and its size.
type Dim struct {
	Name Dimension
	Size int
}

// Mesh is how a job's ranks factor into dimensions, innermost (fastest varying)
// first. It is a value that can be compared; the zero value is the mesh of one rank.
// Its text is "tp=2,cp=2,ep=4,dp=8,pp=4".
//
// The ranks are the product of tp, cp, fsdp (shard), dp (of HSDP the replicate
// dimension) and pp. Experts factor the ranks of a stage a second time, in the same
// order: into etp (default: tp), ep, and what is left of dp, which is edp; with fsdp
// what is left of fsdp. vpp is how many virtual stages a rank has, and no dimension of
// ranks. A dimension that is not given has size 1.
type Mesh struct {
	dims  [len(meshNames)]meshDim
	parts [partsMost]meshPart // derived of dims: innermost first, their sizes multiply to the world
}

type meshDim struct {
	kind uint8 // index into meshNames, plus 1; 0 = none
	size int32
}

// meshPart is a run of the ranks' numbers that counts into one coordinate.
type meshPart struct {
	of   axis
	size int32 // 0 = none
}

// axis is a coordinate of Coord.
type axis uint8

const (
	axisInner axis = iota // its ranks talk inside a micro-batch, within a stage
	axisUnit              // its ranks meet only at the gradient
	axisStage             // pipeline
)

// meshNames are the dimensions that can be named, in Megatron's default order.
var meshNames = [...]Dimension{DimTP, DimCP, DimETP, DimEP, DimFSDP, DimDP, DimPP, DimVPP}

// ParseMesh reads a mesh's text. It takes NAME=SIZE and commas, and nothing else.
func ParseMesh(text string) (Mesh, error) {
	if len(text) > MeshTextMost {
		return Mesh{}, fmt.Errorf("%w: its text has %d bytes, at most %d are allowed",
			ErrMesh, len(text), MeshTextMost)
	}
	var dims []Dim
	for term := range strings.SplitSeq(text, ",") {
		name, size, ok := strings.Cut(term, "=")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || size != strconv.Itoa(n) {
			return Mesh{}, fmt.Errorf("%w: %q is not of the form NAME=SIZE, such as dp=4", ErrMesh, term)
		}
		dims = append(dims, Dim{Dimension(name), n})
	}
	return NewMesh(dims...)
}

// NewMesh makes the mesh of some dimensions, innermost first.
func NewMesh(dims ...Dim) (Mesh, error) {
	var m Mesh
	n, ranks := 0, 1
	for i, d := range dims {
		kind := slices.Index(meshNames[:], d.Name)
		switch {
		case kind < 0:
			return Mesh{}, fmt.Errorf(
				"%w: there is no dimension %q; use tp, cp, etp, ep, fsdp, dp, pp and vpp",
				ErrMesh, d.Name,
			)
		case slices.ContainsFunc(dims[:i], func(o Dim) bool {
			return o.Name == d.Name
		}):
			return Mesh{}, fmt.Errorf("%w: %s is given twice", ErrMesh, d.Name)
		case d.Size < 1 || d.Size > MeshRanksMost:
			return Mesh{}, fmt.Errorf("%w: %s=%d must be from 1 to %d",
				ErrMesh, d.Name, d.Size, MeshRanksMost)
		}
		if splitsRanks(d.Name) {
			ranks *= d.Size
		}
		if ranks > MeshRanksMost {
			return Mesh{}, fmt.Errorf("%w: it has more than %d ranks", ErrMesh, MeshRanksMost)
		}
		if d.Size > 1 || d.Name == DimETP || d.Name == DimDP {
			m.dims[n] = meshDim{uint8(kind + 1), int32(d.Size)}
			n++
		}
	}
	return m.normalized().withParts()
}

// splitsRanks reports whether d is one of the dimensions whose sizes multiply to the
// number of ranks.
func splitsRanks(d Dimension) bool {
	return d != DimEP && d != DimETP && d != DimVPP
}

// normalized drops an etp that is the default, and a dp of one rank but where it is
// the place of edp.
func (m Mesh) normalized() Mesh {
	if m.Size(DimEP) == 1 || m.Size(DimETP) == m.Size(DimTP) {
		m = m.without(DimETP)
	}
	if m.Size(DimDP) == 1 && (m.Size(DimEP) == 1 || m.Size(DimFSDP) > 1) {
		m = m.without(DimDP)
	}
	return m
}

func (m Mesh) without(d Dimension) Mesh {
	if i := m.indexOf(d); i >= 0 {
		copy(m.dims[i:], m.dims[i+1:])
		m.dims[len(m.dims)-1] = meshDim{}
	}
	return m
}

func (m Mesh) indexOf(d Dimension) int {
	kind := uint8(slices.Index(meshNames[:], d) + 1)
	return slices.IndexFunc(m.dims[:], func(o meshDim) bool {
		return o.kind == kind && kind > 0
	})
}

// withParts checks that the dimensions fit together, and derives the parts.
func (m Mesh) withParts() (Mesh, error) {
	if m.Size(DimVPP) > 1 && m.Size(DimPP) == 1 {
		return Mesh{}, fmt.Errorf("%w: vpp=%d needs a pipeline of at least 2 stages", ErrMesh, m.Size(DimVPP))
	}
	expert, err := m.expertFactors()
	if err != nil {
		return Mesh{}, err
	}
	parts, err := joinFactors(m.denseFactors(), expert)
	if err != nil {
		return Mesh{}, err
	}
	m.parts = [partsMost]meshPart{}
	if copy(m.parts[:], parts) < len(parts) {
		return Mesh{}, fmt.Errorf("%w: it divides the ranks into more than %d parts", ErrMesh, partsMost)
	}
	return m, nil
}

// denseFactors are the dimensions of the layers without experts.
func (m Mesh) denseFactors() []Dim {
	return slices.DeleteFunc(m.Dims(), func(d Dim) bool {
		return !splitsRanks(d.Name)
	})
}

// expertFactors are the dimensions of the experts, in the same order.
func (m Mesh) expertFactors() ([]Dim, error) {
	ep := m.Size(DimEP)
	etp := m.Size(DimTP)
	etpAt := DimTP
	if ep == 1 {
		return m.denseFactors(), nil
	}
	if m.indexOf(DimETP) >= 0 {
		etp = m.Size(DimETP)
		etpAt = DimETP
	}
	split, rest := DimDP, DimEDP // the dimension over which experts are spread, and what is left of it
	if m.Size(DimFSDP) > 1 {
		split, rest = DimFSDP, DimFSDP
	}
	over := m.Size(DimTP) * m.Size(DimCP) * m.Size(split)
	if over%(etp*ep) != 0 {
		return nil, fmt.Errorf("%w: etp %d × ep %d does not divide the %d ranks of tp, cp and %s",
			ErrMesh, etp, ep, over, split)
	}
	left := Dim{rest, over / (etp * ep)}
	var out []Dim
	inner := 0 // of out: where the dimensions inside split end
	for _, d := range m.Dims() {
		switch d.Name {
		case split:
			out = append(out, left)
		case etpAt:
			out = append(out, Dim{DimETP, etp})
		case DimEP, DimPP, DimDP:
			out = append(out, d)
		}
		if slices.Contains([]Dimension{DimTP, DimCP, DimETP, DimEP}, d.Name) {
			inner = len(out)
			if slices.ContainsFunc(out, func(o Dim) bool { return o.Name == rest }) {
				return nil, fmt.Errorf("%w: with ep, %s must come after tp, cp, etp and ep", ErrMesh, split)
			}
		}
	}
	if m.indexOf(split) < 0 {
		out = slices.Insert(out, inner, left)
	}
	return out, nil
}

// joinFactors divides the ranks so finely that each part belongs to one dimension of
// both factorings. Where they cross, it takes the smallest number of ranks that both
// divide as one part.
func joinFactors(dense, expert []Dim) ([]meshPart, error) {
	ends := []int{1}
	for _, end := range slices.Compact(slices.Sorted(slices.Values(append(endsOf(dense),
		endsOf(expert)...,
	)))) {
		for n := len(ends); n > 1 && end%ends[n-1] != 0; n = len(ends) {
			end = commonMultiple(end, ends[n-1])
			ends = ends[:n-1]
		}
		if end > ends[len(ends)-1] {
			ends = append(ends, end)
		}
	}
	var out []meshPart
	for i := 1; i < len(ends); i++ {
		of, ok := axisWithin(dense, ends[i-1], ends[i])
		and, same := axisWithin(expert, ends[i-1], ends[i])
		if !ok || !same || (of == axisStage) != (and == axisStage) {
			return nil, fmt.Errorf(
				"%w: its experts are not in the pipeline stages of its other layers; put pp last",
				ErrMesh,
			)
		}
		out = append(out, meshPart{min(of, and), int32(ends[i] / ends[i-1])})
	}
	return out, nil
}

// endsOf are the numbers of ranks that the first dimensions multiply to.
func endsOf(dims []Dim) []int {
	var out []int
	n := 1
	for _, d := range dims {
		n *= d.Size
		out = append(out, n)
	}
	return out
}

// axisWithin is the coordinate that the ranks from one end to another count into; not ok
// where stages are among others.
func axisWithin(dims []Dim, from, to int) (axis, bool) {
	out, n, start := axisStage, 0, 1
	stage := false
	for _, d := range dims {
		end := start * d.Size
		if d.Size > 1 && start < to && end > from {
			of := axisOf(d.Name)
			out = min(out, of)
			stage = stage || of == axisStage
			n++
		}
		start = end
	}
	return out, !stage || n == 1
}

func axisOf(d Dimension) axis {
	switch d {
	case DimDP, DimEDP:
		return axisUnit
	case DimPP:
		return axisStage
	}
	return axisInner
}

func commonMultiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Dims are the dimensions of the mesh's text, innermost first. Those of size 1 are left
// out where they change nothing.
func (m Mesh) Dims() []Dim {
	var out []Dim
	for _, d := range m.dims {
		if d.kind > 0 {
			out = append(out, Dim{meshNames[d.kind-1], int(d.size)})
		}
	}
	return out
}

// Size is that of a dimension, 1 where the mesh does not name it.
func (m Mesh) Size(d Dimension) int {
	if i := m.indexOf(d); i >= 0 {
		return int(m.dims[i].size)
	}
	return 1
}

// World is the number of ranks.
func (m Mesh) World() int {
	return m.product(axisInner) * m.product(axisUnit) * m.product(axisStage)
}

// Units is how many parts the job has between which no rank communicates inside a
// micro-batch: work can be moved between these alone (S2).
func (m Mesh) Units() int { return m.product(axisUnit) }

// product is the number of places along one coordinate.
func (m Mesh) product(of axis) int {
	n := 1
	for _, p := range m.parts {
		if p.size > 0 && p.of == of {
			n *= int(p.size)
		}
	}
	return n
}

// String is the mesh's text, empty for one rank.
func (m Mesh) String() string {
	var out []string
	for _, d := range m.Dims() {
		out = append(out, string(d.Name)+"="+strconv.Itoa(d.Size))
	}
	return strings.Join(out, ",")
}

// MarshalText writes the mesh's text.
func (m Mesh) MarshalText() ([]byte, error) {
	return []byte(m.String()), nil
}

// UnmarshalText reads a mesh's text; an empty one is the zero value.
func (m *Mesh) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*m = Mesh{}
		return nil
	}
	p, err := ParseMesh(string(b))
	if err == nil {
		*m = p
	}
	return err
}

func (m *Mesh) partCount() int {
	n := 0
	for n < len(m.parts) && m.parts[n].size > 0 {
		n++
	}
	return n
}

// coord is a rank's position.
func (m *Mesh) coord(r Rank) Coord {
	var at, place [axisStage + 1]int
	place = [...]int{1, 1, 1}
	n := int(r)
	for _, p := range m.parts[:m.partCount()] {
		at[p.of] += n % int(p.size) * place[p.of]
		place[p.of] *= int(p.size)
		n /= int(p.size)
	}
	return Coord{
		TP: at[axisInner],
		DP: at[axisUnit],
		PP: at[axisStage],
	}
}

// rankOf is the inverse of coord.
func (m *Mesh) rankOf(c Coord) Rank {
	at := [...]int{axisInner: c.TP, axisUnit: c.DP, axisStage: c.PP}
	out, stride := 0, 1
	for _, p := range m.parts[:m.partCount()] {
		out += at[p.of] % int(p.size) * stride
		at[p.of] /= int(p.size)
		stride *= int(p.size)
	}
	return Rank(out)
}

// span is how far apart the ranks of a group along d are, and how many they are.
func (m Mesh) span(d Dimension) (stride, size int) {
	dims := m.denseFactors()
	if d == DimEP || d == DimETP || d == DimEDP {
		dims, _ = m.expertFactors() // checked when the mesh was made
	}
	stride = 1
	for _, o := range dims {
		if o.Name == d {
			return stride, o.Size
		}
		stride *= o.Size
	}
	return 1, 1
}

// withUnits is the mesh with another number of units, dp being as many times larger or
// smaller.
func (m Mesh) withUnits(n int) (Mesh, error) {
	dims := m.Dims()
	for i, d := range dims {
		if d.Name == DimDP {
			dims[i].Size = d.Size / m.Units() * n
		}
	}
	return NewMesh(dims...)
}
