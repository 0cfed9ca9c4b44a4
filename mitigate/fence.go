package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// A fence is the cheap way to take S4: the node of a culprit is given up, and a
// recovery moves its ranks to a spare, with their state from replicas. There is no
// checkpoint, and all other processes stay.

// costFence names what a fence costs among the overheads: it is measured apart
// from the restarts of the whole job.
const costFence falcon.Rung = "S4 fence"

// DefaultOverheadFenceMs is what a fence is taken to cost before any recovery was
// measured: FlashRecovery §IV, at most 150 s on 4,800 devices.
const DefaultOverheadFenceMs = 150_000

var (
	errCantPark = errors.New(
		"the job's processes can't wait for a recovery (falcon_job_park): only a restart of the whole job is possible",
	)
	errLinkNamed = errors.New(
		"a link is named, and which of its ends is at fault is not known: a fence needs a named GPU or node",
	)
	errOldEvidence = errors.New(
		"the ranks were not measured since the job's processes changed: what was slow then may be healthy now, and nothing is fenced on that",
	)
	errUnmeasured = errors.New(
		"a fence has waited for a complete measurement of the ranks, and none has come since: are all agents connected?",
	)
	errNoEvidence = errors.New(
		"no timing, test or counter in the verdict supports it: nothing is fenced on that",
	)
)

// costName is the name of an action's cost among the overheads.
func costName(r falcon.Rung, v falcon.Variant) falcon.Rung {
	if r == falcon.RungS4 && v == falcon.VariantFence {
		return costFence
	}
	return r
}

// sameWay reports whether an action is of a rung, and for S4 carried out the same
// way: a recovery that failed says nothing of a restart, and the reverse.
func sameWay(a *falcon.Action, r falcon.Rung, v falcon.Variant) bool {
	return a.Rung == r && costName(a.Rung, a.Variant) == costName(r, v)
}

// wasOrdered reports whether an action was carried out, or tried.
func wasOrdered(a *falcon.Action) bool {
	return a.OrderID != 0 || a.StoppedUnixNs != 0
}

// fenceApplies is why no node can be replaced in a recovery for an incident.
func (pm *planMaker) fenceApplies(s *incidentState) error {
	switch v := s.incident.Verdict; {
	case !pm.job.desc.Parks:
		return errCantPark
	case len(v.Links) > 0:
		return errLinkNamed
	case !hasProof(v):
		return errNoEvidence
	case !s.measured:
		return errOldEvidence
	case s.unmeasured:
		return errUnmeasured
	}
	return nil
}

// hasProof reports whether something measured supports a verdict.
func hasProof(v falcon.Verdict) bool {
	return slices.ContainsFunc(v.Evidence, func(e falcon.Evidence) bool {
		return !e.Against &&
			(e.Kind == falcon.EvidenceTiming ||
				e.Kind == falcon.EvidenceTest ||
				e.Kind == falcon.EvidenceCounter)
	})
}

// fenceable is why the bad nodes can't be replaced in a recovery.
func (pm *planMaker) fenceable(bad []falcon.Node) error {
	for _, s := range pm.incidents.list {
		if causeHelped(s, falcon.RungS4) == nil && len(s.incident.Verdict.Links) > 0 {
			return errLinkNamed // one end of its link would be given up with the node
		}
	}
	for _, n := range bad {
		if slices.Contains(pm.job.desc.OnlyCopies, n) {
			return fmt.Errorf(
				"%s holds state of which there is no replica on another node: only a checkpoint keeps it",
				n,
			)
		}
		if !pm.slowNow(n) {
			return fmt.Errorf("by the newest measurement %s is not slow: a fence waits for one that shows it",
				n)
		}
	}
	return nil
}

// slowNow reports whether the newest measurement shows a rank on the node as slow: one is slower
// than its stage's ranks elsewhere by half of the job's slowdown, or by what counts as slow. Without
// ranks to compare it with, the verdict stands.
func (pm *planMaker) slowNow(n falcon.Node) bool {
	g := pm.profile.newest
	if g == nil || len(g.speeds) != len(g.placement) {
		return false
	}
	stage := func(r int) int {
		return pm.job.desc.Layout.Coord(falcon.Rank(r)).PP
	}
	peers := map[int][]float64{}
	for r, ms := range g.speeds {
		if g.placement[r].Node() != n {
			peers[stage(r)] = append(peers[stage(r)], ms)
		}
	}
	least := pm.leastSlow(n)
	for r, ms := range g.speeds {
		if g.placement[r].Node() == n &&
			(len(peers[stage(r)]) == 0 || ms >= least*falcon.Median(slices.Clone(peers[stage(r)]))) {
			return true
		}
	}
	return false
}

// leastSlow is the ratio from which on a rank of the node counts as slow for the incidents that
// name it.
func (pm *planMaker) leastSlow(n falcon.Node) float64 {
	least := healthyBelow
	for _, s := range pm.incidents.list {
		names := slices.ContainsFunc(s.incident.Verdict.Devices, func(d falcon.Device) bool {
			return d.Node() == n
		})
		if s.isLocated() && names && s.incident.HealthyMs > 0 {
			least = min(least, 1+max(0.01, s.incident.SlowMs/s.incident.HealthyMs-1)/2)
		}
	}
	return least
}

// fitSpares are the spares that no incident was about, in the order of their names, and the reason
// against each of the others.
func (pm *planMaker) fitSpares() (fit []falcon.Node, unfit []string) {
	culprits := pm.incidents.pastCulprits()
	for _, n := range slices.Sorted(slices.Values(pm.job.desc.Spares)) {
		if id := culprits[n]; id != "" {
			unfit = append(unfit, fmt.Sprintf("%s was the culprit of %s", n, id))
			continue
		}
		fit = append(fit, n)
	}
	return fit, append(unfit, pm.job.desc.Barred...)
}

// noSpare is why there are too few spares for the bad nodes; nil = there are enough.
func noSpare(fit, bad []falcon.Node, unfit []string) error {
	why := ""
	if len(unfit) > 0 {
		why = ": " + strings.Join(unfit, ", ")
	}
	switch {
	case len(fit) >= len(bad):
		return nil
	case len(fit) == 0 && why != "":
		return errors.New("no spare is fit" + why)
	case len(fit) == 0:
		return errNoSpare
	}
	return fmt.Errorf("%d nodes are slow (%s) and %d spare is connected%s",
		len(bad), nodeNames(bad), len(fit), why)
}

// pastCulprits are the nodes that incidents have named, or that an action has left,
// each with the newest such incident.
func (n *incidentSet) pastCulprits() map[falcon.Node]string {
	out := map[falcon.Node]string{}
	for _, s := range n.list {
		for _, d := range s.incident.Verdict.Devices {
			out[d.Node()] = s.incident.ID
		}
		for i := range s.actions {
			if a := &s.actions[i]; a.Rung == falcon.RungS4 && isInForce(a) {
				for _, left := range nodesLeft(a) {
					out[left] = s.incident.ID
				}
			}
		}
	}
	return out
}

// nodesLeft are the nodes that an action of S4 takes ranks off.
func nodesLeft(a *falcon.Action) []falcon.Node {
	return missingFrom(a.Home, a.Placement)
}

// missingFrom are the nodes of one placement that another does not use, ascending.
func missingFrom(of, other falcon.Placement) []falcon.Node {
	out := map[falcon.Node]bool{}
	for _, n := range of.Nodes() {
		out[n] = true
	}
	for _, n := range other.Nodes() {
		delete(out, n)
	}
	return slices.Sorted(maps.Keys(out))
}

func ranksOn(p falcon.Placement, nodes []falcon.Node) []falcon.Rank {
	var out []falcon.Rank
	for r, d := range p {
		if slices.Contains(nodes, d.Node()) {
			out = append(out, falcon.Rank(r))
		}
	}
	return out
}

func rankNumbers(ranks []falcon.Rank) string {
	out := make([]string, len(ranks))
	for i, r := range ranks {
		out[i] = strconv.Itoa(int(r))
	}
	return strings.Join(out, ", ")
}

// fenceText says what a fence does.
func fenceText(home, to falcon.Placement) string {
	out := missingFrom(home, to)
	return fmt.Sprintf(
		"fences %s, and %s takes its ranks %s over with the state of their replicas; all other processes stay",
		nodeNames(out), nodeNames(missingFrom(to, home)), rankNumbers(ranksOn(home, out)),
	)
}

// staleFence is why a fence can't be carried out as it was proposed; "" = it can.
// A spare may be gone since, or the verdict may name another node. An engine that has just
// started judges it by what is measured next.
func (pm *planMaker) staleFence(s *incidentState, a *falcon.Action) string {
	started := !s.measured && a.JobEpoch == pm.job.desc.Epoch
	if a.Variant != falcon.VariantFence || s.incident.State == "" || started {
		return ""
	}
	if err := cmp.Or(pm.s4Applies(s), pm.fenceApplies(s)); err != nil {
		return err.Error()
	}
	w := pm.swapNodes(falcon.VariantFence)
	switch {
	case w.err != nil:
		return w.err.Error()
	case !slices.Equal(w.swap.to, a.Placement):
		return "it is now another plan: " + fenceText(pm.job.desc.Placement, w.swap.to)
	}
	return ""
}

// demandFence has a recovery replace the node.
func (e *executor) demandFence(a *falcon.Action) {
	a.Phase, a.StoppedUnixNs = falcon.PhaseFencing, e.clock.now.UnixNano()
	if last := e.iterations.lastTrained(); !last.IsZero() {
		a.StoppedUnixNs = last.UnixNano()
	}
	e.out.addFence(fenceOf(a))
	e.out.addNote(a.ID, "action", "%s: %s is given up for %s",
		a.ID, nodeNames(nodesLeft(a)), nodeNames(missingFrom(a.Placement, a.Home)))
	e.out.addAction(*a)
}

// fenceOf is what an action asks a recovery for.
func fenceOf(a *falcon.Action) Fence {
	f := Fence{
		Action:   a.ID,
		Incident: a.Incident,
		JobEpoch: a.JobEpoch,
		By:       cmp.Or(approverNames(a.Approvals), a.DecidedBy),
		From:     a.DecidedFrom,
		Reason:   a.Reason,
	}
	if left := nodesLeft(a); len(left) > 0 {
		f.Node = left[0]
	}
	if in := missingFrom(a.Placement, a.Home); len(in) > 0 {
		f.Spare = in[0]
	}
	return f
}

// onFenced ends a fence.
func (e *executor) onFenced(in Fenced) {
	s, a := e.incidents.findAction(func(a *falcon.Action) bool {
		return a.ID == in.Action
	})
	if a == nil || a.State != falcon.ActionDispatched || a.Phase != falcon.PhaseFencing {
		return
	}
	a.Phase = ""
	a.Recovery = in.Recovery
	a.Resume = in.Resume
	if in.Failed != "" {
		a.State, a.Reason, s.failedAt = falcon.ActionFailed, in.Failed, e.iterations.newestIndex()
		e.out.addNote(a.ID, "action", "%s failed: %s", a.ID, in.Failed)
		e.out.addAction(*a)
		return
	}
	a.Placement = slices.Clone(in.Placement) // another spare, where the planned one was lost meanwhile
	a.State = falcon.ActionApplied
	a.AppliedIteration = in.Resume
	a.Generation = in.Generation
	if ms := float64(e.clock.now.UnixNano()-a.StoppedUnixNs) / 1e6; ms > 0 {
		a.OverheadMs = ms
	}
	e.ledger.resetClocks(falcon.RungS4)
	e.out.addActed(Acted{
		Incident:     a.Incident,
		Rung:         falcon.RungS4,
		Iteration:    a.AppliedIteration,
		MicroBatches: slices.Clone(e.job.desc.MicroBatches),
		Placement:    slices.Clone(a.Placement),
	})
	e.out.addNote(a.ID, "action",
		"%s in force from iteration %d, %.1f s without training: %s in place of %s by %s",
		a.ID, a.AppliedIteration, a.OverheadMs/1e3,
		nodeNames(missingFrom(a.Placement, a.Home)), nodeNames(nodesLeft(a)), a.Recovery)
	e.out.addAction(*a)
}
