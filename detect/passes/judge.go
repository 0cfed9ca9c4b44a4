package passes

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Rules of what is slow. FALCON §4.4 calls slow what takes over 1.2 × the
// median of its kind. That ratio holds where the repeats of a test agree; where
// they do not, it grows with their spread.
const (
	SlowRatio  = 1.2
	ClassLeast = 3 // independent links, or devices, that show what is usual

	// FloorMs is the least time of one repeat that is judged, ms: in less, the
	// scheduling of a host counts for more than a link.
	FloorMs = 2.0

	// spreadTimes is how many spreads, as ratios, lie between the usual time and a
	// slow one. The lower half of a class, which slow members do not reach, gives
	// the spread of its members; median over least repeat that of one member.
	spreadTimes = 6.0
	limitMost   = 1000
	fewRatio    = 1.5 // slow, among fewer than ClassLeast
)

// Earlier is the time of one direction of a link in an earlier validation.
type Earlier struct {
	Ms    float64
	From  string // validation
	Fine  bool   // it was judged then, and not slow
	Known bool
}

// Own looks up an earlier test of one direction of a link with as many bytes a repeat.
type Own func(from, to falcon.Device, bytes int64) Earlier

// Class says what links the one between two devices is compared with. Ports
// are named "n1.nic0"; where one of them is unknown, the ports of one index on
// all nodes are taken to be one rail, as with a single port a node.
func Class(from, to falcon.Device, fromNIC, toNIC falcon.NIC) falcon.LinkClass {
	switch {
	case from.Node() == to.Node():
		return falcon.LinkIntraNode
	case railOf(fromNIC) == railOf(toNIC) || fromNIC == "" || toNIC == "":
		return falcon.LinkSameRail
	}
	return falcon.LinkCrossRail
}

func railOf(n falcon.NIC) string {
	return string(n)[min(len(n.Node()), len(n)):]
}

// Judge compares every measured direction with the links of its class in the
// same validation, and where those can't decide, with its own earlier time. It
// fills BaseMs, Basis, BaseFrom, Ratio, Limit, Slow and Unjudged in place. What
// is not slow and has no Unjudged takes at most SlowRatio × the usual time of its
// class and SlowRatio² × the least of all its repeats, or as much of an earlier
// time that was fine.
func Judge(links []falcon.LinkResult, own Own) {
	classes := map[falcon.LinkClass]class{}
	for _, l := range links {
		if _, known := classes[l.Class]; !known && measured(l) {
			classes[l.Class] = newClass(links, l.Class)
		}
	}
	for i := range links {
		l := &links[i]
		l.BaseMs = 0
		l.Basis = ""
		l.BaseFrom = ""
		l.Ratio = 0
		l.Limit = 0
		l.Slow = false
		l.Unjudged = ""
		if measured(*l) {
			judgeLink(links, l, classes[l.Class], own)
		}
	}
}

func measured(l falcon.LinkResult) bool {
	return l.Err == "" && l.Ms > 0
}

func judgeLink(links []falcon.LinkResult, l *falcon.LinkResult, c class, own Own) {
	v := c.judge(reading{l.Ms, l.BestMs})
	l.BaseMs = v.base
	l.Ratio = v.ratio
	l.Limit = v.limit
	l.Slow = v.slow
	l.Unjudged = v.unjudged
	if v.base > 0 {
		l.Basis = "class"
	}
	if l.Unjudged == "" || own == nil {
		return
	}
	if was := own(l.FromDevice, l.ToDevice, l.Bytes); was.Known && was.Ms > 0 {
		judgeByOwn(l, was, c, drift(links, *l, own))
	}
}

// judgeByOwn judges by an earlier time of the link itself. An earlier time that
// was not judged may have been slow: it clears nothing. It accuses where the class
// can't: what the noise of the class explains is not slow because the hosts were
// less busy then, and neither is what all its class has become.
func judgeByOwn(l *falcon.LinkResult, was Earlier, c class, drift float64) {
	r := reading{l.Ms, l.BestMs}
	usual := was.Ms * drift
	own := class{
		base:   usual,
		least:  usual,
		spread: max(c.repeats, spreadOf(r)),
		floor:  FloorMs,
		size:   ClassLeast,
	}
	v := own.judge(r)
	switch {
	case v.slow && c.size >= ClassLeast && c.base > 0 && l.Ratio > SlowRatio:
		return
	case !v.slow && (v.unjudged != "" || !was.Fine || r.ms > SlowRatio*was.Ms):
		return
	}
	l.BaseMs = was.Ms
	l.Ratio = r.ms / was.Ms
	l.Limit = v.limit * drift
	l.Slow = v.slow
	l.Unjudged = ""
	l.Basis = "own"
	l.BaseFrom = was.From
}

// drift is by how much all other paths of a link's class are slower than in their
// earlier tests, at least 1: of their ratios the least.
func drift(links []falcon.LinkResult, of falcon.LinkResult, own Own) float64 {
	least := math.Inf(1)
	for _, l := range links {
		if l.Class != of.Class || !measured(l) || l.Path() == of.Path() {
			continue
		}
		if was := own(l.FromDevice, l.ToDevice, l.Bytes); was.Known && was.Ms > 0 {
			least = min(least, l.Ms/was.Ms)
		}
	}
	if math.IsInf(least, 1) {
		return 1
	}
	return max(1, least)
}

// reading is one result: the least of its runs' medians, and its least repeat.
type reading struct{ ms, best float64 }

// spreadOf is by how much the repeats of one result differ, at least 1.
func spreadOf(r reading) float64 {
	if !(r.best > 0) {
		return 1
	}
	return max(1, r.ms/r.best)
}

// class is what results are compared with.
type class struct {
	base    float64 // usual time
	least   float64 // of all repeats
	spread  float64 // at least 1
	repeats float64 // part of it: of the repeats of one result
	floor   float64 // ms; less is too short to judge
	size    int     // independent members
}

// newClass sums up one class. Each path counts once, by its faster direction:
// a fault of one direction must not change what is usual.
func newClass(links []falcon.LinkResult, of falcon.LinkClass) class {
	byPath := map[string][]reading{}
	byPair := map[Pair]reading{}
	var spreads []float64
	for _, l := range links {
		if l.Class != of || !measured(l) {
			continue
		}
		r := reading{l.Ms, cmp.Or(l.BestMs, l.Ms)}
		spreads = append(spreads, spreadOf(r))
		byPath[l.Path()] = append(byPath[l.Path()], r)
		p := NewPair(l.From, l.To)
		if old, known := byPair[p]; !known || r.ms < old.ms {
			byPair[p] = r
		}
	}
	var members []reading
	for _, list := range byPath {
		members = append(members, lowerMedian(list))
	}
	size := len(members)
	if size < ClassLeast { // rails of one pair of nodes accuse each other; they do not clear each other
		members = nil
		for _, r := range byPair {
			members = append(members, r)
		}
	}
	c := newClassOf(members, spreads, size)
	c.floor = FloorMs
	return c
}

func newClassOf(members []reading, spreads []float64, size int) class {
	repeats := falcon.Median(spreads)
	if len(members) < 2 {
		return class{repeats: repeats, size: size}
	}
	usual := lowerMedian(members)
	fastest, least := usual.ms, usual.best
	for _, m := range members {
		fastest = min(fastest, m.ms)
		least = min(least, m.best)
	}
	c := class{
		base:    usual.ms,
		least:   least,
		spread:  max(usual.ms/fastest, repeats),
		repeats: repeats,
		size:    size,
	}
	return c
}

// lowerMedian is the middle by time, of two the lesser: of as many slow as
// healthy ones a healthy one.
func lowerMedian(list []reading) reading {
	sorted := slices.SortedFunc(slices.Values(list), func(a, b reading) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.best, b.best))
	})
	return sorted[(len(sorted)-1)/2]
}

// verdict is what a class says about one result.
type verdict struct {
	base, ratio, limit float64
	slow               bool
	unjudged           string
}

// limit is the ratio over which a result is slow. Few members show little of
// how much they differ by chance.
func (c class) limit() float64 {
	least := SlowRatio
	if c.size < ClassLeast {
		least = fewRatio
	}
	return min(limitMost, max(least, math.Pow(c.spread, spreadTimes)))
}

func (c class) judge(r reading) verdict {
	best := cmp.Or(r.best, r.ms)
	if c.base <= 0 {
		return verdict{unjudged: falcon.NothingToCompare}
	}
	v := verdict{
		base:  c.base,
		ratio: r.ms / c.base,
		limit: c.limit(),
	}
	switch {
	case r.ms < c.floor && c.base < c.floor:
		v.unjudged = falcon.TooShort
	case v.ratio > v.limit && best > SlowRatio*c.base: // not one repeat was usual
		v.slow = true
	case v.ratio > v.limit:
		v.unjudged = fmt.Sprintf("unsteady: its repeats take %.1f ms at least and usually %.1f ms",
			best, r.ms)
	case v.ratio > SlowRatio:
		v.unjudged = fmt.Sprintf("within the noise: %.1f x the usual time can be chance here", v.limit)
	case c.size < ClassLeast:
		v.unjudged = falcon.NothingToCompare
	case r.ms > SlowRatio*SlowRatio*c.least:
		v.unjudged = fmt.Sprintf("%.1f x the least time of its class: most of it may be slow", r.ms/c.least)
	}
	return v
}

// JudgeGEMM compares every device with all that were tested with numbers of as many
// bits, by the same rules but without a floor: a device times its own work, and no
// host has a part in it. Fields are filled in place.
func JudgeGEMM(results []falcon.GEMMResult) {
	classes := map[int]class{}
	for i := range results {
		g := &results[i]
		bits := g.ElementBits()
		c, known := classes[bits]
		if !known {
			c = newGEMMClass(results, bits)
			classes[bits] = c
		}
		g.MedianMs = c.base
		g.Ratio = 0
		g.Limit = 0
		g.Slow = false
		g.Unjudged = ""
		if g.Err != "" || !(g.Ms > 0) {
			continue
		}
		v := c.judge(reading{g.Ms, g.BestMs})
		g.Ratio = v.ratio
		g.Limit = v.limit
		g.Slow = v.slow
		g.Unjudged = v.unjudged
	}
}

func newGEMMClass(results []falcon.GEMMResult, bits int) class {
	var members []reading
	var spreads []float64
	for _, g := range results {
		if g.Err == "" && g.Ms > 0 && g.ElementBits() == bits {
			r := reading{g.Ms, cmp.Or(g.BestMs, g.Ms)}
			members, spreads = append(members, r), append(spreads, spreadOf(r))
		}
	}
	return newClassOf(members, spreads, len(members))
}
