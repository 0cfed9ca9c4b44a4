package cost

import (
	"encoding/binary"
	"math"

	"github.com/failslow/falcon"
)

// Volumes is what one iteration moves between nodes, in 10⁶ bytes by dimension, in both
// directions over all links.
func (m Model) Volumes(p falcon.Placement, micro []int32) map[falcon.Dimension]float64 {
	out := map[falcon.Dimension]float64{
		falcon.DimTP: 0,
		falcon.DimDP: 0,
		falcon.DimPP: 0,
	}
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
