package cause

import (
	"slices"

	"github.com/failslow/falcon"
)

// together explains a job that slowed as a whole: a facility fault where all
// clocks fell, the job's own work where the clocks are normal.
func (c *Case) together() opinion {
	ranks := make([]falcon.Rank, len(c.Timing.Ranks))
	for i := range ranks {
		ranks[i] = falcon.Rank(i)
	}
	known, reduced := c.clocks(ranks)
	o := opinion{}
	o.add(falcon.EvidenceTiming, weightTogether, "All %d measured ranks compute %.2f x as long as when healthy, and none longer than its peers", len(ranks)-c.Timing.Missing, c.Timing.AllRatio)
	switch {
	case known == 0:
		o.cause = falcon.CauseUnknown
		o.against(falcon.EvidenceCounter, "No GPU counters since the onset tell whether the clocks fell")
	case len(reduced)*2 > known:
		o.cause, o.ranks = falcon.CauseFacility, reduced
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of %d of %d GPUs fell together: power or cooling, not one device", len(reduced), known)
	default:
		o.cause = falcon.CauseNotHardware
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of %d of %d GPUs are as before: the work itself grew", known-len(reduced), known)
	}
	return o
}

// stages explains stages that slowed as a whole: the counters of their nodes,
// or the job's own work.
func (c *Case) stages() opinion {
	var ranks []falcon.Rank
	for _, r := range c.Timing.Ranks {
		if slices.Contains(c.Timing.SlowStages, c.Layout.Coord(r.Rank).PP) {
			ranks = append(ranks, r.Rank)
		}
	}
	o := opinion{}
	o.add(falcon.EvidenceTiming, weightTogether, "All %d ranks of pipeline stages %v slowed alike, the other stages did not", len(ranks), c.Timing.SlowStages)
	known, reduced := c.clocks(ranks)
	starved := slices.DeleteFunc(slices.Clone(ranks), func(r falcon.Rank) bool {
		return !c.hostProofs(&opinion{}, r)
	})
	switch {
	case len(reduced) > 0:
		o.cause, o.ranks = falcon.CauseGPU, reduced
		o.add(falcon.EvidenceCounter, weightClock, "The SM clocks of %d of these %d GPUs fell", len(reduced), known)
	case len(starved) > 0:
		o.cause, o.ranks = falcon.CauseCPU, starved
		c.hostProofs(&o, starved[0])
	case known == 0:
		o.cause = falcon.CauseUnknown
		o.against(falcon.EvidenceCounter, "No GPU counters since the onset tell whether the clocks fell")
	default:
		o.cause = falcon.CauseNotHardware
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of all %d of these GPUs are as before: the stages' own work grew", known)
	}
	return o
}

// uneven explains a job whose ranks' work differs from iteration to iteration
// while none of them is slow in all of them: sequences of different length, or
// another imbalance of the job's own.
func (c *Case) uneven() opinion {
	o := opinion{cause: falcon.CauseNotHardware}
	o.add(falcon.EvidenceTiming, weightTogether, "The same passes of all %d measured ranks differ by %.0f %% from iteration to iteration (healthy %.0f %%), and who is slowest changes: the work differs, as with sequences of different length", len(c.Timing.Ranks)-c.Timing.Missing, 100*c.Timing.Spread, 100*c.Timing.HealthySpread)
	ranks := make([]falcon.Rank, len(c.Timing.Ranks))
	for i := range ranks {
		ranks[i] = falcon.Rank(i)
	}
	switch known, reduced := c.clocks(ranks); {
	case known == 0:
		o.against(falcon.EvidenceCounter, "No GPU counters since the onset tell whether the clocks are steady")
	case len(reduced) > 0:
		o.against(falcon.EvidenceCounter, "The SM clocks of %d of %d GPUs fell", len(reduced), known)
	default:
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of all %d GPUs are as before", known)
	}
	return o
}

// hostsLate says that most hosts launch late: then their noise makes the work
// look uneven.
func (c *Case) hostsLate() bool {
	late := 0
	for r := range c.Timing.Ranks {
		if _, behind := c.lead(falcon.Rank(r)); behind {
			late++
		}
	}
	return 2*late > len(c.Timing.Ranks)
}

// nothing is the case in which the profile names nobody.
func (c *Case) nothing() opinion {
	o := opinion{cause: falcon.CauseUnknown}
	top, at := 0.0, falcon.Rank(0)
	for _, r := range c.Timing.Ranks {
		if r.Ratio > top {
			top, at = r.Ratio, r.Rank
		}
	}
	defer c.cleared(&o)
	if top == 0 {
		o.against(falcon.EvidenceTiming, "No rank could be compared with a peer or with its own past")
		return o
	}
	o.against(falcon.EvidenceTiming, "No rank or group stands out: the greatest self time is %.2f x its peers', at %s", top, c.name(at))
	return o
}
