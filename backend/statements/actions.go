package statements

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// recovery is the one that is not over.
func (p Picture) recovery() []Statement {
	r := p.Snap.GetRecovery()
	state := falcon.RecoveryState(r.GetState())
	if state == "" || state.Over() {
		return nil
	}
	s := Statement{
		Kind:     Recovery,
		Severity: Bad,
		Recovery: r,
		Since:    at(r.GetStartedUnixNs()),
		Until:    at(r.GetDeadlineUnixNs()),
	}
	s.Ranks = lostRanks(r)
	if NeedsPerson(r) {
		s.Severity, s.Who = Urgent, Approver
	}
	if state == falcon.RecoveryProposed && p.Snap.GetPolicy().GetFrozen() {
		s.Who = Approver
		s.Until = time.Time{}
	}
	return []Statement{s}
}

// lostRanks are those of the faults; of a hang, whose ranks wait, only where nothing else is at fault.
func lostRanks(r *falconv1.Recovery) (lost []int32) {
	var waiting []int32
	for _, f := range r.GetFaults() {
		if f.GetKind() == string(falcon.FaultHang) {
			waiting = append(waiting, f.GetRanks()...)
		} else {
			lost = append(lost, f.GetRanks()...)
		}
	}
	if len(lost) == 0 {
		return waiting
	}
	return lost
}

// NeedsPerson reports whether a recovery does not go on without a person: it waits for a decision
// without a countdown, for a spare that somebody must bring, or for a proof that only a person
// can give.
func NeedsPerson(r *falconv1.Recovery) bool {
	switch state := falcon.RecoveryState(r.GetState()); {
	case state == "" || state.Over():
		return false
	case state == falcon.RecoveryProposed:
		return r.GetDeadlineUnixNs() == 0
	}
	return r.GetAwaitsProof() || r.GetWait().GetSpare()
}

// actions are all that the picture has, those of the front incident first.
func (p Picture) actions() []*falconv1.Action {
	var out []*falconv1.Action
	for _, l := range append([]*falconv1.Ladder{p.Snap.GetLadder()}, p.Snap.GetOthers()...) {
		listed := false
		for _, a := range l.GetActions() {
			out = append(out, a)
			listed = listed || a.GetId() == l.GetProposal().GetId()
		}
		if l.GetProposal() != nil && !listed {
			out = append(out, l.GetProposal())
		}
	}
	return out
}

// action is what is said of one, at most one statement.
func (p Picture) action(a *falconv1.Action) []Statement {
	s := Statement{
		Action: a,
		Ends:   EndsOf(a),
		Ranks:  p.ranksOf(a.GetIncident()),
		Since:  at(a.GetProposedUnixNs()),
		Until:  at(a.GetDeadlineUnixNs()),
	}
	frozen := p.Snap.GetPolicy().GetFrozen()
	observes := p.Snap.GetPolicy().GetMode() == string(falcon.ModeObserve)
	switch falcon.ActionState(a.GetState()) {
	case falcon.ActionProposed:
		s.Kind, s.Severity = Pending, Urgent
		if n := len(a.GetApprovals()); n > 0 {
			s.Kind = Decision
			s.Who = Second
			s.Until = time.Time{}
			s.Since = at(a.GetApprovals()[n-1].GetUnixNs())
		} else if frozen || a.GetDeadlineUnixNs() == 0 {
			s.Kind = Decision
			s.Who = Approver
			s.Until = time.Time{}
		}
	case falcon.ActionApproved:
		s.Kind = Pending
		s.Severity = Urgent
		s.Since = at(a.GetDecidedUnixNs())
		if frozen || observes {
			s.Kind = Decision
			s.Who = Approver
			s.Until = time.Time{}
		}
	case falcon.ActionDispatched, falcon.ActionReverting:
		s.Kind = Acting
		s.Severity = Warn
		s.carried = p.carries(a)
		s.Since = at(a.GetDecidedUnixNs())
		s.Until = time.Time{}
		if s.Ends == EndsAll {
			s.Severity = Bad
		}
	case falcon.ActionApplied, falcon.ActionKept:
		s.Kind = InForce
		s.Severity = Plain
		s.Since = at(a.GetAppliedUnixNs())
		s.Until = time.Time{}
	default:
		return nil
	}
	return []Statement{s}
}

// carries reports whether the recovery in progress is how the action is carried out.
func (p Picture) carries(a *falconv1.Action) bool {
	r := p.Snap.GetRecovery()
	if falcon.RecoveryState(r.GetState()).Over() {
		return false
	}
	return slices.ContainsFunc(r.GetFaults(), func(f *falconv1.Fault) bool {
		return f.GetAction() == a.GetId()
	})
}

// ranksOf are the ranks that an incident names.
func (p Picture) ranksOf(incident string) []int32 {
	for _, v := range p.Snap.GetIncidents() {
		if v.GetId() == incident {
			return v.GetVerdict().GetRanks()
		}
	}
	return nil
}

// EndsOf is whose processes an action ends.
func EndsOf(a *falconv1.Action) Ends {
	switch {
	case a.GetRung() != string(falcon.RungS4):
		return EndsNone
	case a.GetVariant() == string(falcon.VariantFence):
		return EndsNode
	}
	return EndsAll
}
