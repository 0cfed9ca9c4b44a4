package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/triage"
	"github.com/failslow/falcon/mitigate"
)

// Latest is the newest published picture, built now when there is none or it
// is older than a second. It may be called from any goroutine.
func (e *Engine) Latest(ctx context.Context) (*State, error) {
	now := e.cfg.Now()
	e.views.asked.Store(now.UnixNano())
	s := e.views.snapshot.Load()
	if s != nil && now.UnixNano()-s.Reply.GetAtUnixNs() < int64(time.Second) {
		return s, nil
	}
	err := e.readInLoop(ctx, func() { // others may have asked just before
		now := e.cfg.Now()
		if e.views.snapshot.Load() == nil || now.Sub(e.views.built) >= e.views.buildPeriod() {
			e.views.build(now)
		}
	})
	return e.views.snapshot.Load(), err
}

// Series is the chart of one rank; rank −1 is the one to look at.
func (e *Engine) Series(ctx context.Context, rank falcon.Rank, columns, rows int) (*falconv1.Series, error) {
	columns = min(columns, ColumnsMax)
	rows = min(max(rows, 0), RunLengthsMax)
	var out *falconv1.Series
	err := e.readInLoop(ctx, func() {
		if rank >= 0 && int(rank) < e.state.job.Layout.World() {
			out = e.views.series(rank, columns, rows)
		}
	})
	return out, err
}

// Decide takes an operator's decision on a proposal. It answers once the decision
// and what it led to are durable. A plan that is not what the operator saw, a
// job that was restarted since, or a decision that was already taken is
// refused (ErrStale, with the difference); the first decision wins. A veto is
// taken until the action is ordered, and withdraws an approval.
func (e *Engine) Decide(ctx context.Context, who Actor, q *falconv1.DecideRequest) (*falconv1.Action, error) {
	var id string
	err := e.decideInLoop(ctx, func() (refused error) {
		if refused = e.decisions.unknown(q); refused != nil {
			return refused
		}
		if refused = e.learner.refusal(); refused != nil {
			return refused
		}
		id, refused = e.decisions.decide(who, q)
		return refused
	})
	if err != nil {
		return nil, err
	}
	var out *falconv1.Action
	err = e.readInLoop(ctx, func() {
		if i := e.state.actionIndex(id); i >= 0 {
			out = e.state.actionView(e.state.actions[i])
		}
	})
	return out, err
}

// actionDecisions takes operators' decisions on the planner's actions: it checks
// that what is decided on is what the operator saw, and records who decided.
type actionDecisions struct {
	*shared
}

// unknown refuses what names an incident that there is not.
func (ad *actionDecisions) unknown(q *falconv1.DecideRequest) error {
	_, known := ad.state.incident(q.GetIncident())
	if !known && q.GetAction() == "" {
		return noIncident(q.GetIncident())
	}
	return nil
}

func (ad *actionDecisions) decide(who Actor, q *falconv1.DecideRequest) (string, error) {
	now := ad.cfg.Now()
	if q.GetUndo() {
		return ad.undo(now, who, q)
	}
	if q.GetRung() != "" &&
		q.GetAction() == "" &&
		!ad.proposes(q.GetIncident(), falcon.Rung(q.GetRung()), q.GetApprove()) {
		return ad.stepUp(now, who, q)
	}
	a, err := ad.decidable(q)
	if err != nil {
		return "", err
	}
	d := mitigate.Decision{
		Action:   a.ID,
		PlanHash: a.PlanHash,
		Approve:  q.GetApprove(),
		By:       who.Name,
		Reason:   clean(q.GetReason()),
		From:     who.From,
		AtUnixNs: now.UnixNano(),
	}
	if err := ad.plan.Check(d); err != nil {
		return "", refused(err)
	}
	was := ad.planned(a)
	ad.plan.Step(now, d)
	ad.record(now, who, a, d, verbFor(was, ad.planned(a), d.Approve))
	return a.ID, nil
}

// planned is an action as the planner has it now; the journal's record may be a
// step behind.
func (ad *actionDecisions) planned(a falcon.Action) falcon.Action {
	l, _ := ad.plan.Ladder(a.Incident)
	i := slices.IndexFunc(l.Actions, func(x falcon.Action) bool {
		return x.ID == a.ID
	})
	if i >= 0 {
		return l.Actions[i]
	}
	return a
}

// proposes reports whether this very rung waits for a decision, or can be withdrawn:
// naming it decides on that.
func (ad *actionDecisions) proposes(incident string, r falcon.Rung, approve bool) bool {
	l, _ := ad.plan.Ladder(incident)
	a := awaited(l, approve)
	return a != nil && a.Rung == r
}

// awaited is the action of a ladder that can be decided on now: for or
// against what is proposed, against what is approved and not ordered; nil
// where there is none.
func awaited(l falcon.Ladder, approve bool) *falcon.Action {
	for i := len(l.Actions) - 1; i >= 0; i-- {
		if openTo(l.Actions[i], approve) {
			return &l.Actions[i]
		}
	}
	return nil
}

func openTo(a falcon.Action, approve bool) bool {
	return a.State == falcon.ActionProposed || a.State == falcon.ActionApproved && !approve
}

// record writes the decision down, in the batch that holds what it leads to.
func (ad *actionDecisions) record(
	now time.Time,
	who Actor,
	a falcon.Action,
	d mitigate.Decision,
	verb string,
) {
	ad.batch.addRecords(record(now, kindDecision, DecisionRecord{
		Action:   a.ID,
		Incident: a.Incident,
		PlanHash: a.PlanHash,
		JobEpoch: ad.state.job.Epoch,
		Approve:  d.Approve,
		Reason:   d.Reason,
		By:       who.Name,
		Role:     who.Role,
		From:     who.From,
		Rung:     a.Rung,
		Variant:  a.Variant,
	}))
	ad.oplog.audit(now, who, auditEntry{
		Verb:     verb,
		About:    a.ID,
		PlanHash: a.PlanHash,
		Reason:   d.Reason,
	})
}

// byPolicy is who decides where no person does.
const byPolicy = "policy"

// recordByPolicy writes down what policy has decided by itself: the same line as
// a person's.
func (ad *actionDecisions) recordByPolicy(now time.Time, a falcon.Action) {
	d := ad.state.decisions[a.ID]
	if d.By == byPolicy || a.DecidedBy != byPolicy {
		return
	}
	who := Actor{
		Name: byPolicy,
		Role: itself.Role,
		From: ad.state.policy.source(),
	}
	approve := a.State != falcon.ActionVetoed
	ad.record(
		now,
		who,
		a,
		mitigate.Decision{Approve: approve, Reason: a.Reason},
		verbOf(approve),
	)
}

// stepUp takes a rung that is not proposed yet. The planner makes the plan in
// the same step, so that the record can name it.
func (ad *actionDecisions) stepUp(now time.Time, who Actor, q *falconv1.DecideRequest) (string, error) {
	if err := ad.sameEpoch(q); err != nil {
		return "", err
	}
	if _, known := ad.state.incident(q.GetIncident()); !known {
		return "", noIncident(q.GetIncident())
	}
	d := mitigate.Decision{
		Incident: q.GetIncident(),
		Rung:     falcon.Rung(q.GetRung()),
		PlanHash: q.GetPlanHash(),
		Approve:  q.GetApprove(),
		By:       who.Name,
		Reason:   clean(q.GetReason()),
		Variant:  falcon.Variant(q.GetVariant()),
		From:     who.From,
		AtUnixNs: now.UnixNano(),
	}
	if err := ad.plan.Check(d); err != nil {
		return "", refused(err)
	}
	ad.plan.Step(now, d)
	l, _ := ad.plan.Ladder(d.Incident)
	if len(l.Actions) == 0 {
		return "", fmt.Errorf("%w: nothing came of rung %s for %s", ErrStale, d.Rung, d.Incident)
	}
	a := l.Actions[len(l.Actions)-1]
	ad.record(
		now,
		who,
		a,
		d,
		verbFor(falcon.Action{State: falcon.ActionProposed}, a, true),
	)
	return a.ID, nil
}

func (ad *actionDecisions) sameEpoch(q *falconv1.DecideRequest) error {
	if epoch := q.GetJobEpoch(); epoch != 0 && epoch != ad.state.job.Epoch {
		return fmt.Errorf("%w: you saw job epoch %d and the job is in epoch %d now; look again",
			ErrStale, epoch, ad.state.job.Epoch)
	}
	return nil
}

// decidable finds the action that is meant and checks that it is the one that
// the operator saw.
func (ad *actionDecisions) decidable(q *falconv1.DecideRequest) (falcon.Action, error) {
	if err := ad.sameEpoch(q); err != nil {
		return falcon.Action{}, err
	}
	if q.GetAction() == "" {
		return ad.proposal(q)
	}
	i := ad.state.actionIndex(q.GetAction())
	if i < 0 || (q.GetIncident() != "" && ad.state.actions[i].Incident != q.GetIncident()) {
		return falcon.Action{}, fmt.Errorf(
			"%w: no action %q of incident %q; list them with: falcon incident list",
			ErrNotFound, clean(q.GetAction()), clean(q.GetIncident()),
		)
	}
	a := ad.state.actions[i]
	if !openTo(a, q.GetApprove()) {
		return a, ad.tooLate(a)
	}
	return a, samePlan(a, q.GetPlanHash())
}

func (ad *actionDecisions) proposal(q *falconv1.DecideRequest) (falcon.Action, error) {
	id := q.GetIncident()
	if _, known := ad.state.incident(id); !known {
		return falcon.Action{}, noIncident(id)
	}
	l, _ := ad.plan.Ladder(id)
	a := awaited(l, q.GetApprove())
	if a == nil {
		if n := len(l.Actions); n > 0 {
			return falcon.Action{}, ad.tooLate(l.Actions[n-1])
		}
		return falcon.Action{}, fmt.Errorf("%w: nothing is proposed for %s at the moment", ErrStale, id)
	}
	if q.GetPlanHash() == "" {
		return *a, nil
	}
	return *a, samePlan(*a, q.GetPlanHash())
}

func samePlan(a falcon.Action, hash string) error {
	if hash != a.PlanHash {
		return fmt.Errorf("%w: you saw plan %q of %s and it is plan %q now (%s); look again",
			ErrStale, clean(hash), a.ID, a.PlanHash, planText(a))
	}
	return nil
}

// planText is what a plan would do to the job.
func planText(a falcon.Action) string {
	switch p := a.Preview; {
	case p != nil && len(p.Swaps) > 0:
		return fmt.Sprintf("%d pairs of nodes change places, the first %s with %s",
			len(p.Swaps), p.Swaps[0][0], p.Swaps[0][1])
	case p != nil && len(p.Groups) > 0:
		return fmt.Sprintf("%d pairs of GPUs change ranks, the first %s with %s",
			len(p.Groups), p.Groups[0][0], p.Groups[0][1])
	case a.Variant != "":
		return fmt.Sprintf("%s over %d ranks", a.Variant, len(a.Placement))
	}
	return fmt.Sprintf("micro-batches %v", a.MicroBatches)
}

// tooLate is the error for a second operator: what the first one decided.
func (ad *actionDecisions) tooLate(a falcon.Action) error {
	d, ok := ad.state.decisions[a.ID]
	if !ok {
		return fmt.Errorf("%w: %s is %s (decided by %s)",
			ErrStale, a.ID, a.State, cmp.Or(a.DecidedBy, "nobody"))
	}
	verdict := "vetoed"
	if d.Approve {
		verdict = "approved"
	}
	at := time.Unix(0, ad.state.decidedNs[a.ID]).UTC().Format(time.TimeOnly)
	return fmt.Errorf("%w: %s was %s by %s at %s UTC; it is %s now",
		ErrStale, a.ID, verdict, d.By, at, a.State)
}

// Incidents lists incidents with their ladders: all, or the one named.
func (e *Engine) Incidents(ctx context.Context, id string) (*falconv1.IncidentsReply, error) {
	out := &falconv1.IncidentsReply{}
	err := e.readInLoop(ctx, func() {
		now := e.cfg.Now()
		out.AtUnixNs = now.UnixNano()
		for _, v := range e.views.front() {
			if id == "" || v.ID == id {
				out.Incidents = append(out.Incidents, e.state.incidentView(v))
				out.Ladders = append(out.Ladders, e.views.ladder(v.ID))
				out.Triage = e.state.addTriage(out.Triage, now, v, triage.NotesMost)
			}
		}
		out.Validations = e.validations.listViews(id)
		if v, known := e.state.incident(id); known {
			e.views.reportOn(out, v)
		}
	})
	if err == nil && id != "" && len(out.Incidents) == 0 {
		return nil, noIncident(id)
	}
	return out, err
}

// For dresses the picture for one caller. Only the outer message is new; what
// it points at is shared and stays as it is.
func (s *State) For(who Actor, series *falconv1.Series) *falconv1.SnapshotReply {
	r := s.Reply
	return &falconv1.SnapshotReply{
		Version:    r.Version,
		Job:        r.Job,
		Policy:     r.Policy,
		Role:       who.Role,
		Actor:      who.Name,
		Series:     series,
		Incidents:  r.Incidents,
		Ladder:     r.Ladder,
		Others:     r.Others,
		Events:     r.Events,
		Nodes:      r.Nodes,
		EngineId:   r.EngineId,
		AtUnixNs:   r.AtUnixNs,
		Validation: r.Validation,
		Nics:       r.Nics,
		Recurring:  r.Recurring,
		Recovery:   r.Recovery,
		Hang:       r.Hang,
		Culprits:   r.Culprits,
		Triage:     r.Triage,
		Bars:       r.Bars,
		Fenced:     r.Fenced,
		Engine:     r.Engine,
	}
}

// Own is what only one caller may have or wants: a console that serves several
// operators pulls the rest once for all of them.
func (s *State) Own(who Actor, series *falconv1.Series) *falconv1.SnapshotReply {
	r := s.Reply
	return &falconv1.SnapshotReply{
		Version:  r.Version,
		EngineId: r.EngineId,
		AtUnixNs: r.AtUnixNs,
		Role:     who.Role,
		Actor:    who.Name,
		Series:   series,
	}
}

// Columns is the picture's ranks as columns: changes since the version that a
// console holds, or whole. It may be called from any goroutine, encodes each
// version and base once, and its message is shared.
func (e *Engine) Columns(s *State, known uint64) *falconv1.RankColumns {
	return e.views.columns.Since(known, s.Ranks)
}
