// Package enginetest is a scripted stand-in for the engine's Console service,
// for the console's own tests and for trying the screen by hand. It is never
// linked into a shipped binary.
//
// The story is a GPU that throttles: healthy, onset, verdict, S2 proposed,
// approved or vetoed by the console under test, applied, kept, relieved,
// reverted. It is a pure function of the iteration and of the decisions made,
// so tests are deterministic; Advance is the only thing that moves it. Lose
// adds the loss of a rank at any iteration.
package enginetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon/backend/api/columns"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// The story's iterations.
const (
	Onset    = 40
	Detected = 43
	Located  = 46
	Proposed = 50
	Cleared  = 160 // the fault itself goes
	Relieved = 161
	Seen     = 205 // relief is known, the revert is ordered
	Reverted = 208
	End      = 240
	never    = -1
)

// Iteration times of the story, ms.
const (
	HealthyMs   = 210.0
	SlowMs      = 400.0
	MitigatedMs = 262.0
	StrayMs     = 1500.0
)

const engineID = "fake-1"

// iteration is how far apart iterations are on the story's clock.
const iteration = 300 * time.Millisecond

// Options shape the fake job.
type Options struct {
	TP, DP, PP int
	Role       string // "approver" when empty
	Start      time.Time
	Stray      int64  // an iteration that takes StrayMs, 0 = none
	Rung       string // that is proposed, "S2" when empty
	Auto       bool   // policy is automatic up to S2, with a countdown
	Flicker    int    // so many ranks are warm in each iteration, others each time
	SlowLink   string // "n0-n1": tests find it slow
	Recurring  bool   // earlier incidents named the culprit and a link too
	Past       bool   // a history of earlier jobs names the culprit, a link and a port
	Healthy    bool   // nothing ever happens, and the job does not end
	Second     bool   // a link fails too: a second incident, the present one from SecondFrom on
	Undo       int64  // seconds in which an approval can be withdrawn
	Two        bool   // an approval waits for another person's
	Old        bool   // of before brief pictures
	Job        string // "gpt-lab" when empty
}

// Engine is the fake.
type Engine struct {
	historian
	shift
	outputs
	opts Options

	mu        sync.Mutex
	iter      int64
	approved  int64 // iteration of the approval, never before
	vetoed    bool
	undone    int64 // iteration at which what is in force was undone; 0 = it was not
	by        string
	reason    string
	approvals []*falconv1.Approval
	policy    *falconv1.Policy
	events    []*falconv1.EventLine
	watchers  map[chan *falconv1.Event]bool
	decides   []*falconv1.DecideRequest
	validates []*falconv1.ValidateRequest
	test      *held // nil = none asked for
	lost      *lost // nil = nothing is
	still     standstill
	turns     uint64
	recovers  []*falconv1.RecoverRequest
	link      string // what became of the second incident's proposal, "" = it waits
	refuse    string
	hostile   string
	operators []*falconv1.Operator
	drawn     drawn       // the ranks of the newest version asked for
	columns   columns.Log // of the versions sent
}

// New makes an engine at iteration 0.
func New(o Options) *Engine {
	if o.TP == 0 {
		o.TP = 1
		o.DP = 4
		o.PP = 2
	}
	if o.Role == "" {
		o.Role = "approver"
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	}
	e := &Engine{
		opts:     o,
		approved: never,
		watchers: map[chan *falconv1.Event]bool{},
	}
	e.shift.engine = e
	e.outputs.engine = e
	e.policy = &falconv1.Policy{Mode: "approve", Cap: "S2", Version: 1}
	if o.Auto {
		e.policy = &falconv1.Policy{
			Mode:    "auto",
			Cap:     "S2",
			Version: 1,
			Rungs:   map[string]*falconv1.RungPolicy{"S2": {CountdownS: CountdownS, PerHour: 3}},
		}
	}
	if o.Undo > 0 || o.Two {
		e.policy.Rungs = map[string]*falconv1.RungPolicy{
			e.opts.proposes(): {UndoS: float64(o.Undo), Second: o.Two},
		}
	}
	e.log(0, "agent", "agent of node n0 to n3 attached", 0)
	return e
}

// Advance moves the job on by n iterations.
func (e *Engine) Advance(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range n {
		if e.story() >= End {
			return
		}
		e.iter++
		e.tell()
	}
}

// AdvanceTo moves the job on to an iteration.
func (e *Engine) AdvanceTo(iter int64) {
	e.Advance(int(iter - e.Iteration()))
}

// Iteration is where the job is.
func (e *Engine) Iteration() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.iter
}

// Decides lists every decision that was received, refused ones included.
func (e *Engine) Decides() []*falconv1.DecideRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*falconv1.DecideRequest(nil), e.decides...)
}

// Policy is the policy in force.
func (e *Engine) Policy() *falconv1.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.policy
}

// Refuse makes the engine refuse decisions with a reason.
func (e *Engine) Refuse(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = reason
}

// Hostile puts a text into every free string that the engine sends.
func (e *Engine) Hostile(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hostile = text
	e.drawn = drawn{}
}

// tell logs what happens at the present iteration; the caller holds mu.
func (e *Engine) tell() {
	switch {
	case e.opts.Healthy:
	case e.iter == Detected:
		e.log(e.iter, "incident", "INC-0001 opened: iteration time 210 to 400 ms since iteration 40", 3)
	case e.iter == Located:
		e.log(e.iter, "verdict", "INC-0001: GPU degradation on n1.g0 (rank 2), confidence 97%", 3)
	case e.iter == Proposed:
		e.log(e.iter, "proposal", "S2 proposed: micro-batches 8,8,8,8 to 9,9,5,9, 400 to 262 ms", 2)
		if e.policy.Mode == "auto" &&
			!e.opts.Auto &&
			!e.policy.Frozen &&
			e.policy.Cap >= "S2" {
			e.decide(true, "policy", "")
		}
	case e.opts.Second && e.iter == SecondFrom:
		e.log(e.iter, "incident", SecondID+" opened: network_congestion on n2-n3", 3)
	case e.approved != never && e.iter == e.approved+2:
		e.log(e.iter, "action", "S2 applied", 1)
	case e.approved != never && e.iter == e.approved+8:
		e.log(e.iter, "action", "S2 kept: 262.3 ms measured, 262.0 predicted", 0)
	case e.iter == Seen:
		e.log(e.iter, "incident", "INC-0001 relieved since iteration 161", 0)
	case e.iter == Reverted && e.approved != never:
		e.log(e.iter, "action", "S2 reverted: the fault has cleared", 0)
	}
}

func (e *Engine) log(iter int64, kind, text string, severity int32) {
	e.write(&falconv1.EventLine{
		Iteration: iter,
		Kind:      kind,
		Text:      text + e.hostile,
		Severity:  severity,
	})
}

// audit logs an act as the engine does.
func (e *Engine) audit(by, verb, about, hash, reason string) {
	a := &falconv1.Audit{
		Actor:    by,
		Role:     e.opts.Role,
		From:     "unix user 1000" + e.hostile,
		Verb:     verb,
		About:    about,
		PlanHash: hash,
		Reason:   reason,
	}
	if by == "policy" {
		a.Role, a.From = "engine", "policy file"
	}
	text := fmt.Sprintf("%s (%s, %s): %s %s", a.Actor, a.Role, a.From, verb, about)
	if hash != "" {
		text += ", plan " + hash
	}
	if reason != "" {
		text += ": " + reason
	}
	e.write(&falconv1.EventLine{
		Iteration: e.iter,
		Kind:      "audit",
		Text:      text,
		Audit:     a,
	})
}

func (e *Engine) write(line *falconv1.EventLine) {
	line.Seq, line.AtUnixNs = uint64(len(e.events)+1), e.opts.at(line.Iteration).UnixNano()
	e.events = append(e.events, line)
	for w := range e.watchers {
		select {
		case w <- &falconv1.Event{Body: &falconv1.Event_Line{Line: line}}:
		default:
		}
	}
}

func (o *Options) at(iter int64) time.Time {
	return o.Start.Add(time.Duration(iter) * iteration)
}

func (e *Engine) decide(approve bool, by, reason string) {
	a := e.action()
	if approve {
		e.approvals = append(e.approvals, &falconv1.Approval{
			By:     by,
			From:   "unix user 1000",
			UnixNs: e.opts.at(e.iter).UnixNano(),
			Reason: reason,
		})
		if e.opts.Two && len(e.approvals) < 2 {
			e.log(
				e.iter,
				"decision",
				fmt.Sprintf("%s approved by %s, waits for a second approver", a.Id, by),
				1,
			)
			e.audit(by, "approve (1 of 2)", a.Id, a.PlanHash, reason)
			return
		}
	}
	if e.by, e.reason = by, reason; approve {
		e.approved = e.iter + e.opts.undo()
	} else {
		e.vetoed, e.approved = true, never
	}
	verb, deed := "approved", "approve"
	switch {
	case !approve && a.State == "approved":
		verb, deed = "withdrawn", "withdraw"
	case !approve:
		verb, deed = "vetoed", "veto"
	case e.opts.Two:
		deed = "approve (2 of 2)"
	}
	e.log(e.iter, "decision", fmt.Sprintf("%s %s by %s", a.Rung, verb, by), 1)
	e.audit(by, deed, a.Id, a.PlanHash, reason)
}

// Snapshot answers like the engine's.
func (e *Engine) Snapshot(_ context.Context, r *falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	version := e.turns*1_000_000 + uint64(e.iter)*1000 + uint64(len(e.events)) + e.policy.Version*10 + 1
	if r.KnownVersion == version {
		return &falconv1.SnapshotReply{Version: version, Unchanged: true, Operators: e.operators}, nil
	}
	if r.Own {
		return &falconv1.SnapshotReply{
			Version:  version,
			EngineId: engineID,
			Role:     e.opts.Role,
			Actor:    "maria",
			Series:   e.series(r),
		}, nil
	}
	s := e.snapshot(version, r)
	if r.Brief && !e.opts.Old {
		b := convert.Brief(s)
		b.Role, b.Actor = s.Role, s.Actor
		return b, nil
	}
	if r.Packed {
		if e.drawn.table == nil || e.drawn.table.Version != version {
			e.drawn.table = columns.Of(len(s.Ranks), s.Ranks)
			e.drawn.table.Version = version
		}
		s.Ranks, s.Columns = nil, e.columns.Since(r.ColumnsVersion, e.drawn.table)
	}
	return s, nil
}

// Watch streams event lines.
func (e *Engine) Watch(r *falconv1.WatchRequest, s falconv1.Console_WatchServer) error {
	ch := make(chan *falconv1.Event, 64)
	e.mu.Lock()
	for _, line := range e.events {
		if line.Seq > r.AfterSeq && len(ch) < cap(ch) {
			ch <- &falconv1.Event{Body: &falconv1.Event_Line{Line: line}}
		}
	}
	e.watchers[ch] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.watchers, ch)
	}()
	for {
		select {
		case <-s.Context().Done():
			return nil
		case ev := <-ch:
			if err := s.Send(ev); err != nil {
				return err
			}
		}
	}
}

// Decide checks a decision as the engine does.
func (e *Engine) Decide(_ context.Context, r *falconv1.DecideRequest) (*falconv1.DecideReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decides = append(e.decides, r)
	a := e.action()
	if b := e.linkAction(); b != nil && b.Id == r.Action {
		a = b
	}
	switch {
	case r.Undo && e.refuse == "" && a.GetId() == r.Action:
		e.undone = e.iter
		e.drawn = drawn{}
		return &falconv1.DecideReply{Action: e.action()}, nil
	case e.opts.Role == "viewer":
		return nil, status.Error(codes.PermissionDenied, "the role viewer may not decide")
	case e.refuse != "":
		return nil, status.Error(codes.FailedPrecondition, e.refuse)
	case a == nil ||
		a.State != "proposed" && (r.Approve || a.State != "approved") ||
		a.Id != r.Action:
		return nil, status.Error(codes.FailedPrecondition, "no such proposal is open")
	case r.Approve && len(e.approvals) > 0 && e.approvals[0].By == "maria":
		return nil, status.Error(codes.FailedPrecondition,
			"maria has approved it already; somebody else has to approve it, too")
	case a.PlanHash != r.PlanHash:
		return nil, status.Error(codes.FailedPrecondition, "the plan has changed since you saw it")
	case r.JobEpoch != 0 && r.JobEpoch != 1:
		return nil, status.Error(codes.FailedPrecondition, "the job epoch has changed since you saw it")
	}
	if a.Incident == SecondID {
		e.decideLink(r.Approve)
		return &falconv1.DecideReply{Action: e.linkAction()}, nil
	}
	e.decide(r.Approve, "maria", r.Reason)
	return &falconv1.DecideReply{Action: e.action()}, nil
}

// SetPolicy checks the version as the engine does.
func (e *Engine) SetPolicy(
	_ context.Context,
	r *falconv1.SetPolicyRequest,
) (*falconv1.SetPolicyReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opts.Role == "viewer" {
		return nil, status.Error(codes.PermissionDenied, "the role viewer may not change the policy")
	}
	if r.Policy.Version != e.policy.Version {
		return nil, status.Error(codes.FailedPrecondition, "the policy has changed since you read it")
	}
	p := &falconv1.Policy{
		Mode:    r.Policy.Mode,
		Cap:     r.Policy.Cap,
		Frozen:  r.Policy.Frozen,
		Owner:   "maria",
		Version: e.policy.Version + 1,
		Rungs:   r.Policy.Rungs,
	}
	e.policy = p
	e.log(
		e.iter,
		"policy",
		fmt.Sprintf("mode %s, cap %s, frozen %v, set by maria", p.Mode, p.Cap, p.Frozen),
		1,
	)
	e.audit(
		"maria",
		"set policy",
		fmt.Sprintf("mode %s, cap %s, frozen %v", p.Mode, p.Cap, p.Frozen),
		"",
		"",
	)
	return &falconv1.SetPolicyReply{Policy: p}, nil
}

// Incidents lists the one incident, or the validations alone.
func (e *Engine) Incidents(
	_ context.Context,
	r *falconv1.IncidentsRequest,
) (*falconv1.IncidentsReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.GetOnlyValidations() {
		return &falconv1.IncidentsReply{Validations: e.validations()}, nil
	}
	inc := e.incident()
	if inc == nil {
		return &falconv1.IncidentsReply{}, nil
	}
	if r.GetId() == SecondID && e.linkIncident() != nil {
		return &falconv1.IncidentsReply{
			Incidents: []*falconv1.Incident{e.linkIncident()},
			Ladders:   []*falconv1.Ladder{e.linkLadder()},
		}, nil
	}
	return &falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{inc},
		Ladders:   []*falconv1.Ladder{e.ladder()},
	}, nil
}
