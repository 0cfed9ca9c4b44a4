package ring

import (
	"math"
	"time"
)

// Bounds of what a placement can claim.
const (
	placeStepMax  = time.Hour
	placeBytesMax = 1 << 50
	ranksMax      = 1 << 20
)

// Place is the newest placement that a process has carried out. Order 0 means
// none: its rank is the header's.
type Place struct {
	Order     uint64
	Iteration int64    // first one that it holds Rank for
	Rank      int      // -1 where the process names one that no job has
	StepNs    [4]int64 // pause, dump, swap, restore; all 0 where one of them can't be
	Bytes     uint64   // state that it received
}

// Spent is how long the four steps took together, in ns.
func (p Place) Spent() int64 {
	var sum int64
	for _, ns := range p.StepNs {
		sum += ns
	}
	return sum
}

// Place reads the newest placement; false while the hook writes one. What was
// read with a mark of the placement's first iteration, or with its
// acknowledgement, is not older than they: the hook writes it before both.
func (p *Process) Place() (out Place, ok bool) {
	ok = p.readConsistent(ctlPlaceSeq, func(w image) {
		out = Place{
			Order:     w.readUint64(ctlPlaceOrder),
			Iteration: w.readInt64(ctlPlaceIteration),
			Rank:      int(w.readInt32(ctlPlaceRank)),
			Bytes:     w.readUint64(ctlPlaceBytes),
		}
		for i := range out.StepNs {
			out.StepNs[i] = w.readInt64(ctlPlaceStepNs + 8*uint64(i))
		}
	})
	if !ok {
		return Place{}, false
	}
	return out.validated(), true
}

// validated takes out what no placement can be.
func (p Place) validated() Place {
	if p.Order == 0 {
		return Place{}
	}
	if p.Rank < 0 || p.Rank >= ranksMax {
		p.Rank = -1
	}
	if p.Bytes > placeBytesMax {
		p.Bytes = 0
	}
	p.Iteration = min(max(p.Iteration, 0), math.MaxInt64/2)
	for _, ns := range p.StepNs {
		if ns < 0 || ns > int64(placeStepMax) {
			p.StepNs = [4]int64{}
		}
	}
	return p
}
