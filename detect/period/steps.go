package period

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Rules that tell a whole optimizer step, with small extras at every n-th, from a micro-batch
// of which n make a step.
const (
	smallShare    = 64      // what carries so many times fewer bytes than the gradients is small
	forwardShare  = 0.2     // of a step that passes without a reduction: no gradients are there yet
	exactShare    = 0.9     // of a step's calls that carry as many bytes as in the step before
	updateShare   = 1. / 16 // of a step: what is longer where extras are may be the optimizer's update
	longExtra     = 1.5     // steps; what takes longer is an evaluation or a checkpoint,
	longestExtra  = 0.15    // unless it takes so much of all steps: then the host runs ahead between extras
	crossingsMin  = 2       // extras whose time must be known
	gapsMost      = 16      // blocks that give the times within one
	caughtUpSteps = 2       // steps behind an extra in which a host that it held up is ahead again
)

// isSmall reports whether calls of a class carry little, held against a sum of bytes.
// A class without a size is not known to.
func (c Class) isSmall(sum int64) bool {
	return c.Size > 0 && c.Size < 63 && int64(1)<<c.Size <= sum/smallShare
}

// block is what a lag makes of the calls: one block of the longest stretch, in order.
type block struct {
	calls []Call
	gaps  []float64 // ns from each call to the next one, the last to the first of the next block
}

// blockOf is nil where the stretch is shorter than two blocks.
func blockOf(calls []Call, x stretch, lag int) *block {
	if x.to-x.from < 2*lag {
		return nil
	}
	b := &block{calls: calls[x.from : x.from+lag]}
	for p := range lag {
		var gaps []float64
		for i := x.from + p; i+1 < x.to && len(gaps) < gapsMost; i += lag {
			gaps = append(gaps, float64(calls[i+1].TimeNs-calls[i].TimeNs))
		}
		b.gaps = append(b.gaps, falcon.Median(gaps))
	}
	return b
}

func (b *block) ns() float64 {
	sum := 0.0
	for _, g := range b.gaps {
		sum += g
	}
	return sum
}

func (b *block) largest() int64 {
	return slices.MaxFunc(b.calls, func(x, y Call) int {
		return int(min(max(x.Bytes-y.Bytes, -1), 1))
	}).Bytes
}

// replicatedGradients are the bytes of gradients that the block all-reduces as
// DistributedDataParallel does, 0 where that is not what it shows: nothing but reductions
// carries much, these are of different sizes, or there is one, and a good part of the block, the
// forward pass, has none. Reductions of activations are of one size and all over the block.
func (c Config) replicatedGradients(b *block) int64 {
	bulk := b.largest()/smallShare + 1
	at := make(map[uint64][]int)
	for i, call := range b.calls {
		if call.Bytes < bulk {
			continue
		}
		if c.Op(call.Op) != falcon.OpAllReduce {
			return 0
		}
		at[call.Comm] = append(at[call.Comm], i)
	}
	most := int64(0)
	for _, on := range at {
		if b.areGradients(on) {
			most = max(most, sumBytes(b.callsAt(on)))
		}
	}
	return most
}

func sumBytes(calls []Call) (sum int64) {
	for _, c := range calls {
		sum += min(max(c.Bytes, 0), math.MaxInt64-sum)
	}
	return sum
}

// callsAt are the block's calls at some places.
func (b *block) callsAt(on []int) (out []Call) {
	for _, i := range on {
		out = append(out, b.calls[i])
	}
	return out
}

// areGradients judges the reductions on one communicator.
func (b *block) areGradients(on []int) bool {
	if len(on) == 1 {
		return b.calls[on[0]].Bytes == b.largest()
	}
	size := b.calls[on[0]].Bytes
	if !slices.ContainsFunc(on, func(i int) bool {
		return b.calls[i].Bytes != size
	}) {
		return false
	}
	longest, now := 0.0, 0.0
	next := 1
	for i := on[0]; i < on[0]+len(b.calls); i++ {
		now += b.gaps[i%len(b.calls)]
		if longest = max(longest, now); next < len(on) && i+1 == on[next] {
			next++
			now = 0
		}
	}
	return longest >= forwardShare*b.ns()
}

// shardedGradients are the bytes of gradients that the block reduces and scatters before a
// vote (the gradients' norm, or whether they are finite) and behind which parameters are gathered.
// That is the end of an optimizer step of FSDP or of a distributed optimizer: micro-batches
// have no vote there. 0 where the block shows none.
func (c Config) shardedGradients(b *block) int64 {
	n := len(b.calls)
	for i, call := range b.calls {
		if !call.classOf().isTiny() {
			continue
		}
		before, after := i, i
		for k := 1; k < n && b.calls[before].classOf().isTiny(); k++ {
			before = (i + n - k) % n
		}
		for k := 1; k < n && b.calls[after].classOf().isTiny(); k++ {
			after = (i + k) % n
		}
		x, y := b.calls[before], b.calls[after]
		if c.Op(x.Op) == falcon.OpReduceScatter &&
			c.Op(y.Op) == falcon.OpAllGather &&
			x.Comm == y.Comm {
			return sumBytes(b.callsAt(b.on(x.Op, x.Comm)))
		}
	}
	return 0
}

// on are the block's calls of an operation on a communicator.
func (b *block) on(op uint32, comm uint64) (out []int) {
	for i, c := range b.calls {
		if c.Op == op && c.Comm == comm {
			out = append(out, i)
		}
	}
	return out
}

// isStep reports whether a block is an optimizer step and not a micro-batch: it reduces the
// job's gradients, and all that interrupts it is small. Where the gradients are
// replicated, a script may reduce them in every micro-batch; then the time of its update shows
// where the extras are.
func (c Config) isStep(s sequence, calls []Call, rows []stretch, lag int, outside []int32, voted bool) bool {
	if c.Op == nil || len(rows) == 0 {
		return false
	}
	longest := slices.MaxFunc(rows, func(x, y stretch) int {
		return (x.to - x.from) - (y.to - y.from)
	})
	small := func(sum int64) bool {
		return sum > 0 &&
			!slices.ContainsFunc(outside, func(id int32) bool {
				return !s.classes[id].isSmall(sum)
			})
	}
	if !small(sumBytes(calls[longest.from : longest.from+lag])) {
		return false
	}
	b := blockOf(calls, longest, lag)
	if b == nil {
		return false
	}
	if voted && small(c.shardedGradients(b)) {
		return true
	}
	if !small(c.replicatedGradients(b)) || !s.areOnComms(outside, b) {
		return false
	}
	return exactlyAlike(calls, rows, lag) &&
		(lag > 1 || evenly(calls, rows)) &&
		!s.mayUpdate(calls, rows, lag)
}

// areOnComms reports whether classes use no communicator but the block's.
func (s sequence) areOnComms(classes []int32, b *block) bool {
	for _, id := range classes {
		if !slices.ContainsFunc(b.calls, func(c Call) bool {
			return c.Comm == s.classes[id].Comm
		}) {
			return false
		}
	}
	return true
}

// exactlyAlike reports whether the blocks carry the same bytes, call by call. Buckets of
// about a size differ by that.
func exactlyAlike(calls []Call, rows []stretch, lag int) bool {
	same, all := 0, 0
	for _, x := range rows {
		for i := x.from; i+lag < x.to; i++ {
			all++
			if calls[i].Bytes == calls[i+lag].Bytes {
				same++
			}
		}
	}
	return float64(same) >= exactShare*float64(all)
}

// evenly reports whether single calls come at even times, as steps do, and calls within one do not.
func evenly(calls []Call, rows []stretch) bool {
	var gaps []float64
	for _, x := range rows {
		for i := x.from; i+1 < x.to; i++ {
			gaps = append(gaps, float64(calls[i+1].TimeNs-calls[i].TimeNs))
		}
	}
	middle, share := evenness(gaps)
	return middle >= evenLeast && share >= evenShare
}

// mayUpdate reports whether steps are longer where extras come, by what may be an optimizer's
// update: then the blocks may be micro-batches. A host that waits for an extra's result is late by as
// much as it is early in the steps behind it; that cancels out.
func (s sequence) mayUpdate(calls []Call, rows []stretch, lag int) bool {
	var steps, counts []float64
	for _, x := range rows {
		for i := x.from; i+lag < x.to; i += lag {
			steps = append(steps, float64(calls[i+lag].TimeNs-calls[i].TimeNs))
		}
		counts = append(counts, float64((x.to-x.from)/lag))
	}
	step := falcon.Median(steps)
	count := falcon.Median(counts)
	var over []float64
	for i := 1; i < len(rows); i++ {
		if ns, ok := s.extraNs(calls, rows[i-1], rows[i], lag, step); ok {
			over = append(over, ns)
		}
	}
	if len(over) < crossingsMin || step <= 0 {
		return true // not known
	}
	extra := falcon.Median(over) / step
	return extra > updateShare && !(extra >= longExtra && extra <= longestExtra*count)
}

// extraNs is by how much the step between two stretches and those behind it are longer than so
// many others.
func (s sequence) extraNs(calls []Call, a, b stretch, lag int, step float64) (float64, bool) {
	from := a.to - lag
	to := b.from
	for ; to < b.from+lag; to++ {
		if to+lag > b.to {
			return 0, false
		}
		if slices.Equal(s.ids[from:from+lag], s.ids[to:to+lag]) {
			break
		}
	}
	if to == b.from+lag {
		return 0, false
	}
	behind := max(0, min(caughtUpSteps, ((b.to-to)/lag-1)/2))
	end := to + behind*lag
	return float64(calls[end].TimeNs-calls[from].TimeNs) - float64(behind+1)*step, true
}

// evenness is the median of some gaps and the share of them near it.
func evenness(gaps []float64) (middle, share float64) {
	middle = falcon.Median(slices.Clone(gaps))
	even := 0
	for _, g := range gaps {
		if math.Abs(g-middle) < evenSpread*middle {
			even++
		}
	}
	return middle, float64(even) / float64(max(len(gaps), 1))
}
