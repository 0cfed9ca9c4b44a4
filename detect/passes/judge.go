package passes

import (
	"slices"

	"github.com/failslow/falcon"
)

// Rules of FALCON §4.4: what is slow, and how many links make a class with a median.
const (
	SlowRatio  = 1.2
	ClassLeast = 3
)

// Own looks up the healthy time of one direction of a link in an earlier
// validation with messages of the same size, in ms.
type Own func(from, to falcon.Device, bytes int64) (ms float64, known bool)

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

func railOf(n falcon.NIC) string { return string(n)[min(len(n.Node()), len(n)):] }

// Judge compares every measured direction with the median of its class over
// the same validation, or, in a class of fewer than three links, with its own
// earlier time. It fills BaseMs, Basis, Ratio and Slow in place; directions
// with an Err or without a base are never slow.
func Judge(links []falcon.LinkResult, own Own) {
	classes := map[falcon.LinkClass]*class{}
	for _, l := range links {
		if measured(l) {
			classOf(classes, l.Class).addResult(l)
		}
	}
	for i := range links {
		l := &links[i]
		l.BaseMs, l.Basis, l.Ratio, l.Slow = 0, "", 0, false
		if !measured(*l) {
			continue
		}
		if c := classes[l.Class]; len(c.pairs) >= ClassLeast {
			l.BaseMs, l.Basis = falcon.Median(slices.Clone(c.ms)), "class"
		} else if ms, known := ownTime(own, *l); known {
			l.BaseMs, l.Basis = ms, "own"
		}
		if l.BaseMs > 0 {
			l.Ratio = l.Ms / l.BaseMs
			l.Slow = l.Ratio > SlowRatio
		}
	}
}

func measured(l falcon.LinkResult) bool { return l.Err == "" && l.Ms > 0 }

func ownTime(own Own, l falcon.LinkResult) (float64, bool) {
	if own == nil {
		return 0, false
	}
	return own(l.FromDevice, l.ToDevice, l.Bytes)
}

type class struct {
	pairs map[Pair]bool
	ms    []float64
}

func classOf(m map[falcon.LinkClass]*class, k falcon.LinkClass) *class {
	if m[k] == nil {
		m[k] = &class{pairs: map[Pair]bool{}}
	}
	return m[k]
}

func (c *class) addResult(l falcon.LinkResult) {
	c.pairs[NewPair(l.From, l.To)] = true
	c.ms = append(c.ms, l.Ms)
}

// JudgeGEMM compares every device with the median of all that were tested, or
// with the faster one where only two were: their mean would hide a slow one.
// One alone is compared with nothing. Fields are filled in place.
func JudgeGEMM(results []falcon.GEMMResult) {
	var ms []float64
	for _, g := range results {
		if g.Err == "" && g.Ms > 0 {
			ms = append(ms, g.Ms)
		}
	}
	base := 0.0
	switch len(ms) {
	case 0, 1:
	case 2:
		base = min(ms[0], ms[1])
	default:
		base = falcon.Median(slices.Clone(ms))
	}
	for i := range results {
		g := &results[i]
		g.MedianMs, g.Ratio, g.Slow = base, 0, false
		if g.Err == "" && g.Ms > 0 && base > 0 {
			g.Ratio = g.Ms / base
			g.Slow = g.Ratio > SlowRatio
		}
	}
}
