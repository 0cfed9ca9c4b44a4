package cause

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// Case is all that is known about one onset.
type Case struct {
	Layout    falcon.Layout
	Placement falcon.Placement
	Timing    peer.Result
	Counters  Counters
	Tests     *Tests  // active tests since the onset, nil = none
	Work      Work    // what the calls since the onset say about the job's own work
	HealthyMs float64 // iteration time, 0 when unknown (present from the start)
	SlowMs    float64
	// Small is the share of the iteration that a small slowdown costs, 0 = it is none:
	// the culprit's test is judged by it, and by what the tested devices differ by.
	Small float64
	// Paths are whom a group's members send to; nil = neighbours of a ring over the members in
	// ascending order.
	Paths func(*peer.Group) Paths

	dropped []Stop // ranks that are slow by their wait for data alone
}

// linesMost bounds the evidence of one verdict, for screens and journals.
const linesMost = 16

// opinion is one suspected cause with its proofs.
type opinion struct {
	cause    falcon.Cause
	reason   falcon.Reason
	last     bool // it explains less than the others, whatever its confidence
	ranks    []falcon.Rank
	links    []falcon.Link
	nics     []falcon.NIC // whose counters show it
	paths    []falcon.PathChoice
	allLinks bool
	refuted  bool // all links that it suspects are healthy in tests and to other pairs
	proofs   []float64
	evidence []falcon.Evidence
}

func (o *opinion) addEvidence(kind falcon.EvidenceKind, weight float64, format string, args ...any) {
	o.proofs = append(o.proofs, weight)
	o.evidence = append(o.evidence, falcon.Evidence{
		Kind: kind,
		Text: fmt.Sprintf(format, args...),
	})
}

func (o *opinion) addAgainst(kind falcon.EvidenceKind, format string, args ...any) {
	o.evidence = append(o.evidence, falcon.Evidence{
		Kind:    kind,
		Text:    fmt.Sprintf(format, args...),
		Against: true,
	})
}

// Judge gives the verdict on a case.
func Judge(c Case) falcon.Verdict {
	c.adoptSlowGEMM()
	workJudge{&c}.dropStalled()
	var all []opinion
	switch {
	case c.Timing.AllSlow:
		all = append(all, c.allSlow())
	case len(c.Timing.Slow) > 0:
		all = c.computation()
	case len(c.Timing.SlowStages) > 0:
		all = append(all, c.slowStages())
	}
	if o, ok := c.network(); ok && !(o.refuted && c.Timing.Uneven) {
		all = append(all, o)
	} else if len(all) == 0 && c.Timing.Uneven && !c.hostsLate() {
		all = append(all, c.unevenWork(o.evidence)) // a slow link is slow whatever the work is
	}
	if len(all) == 0 {
		if o, ok := c.starvedHost(); ok {
			all = append(all, o)
		} else if o, ok := (pathJudge{&c}).onlyPath(); ok {
			all = append(all, o)
		} else {
			all = append(all, c.noSuspect())
		}
	}
	all = workJudge{&c}.weighOwn(all)
	return c.verdict(all)
}

// verdict puts the strongest opinion first; the others become evidence.
func (c *Case) verdict(all []opinion) falcon.Verdict {
	slices.SortStableFunc(all, func(a, b opinion) int {
		if a.last != b.last {
			return map[bool]int{false: -1, true: 1}[a.last]
		}
		return cmpFloat(c.confidence(&b), c.confidence(&a))
	})
	v := falcon.Verdict{Cause: all[0].cause, Confidence: c.confidence(&all[0])}
	if c.Tests != nil && c.Tests.Refused != "" {
		v.Confidence *= refusedFactor
		all[0].addAgainst(falcon.EvidenceTest, "No complete active test confirms it: %s", c.Tests.Refused)
	}
	if c.Tests != nil && c.Tests.Barred != nil {
		v.Untested = c.Tests.Barred
		all[0].evidence = append(all[0].evidence, falcon.Evidence{
			Kind: falcon.EvidenceTest,
			Text: v.Untested.Text(),
		})
	}
	slow, allLinks := 0, false
	for _, o := range all {
		if o.cause != v.Cause && !slices.Contains(v.Also, o.cause) {
			v.Also = append(v.Also, o.cause)
		}
		if o.reason != "" {
			v.Reason = o.reason
		}
		v.Ranks = append(v.Ranks, o.ranks...)
		v.Links = append(v.Links, o.links...)
		v.NICs = append(v.NICs, o.nics...)
		v.Paths = append(v.Paths, o.paths...)
		v.Evidence = append(v.Evidence, o.evidence...)
		allLinks = allLinks || o.allLinks
		if o.cause != falcon.CauseNetwork && o.cause != falcon.CauseNotHardware {
			slow += len(o.ranks)
			v.Devices = append(v.Devices, c.devicesOf(o.ranks)...)
		}
	}
	slices.Sort(v.Ranks)
	v.Ranks = slices.Compact(v.Ranks)
	slices.Sort(v.Devices)
	v.Devices = slices.Compact(v.Devices)
	slices.Sort(v.NICs)
	v.NICs = slices.Compact(v.NICs)
	if c.Timing.Overlap {
		v.Evidence = append(v.Evidence, falcon.Evidence{
			Kind: falcon.EvidenceTiming,
			Text: c.overlapText(),
		})
	}
	if c.Timing.Missing > 0 {
		v.Evidence = append(v.Evidence, falcon.Evidence{
			Kind:    falcon.EvidenceTiming,
			Against: true,
			Text: fmt.Sprintf(
				"%d of %d ranks sent no usable profile", c.Timing.Missing, len(c.Timing.Ranks)),
		})
	}
	if c.Timing.Dropped > 0 {
		v.Evidence = append(v.Evidence, falcon.Evidence{
			Kind:    falcon.EvidenceTiming,
			Against: true,
			Text:    c.droppedText(),
		})
	}
	v.Evidence = v.Evidence[:min(len(v.Evidence), linesMost)]
	v.Severity = Severity(c.relativeDelay(), len(v.Links), allLinks, slow)
	if c.Small > 0 { // whatever it slows, the job loses little
		v.Severity = 1
	}
	return v
}

// overlapText is how much of the computation the gaps between calls still show.
func (c *Case) overlapText() string {
	if c.Timing.Hidden {
		return fmt.Sprintf(
			"Computation hides behind communication: gaps between calls are %.0f %% of the time that ranks work, so ranks are judged by when they enter collectives",
			100*c.Timing.GapShare,
		)
	}
	return "Overlap seen: ranks compute on while calls run, so gaps between calls count only as far as a rank enters collectives later than before"
}

func (c *Case) confidence(o *opinion) float64 {
	p := combineProofs(o.proofs...)
	for _, e := range o.evidence {
		if e.Against {
			p *= againstFactor
		}
	}
	if n := len(c.Timing.Ranks); n > 0 {
		p *= 1 - float64(c.Timing.Missing)/float64(n)
	}
	return p * (1 - droppedWeight*c.Timing.DroppedShare())
}

func (c *Case) droppedText() string {
	return fmt.Sprintf(
		"The timings of %d calls were lost, %.0f %% of the window's: iterations that lack one are left out",
		c.Timing.Dropped, 100*c.Timing.DroppedShare(),
	)
}

// relativeDelay is the slowdown as a share of the healthy time; for a fault without a
// healthy time, how much slower the culprits compute than their peers.
func (c *Case) relativeDelay() float64 {
	if c.HealthyMs > 0 && c.SlowMs > c.HealthyMs {
		return c.SlowMs/c.HealthyMs - 1
	}
	worst := 0.0
	for _, r := range c.Timing.Slow {
		worst = max(worst, c.Timing.Ranks[r].Ratio-1)
	}
	return worst
}

func (c *Case) deviceOf(r falcon.Rank) falcon.Device {
	if int(r) < len(c.Placement) {
		return c.Placement[r]
	}
	return ""
}

func (c *Case) devicesOf(ranks []falcon.Rank) []falcon.Device {
	var out []falcon.Device
	for _, r := range ranks {
		if d := c.deviceOf(r); d != "" {
			out = append(out, d)
		}
	}
	return out
}

// nameOf is how evidence calls a rank: by its device.
func (c *Case) nameOf(r falcon.Rank) string {
	if d := c.deviceOf(r); d != "" {
		return fmt.Sprintf("%s (rank %d)", d, r)
	}
	return fmt.Sprintf("rank %d", r)
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
