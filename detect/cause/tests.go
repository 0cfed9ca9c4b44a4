package cause

import (
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Tests is what active tests measured since the onset, judged where they were made
// (FALCON §4.4).
type Tests struct {
	GEMM    []falcon.GEMMResult
	Links   []falcon.LinkResult
	Refused string           // why there are none, or not all; empty when all came
	Barred  *falcon.Untested // the test was not allowed, which says nothing for or against
}

// gemmResult is a device's matrix multiplication; ok is false without a valid test.
func (c *Case) gemmResult(d falcon.Device) (falcon.GEMMResult, bool) {
	if c.Tests == nil || d == "" {
		return falcon.GEMMResult{}, false
	}
	i := slices.IndexFunc(c.Tests.GEMM, func(g falcon.GEMMResult) bool {
		return g.Device == d && g.Err == "" && g.Ms > 0
	})
	if i < 0 {
		return falcon.GEMMResult{}, false
	}
	g := c.Tests.GEMM[i]
	if c.Small > 0 {
		g.Slow = g.Ratio > c.smallGEMM()
	}
	return g, true
}

// smallGEMM is the ratio over which a multiplication is slow where a small slowdown is
// explained: a third of what it costs the job, as a GPU that lost 2.5 % in its
// node's own benchmark cost a job 5.6 %, and more than the tested devices differ by.
func (c *Case) smallGEMM() float64 {
	var off []float64
	for _, g := range c.Tests.GEMM {
		if g.Err == "" && g.Ratio > 0 {
			off = append(off, math.Abs(g.Ratio-1))
		}
	}
	return min(gemmOver, 1+max(c.Small/3, smallTimes*falcon.Median(off)))
}

// smallTimes is how many median differences of the tested devices are no noise: 4
// standard deviations of normal noise.
const smallTimes = 6

// gemmProofs adds what the matrix multiplication says about a slow rank: a
// slow one accuses its GPU, a healthy one clears it and accuses its host.
func (c *Case) gemmProofs(gpu, cpu *opinion, r falcon.Rank, behind bool) (slow, healthy bool) {
	g, ok := c.gemmResult(c.deviceOf(r))
	base := "the median"
	if ok && c.isCrowded(r) {
		g = c.againstFastest(g)
		base = "the fastest"
	}
	switch {
	case !ok || g.Unjudged != "" && !g.Slow:
		return false, false
	case !g.Slow:
		gpu.addAgainst(falcon.EvidenceTest,
			"%s: a matrix multiplication takes %.2f ms, %.2f x %s of all tested GPUs: the device itself is healthy",
			g.Device, g.Ms, g.Ratio, base)
		cpu.addEvidence(falcon.EvidenceTest, weightGEMMHealthy,
			"%s: a matrix multiplication takes %.2f ms, %.2f x %s of all tested GPUs: what slows it lies outside the device",
			g.Device, g.Ms, g.Ratio, base)
		return false, true
	}
	weight := weightGEMM
	if behind {
		weight = weightGEMMBehind
	}
	gpu.addEvidence(falcon.EvidenceTest, weight,
		"%s: a matrix multiplication takes %.2f ms, %.2f x %s %.2f ms of all tested GPUs",
		g.Device, g.Ms, g.Ratio, base, g.MedianMs)
	return true, false
}

// againstFastest judges a multiplication by the fastest tested GPU instead of
// the median, which is slow where most are.
func (c *Case) againstFastest(g falcon.GEMMResult) falcon.GEMMResult {
	fastest := g.Ms
	for _, q := range c.Tests.GEMM {
		if q.Err == "" && q.Ms > 0 && q.ElementBits() == g.ElementBits() {
			fastest = min(fastest, q.Ms)
		}
	}
	g.MedianMs = fastest
	g.Ratio = g.Ms / fastest
	g.Unjudged = ""
	g.Slow = g.Ratio > gemmOver || c.Small > 0 && g.Ratio > c.smallGEMM()
	return g
}

// adoptSlowGEMM takes ranks whose multiplication is slow among the slow ones where
// timing leaves room for it: the rule of the profile is 1.1, a test may
// confirm what lies right below it. A test alone makes no culprit.
func (c *Case) adoptSlowGEMM() {
	if c.Tests == nil || c.Timing.AllSlow {
		return
	}
	for r, t := range c.Timing.Ranks {
		g, ok := c.gemmResult(c.deviceOf(falcon.Rank(r)))
		if ok &&
			g.Slow &&
			t.Ratio >= c.adoptFrom() &&
			!slices.Contains(c.Timing.Slow, falcon.Rank(r)) {
			c.Timing.Slow = append(slices.Clone(c.Timing.Slow), falcon.Rank(r))
		}
	}
	slices.Sort(c.Timing.Slow)
}

// adoptFrom is the ratio of self time from which a slow test confirms a rank.
func (c *Case) adoptFrom() float64 {
	if c.Small > 0 {
		return min(adoptRatio, 1+c.Small/4)
	}
	return adoptRatio
}

// linkTest sums up the tests of one node pair.
type linkTest struct {
	judged, slow int
	worst        falcon.LinkResult // the judged one with the greatest ratio
}

// isSlow asks for half of the pair's exchanges: one of two directions.
func (t linkTest) isSlow() bool {
	return t.slow > 0 && 2*t.slow >= t.judged
}

// linkTests sums up the tests that were judged, by node pair. A class whose members share one or
// two links has no independent median and clears none, unless timing shows that most of the pairs
// that use them are healthy.
func (c *Case) linkTests(u linkUse) map[falcon.Link]linkTest {
	out := map[falcon.Link]linkTest{}
	if c.Tests == nil {
		return out
	}
	classes := c.Tests.classes()
	for _, r := range c.Tests.Links {
		l, ok := resultLink(r)
		if !ok || (!r.Slow && r.Basis == basisClass && !clears(classes[r.Class], u)) {
			continue
		}
		t := out[l]
		t.judged++
		if r.Slow {
			t.slow++
		}
		if r.Ratio > t.worst.Ratio {
			t.worst = r
		}
		out[l] = t
	}
	return out
}

// clears reports whether the median of a class's tests shows how fast a healthy link of it is.
func clears(class map[falcon.Link]bool, u linkUse) bool {
	balance := 0
	for l := range class {
		balance += u.balance[l]
	}
	return len(class) >= classLeast || balance > 0
}

// basisClass is the basis of a result that was compared with its class
// (falcon.LinkResult), classLeast how many links make one that clears.
const (
	basisClass = "class"
	classLeast = 3
)

// classes are the links of each class that were tested.
func (t *Tests) classes() map[falcon.LinkClass]map[falcon.Link]bool {
	out := map[falcon.LinkClass]map[falcon.Link]bool{}
	for _, r := range t.Links {
		if l, ok := resultLink(r); ok {
			if out[r.Class] == nil {
				out[r.Class] = map[falcon.Link]bool{}
			}
			out[r.Class][l] = true
		}
	}
	return out
}

// resultLink is the node pair of a result that was judged.
func resultLink(r falcon.LinkResult) (falcon.Link, bool) {
	a := r.FromDevice.Node()
	b := r.ToDevice.Node()
	if r.Err != "" ||
		r.Unjudged != "" ||
		r.BaseMs <= 0 ||
		a == b ||
		a == "" ||
		b == "" {
		return falcon.Link{}, false
	}
	return falcon.NewLink(a, b), true
}

// slowLinks are the tested candidates that are slow, greatest excess first. A small part of
// the greatest excess is noise of the test.
func slowLinks(tests map[falcon.Link]linkTest, candidates map[falcon.Link]bool) []falcon.Link {
	worst := 0.0
	for l := range candidates {
		if t := tests[l]; t.isSlow() {
			worst = max(worst, t.worst.Ratio-1)
		}
	}
	var out []falcon.Link
	for l := range candidates {
		if t := tests[l]; t.isSlow() && t.worst.Ratio-1 >= excessLeast*worst {
			out = append(out, l)
		}
	}
	sortLinks(out)
	return out
}

func (c *Case) linkTestEvidence(l falcon.Link, t linkTest) falcon.Evidence {
	return falcon.Evidence{
		Kind: falcon.EvidenceTest,
		Text: fmt.Sprintf(
			"%s: %d bytes from %s to %s take %.2f ms, %.2f x the median %.2f ms of its class (%s)",
			l, t.worst.Bytes, t.worst.FromDevice, t.worst.ToDevice, t.worst.Ms, t.worst.Ratio,
			t.worst.BaseMs, t.worst.Class),
	}
}

// addTestSummary adds what tests found, for a case in which timing names no rank.
func (c *Case) addTestSummary(o *opinion) {
	if c.Tests == nil {
		return
	}
	devices := 0
	for _, g := range c.Tests.GEMM {
		switch {
		case g.Err != "" || g.Unjudged != "":
		case g.Slow:
			o.addAgainst(falcon.EvidenceTest,
				"%s: a matrix multiplication takes %.2f x the median, but its rank computes as fast as its peers",
				g.Device, g.Ratio)
		default:
			devices++
		}
	}
	if devices > 0 {
		o.addAgainst(falcon.EvidenceTest, "%d tested GPUs multiply matrices as fast as each other", devices)
	}
	healthy := 0
	tests := c.linkTests(c.paths().linkUse(false))
	for l, t := range tests {
		if !t.isSlow() {
			healthy++
			delete(tests, l)
		}
	}
	for _, l := range sortedLinks(tests) {
		e := c.linkTestEvidence(l, tests[l])
		e.Against = true
		o.evidence = append(o.evidence, e)
	}
	if healthy > 0 {
		o.addAgainst(falcon.EvidenceTest, "%d tested links are as fast as others of their class", healthy)
	}
}

func sortedLinks[T any](m map[falcon.Link]T) []falcon.Link {
	out := make([]falcon.Link, 0, len(m))
	for l := range m {
		out = append(out, l)
	}
	sortLinks(out)
	return out
}

func sortLinks(v []falcon.Link) {
	slices.SortFunc(v, func(a, b falcon.Link) int {
		return slices.Compare([]falcon.Node{a.A, a.B}, []falcon.Node{b.A, b.B})
	})
}
