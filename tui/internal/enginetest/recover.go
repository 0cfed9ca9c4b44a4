package enginetest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// RecoveryHash names the plan of the scripted recovery.
const RecoveryHash = "c0ffee42"

// lost is a recovery in the script: the culprit's process ends.
type lost struct {
	state  falcon.RecoveryState
	reason string
	by     string
	proof  bool   // it waits for a proof that the job's processes have ended
	asked  string // what a person asked for, instead of the script's fault
}

// Lose puts the job into a state of a recovery; Recover moves it on. From
// states that a person reaches the reason is the person's.
func (e *Engine) Lose(state falcon.RecoveryState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := &lost{state: state, by: "policy"}
	switch state {
	case falcon.RecoveryProposed:
		l.reason, l.by = "policy asks for a person", ""
	case falcon.RecoveryRejoin, falcon.RecoveryResumed:
		l.reason = fmt.Sprintf("every shard has a survivor that holds step %d; ranks that restore it: 1",
			e.iter)
	case falcon.RecoveryFailed:
		l.reason = "no replica holds the shard of rank 2 and no checkpoint is known; start the job again"
	}
	e.lost = l
	e.turns++
}

// AwaitProof has the recovery wait for a proof that the job's processes have ended.
func (e *Engine) AwaitProof() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = &lost{
		state:  falcon.RecoverySuspend,
		by:     "policy",
		proof:  true,
		reason: "nothing proves that the job's processes have stopped training, as all of its nodes are given up (nodes n0, n1); bring one of their agents back, or see yourself that all processes of the job have ended, and state that: falcon recovery ended REC-0001",
	}
	e.turns++
}

// Recovers lists every word on recoveries that was received, refused ones
// included.
func (e *Engine) Recovers() []*falconv1.RecoverRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*falconv1.RecoverRequest(nil), e.recovers...)
}

// Recover takes a decision on a recovery as the engine does.
func (e *Engine) Recover(_ context.Context, r *falconv1.RecoverRequest) (*falconv1.RecoverReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recovers = append(e.recovers, r)
	if why := e.wrong(r); why != nil {
		return nil, why
	}
	e.turns++
	switch r.Verb {
	case "approve":
		e.lost.state = falcon.RecoverySuspend
		e.lost.by = "maria"
		e.lost.reason = ""
	case "deny":
		e.lost.state, e.lost.by, e.lost.reason = falcon.RecoveryDenied, "maria", "denied by maria: "+r.Reason
	case "abort":
		e.lost.state = falcon.RecoveryCancelled
		e.lost.by = "maria"
		e.lost.reason = "aborted by maria: " + r.Reason + "; the job stands"
	case "ended":
		e.lost.state = falcon.RecoveryReplace
		e.lost.proof = false
		e.lost.reason = ""
	case "lift":
		return &falconv1.RecoverReply{}, nil
	default:
		e.lost = &lost{
			state: falcon.RecoverySuspend,
			by:    "maria",
			asked: "maria asks for " + r.Verb + " of " + strings.TrimSpace(r.Node) + ": " + r.Reason,
		}
	}
	return &falconv1.RecoverReply{Recovery: e.recovery()}, nil
}

// wrong says why a decision can't be taken, nil = it can.
func (e *Engine) wrong(r *falconv1.RecoverRequest) error {
	now := e.recovery()
	word := r.Verb == "approve" ||
		r.Verb == "deny" ||
		r.Verb == "abort" ||
		r.Verb == "ended"
	switch {
	case e.opts.Role != "approver" && e.opts.Role != "admin":
		return status.Errorf(codes.PermissionDenied, "the role %s may not decide on recoveries", e.opts.Role)
	case e.refuse != "":
		return status.Error(codes.FailedPrecondition, e.refuse)
	case !word && r.Reason == "":
		return status.Error(codes.InvalidArgument, "say why: it is kept with the decision")
	case !word:
		return nil
	case now == nil || now.Id != r.Recovery || e.lost.state.Over():
		return status.Error(codes.FailedPrecondition, "no such recovery is in progress")
	case now.PlanHash != r.PlanHash:
		return status.Error(codes.FailedPrecondition, "the plan has changed since you saw it")
	case r.Verb == "abort" && now.NoReturn:
		return status.Error(codes.FailedPrecondition, "the point of no return is passed")
	case r.Verb == "ended":
		if !now.AwaitsProof {
			return status.Error(codes.FailedPrecondition, "it does not wait for that")
		}
	case r.Verb != "abort" && e.lost.state != falcon.RecoveryProposed:
		return status.Error(codes.FailedPrecondition, "it was approved already")
	}
	return nil
}

// Recoveries lists the scripted one, and what could be lost.
func (e *Engine) Recoveries(
	_ context.Context,
	r *falconv1.RecoveriesRequest,
) (*falconv1.RecoveriesReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := &falconv1.RecoveriesReply{}
	if v := e.recovery(); v != nil {
		out.Recoveries = append(out.Recoveries, v)
	}
	if r.Map {
		out.Exposures = e.exposures()
	}
	return out, nil
}

// exposures are those of racks of two nodes and of nodes: the state is spread
// so that two nodes of a rack hold all replicas of some shards.
func (e *Engine) exposures() []*falconv1.Exposure {
	const most = 64 // parts of a large job shown here
	var racks, nodes []*falconv1.Exposure
	for n := 0; 2*n < e.opts.world() && n < most; n += 2 {
		pair := []string{fmt.Sprintf("n%d%s", n, e.hostile), fmt.Sprintf("n%d%s",
			n+1, e.hostile)}
		racks = append(racks, &falconv1.Exposure{
			Domain:              fmt.Sprintf("rack r%d", n/2),
			Nodes:               pair,
			Ranks:               []int32{int32(2 * n), int32(2*n + 1), int32(2*n + 2), int32(2*n + 3)},
			Why:                 "both instances of the optimizer's state are in this rack",
			CheckpointIteration: e.iter / 25 * 25,
		})
		for _, name := range pair {
			nodes = append(nodes, &falconv1.Exposure{
				Domain:              name,
				Nodes:               []string{name},
				CheckpointIteration: e.iter / 25 * 25,
				Spare:               true,
			})
		}
	}
	return append(racks, nodes...)
}

// done are the phases that lie behind a state, ms.
var done = []struct {
	state  falcon.RecoveryState // from this one on
	phases map[string]float64
}{
	{falcon.RecoverySuspend, map[string]float64{falcon.PhaseDetect: 41}},
	{falcon.RecoveryReplace, map[string]float64{falcon.PhaseSuspend: 312}},
	{falcon.RecoveryTable, map[string]float64{falcon.PhaseReplace: 2410}},
	{falcon.RecoveryCollect, map[string]float64{falcon.PhaseTable: 12}},
	{falcon.RecoveryRejoin, map[string]float64{falcon.PhaseCollect: 3.1}},
	{
		falcon.RecoveryResumed,
		map[string]float64{
			falcon.PhaseGroups:  288,
			falcon.PhaseRestore: 94,
			falcon.PhaseResume:  51,
		},
	},
}

// behind reports whether a state of the script is reached by another.
func behind(state, now falcon.RecoveryState) bool {
	order := map[falcon.RecoveryState]int{
		falcon.RecoveryProposed:  -1,
		falcon.RecoveryFailed:    4,
		falcon.RecoveryCancelled: 1,
		falcon.RecoveryDenied:    -1,
	}
	for i, d := range done {
		order[d.state] = i
	}
	return order[state] <= order[now]
}

// recovery is the scripted one as it is now, or nil.
func (e *Engine) recovery() *falconv1.Recovery {
	if e.lost == nil {
		return nil
	}
	now, rank, state := e.opts.at(e.iter), e.opts.culprit(), e.lost.state
	device := fmt.Sprintf("n%d.g%d%s", rank/2, rank%2, e.hostile)
	v := &falconv1.Recovery{
		Id:              "REC-0001",
		State:           string(state),
		PlanHash:        RecoveryHash,
		DecidedBy:       e.lost.by,
		Reason:          e.lost.reason + e.hostile,
		AwaitsProof:     e.lost.proof,
		ResumeIteration: never,
		BeforeIteration: e.iter,
		StartedUnixNs:   now.Add(-3200 * time.Millisecond).UnixNano(),
		PhasesMs:        map[string]float64{},
		PredictedMs: map[string]float64{
			falcon.PhaseSuspend: 500,
			falcon.PhaseReplace: 2500,
			falcon.PhaseTable:   500,
			falcon.PhaseCollect: 10,
			falcon.PhaseGroups:  300,
			falcon.PhaseRestore: 100,
			falcon.PhaseResume:  50,
		},
		Faults: []*falconv1.Fault{{
			Kind:   string(falcon.FaultExit),
			Node:   fmt.Sprintf("n%d", rank/2),
			Device: device,
			Ranks:  []int32{rank},
			Evidence: []string{fmt.Sprintf("rank %d (process 4713 on %s) ended: signal 9",
				rank, device)},
			FirstUnixNs:    now.Add(-3200 * time.Millisecond).UnixNano(),
			DetectedUnixNs: now.Add(-3159 * time.Millisecond).UnixNano(),
		}},
	}
	if e.lost.asked != "" {
		v.Faults[0].Evidence = []string{e.lost.asked}
	}
	for _, d := range done {
		if behind(d.state, state) {
			maps.Copy(v.PhasesMs, d.phases)
		}
	}
	e.attempt(v, rank, device, now)
	return v
}

// attempt fills in who is replaced, which is known from the proposal on, and what comes
// with the approval.
func (e *Engine) attempt(v *falconv1.Recovery, rank int32, device string, now time.Time) {
	state := e.lost.state
	if behind(falcon.RecoverySuspend, state) {
		v.Generation, v.Attempts = 3, 1
		v.DeadlineUnixNs = now.Add(12 * time.Second).UnixNano()
	}
	v.Replaced = map[int32]string{rank: device}
	for r := range int32(e.opts.world()) {
		if r != rank {
			v.Survivors = append(v.Survivors, r)
		}
	}
	if behind(falcon.RecoveryRejoin, state) && state != falcon.RecoveryFailed {
		v.NoReturn, v.ResumeIteration = true, e.iter
		v.Moves = []*falconv1.ShardMove{{
			Rank: rank,
			From: 0,
			Why:  "it held nothing; source in another failure domain",
		}}
	}
	if state.Over() {
		v.EndedUnixNs = now.UnixNano()
		v.DeadlineUnixNs = 0
		return
	}
	for r := range int32(e.opts.world()) {
		v.Ranks = append(v.Ranks, e.lost.stands(r, rank, e.hostile, e.iter))
	}
}

// stands is a rank's progress; one rank in eight is ahead, so that not
// all look alike.
func (l *lost) stands(r, lost int32, hostile string, iter int64) *falconv1.RankRecovery {
	x := &falconv1.RankRecovery{
		Rank:   r,
		Device: fmt.Sprintf("n%d.g%d%s", r/2, r%2, hostile),
		Stage:  "running",
		Pid:    4711 + r,
		Tag:    never,
	}
	ahead := r%8 == 0
	switch l.state {
	case falcon.RecoverySuspend:
		if ahead {
			x.Stage = "parked"
			x.Steps = []int64{iter - 1, iter}
		}
	case falcon.RecoveryReplace, falcon.RecoveryTable, falcon.RecoveryCollect:
		x.Stage = "parked"
		x.Tag = iter
		x.Steps = []int64{iter - 1, iter}
	case falcon.RecoveryRejoin:
		x.Stage = "restoring"
		if ahead {
			x.Stage = "training"
		}
	}
	if r == lost {
		x.Pid, x.Steps = 0, nil
		switch l.state {
		case falcon.RecoveryReplace:
			x.Stage, x.Pid = "starting", 5002
		case falcon.RecoveryTable, falcon.RecoveryCollect:
			x.Stage, x.Pid = "joining", 5002
		case falcon.RecoveryRejoin:
			x.Pid = 5002
		default:
			x.Stage = "gone"
		}
	}
	return x
}
