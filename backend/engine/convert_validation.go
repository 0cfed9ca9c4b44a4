package engine

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/validate"
)

// Bounds of numbers in a pause's and a test's answers.
const (
	peersMost   = 4096    // of one communicator
	callsMost   = 1 << 40 // FALCON_GATE_COUNT_MASK + 1
	perIterMost = 1 << 22 // half of what a cut can be ahead
	uniqueID    = 128     // bytes
	heldMost    = 60_500  // ms: the longest hold, and a hook's delay in ending it
)

// cleanResult leaves of a pause's or test's answer what its node may say: of
// its own ranks, once each, with counts in range. What can't be true of a rank
// is turned into a refusal of that rank, so that it is named.
func (c *clusterView) cleanResult(n *fleet.Node, in *falconv1.CommandResult) *falconv1.CommandResult {
	out := &falconv1.CommandResult{
		Epoch:  in.GetEpoch(),
		Id:     in.GetId(),
		Status: in.GetStatus(),
		Detail: clean(in.GetDetail()),
	}
	seen := map[int32]bool{}
	for _, p := range in.GetPauses() {
		if c.nodeOf(falcon.Rank(p.GetRank())) == n.Name && !seen[p.GetRank()] {
			seen[p.GetRank()] = true
			out.Pauses = append(out.Pauses, cleanPause(p))
		}
	}
	clear(seen)
	for _, t := range in.GetTests() {
		if c.nodeOf(falcon.Rank(t.GetRank())) == n.Name && !seen[t.GetRank()] {
			seen[t.GetRank()] = true
			out.Tests = append(out.Tests, cleanTest(t))
		}
	}
	return out
}

func cleanPause(p *falconv1.RankPause) *falconv1.RankPause {
	p.Reason, p.RunAhead = clean(p.GetReason()), min(max(p.GetRunAhead(), 0), countMost)
	p.HeldMs, p.QuietMs, p.IterationMs = finite(p.GetHeldMs(), heldMost),
		finite(p.GetQuietMs(), heldMost),
		finite(p.GetIterationMs(), msMost)
	if why := impossible(p); why != "" {
		p.State = falconv1.PauseState_PAUSE_STATE_REFUSED
		p.Reason = why
		p.ReasonCode = falconv1.PauseReason_PAUSE_REASON_UNSPECIFIED
		p.Counts = nil
	}
	return p
}

// impossible says what no process can have counted.
func impossible(p *falconv1.RankPause) string {
	if p.GetNewest() < -1 ||
		p.GetNewest() >= iterationMost ||
		p.GetBoundary() < -1 ||
		p.GetNewest()-p.GetBoundary() > countMost {
		return "its agent names iterations that can't be"
	}
	if len(p.GetCounts()) > commsMost {
		return "its agent counts more communicators than a process can have"
	}
	for _, c := range p.GetCounts() {
		if !plausibleCount(c) {
			return "its agent counts calls that can't be"
		}
	}
	return ""
}

func plausibleCount(c *falconv1.CommCount) bool {
	ok := c.GetCalls() < callsMost &&
		c.GetCollectives() <= c.GetCalls() &&
		c.GetPerIteration() <= perIterMost &&
		c.GetCollectivesPerIteration() <= c.GetPerIteration() &&
		len(c.GetPeers()) <= peersMost
	return ok && !slices.ContainsFunc(c.GetPeers(), func(p *falconv1.PeerCount) bool {
		return p.GetSends() >= callsMost ||
			p.GetRecvs() >= callsMost ||
			p.GetSendsPerIteration() > perIterMost ||
			p.GetRecvsPerIteration() > perIterMost
	})
}

func cleanTest(t *falconv1.TestResult) *falconv1.TestResult {
	t.Reason, t.Bytes, t.Repeats = clean(t.GetReason()), max(t.GetBytes(), 0), max(t.GetRepeats(), 0)
	t.MedianMs, t.BestMs, t.SetupMs = finite(t.GetMedianMs(), msMost),
		finite(t.GetBestMs(), msMost),
		finite(t.GetSetupMs(), msMost)
	if len(t.GetForwardId()) != uniqueID || len(t.GetBackwardId()) != uniqueID {
		t.ForwardId, t.BackwardId = nil, nil
	}
	return t
}

// recurrenceViews lists who was named again and again, most often first.
func (sv *stateViews) recurrenceViews() []*falconv1.Recurrence {
	var out []*falconv1.Recurrence
	for i, r := range sv.det.Recurring() {
		if i == recurringMax {
			break
		}
		v := &falconv1.Recurrence{
			Device:      string(r.Device),
			Times:       int32(r.Times),
			Jobs:        int32(r.Jobs),
			FirstUnixNs: r.First.UnixNano(),
			LastUnixNs:  r.Last.UnixNano(),
		}
		if r.Device == "" {
			v.Link = r.Link.String()
		}
		out = append(out, v)
	}
	return out
}

// nowMost bounds the pairs and ranks that a console is sent.
const nowMost = 256

func protoNow(n validate.Now) *falconv1.ValidationNow {
	out := &falconv1.ValidationNow{
		Step:  n.Step,
		Pass:  int32(n.Pass),
		Again: n.Again,
		Ranks: convert.Ranks(n.Awaited[:min(nowMost, len(n.Awaited))]),
	}
	for _, p := range n.Pairs[:min(nowMost, len(n.Pairs))] {
		out.Pairs = append(out.Pairs, &falconv1.RankPair{
			A: int32(p[0]),
			B: int32(p[1]),
		})
	}
	if !n.Held.IsZero() {
		out.HeldUnixNs = n.Held.UnixNano()
	}
	if !n.Ends.IsZero() {
		out.DeadlineUnixNs = n.Ends.UnixNano()
	}
	return out
}
