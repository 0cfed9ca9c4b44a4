package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/replica"
)

// fenceWait is within what time the agents of an engine that has just started
// describe the job's processes.
const fenceWait = time.Minute

// nodeFencer has a recovery replace the node that an approved action gives up (S4
// fence). What has been demanded is what a recovery names, so an engine that
// starts at any moment in between demands it once.
type nodeFencer struct {
	*shared

	waiting *mitigate.Fence // until the processes are known
	since   time.Time
}

// demand begins the recovery, once the action is durable.
func (nf *nodeFencer) demand(now time.Time, f mitigate.Fence) {
	nf.waiting = &f
	nf.since = now
	nf.follow(now)
}

// begin begins the recovery of the demand that waits.
func (nf *nodeFencer) begin(now time.Time) {
	f := *nf.waiting
	_, known := nf.rec.ForAction(f.Action)
	if !known && !nf.job.complete() && now.Sub(nf.since) < fenceWait {
		return
	} else if nf.waiting = nil; known {
		return
	}
	d := recovery.Demand{
		Node:   f.Node,
		Rank:   -1,
		By:     f.By,
		From:   f.From,
		Action: f.Action,
		Spare:  f.Spare,
		Reason: fmt.Sprintf("%s: %s", f.Incident, cmp.Or(f.Reason, noReason)),
	}
	err := nf.rec.CheckDemand(d)
	if f.JobEpoch != nf.state.job.Epoch {
		err = fmt.Errorf("it was planned for job epoch %d, and this is epoch %d",
			f.JobEpoch, nf.state.job.Epoch)
	}
	if err != nil {
		nf.plan.Step(now, mitigate.Fenced{
			Action: f.Action,
			Failed: clean(err.Error()),
		})
		return
	}
	nf.rec.Step(now, d)
}

// follow begins what is demanded, and reports to the planner how the recovery of the
// action under way has ended.
func (nf *nodeFencer) follow(now time.Time) {
	if nf.waiting != nil {
		nf.begin(now)
	}
	i := slices.IndexFunc(nf.state.actions, func(a falcon.Action) bool {
		return a.State == falcon.ActionDispatched && a.Phase == falcon.PhaseFencing
	})
	if i < 0 {
		return
	}
	a := nf.state.actions[i]
	v, known := nf.rec.ForAction(a.ID)
	resumed := v.State == falcon.RecoveryResumed
	// its job epoch is to come
	if !known || !v.State.Over() || resumed && nf.state.job.Epoch <= v.JobEpoch {
		return
	}
	out := mitigate.Fenced{
		Action:     a.ID,
		Recovery:   v.ID,
		Resume:     v.Resume,
		Generation: v.Generation,
		Placement:  slices.Clone(nf.state.job.Placement),
	}
	if !resumed {
		out.Failed = fmt.Sprintf("%s is %s: %s", v.ID, v.State, v.Reason)
	}
	nf.plan.Step(now, out)
}

// onlyCopies are the nodes with state of which no other node holds a replica.
func onlyCopies(job recovery.Job) []falcon.Node {
	q := replica.Query{
		Layout:    job.Layout,
		ZeRO:      job.ZeRO,
		Placement: job.Placement,
	}
	if len(job.Placement) != job.Layout.World() || q.Check() != nil {
		return nil
	}
	lone := map[falcon.Node]bool{}
	for _, shard := range q.Shards() {
		n := job.Placement[shard[0]].Node()
		if !slices.ContainsFunc(shard, func(r falcon.Rank) bool {
			return job.Placement[r].Node() != n
		}) {
			lone[n] = true
		}
	}
	return sortedKeys(lone)
}
