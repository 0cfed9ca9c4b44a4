package period

import "slices"

// Thresholds of periods that extra steps interrupt.
const (
	tinySizes     = 7   // size classes up to 64 bytes: a loss, a norm, a vote
	blocksLeast   = 3   // iterations that a sequence must hold
	blocksInARow  = 2.5 // iterations from one extra step to the next, on average
	coveredLeast  = 0.5 // of each class's calls, and of all, that lie in undisturbed iterations
	blockAttempts = 256 // lags tried
	sibling       = 16  // size class up to which a call may be a larger vote
)

// byBlocks finds the smallest lag, below most, at which the sequence is one
// block of calls over and over, interrupted by steps that bring no kind of
// call of their own: evaluations, checkpoints. Agreement over the whole
// sequence would take the time from one such step to the next for the
// iteration, or find none where they vary.
//
// That a micro-batch also comes over and over shows in what interrupts it:
// the end of an iteration has calls on communicators, or of an operation, that
// the micro-batch lacks, or carries the gradients. Where nothing does, the two
// look alike; so a block must hold a tiny message, as only steps of a whole
// iteration have (a loss, a norm or a vote), or else reduce the gradients itself
// (isStep).
func (c Config) byBlocks(s sequence, eligible []int32, most int, calls []Call) (Result, bool) {
	tries := 0
	for _, lag := range s.candidates(eligible) {
		if lag >= most || tries >= blockAttempts {
			break
		}
		tries++
		r, inBlock, ok := c.judgeBlocks(s, eligible, lag, calls)
		if !ok {
			continue
		}
		if s.findAnchor(inBlock, inBlock, lag, calls, &r) {
			return r, true
		}
	}
	return Result{}, false
}

// stretch is a run of undisturbed iterations: calls from..to.
type stretch struct{ from, to int }

// stretches are the longest runs that repeat at a lag, at least two blocks long.
func (s sequence) stretches(lag int) []stretch {
	var out []stretch
	run := 0
	for i := 0; i+lag <= len(s.ids); i++ {
		if i+lag < len(s.ids) && s.ids[i] == s.ids[i+lag] {
			run++
			continue
		}
		if run >= lag {
			out = append(out, stretch{i - run, i + lag})
		}
		run = 0
	}
	return out
}

// judgeBlocks judges a lag. inBlock are the classes that the block holds, rarest
// first; the result's agreement is the part of the calls in undisturbed iterations.
func (c Config) judgeBlocks(
	s sequence,
	eligible []int32,
	lag int,
	calls []Call,
) (r Result, inBlock []int32, ok bool) {
	all := s.stretches(lag)
	block := s.longestBlock(all, lag)
	rows := slices.DeleteFunc(all, func(x stretch) bool {
		return !s.matchesBlock(block, x.from, lag)
	})
	covered := make([]int, len(s.classes))
	blocks, total := 0, 0
	for _, x := range rows {
		blocks += (x.to - x.from) / lag
		total += x.to - x.from
		for _, id := range s.ids[x.from:x.to] {
			covered[id]++
		}
	}
	share := float64(total) / float64(len(s.ids))
	if blocks < blocksLeast || float64(blocks) < blocksInARow*float64(len(rows)) || share < coveredLeast {
		return r, nil, false
	}
	voted, ended := false, false // the block has a tiny message; an iteration's end interrupts it
	var outside []int32
	for _, id := range eligible {
		if block[id] > 0 && float64(covered[id]) >= coveredLeast*float64(len(s.at[id])) {
			inBlock = append(inBlock, id)
			voted = voted || s.classes[id].isTiny()
			continue
		}
		outside = append(outside, id)
		ended = ended || !s.hasSibling(id, block)
	}
	r = Result{Period: lag, Agreement: share}
	if voted && !ended {
		return r, inBlock, true
	}
	r.steps = c.isStep(s, calls, rows, lag, outside, voted)
	return r, inBlock, r.steps
}

// longestBlock counts the classes in a block of the longest stretch.
func (s sequence) longestBlock(all []stretch, lag int) []int {
	block := make([]int, len(s.classes))
	if len(all) == 0 {
		return block
	}
	longest := all[0]
	for _, x := range all {
		if x.to-x.from > longest.to-longest.from {
			longest = x
		}
	}
	for _, id := range s.ids[longest.from : longest.from+lag] {
		block[id]++
	}
	return block
}

// matchesBlock reports whether the lag calls from at on are the block's, whatever the phase.
func (s sequence) matchesBlock(block []int, at, lag int) bool {
	left := make([]int, len(block))
	copy(left, block)
	for _, id := range s.ids[at : at+lag] {
		if left[id]--; left[id] < 0 {
			return false
		}
	}
	return true
}

// hasSibling reports whether the block holds the same call in another size. Votes in the
// block make no sibling of what carries gradients.
func (s sequence) hasSibling(id int32, block []int) bool {
	c := s.classes[id]
	for other, n := range block {
		o := s.classes[other]
		if n > 0 &&
			o.Op == c.Op &&
			o.Comm == c.Comm &&
			(c.Size <= sibling || !o.isTiny()) {
			return true
		}
	}
	return false
}
