package cost

import (
	"encoding/binary"
	"math"

	"github.com/failslow/falcon"
)

// Volumes is what one iteration moves over links between nodes, in 10⁶ bytes
// by dimension, both directions and all links together. Traffic inside a node
// is not counted.
func (m Model) Volumes(p falcon.Placement, micro []int32) map[falcon.Dimension]float64 {
	out := map[falcon.Dimension]float64{falcon.DimTP: 0, falcon.DimDP: 0, falcon.DimPP: 0}
	l := m.Layout
	cross := func(a, b falcon.Coord) float64 {
		if p[l.RankOf(a)].Node() == p[l.RankOf(b)].Node() {
			return 0
		}
		return 1
	}
	for r := range falcon.Rank(l.World()) {
		c := l.Coord(r)
		if l.DP > 1 {
			next := falcon.Coord{TP: c.TP, DP: (c.DP + 1) % l.DP, PP: c.PP}
			out[falcon.DimDP] += cross(c, next) * RingSteps(l.DP) / float64(l.DP) * m.DPMB[c.PP]
		}
		if l.TP > 1 {
			next := falcon.Coord{TP: (c.TP + 1) % l.TP, DP: c.DP, PP: c.PP}
			out[falcon.DimTP] += cross(c, next) * float64(micro[c.DP]) * m.TPMB
		}
		next := falcon.Coord{TP: c.TP, DP: c.DP, PP: (c.PP + 1) % l.PP}
		out[falcon.DimPP] += cross(c, next) * 2 * m.messages(c.PP) * float64(micro[c.DP]) * m.PPMB
	}
	return out
}

// messages is how many activations of one micro-batch cross boundary b.
func (m Model) messages(b int) float64 {
	chunks := float64(max(m.Chunks, 1))
	switch {
	case m.Layout.PP == 1:
		return 0
	case b == m.Layout.PP-1:
		return chunks - 1
	}
	return chunks
}

// cacheKey names a pipeline by its times, to the bit.
func (p Pipeline) cacheKey() string {
	b := make([]byte, 0, 16*len(p.Stages)+8*len(p.HopMs)+8)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Chunks))
	for _, s := range p.Stages {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.ForwardMs))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.BackwardMs))
	}
	for _, h := range p.HopMs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(h))
	}
	return string(b)
}

// TransformerShape is a decoder-only transformer and how it is trained.
type TransformerShape struct {
	Layers, Hidden, Heads, HeadDim int
	Vocabulary, Context            int
	TP, DP, PP                     int
	MicroBatch                     int     // samples in a micro-batch: b
	MicroBatches                   int     // of a replica, per iteration: m
	ActivationBytes                float64 // per element that TP and PP move; 0 means 2 (bf16)
	GradientBytes                  float64 // k of eq. 9: per gradient that DP sums; 0 means 4 (fp32)
}

// Volumes are what one GPU communicates in one iteration along each dimension
// (FALCON, appendix 9.2). The paper counts elements; here they are 10⁶ bytes.
type Volumes struct {
	Parameters   float64 // N of eq. 6, all terms
	About        float64 // 12·L·h², its approximation
	PerGPU       float64 // N / (T·P), eq. 7
	TPMB         float64 // eq. 8, 8·b·m·n_ctx·h·L(T−1)/(P·T) elements
	DPMB         float64 // eq. 9, k·N/(T·P) bytes
	PPMB         float64 // eq. 10, m·b·n_ctx·h elements, one direction at one boundary
	ActivationMB float64 // of it, one micro-batch: Model.PPMB
	TPPerMicroMB float64 // TPMB of one micro-batch: Model.TPMB
}

// Transformer evaluates eq. 6 to 10 of FALCON's appendix 9.2. In eq. 8 each of
// L/P layers has four all-reduces of b·n_ctx·h elements per micro-batch, of
// which a ring sends 2(T−1)/T.
func Transformer(s TransformerShape) Volumes {
	l, h := float64(s.Layers), float64(s.Hidden)
	t, p := float64(max(s.TP, 1)), float64(max(s.PP, 1))
	act := positive(s.ActivationBytes, 2)
	tokens := float64(s.MicroBatch) * float64(s.Context) * h // elements of one activation
	heads := float64(s.Heads) * float64(s.HeadDim)
	out := Volumes{
		Parameters: h * (float64(s.Vocabulary) + float64(s.Context) + l*(4*heads+8*h+5)),
		About:      12 * l * h * h,
	}
	out.PerGPU = out.Parameters / (t * p)
	out.ActivationMB = tokens * act / 1e6
	out.TPPerMicroMB = 8 * tokens * l * (t - 1) / (p * t) * act / 1e6
	out.TPMB = out.TPPerMicroMB * float64(s.MicroBatches)
	out.PPMB = out.ActivationMB * float64(s.MicroBatches)
	out.DPMB = out.PerGPU * positive(s.GradientBytes, 4) / 1e6
	return out
}

func positive(v, otherwise float64) float64 {
	if v > 0 {
		return v
	}
	return otherwise
}
