package period

import (
	"cmp"
	"math"
	"slices"
)

// Bounds of the search for an anchor.
const (
	contextMax  = 4   // calls before an anchor that may distinguish it from others of its class
	anchorShare = 0.6 // of the iterations that a sequence could hold, at least so many have the anchor
	edgeSlack   = 2   // iterations cut off at a sequence's ends count for nothing

	burstSlack   = 3   // of so many steps one may be worse with the last of several in a row
	countedShare = 0.9 // of the steps by a whole number of calls must be the period
)

// place is a class with the classes of the calls before it, newest first, the rest −1.
type place [contextMax]int32

// spot is a candidate anchor: calls of one class behind the same few others.
type spot struct {
	id    int32
	at    []int32
	ctx   []int32 // newest first
	cost  int     // steps that are not the period, less those that are
	burst bool    // the call before it is of the same class
}

// findAnchor picks the call that iterations are counted on: of the rarest class
// that comes once a period in some context. It fails when none does.
//
// The context keeps an extra step apart that ends with a call of the same
// class, as the loss of an evaluation does. The shorter it is, the less it is
// disturbed by a change of the schedule; the last of several such calls in a
// row is preferred, because it takes more to imitate.
//
// inBlock are the classes whose calls count, where others may come between; nil for all.
func (s sequence) findAnchor(classes, inBlock []int32, lag int, calls []Call, r *Result) bool {
	classes = s.rarestClasses(classes, s.longestBlock(s.stretches(lag), lag))
	for _, id := range classes[:min(len(classes), rareClasses)] {
		if best, ok := s.bestSpot(id, lag); ok {
			s.setAnchor(best, 1, calls, r)
			return true
		}
	}
	return s.countedAnchor(classes, s.countOf(inBlock), lag, calls, r)
}

// rarestClasses are the classes on the least used communicators: likely once an iteration,
// and rare in an evaluation. Tiny ones come first, then rare ones.
func (s sequence) rarestClasses(classes []int32, block []int) []int32 {
	onComm := make(map[uint64]int)
	for id, n := range block {
		onComm[s.classes[id].Comm] += n
	}
	least := math.MaxInt
	for _, id := range classes {
		least = min(least, onComm[s.classes[id].Comm])
	}
	out := slices.DeleteFunc(slices.Clone(classes), func(id int32) bool {
		return onComm[s.classes[id].Comm] > least
	})
	slices.SortStableFunc(out, func(a, b int32) int {
		return cmp.Or(
			-boolToInt(s.classes[a].isTiny(), s.classes[b].isTiny()),
			cmp.Compare(block[a], block[b]),
		)
	})
	return out
}

// setAnchor makes a spot the result's anchor, each per-th of its calls.
func (s sequence) setAnchor(p spot, per int, calls []Call, r *Result) {
	r.Anchor = Anchor{Class: s.classes[p.id], PerPeriod: per}
	r.context = nil
	for _, id := range p.ctx {
		r.context = append(r.context, s.classes[id])
	}
	for i := 0; i < len(p.at); i += per {
		r.Starts = append(r.Starts, int(p.at[i]))
	}
	r.Anchor.OrdinalStep = ordinalStep(calls, r.Starts)
}

// bestSpot is the class's best spot: of those that step by the lag about equally
// often one in a row of its kind, with the least context.
func (s sequence) bestSpot(id int32, lag int) (spot, bool) {
	var found []spot
	for long := range contextMax + 1 {
		for _, p := range s.classSpots(id, long, lag) {
			steps := len(p.at) - 1
			good := 0
			for i := range steps {
				if int(p.at[i+1]-p.at[i]) == lag {
					good++
				}
			}
			p.cost = steps - 2*good
			if p.cost < 0 && float64((len(p.at)+1)*lag) >= anchorShare*float64(len(s.ids)) {
				found = append(found, p)
			}
		}
		if long == 0 && len(found) > 0 && found[0].cost == 1-len(found[0].at) {
			break // every step is the period: context adds no more
		}
	}
	if len(found) == 0 {
		return spot{}, false
	}
	least := slices.MinFunc(found, func(a, b spot) int {
		return cmp.Compare(a.cost, b.cost)
	}).cost
	found = slices.DeleteFunc(found, func(p spot) bool {
		slack := edgeSlack
		if p.burst { // that an evaluation takes as long as an iteration may look better
			slack = max(slack, len(p.at)/burstSlack)
		}
		return p.cost > least+slack
	})
	return slices.MinFunc(found, func(a, b spot) int {
		return cmp.Or(
			-boolToInt(a.burst, b.burst),
			cmp.Compare(len(a.ctx), len(b.ctx)),
			cmp.Compare(a.cost, b.cost),
		)
	}), true
}

func boolToInt(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// classSpots parts a class's calls by the long calls before them, in order.
func (s sequence) classSpots(id int32, long, lag int) []spot {
	index := make(map[place]int)
	var out []spot
	for _, at := range s.at[id] {
		if int(at) < long {
			continue
		}
		p := place{-1, -1, -1, -1}
		for i := range long {
			p[i] = s.ids[int(at)-1-i]
		}
		n, known := index[p]
		if !known {
			n = len(out)
			index[p] = n
			out = append(out, spot{
				id:    id,
				ctx:   slices.Clone(p[:long]),
				burst: lag > 1 && p[0] == id,
			})
		}
		out[n].at = append(out[n].at, at)
	}
	return out
}

// countedAnchor falls back on each so many-th call of the rarest class that comes a
// whole number of times in each period, where hardly anything disturbs that.
func (s sequence) countedAnchor(classes []int32, before []int, lag int, calls []Call, r *Result) bool {
	for _, id := range classes {
		at := s.at[id]
		if s.classAgreement(id, lag) < DefaultAgreement {
			continue
		}
		if per := s.perPeriod(at, before, lag); per > 0 {
			s.setAnchor(spot{id: id, at: at}, per, calls, r)
			return true
		}
	}
	return false
}

// countOf is how many calls of some classes, nil for all, come before each position.
func (s sequence) countOf(classes []int32) []int {
	counted := make([]bool, len(s.classes))
	for _, id := range classes {
		counted[id] = true
	}
	before := make([]int, len(s.ids)+1)
	for i, id := range s.ids {
		before[i+1] = before[i]
		if counted[id] || classes == nil {
			before[i+1]++
		}
	}
	return before
}

// perPeriod is how many of the positions fall into the last whole period, 0
// where stepping by that many does not step by the lag. Calls of extra steps between them
// do not count.
func (s sequence) perPeriod(at []int32, before []int, lag int) int {
	per := 0
	for _, p := range at {
		if before[p] >= before[len(s.ids)]-lag {
			per++
		}
	}
	if per == 0 || len(at) <= per {
		return 0
	}
	good := 0
	for i := per; i < len(at); i++ {
		if before[at[i]]-before[at[i-per]] == lag {
			good++
		}
	}
	if float64(good) < countedShare*float64(len(at)-per) {
		return 0
	}
	return per
}

// ordinalStep is the growth of the anchor's ordinal in most iterations, else 0.
func ordinalStep(calls []Call, starts []int) uint64 {
	count := make(map[uint64]int)
	for i := 1; i < len(starts); i++ {
		count[calls[starts[i]].Ordinal-calls[starts[i-1]].Ordinal]++
	}
	for step, n := range count {
		if 2*n > len(starts)-1 {
			return step
		}
	}
	return 0
}
