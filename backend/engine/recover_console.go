package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/replica"
)

// Verbs of Recover that ask for something by hand.
const (
	verbFence = "fence" // a node is to be replaced although no fault was seen
	verbRenew = "renew" // a rank is to be replaced
	verbLift  = "lift"  // a fenced node is sound again
)

// Recoveries lists recoveries, newest first: all, or the one named; with the
// map of what would be lost if a part of the cluster went now.
func (e *Engine) Recoveries(ctx context.Context, id string, withMap bool) (*falconv1.RecoveriesReply, error) {
	out := &falconv1.RecoveriesReply{}
	err := e.readInLoop(ctx, func() {
		for i := len(e.state.recoveries) - 1; i >= 0; i-- {
			if v := e.state.recoveries[i]; id == "" || v.ID == id {
				out.Recoveries = append(out.Recoveries, e.views.recoveryView(
					v,
					i == len(e.state.recoveries)-1,
				))
			}
		}
		if withMap {
			out.Exposures, out.Note = e.demands.exposures()
		}
	})
	if err == nil && id != "" && len(out.Recoveries) == 0 {
		return nil, noRecovery(id)
	}
	return out, err
}

// newestRecovery is what consoles show: in progress, else the last.
func (sv *stateViews) newestRecovery() *falconv1.Recovery {
	n := len(sv.state.recoveries)
	if n == 0 {
		return nil
	}
	return sv.recoveryView(sv.state.recoveries[n-1], true)
}

// recoveryView is a recovery for consoles; only of the newest it says what
// its processes do.
func (sv *stateViews) recoveryView(v falcon.Recovery, newest bool) *falconv1.Recovery {
	out := convert.RecoveryToProto(v)
	out.LostGpuHours = sv.lostGPUHours(v)
	if !newest || v.State.Over() {
		return out
	}
	for r := range sv.state.job.Layout.World() {
		out.Ranks = append(out.Ranks, sv.rankRecovery(v, falcon.Rank(r)))
	}
	return out
}

// lostGPUHours is what all ranks have lost from the first sign of a recovery's fault to its end.
func (sv *stateViews) lostGPUHours(v falcon.Recovery) float64 {
	end := v.EndedNs
	if end == 0 {
		end = sv.cfg.Now().UnixNano()
	}
	return float64(len(v.Replaced)+len(v.Survivors)) * time.Duration(max(0, end-v.StartedNs)).Hours()
}

func (sv *stateViews) rankRecovery(v falcon.Recovery, r falcon.Rank) *falconv1.RankRecovery {
	out := &falconv1.RankRecovery{
		Rank:  int32(r),
		Stage: "gone",
		Tag:   falcon.NoIteration,
	}
	if d, ok := v.Replaced[r]; ok {
		out.Device = string(d)
	} else if int(r) < len(sv.state.job.Placement) {
		out.Device = string(sv.state.job.Placement[r])
	}
	p := sv.job.ranks[r]
	if p == nil {
		return out
	}
	out.Pid = p.state.GetPid()
	if park := p.state.GetPark(); park != nil {
		out.Tag = park.GetTag()
		out.Steps = slices.Clone(park.GetSteps())
	}
	out.Stage = sv.stage(v, r, p)
	return out
}

// stage is what a rank's process does, as one term.
func (sv *stateViews) stage(v falcon.Recovery, r falcon.Rank, p *process) string {
	made := v.Launched[r] != 0 && p.state.GetGeneration() == v.Launched[r]
	park := p.state.GetPark()
	switch s := sv.rejoinAcks[r]; {
	case sv.state.fences.processFenced(p.name):
		return "fenced"
	case !p.state.GetAlive():
		return "gone"
	case v.State == falcon.RecoveryRejoin && s.generation == v.Generation && s.status == 0:
		return "training"
	case v.State == falcon.RecoveryRejoin:
		return "restoring"
	case made && park == nil:
		return "starting"
	case made:
		return "joining"
	case park != nil && park.GetGeneration() >= v.Generation:
		return "parked"
	}
	return "running"
}

// Recover decides on a recovery, or asks for one by hand. It answers once that
// and what it led to are durable.
func (e *Engine) Recover(
	ctx context.Context,
	who Actor,
	q *falconv1.RecoverRequest,
) (*falconv1.Recovery, error) {
	var id string
	err := e.decideInLoop(ctx, func() (refused error) {
		_, known := e.state.recovery(q.GetRecovery())
		if !known && q.GetRecovery() != "" {
			return noRecovery(q.GetRecovery())
		}
		if refused = e.learner.refusal(); refused != nil {
			return refused
		}
		id, refused = e.demands.recover(who, q)
		return refused
	})
	if err != nil {
		return nil, err
	}
	var out *falconv1.Recovery
	err = e.readInLoop(ctx, func() {
		if v, ok := e.state.recovery(id); ok {
			out = e.views.recoveryView(v, id == e.state.recoveries[len(e.state.recoveries)-1].ID)
		}
	})
	return out, err
}

// recoveryDemands takes operators' decisions on recoveries, and what they ask
// for by hand: a rank replaced, a node fenced, a fence lifted.
type recoveryDemands struct {
	*shared

	status    *jobStatus
	describer *jobDescriber
}

func (rd *recoveryDemands) recover(who Actor, q *falconv1.RecoverRequest) (string, error) {
	now := rd.cfg.Now()
	switch verb := q.GetVerb(); verb {
	case string(recovery.Approve), string(recovery.Deny), string(recovery.Abort), string(recovery.Ended):
		return q.GetRecovery(), rd.decide(now, who, q)
	case verbFence, verbRenew, verbLift, verbBar, verbUnbar:
		return rd.demand(now, who, q)
	default:
		return "", fmt.Errorf(
			"%w: %q is no decision on a recovery; say approve, deny, abort, ended, fence, renew, lift, bar or unbar",
			ErrInvalid, clean(verb),
		)
	}
}

func (rd *recoveryDemands) decide(now time.Time, who Actor, q *falconv1.RecoverRequest) error {
	v, ok := rd.state.recovery(q.GetRecovery())
	if !ok {
		return noRecovery(q.GetRecovery())
	}
	if v.State.Over() {
		return fmt.Errorf("%w: %s is %s already (decided by %s)",
			ErrStale, v.ID, v.State, cmp.Or(v.DecidedBy, "nobody"))
	}
	d := recovery.Decision{
		Recovery: v.ID,
		PlanHash: q.GetPlanHash(),
		Verb:     recovery.Verb(q.GetVerb()),
		By:       who.Name,
		From:     who.From,
		Reason:   clean(q.GetReason()),
	}
	if d.PlanHash == "" {
		d.PlanHash = v.PlanHash
	}
	if d.Verb == recovery.Ended && d.Reason == "" {
		return fmt.Errorf(
			"%w: say how you know that nothing of the job runs there: it is kept with the decision",
			ErrInvalid,
		)
	}
	if err := rd.rec.Check(d); err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	rd.record(now, who, v.ID, d.PlanHash, q.GetVerb(), d.Reason)
	rd.rec.Step(now, d)
	return nil
}

func (rd *recoveryDemands) record(now time.Time, who Actor, id, hash, verb, reason string) {
	rd.batch.addRecords(record(now, kindDecision, DecisionRecord{
		Action:   id,
		PlanHash: hash,
		JobEpoch: rd.state.job.Epoch,
		Approve:  verb == string(recovery.Approve),
		Verb:     verb,
		Reason:   reason,
		By:       who.Name,
		Role:     who.Role,
		From:     who.From,
	}))
	rd.oplog.audit(now, who, auditEntry{
		Verb:     verb,
		About:    id,
		PlanHash: hash,
		Reason:   reason,
	})
}

// demand takes what a person asks for although no fault was seen.
func (rd *recoveryDemands) demand(now time.Time, who Actor, q *falconv1.RecoverRequest) (string, error) {
	node, reason := falcon.Node(q.GetNode()), clean(q.GetReason())
	if reason == "" {
		return "", fmt.Errorf("%w: say why: it is kept with the decision", ErrInvalid)
	}
	switch q.GetVerb() {
	case verbLift:
		return "", rd.liftFence(now, who, node, reason)
	case verbBar, verbUnbar:
		return "", rd.bar(now, who, q, reason)
	}
	if rd.state.job.Epoch == 0 {
		return "", fmt.Errorf("%w: no job is known; it is once the agents have found its ranks", ErrRefused)
	}
	if why := rd.status.restarting(now); why != "" {
		return "", fmt.Errorf("%w: the job is %s; ask again when it trains", ErrRefused, why)
	}
	d := recovery.Demand{
		Node:   node,
		Rank:   -1,
		By:     who.Name,
		From:   who.From,
		Reason: reason,
	}
	switch {
	case q.GetVerb() == verbRenew &&
		(q.GetRank() < 0 || int(q.GetRank()) >= rd.state.job.Layout.World()):
		return "", fmt.Errorf("%w: the job has no rank %d; its ranks are 0 to %d",
			ErrNotFound, q.GetRank(), rd.state.job.Layout.World()-1)
	case q.GetVerb() == verbRenew:
		d.Rank = falcon.Rank(q.GetRank())
		d.Node = rd.cluster.nodeOf(d.Rank)
	case !slices.Contains(rd.cluster.jobNodes(), node):
		return "", fmt.Errorf("%w: node %q holds no rank of the job; its nodes are %s",
			ErrNotFound, clean(string(node)), falcon.NodesText(rd.cluster.jobNodes()))
	}
	if err := rd.rec.CheckDemand(d); err != nil {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	rd.rec.Step(now, d)
	return rd.demanded(now, who, q.GetVerb(), reason)
}

// demanded finds the recovery that a demand has led to.
func (rd *recoveryDemands) demanded(now time.Time, who Actor, verb, reason string) (string, error) {
	ready := rd.rec.Ready()
	if n := len(ready.Recoveries); n > 0 {
		v := ready.Recoveries[n-1]
		rd.record(now, who, v.ID, v.PlanHash, verb, reason)
		return v.ID, nil
	}
	return "", fmt.Errorf("%w: nothing came of it", ErrRefused)
}

// exposures is what would be lost if a part of the cluster went now.
func (rd *recoveryDemands) exposures() ([]*falconv1.Exposure, string) {
	job := rd.cluster.recoveryJob()
	switch {
	case job.Epoch == 0:
		return nil, "no job is known"
	case !job.Parks && !rd.state.job.Can.Declared:
		return nil, "the job's processes have not declared that they can park (falcon_job_can): any fault means a whole restart"
	case !job.Parks:
		return nil, "the job's framework can't park (falcon_job_can): any fault means a whole restart"
	}
	list, err := replica.Map(replica.Query{
		Layout:    job.Layout,
		ZeRO:      job.ZeRO,
		Placement: job.Placement,
		Domains:   job.Domains,
	})
	if err != nil {
		return nil, err.Error()
	}
	out := make([]*falconv1.Exposure, len(list))
	for i, x := range list {
		out[i] = &falconv1.Exposure{
			Domain:              x.Label(),
			Nodes:               convert.Strings(x.Nodes),
			Ranks:               convert.Ranks(x.Lost),
			Why:                 x.Why,
			CheckpointIteration: job.Checkpoint,
			Spare:               len(job.Spares) >= len(x.Nodes),
		}
	}
	return out, ""
}
