package cause

import (
	"slices"

	"github.com/failslow/falcon"
)

// allSlow explains a job that slowed as a whole: a facility fault where all
// clocks fell, the job's own work where the clocks are normal.
func (c *Case) allSlow() opinion {
	ranks := make([]falcon.Rank, len(c.Timing.Ranks))
	for i := range ranks {
		ranks[i] = falcon.Rank(i)
	}
	known, reduced := c.reducedClocks(ranks)
	o := opinion{}
	o.addEvidence(falcon.EvidenceTiming, weightTogether,
		"All %d measured ranks compute %.2f x as long as when healthy, and none longer than its peers",
		len(ranks)-c.Timing.Missing, c.Timing.AllRatio)
	switch {
	case known == 0:
		o.cause = falcon.CauseUnknown
		o.addAgainst(falcon.EvidenceCounter, "No GPU counters since the onset show whether the clocks fell")
	case len(reduced)*2 > known:
		o.cause = falcon.CauseFacility
		o.ranks = reduced
		o.addEvidence(falcon.EvidenceCounter, weightNormal,
			"The SM clocks of %d of %d GPUs fell together: power or cooling, not one device",
			len(reduced), known)
	default:
		o.cause = falcon.CauseNotHardware
		o.addEvidence(falcon.EvidenceCounter, weightNormal,
			"The SM clocks of %d of %d GPUs are as before: the work itself grew",
			known-len(reduced), known)
	}
	return o
}

// slowStages explains stages that slowed as a whole, by counters or by the job's own work.
func (c *Case) slowStages() opinion {
	var ranks []falcon.Rank
	for _, r := range c.Timing.Ranks {
		if slices.Contains(c.Timing.SlowStages, c.Layout.Coord(r.Rank).PP) {
			ranks = append(ranks, r.Rank)
		}
	}
	o := opinion{}
	o.addEvidence(falcon.EvidenceTiming, weightTogether,
		"All %d ranks of pipeline stages %v slowed alike, the other stages did not",
		len(ranks), c.Timing.SlowStages)
	known, reduced := c.reducedClocks(ranks)
	starved := slices.DeleteFunc(slices.Clone(ranks), func(r falcon.Rank) bool {
		return !c.hostProofs(&opinion{}, r)
	})
	switch {
	case len(reduced) > 0:
		o.cause = falcon.CauseGPU
		o.ranks = reduced
		o.addEvidence(falcon.EvidenceCounter, weightClock, "The SM clocks of %d of these %d GPUs fell",
			len(reduced), known)
	case len(starved) > 0:
		o.cause = falcon.CauseCPU
		o.ranks = starved
		c.hostProofs(&o, starved[0])
	case known == 0:
		o.cause = falcon.CauseUnknown
		o.addAgainst(falcon.EvidenceCounter, "No GPU counters since the onset show whether the clocks fell")
	default:
		o.cause = falcon.CauseNotHardware
		o.addEvidence(falcon.EvidenceCounter, weightNormal,
			"The SM clocks of all %d of these GPUs are as before: the stages' own work grew",
			known)
	}
	return o
}

// unevenWork explains a job whose ranks' work varies while none is always slow: sequences
// of different length, or another imbalance of the job's own. What made links suspect and was
// refuted stays to be read: a receive waits for the work of its sender as well.
func (c *Case) unevenWork(refuted []falcon.Evidence) opinion {
	o := opinion{cause: falcon.CauseNotHardware, reason: falcon.ReasonLengths}
	o.addEvidence(falcon.EvidenceTiming, weightTogether,
		"The same passes of all %d measured ranks differ by %.0f %% from iteration to iteration (healthy %.0f %%), and who is slowest changes: the work differs, as with sequences of different length",
		len(c.Timing.Ranks)-c.Timing.Missing, 100*c.Timing.Spread, 100*c.Timing.HealthySpread)
	ranks := make([]falcon.Rank, len(c.Timing.Ranks))
	for i := range ranks {
		ranks[i] = falcon.Rank(i)
	}
	switch known, reduced := c.reducedClocks(ranks); {
	case known == 0:
		o.addAgainst(falcon.EvidenceCounter,
			"No GPU counters since the onset show whether the clocks are steady")
	case len(reduced) > 0:
		o.addAgainst(falcon.EvidenceCounter, "The SM clocks of %d of %d GPUs fell", len(reduced), known)
	default:
		o.addEvidence(falcon.EvidenceCounter, weightNormal, "The SM clocks of all %d GPUs are as before",
			known)
	}
	for _, e := range refuted {
		e.Against = false
		o.evidence = append(o.evidence, e)
	}
	return o
}

// hostsLate reports whether most hosts launch late, whose noise looks like uneven work.
func (c *Case) hostsLate() bool {
	late := 0
	for r := range c.Timing.Ranks {
		if _, behind := c.compareLead(falcon.Rank(r)); behind {
			late++
		}
	}
	return 2*late > len(c.Timing.Ranks)
}

// noSuspect is the case in which the profile names no rank.
func (c *Case) noSuspect() opinion {
	o := opinion{cause: falcon.CauseUnknown}
	top := 0.0
	at := falcon.Rank(0)
	for _, r := range c.Timing.Ranks {
		if r.Ratio > top {
			top, at = r.Ratio, r.Rank
		}
	}
	defer c.addTestSummary(&o)
	if top == 0 {
		o.addAgainst(falcon.EvidenceTiming, "No rank could be compared with a peer or with its own past")
		return o
	}
	o.addAgainst(falcon.EvidenceTiming,
		"No rank or group stands out: the greatest self time is %.2f x its peers', at %s",
		top, c.nameOf(at))
	return o
}
