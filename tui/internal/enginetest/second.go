package enginetest

import (
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Options.Second adds a link that fails while the GPU still throttles: two
// incidents are open at once, and both wait for a decision.

// The second incident.
const (
	SecondFrom = 52
	SecondID   = "INC-0002"
	SecondHash = "77e1b0c3"
)

func (e *Engine) linkIncident() *falconv1.Incident {
	if !e.opts.Second || e.story() < SecondFrom || e.story() >= Seen {
		return nil
	}
	return &falconv1.Incident{
		Id:                SecondID,
		State:             "located",
		OnsetIteration:    SecondFrom - 4,
		DetectedIteration: SecondFrom,
		RelievedIteration: never,
		HealthyMs:         SlowMs,
		SlowMs:            SlowMs + 90,
		Probability:       0.96,
		Verdict: &falconv1.Verdict{
			Cause:      "network_congestion",
			Links:      []string{"n2-n3"},
			Ranks:      []int32{5},
			Severity:   2,
			Confidence: 0.91,
			Evidence: []*falconv1.Evidence{{
				Kind: "link",
				Text: "n2-n3: 2.4 times the median of its kind in the link test",
			}},
		},
	}
}

func (e *Engine) linkLadder() *falconv1.Ladder {
	l := &falconv1.Ladder{
		Incident:     SecondID,
		ImpactMs:     1200,
		LostGpuHours: 0.0027,
		Model:        "calibrated from a profile of this job",
		Rungs: []*falconv1.RungView{
			{
				Rung:        "S1",
				Applicable:  true,
				Reason:      "ignore: cheapest while the loss is below the price of acting",
				PredictedMs: SlowMs + 90,
				Current:     e.link != "dispatched",
			},
			{Rung: "S2", Reason: "no replica computes more slowly than another", BreakEven: never},
			{
				Rung:        "S3",
				Applicable:  true,
				Reason:      "exchanges n2 with n0",
				OverheadMs:  900,
				GainMs:      90,
				BreakEven:   10,
				PredictedMs: SlowMs,
				PlanHash:    SecondHash,
				Approval:    "person",
				IfWrong:     "a failure before the ranks' second vote leaves the job as it was",
			},
			{
				Rung:        "S4",
				Variant:     "restart",
				Applicable:  true,
				Reason:      "checkpoint, and all ranks again on healthy nodes",
				OverheadMs:  90_000,
				GainMs:      90,
				BreakEven:   1000,
				PredictedMs: SlowMs,
				PlanHash:    "e4e4e4e4",
				Approval:    "person",
			},
		},
		Actions: []*falconv1.Action{e.linkAction()},
	}
	if e.link == "" {
		l.Proposal = l.Actions[0]
	}
	return l
}

func (e *Engine) linkAction() *falconv1.Action {
	if e.linkIncident() == nil {
		return nil
	}
	a := &falconv1.Action{
		Id:       SecondID + "/S3/1",
		Incident: SecondID,
		Rung:     "S3",
		State:    "proposed",
		PlanHash: SecondHash,
		Preview: &falconv1.Preview{
			Swaps:   []*falconv1.NodeSwap{{A: "n2", B: "n0"}},
			MovedMb: 640,
			CopyMs:  410,
		},
		ProposedIteration: SecondFrom,
		AppliedIteration:  never,
		RevertedIteration: never,
		BeforeMs:          SlowMs + 90,
		PredictedMs:       SlowMs,
		OverheadMs:        900,
		Why:               "the accumulated loss has reached the overhead of S3",
	}
	if e.link != "" {
		a.State = e.link
		a.DecidedBy = "maria"
	}
	return a
}

func (e *Engine) decideLink(approve bool) {
	e.link = map[bool]string{true: "dispatched", false: "vetoed"}[approve]
	e.audit(
		"maria",
		map[bool]string{true: "approve", false: "veto"}[approve],
		SecondID+"/S3/1",
		SecondHash,
		"",
	)
}
