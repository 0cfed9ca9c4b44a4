package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

var (
	errNoLaunch   = errors.New("the nodes can't start processes: give their agents a launch command")
	errNoSpare    = errors.New("no spare node is connected")
	errNoCulprit  = errors.New("the culprit's node is not known")
	errOneDropped = errors.New("there is one replica only: nothing could be dropped")
)

// nodeSwap is S4 worked out: the devices by rank of the next generation.
type nodeSwap struct {
	to  falcon.Placement
	out []falcon.Node // nodes that are left
	in  []falcon.Node // spares that take their places

	unfit []string // why other spares don't, one clause each
}

// planS4 prices one variant of checkpoint and restart (FALCON §5.1, S4), or returns why not.
func (pm *planMaker) planS4(s *incidentState, v falcon.Variant) (plan, error) {
	out := plan{rung: falcon.RungS4, variant: v}
	if err := pm.s4Applies(s); err != nil {
		return out, err
	}
	if v == falcon.VariantFence {
		if err := pm.fenceApplies(s); err != nil {
			return out, err
		}
	}
	w := pm.swapNodes(v)
	if w.err != nil {
		return out, w.err
	}
	out.placement = w.swap.to
	out.beforeMs = pm.iterations.presentMs(s)
	out.predictedMs = pm.incidents.healthyMs(s)
	rescaled := 1.0
	switch dp := float64(pm.job.desc.Layout.DP); v {
	case falcon.VariantDrop:
		rescaled = dp / (dp - 1) // as many samples take so many more iterations
		out.what = fmt.Sprintf(
			"gives the replica on %s up: checkpoint, restart with %d of %d replicas, a smaller batch",
			nodeNames(w.swap.out), pm.job.desc.Layout.DP-1, pm.job.desc.Layout.DP,
		)
	case falcon.VariantFence:
		out.what, out.downMs = fenceText(pm.job.desc.Placement, w.swap.to), pm.job.desc.RecoveryMs
	default:
		out.what = fmt.Sprintf("checkpoint, restart with %s in place of %s",
			nodeNames(w.swap.in), nodeNames(w.swap.out))
	}
	if len(w.swap.unfit) > 0 {
		out.what += " (" + strings.Join(w.swap.unfit, ", ") + ")"
	}
	out.gainMs = out.beforeMs - out.predictedMs*rescaled
	return pm.requireGain(out, "restart")
}

// swapNodes is which nodes give way to which spares.
func (pm *planMaker) swapNodes(v falcon.Variant) solution {
	return pm.cache.solveOnce("S4 "+string(v), func() solution {
		swap, err := pm.nextNodes(v)
		return solution{swap: swap, err: err}
	})
}

func nodeNames(nodes []falcon.Node) string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

func (pm *planMaker) s4Applies(s *incidentState) error {
	if err := causeHelped(s, falcon.RungS4); err != nil {
		return err
	}
	switch {
	case len(pm.job.desc.Placement) != pm.job.desc.Layout.World() ||
		pm.job.desc.Layout.World() == 0:
		return errNoPlacement
	case !pm.job.desc.Can.Checkpoint && !pm.job.desc.Can.Park:
		return pm.job.withoutLeave(errCantCheckpoint)
	case !pm.job.desc.CanLaunch:
		return errNoLaunch
	}
	return nil
}

// nextNodes picks the devices of the next generation: without the culprits of
// every located incident that a restart can help.
func (pm *planMaker) nextNodes(v falcon.Variant) (nodeSwap, error) {
	bad := pm.badNodes()
	if len(bad) == 0 {
		return nodeSwap{}, errNoCulprit
	}
	one := v == falcon.VariantReplace || v == falcon.VariantFence
	switch {
	case v != falcon.VariantFence && !pm.job.desc.Can.Checkpoint:
		return nodeSwap{}, errCantCheckpoint
	case v == falcon.VariantDrop:
		return pm.dropReplica(bad)
	case one && len(bad) > 1:
		return nodeSwap{}, fmt.Errorf("%d nodes are slow (%s): replacing one is not enough",
			len(bad), nodeNames(bad))
	}
	if v == falcon.VariantFence {
		if err := pm.fenceable(bad); err != nil {
			return nodeSwap{}, err
		}
	}
	spares, unfit := pm.fitSpares()
	if err := noSpare(spares, bad, unfit); err != nil {
		return nodeSwap{}, err
	}
	out := nodeSwap{
		to:    slices.Clone(pm.job.desc.Placement),
		out:   bad,
		in:    spares[:len(bad)],
		unfit: unfit,
	}
	for r, d := range out.to {
		if i := slices.Index(bad, d.Node()); i >= 0 {
			out.to[r] = falcon.NewDevice(spares[i], d.Index())
		}
	}
	return out, nil
}

// badNodes are the nodes whose absence removes every known culprit: those of slow devices, and of
// every slow link the end that touches most of them.
func (pm *planMaker) badNodes() []falcon.Node {
	used := pm.job.desc.Placement.Nodes()
	var bad []falcon.Node
	var links []falcon.Link
	for _, s := range pm.incidents.list {
		if causeHelped(s, falcon.RungS4) != nil {
			continue
		}
		for _, d := range s.incident.Verdict.Devices {
			if n := d.Node(); slices.Contains(used, n) && !slices.Contains(bad, n) {
				bad = append(bad, n)
			}
		}
		for _, l := range s.incident.Verdict.Links {
			if slices.Contains(used, l.A) && slices.Contains(used, l.B) {
				links = append(links, l)
			}
		}
	}
	for {
		links = slices.DeleteFunc(links, func(l falcon.Link) bool {
			return slices.Contains(bad, l.A) || slices.Contains(bad, l.B)
		})
		if len(links) == 0 {
			break
		}
		bad = append(bad, mostLinked(links))
	}
	slices.Sort(bad)
	return bad
}

// mostLinked is the node with most links; of several the last by name, so that
// the first nodes, which often hold more than ranks, stay.
func mostLinked(links []falcon.Link) falcon.Node {
	count := map[falcon.Node]int{}
	for _, l := range links {
		count[l.A]++
		count[l.B]++
	}
	var best falcon.Node
	for n, k := range count {
		if c := cmp.Compare(k, count[best]); c > 0 || (c == 0 && n > best) {
			best = n
		}
	}
	return best
}

// dropReplica gives the one replica up that runs on the bad nodes; the others
// keep their devices, and their ranks move up.
func (pm *planMaker) dropReplica(bad []falcon.Node) (nodeSwap, error) {
	l := pm.job.desc.Layout
	if pm.job.desc.Unknown != "" {
		return nodeSwap{}, fmt.Errorf("%w: %s", errNoLayout, pm.job.desc.Unknown)
	}
	if l.DP < 2 {
		return nodeSwap{}, errOneDropped
	}
	gone := -1
	for r, d := range pm.job.desc.Placement {
		if !pm.incidents.mustLeave(d, bad) {
			continue
		}
		if at := l.Replica(falcon.Rank(r)); gone < 0 {
			gone = at
		} else if gone != at {
			return nodeSwap{}, fmt.Errorf(
				"replicas %d and %d both run on slow parts (%s): one can be dropped",
				min(gone, at), max(gone, at), nodeNames(bad),
			)
		}
	}
	if gone < 0 {
		return nodeSwap{}, errNoCulprit
	}
	out := nodeSwap{out: bad}
	for r, d := range pm.job.desc.Placement {
		if l.Replica(falcon.Rank(r)) != gone {
			out.to = append(out.to, d)
		}
	}
	return out, nil
}
