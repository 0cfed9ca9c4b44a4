package peer

import (
	"cmp"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Rules of overlap.
const (
	// hiddenBelow is the share of the time in which a rank does not wait that its
	// gaps between calls must make up. Below it computation hides behind
	// communication, and the gaps show little of it.
	hiddenBelow = 0.25
	// concurrentFrom is the share of an iteration in which calls of different
	// communicators run at once, from which on they are said to overlap.
	concurrentFrom = 0.1
	// A fall of the gaps behind longer calls: its slope, the share of their variance
	// that it explains, and that times the calls: 4 standard deviations, of one rank 3.
	fallLeast, fallShare, fallSure, fallSureOne = 0.4, 0.1, 16.0, 9.0
	// lastBy is what the last to enter must come behind the one before it, ms.
	lastBy = 0.01
)

// sizedOp is a kind of message, of the ranks that do the same work.
type sizedOp struct {
	column int
	op     falcon.Op
	bytes  int64
}

// arrivals is the least duration of every call: what a member takes beyond it, it
// waits for those that come later. Members of a collective end together, so no
// clock is compared with another.
type arrivals struct {
	joined   *callJoin
	messages map[sizedOp]*float64
	newest   [4]struct { // of messages, looked up first: a rank's are of few kinds
		kind  sizedOp
		least *float64
	}
	column []int // of each rank
	order  []int // of the calls of a stretch by their start; reused
}

// endsTogether reports whether no member can leave a call before the last has come.
func endsTogether(op falcon.Op) bool {
	switch op {
	case falcon.OpAllReduce, falcon.OpAllGather, falcon.OpReduceScatter, falcon.OpAlltoAll:
		return true
	}
	return false
}

func isMessage(op falcon.Op) bool {
	return op == falcon.OpSend || op == falcon.OpRecv
}

func (w *Window) newArrivals(joined *callJoin) *arrivals {
	a := &arrivals{
		joined:   joined,
		messages: map[sizedOp]*float64{},
		column:   make([]int, w.Layout.World()),
	}
	columns := 0
	eachColumn(w.Layout, func(column []falcon.Rank) {
		for _, r := range column {
			a.column[r] = columns
		}
		columns++
	})
	for i := range joined.profiles {
		p := &joined.profiles[i]
		for k := range p.Calls {
			if c := &p.Calls[k]; isMessage(c.Op) && positive(c.DurationMs) {
				least := a.leastOf(p.Rank, c)
				*least = min(*least, c.DurationMs)
			}
		}
	}
	return a
}

// leastOf is the least duration of messages of a kind, infinite before the first.
func (a *arrivals) leastOf(r falcon.Rank, c *falcon.CallTiming) *float64 {
	kind := sizedOp{a.column[r], c.Op, c.Bytes}
	for i := range a.newest {
		if n := &a.newest[i]; n.least != nil && n.kind == kind {
			return n.least
		}
	}
	least := a.messages[kind]
	if least == nil {
		least = new(float64)
		*least = math.Inf(1)
		a.messages[kind] = least
	}
	copy(a.newest[1:], a.newest[:])
	a.newest[0].kind, a.newest[0].least = kind, least
	return least
}

// wait is how long a rank waits in one of its profile's calls for others to come; 0 where
// that is unknown.
func (a *arrivals) wait(profile, call int) float64 {
	p := &a.joined.profiles[profile]
	c := &p.Calls[call]
	if !positive(c.DurationMs) {
		return 0
	}
	least := a.joined.least[profile][call]
	if isMessage(c.Op) {
		least = *a.leastOf(p.Rank, c)
	}
	if least == 0 {
		return 0
	}
	return max(0, c.DurationMs-least)
}

// timeline sums up the calls of one rank in one stretch of its window.
type timeline struct {
	from, to   float64
	waited     float64 // until so far the rank's waits are counted
	waits      float64
	busy       float64 // until so far its calls are counted
	busyComm   uint64  // communicator of the call that ends then
	concurrent float64
}

// add takes one call; they come in order of their start.
func (t *timeline) add(c *falcon.CallTiming, wait float64) {
	end := c.StartMs + c.DurationMs
	t.to = max(t.to, end)
	t.waits += max(0, c.StartMs+wait-max(c.StartMs, t.waited))
	t.waited = max(t.waited, c.StartMs+wait)
	if c.Comm != t.busyComm && !isMessage(c.Op) {
		t.concurrent += max(0, min(end, t.busy)-c.StartMs)
	}
	if end > t.busy {
		t.busy, t.busyComm = end, c.Comm
	}
}

// worked is the time in which the rank did not wait.
func (t *timeline) worked() float64 {
	return max(0, t.to-t.from-t.waits)
}

// stretches are a rank's iterations, without the first: when that began is not known.
// A window whose calls do not repeat, or of one iteration, is one stretch.
func (a *arrivals) stretches(profile int) []timeline {
	p := &a.joined.profiles[profile]
	n := p.Iterations
	if n < 1 || len(p.Calls) < n {
		return nil
	}
	per := len(p.Calls) / n
	if len(p.Calls)%n != 0 || n == 1 {
		per = len(p.Calls)
	}
	out := make([]timeline, 0, len(p.Calls)/per)
	end := p.Calls[0].StartMs
	for from := 0; from < len(p.Calls); from += per {
		t := timeline{
			from:   end,
			to:     end,
			waited: end,
			busy:   end,
		}
		for _, k := range a.byStart(p.Calls, from, min(from+per, len(p.Calls))) {
			t.add(&p.Calls[k], a.wait(profile, k))
		}
		end = t.to
		out = append(out, t)
	}
	if len(out) > 1 {
		return out[1:]
	}
	out[0].from, out[0].to = 0, (out[0].to-out[0].from)/float64(n)
	out[0].waits /= float64(n)
	out[0].concurrent /= float64(n)
	return out
}

// byStart are the calls from one on to another in order of their start, as they come where
// two start together. The next call overwrites it.
func (a *arrivals) byStart(calls []falcon.CallTiming, from, to int) []int {
	a.order = a.order[:0]
	for k := from; k < to; k++ {
		a.order = append(a.order, k)
	}
	slices.SortFunc(a.order, func(x, y int) int {
		return cmp.Or(cmp.Compare(calls[x].StartMs, calls[y].StartMs), cmp.Compare(x, y))
	})
	return a.order
}

// measureArrivals fills in how long each rank worked while it did not wait for
// others, and whether communication hides computation in this window.
func (w *Window) measureArrivals(res *Result, joined *callJoin) {
	if w.NoStarts {
		return
	}
	a := w.newArrivals(joined)
	profiles := joined.profiles
	var gaps, concurrent []float64
	for i := range profiles {
		p := &profiles[i]
		r := &res.Ranks[p.Rank]
		var worked, together []float64
		for _, t := range a.stretches(i) {
			worked, together = append(worked, t.worked()), append(together, t.concurrent/(t.to-t.from))
		}
		if r.WorkMs = falcon.Median(slices.Clone(worked)); !positive(r.WorkMs) {
			r.WorkMs = 0
			continue
		}
		r.Worked = worked
		gaps = append(gaps, p.SelfMs*float64(max(1, p.MicroBatches))/r.WorkMs)
		concurrent = append(concurrent, falcon.Median(together))
	}
	countLastArrivals(res, joined.classes)
	if len(gaps) == 0 {
		return
	}
	res.GapShare = falcon.Median(gaps)
	res.Hidden = joined.together && res.GapShare < hiddenBelow
	// A slow rank's peers wait at every call: they show no overlap any more.
	res.Overlap = res.Hidden ||
		w.Healthy.orNone().overlap ||
		falcon.Median(concurrent) >= concurrentFrom ||
		goesOn(res, profiles)
}

// countLastArrivals counts the collectives that each rank entered, and entered
// last, and by how much it came behind the median of its peers at most.
func countLastArrivals(res *Result, joined []joinedCalls) {
	var ordered, late []float64
	for i := range joined {
		j := &joined[i]
		if !endsTogether(j.op) {
			continue
		}
		rows := len(j.rows)
		late = slices.Grow(late[:0], rows*len(j.members))[:rows*len(j.members)] // by member, then by call
		for k, row := range j.rows {
			ordered = append(ordered[:0], row.ms...)
			slices.Sort(ordered)
			for m, ms := range row.ms {
				q := &res.Ranks[j.members[m]]
				q.Entered++
				late[m*rows+k] = (ordered[(len(ordered)-1)/2]+ordered[len(ordered)/2])/2 - ms
				// none is last where several wait for the stream alone
				if ms == ordered[0] && ms < ordered[1]-lastBy {
					q.EnteredLast++
				}
			}
		}
		steps := max(1, int(float64(len(j.rows))/j.calls+0.5))
		for m, r := range j.members {
			q := &res.Ranks[r]
			q.LateMs = max(q.LateMs, latestOfSteps(late[m*rows:(m+1)*rows], steps))
		}
	}
}

// latestOfSteps is how late a rank comes to the call that it is latest at: the
// median over the iterations, as a hiccup is in one of them.
func latestOfSteps(late []float64, steps int) float64 {
	most := make([]float64, steps)
	for k, ms := range late {
		at := k * steps / len(late)
		most[at] = max(most[at], ms)
	}
	return falcon.Median(most)
}

// goesOn reports whether ranks compute on while a call runs: after one that took
// longer than in other iterations, the next call comes that much sooner. Where
// calls are waited for, the time between them does not depend on them. Only
// iterations of the same rank and place are compared, so that a slow rank, whose
// calls are short and gaps long in all of them, does not look like it.
//
// All ranks are asked, and the one that enters last most often alone: the others
// may wait for it, and so not compute on.
func goesOn(res *Result, profiles []falcon.RankProfile) bool {
	var all, last gapFit
	most := 0
	for i := range profiles {
		most = max(most, res.Ranks[profiles[i].Rank].EnteredLast)
	}
	for i := range profiles {
		p := &profiles[i]
		n := max(1, p.Iterations)
		per := len(p.Calls) / n
		if n < 2 || len(p.Calls)%n != 0 {
			continue
		}
		for at := 1; at < per; at++ {
			all.addPlace(p.Calls, at, per)
			if res.Ranks[p.Rank].EnteredLast == most {
				last.addPlace(p.Calls, at, per)
			}
		}
	}
	return all.falls(fallSure) || last.falls(fallSureOne)
}

// gapFit is a linear fit of the time before a call to how long the call before it took.
type gapFit struct {
	n, xx, xy, yy float64
}

// addPlace takes the calls at one place of all iterations.
func (s *gapFit) addPlace(calls []falcon.CallTiming, at, per int) {
	var x, y []float64
	for i := at; i < len(calls); i += per {
		before := &calls[i-1]
		c := &calls[i]
		gap := c.StartMs - before.StartMs - before.DurationMs
		if c.Comm != before.Comm ||
			!endsTogether(before.Op) ||
			!endsTogether(c.Op) ||
			!(gap > selfLeastMs) ||
			!positive(before.DurationMs) {
			return
		}
		x = append(x, before.DurationMs)
		y = append(y, gap)
	}
	for i := range x {
		dx, dy := x[i]-meanOf(x), y[i]-meanOf(y)
		s.n++
		s.xx += dx * dx
		s.xy += dx * dy
		s.yy += dy * dy
	}
}

func meanOf(v []float64) (mean float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	return mean
}

// falls reports whether a good part of what a call took longer is missing from the
// gap behind it, more clearly than by chance.
func (s *gapFit) falls(sure float64) bool {
	if s.xx <= 0 || s.yy <= 0 || s.xy >= 0 {
		return false
	}
	share := s.xy * s.xy / (s.xx * s.yy)
	return -s.xy/s.xx > fallLeast && share > fallShare && share*s.n > sure
}

// deflate takes a rank's ratio down to what can be said of it: where ranks compute
// on while calls run, the others' gaps shrink, and their waits grow, by all that
// they are ahead, and a rank that is always a little behind looks far slower than
// it is. So its ratio is at most the one to its own past, or where there is none
// what it comes late by in one call.
func deflate(res *Result, r *Rank) {
	if !res.Overlap || r.Basis == ByNone {
		return
	}
	most := 1.0
	switch {
	case r.OwnMs > 0:
		most = r.OwnRatio
	case r.OwnWork > 0:
		most = r.OwnWork / res.CommonWork
	case res.IterationMs > 0:
		most = 1 + r.LateMs/res.IterationMs
	}
	r.Ratio = min(r.Ratio, most)
}

// deflateSteps takes the ratios of a window's iterations down as that of the window.
func deflateSteps(res *Result) {
	for i := range res.Ranks {
		r := &res.Ranks[i]
		var known []float64
		for _, x := range r.StepRatio {
			if x > 0 {
				known = append(known, x)
			}
		}
		middle := falcon.Median(known)
		if res.Overlap && middle > r.Ratio && r.Ratio > 0 {
			for k := range r.StepRatio {
				r.StepRatio[k] *= r.Ratio / middle
			}
		}
	}
}

// compareWork holds the time in which ranks do not wait against their own past, and
// finds what all of them share: slower transfers above all.
func (w *Window) compareWork(res *Result) {
	least := math.Inf(1)
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if own := w.Healthy.workTime(r.Rank); own > 0 && r.WorkMs > 0 {
			r.OwnWork = r.WorkMs / float64(max(1, r.MicroBatches)) / own
			least = math.Min(least, r.OwnWork)
		}
	}
	res.CommonWork = 1
	if !math.IsInf(least, 1) {
		res.CommonWork = max(1, least)
	}
}
