package mitigate

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/failslow/falcon"
)

// onJob takes the job's newest description.
func (p *Planner) onJob(in Job) {
	was := p.job.desc
	p.exec.reserve(in.Generation)
	if in.Epoch != was.Epoch {
		p.newEpoch(was, in)
		return
	}
	if p.orders.hasPending() { // the commit will say what split and places are
		in.MicroBatches = was.MicroBatches
		if len(was.Placement) > 0 {
			in.Placement = was.Placement
		}
	}
	if !was.sameForPlans(in) {
		p.cache.invalidate()
	}
	p.job.replace(in)
	if p.job.base == nil || totalOf(in.MicroBatches) != totalOf(p.job.base) {
		p.job.setBase(in.MicroBatches)
		p.ledger.keepIterations(0) // times of another batch don't compare
		p.overtaken(
			fmt.Sprintf("the job changed its batch to %d micro-batches by itself", totalOf(in.MicroBatches)),
			falcon.RungS2,
		)
	}
	if in.Unknown != "" && was.Unknown == "" {
		p.expirePlanned("which ranks are replicas is not known any more: " + in.Unknown)
	}
	if len(was.Placement) > 0 && !slices.Equal(was.Placement, in.Placement) {
		p.overtaken("the job changed its places by itself", falcon.RungS3)
	}
}

// sameForPlans reports whether plans made for one description hold for the other.
func (j Job) sameForPlans(o Job) bool {
	return j.Layout == o.Layout &&
		j.Unknown == o.Unknown &&
		slices.Equal(j.MicroBatches, o.MicroBatches) &&
		slices.Equal(j.Placement, o.Placement) &&
		slices.Equal(j.Spares, o.Spares) &&
		slices.Equal(j.Barred, o.Barred) &&
		j.Parks == o.Parks &&
		slices.Equal(j.OnlyCopies, o.OnlyCopies) &&
		j.RecoveryMs == o.RecoveryMs &&
		j.CanLaunch == o.CanLaunch &&
		j.Can == o.Can &&
		slices.Equal(j.MicroMin, o.MicroMin) &&
		slices.Equal(j.MicroMax, o.MicroMax) &&
		slices.Equal(j.MicroMultiple, o.MicroMultiple) &&
		slices.Equal(j.StateMB, o.StateMB) &&
		j.CopyMBs == o.CopyMBs
}

// newEpoch ends what belonged to the old processes: plans not yet taken, and what was in force
// unless the job came back with it.
func (p *Planner) newEpoch(was, now Job) {
	p.job.replace(now)
	p.job.setBase(now.MicroBatches)
	p.limits.reset()
	p.profile.reset()
	p.ledger.keepIterations(0)
	p.cache.invalidate()
	if was.Epoch == 0 {
		return
	}
	for _, s := range p.incidents.list {
		if s.charged {
			p.ledger.moveToEpoch(s)
		}
		s.measured = false
	}
	restart := p.incidents.restartUnderWay()
	if restart != nil && restart.Phase == falcon.PhaseLeaving {
		p.exec.replaceRestart(restart, "the job was started again from outside")
		restart = nil
	}
	for _, s := range p.incidents.list {
		for i := range s.actions {
			p.out.expireAction(
				&s.actions[i],
				"the job was restarted, it was planned for epoch "+strconv.FormatUint(was.Epoch, 10),
			)
		}
	}
	why := "the job was restarted with places and a split of its own"
	if restart != nil {
		why = "the job was restarted for " + restart.ID
	}
	samePlaces := slices.Equal(was.Placement, now.Placement) || now.Recovered && restart == nil
	if restart != nil || !samePlaces {
		p.overtaken(why, falcon.RungS3)
	}
	if restart == nil && samePlaces && slices.Equal(was.MicroBatches, now.MicroBatches) {
		held := p.incidents.actionsInForce()
		if len(held) > 0 && len(held[0].action().Base) > 0 {
			p.job.setBase(held[0].action().Base)
		}
		return
	}
	p.overtaken(why, falcon.RungS2)
}

// expirePlanned ends every plan that is not carried out yet.
func (p *Planner) expirePlanned(why string) {
	for _, s := range p.incidents.list {
		for i := range s.actions {
			a := &s.actions[i]
			if a.State == falcon.ActionProposed || a.State == falcon.ActionApproved {
				p.out.expireAction(a, why)
			}
		}
	}
}

// overtaken ends every plan, and the actions in force up to a rung: the job
// did it. S3 ends with the splits that were solved for its places.
func (p *Planner) overtaken(why string, r falcon.Rung) {
	at := max(p.iterations.newestIndex(), 0)
	if restart := p.incidents.restartUnderWay(); restart != nil {
		at = restart.Resume
	}
	for _, s := range p.incidents.list {
		for i := range s.actions {
			a := &s.actions[i]
			switch {
			case a.State == falcon.ActionProposed || a.State == falcon.ActionApproved:
				p.out.expireAction(a, why)
			case a.State == falcon.ActionDispatched: // its order's outcome is still to come
			case a.Rung != falcon.RungS4 &&
				isInForce(a) &&
				a.Rung.Level() <= r.Level():
				p.orders.dropOrder(s, i)
				a.State = falcon.ActionReverted
				a.RevertKind = falcon.RevertJob
				a.RevertReason = why
				a.RevertedIteration = at
				a.Phase = ""
				p.out.addActed(Acted{
					Incident:     a.Incident,
					Rung:         a.Rung,
					Iteration:    a.RevertedIteration,
					Reverted:     true,
					MicroBatches: slices.Clone(p.job.desc.MicroBatches),
				})
				p.out.addNote(a.ID, "action", "%s is undone: %s", a.ID, why)
				p.out.addAction(*a)
			}
		}
	}
}

// onRestored takes back the journal's actions. The engine sends their orders and launches again
// under the old id; the planner waits for them.
func (p *Planner) onRestored(in Restored) {
	p.orders.reserve(in.NextOrder)
	for r, ms := range in.OverheadsMs {
		p.overheads.restore(r, ms)
	}
	for _, a := range in.Actions {
		a.RevertKind = revertKindOf(&a)
		s := p.incidents.getOrAdd(a.Incident)
		s.actions = append(s.actions, a)
		p.exec.reserve(a.Generation)
		if wasOrdered(&a) {
			p.limits.recordOrdered(&a, a.ProposedIteration)
		}
		if a.State == falcon.ActionVetoed || wasUndone(&a) {
			s.vetoed[a.Rung] = true
		}
		if a.State == falcon.ActionDispatched && a.Phase == falcon.PhaseFencing {
			p.out.addFence(fenceOf(&a))
		}
		waits := a.Rung != falcon.RungS4 || a.Phase == falcon.PhaseCheckpoint
		if waits && (a.State == falcon.ActionDispatched || a.State == falcon.ActionReverting) {
			p.orders.resumeOrder(s, len(s.actions)-1)
		}
	}
	for _, h := range p.incidents.actionsInForce() {
		if a := h.action(); len(a.Base) > 0 || len(a.Previous) > 0 {
			p.job.setBase(a.Base)
			if len(a.Base) == 0 {
				p.job.setBase(a.Previous)
			}
			break
		}
	}
	for _, v := range in.Impacts {
		p.ledger.restoreAccount(v)
	}
}

func totalOf(m []int32) int64 {
	var t int64
	for _, v := range m {
		t += int64(v)
	}
	return t
}

// jobState is the job as it runs now.
type jobState struct {
	desc Job
	base []int32 // micro-batches before any action of this epoch
}

// coversAllRanks reports whether every rank's speed was measured.
func (j *jobState) coversAllRanks(speeds []float64) bool {
	bad := func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) }
	return len(speeds) == j.desc.Layout.World() && !slices.ContainsFunc(speeds, bad)
}

func (j *jobState) describe(a *falcon.Action) string {
	if a.Rung == falcon.RungS3 {
		return fmt.Sprintf("nodes %s, micro-batches %v",
			nodeNames(j.desc.Placement.Nodes()), j.desc.MicroBatches)
	}
	return fmt.Sprintf("micro-batches %v", j.desc.MicroBatches)
}

func (j *jobState) isCurrent(a *falcon.Action) bool {
	return a.JobEpoch == 0 || a.JobEpoch == j.desc.Epoch
}

// splittable is why work can't be moved between replicas, whatever their speed.
func (j *jobState) splittable() error {
	switch l := j.desc.Layout; {
	case j.desc.Unknown != "":
		return fmt.Errorf("%w: %s", errNoLayout, j.desc.Unknown)
	case l.DP < 2 && l.Mesh != (falcon.Mesh{}):
		return fmt.Errorf("%w: all ranks of %s communicate inside every micro-batch", errOneReplica, l)
	case l.DP < 2:
		return errOneReplica
	case len(j.desc.MicroBatches) != j.desc.Layout.DP || slices.Min(j.desc.MicroBatches) < 1:
		return errNoCounts
	case totalOf(j.desc.MicroBatches) > totalMost:
		return errTooMany
	}
	return nil
}

// baseSplitMs is replica i's time with the base split, 0 when it was not priced.
func (j *jobState) baseSplitMs(curve []float64, i int) float64 {
	if i >= len(j.base) || int(j.base[i]) >= len(curve) {
		return 0
	}
	return curve[j.base[i]]
}

func (j *jobState) replace(desc Job) {
	j.desc = desc
}

func (j *jobState) setBase(counts []int32) {
	j.base = slices.Clone(counts)
}

func (j *jobState) setPlacement(p falcon.Placement) {
	j.desc.Placement = p
}

func (j *jobState) setSplit(counts []int32) {
	j.desc.MicroBatches = slices.Clone(counts)
}
