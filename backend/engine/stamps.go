package engine

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// actionTimes are when the journal first had an action proposed, in force and reverted, Unix ns;
// 0 = not yet.
type actionTimes struct {
	Proposed int64 `json:"proposed,omitempty"`
	Applied  int64 `json:"applied,omitempty"`
	Reverted int64 `json:"reverted,omitempty"`
}

func (t actionTimes) after(a falcon.Action, atNs int64) actionTimes {
	first := func(at *int64) {
		if *at == 0 {
			*at = atNs
		}
	}
	first(&t.Proposed)
	switch a.State {
	case falcon.ActionApplied, falcon.ActionKept, falcon.ActionReverting:
		first(&t.Applied)
	case falcon.ActionReverted:
		first(&t.Reverted)
	case falcon.ActionProposed, falcon.ActionApproved, falcon.ActionDispatched,
		falcon.ActionRetained, falcon.ActionVetoed, falcon.ActionFailed, falcon.ActionExpired:
	}
	return t
}

// actionView is an action as consoles see it, with its times by the clock.
func (m *journalState) actionView(a falcon.Action) *falconv1.Action {
	out := convert.ActionToProto(a)
	m.stamp(out)
	return out
}

func (m *journalState) stamp(a *falconv1.Action) {
	if a != nil {
		t := m.stamps[a.Id]
		a.ProposedUnixNs = t.Proposed
		a.AppliedUnixNs = t.Applied
		a.RevertedUnixNs = t.Reverted
	}
}

func (m *journalState) stampLadder(l *falconv1.Ladder) *falconv1.Ladder {
	m.stamp(l.GetProposal())
	for _, a := range l.GetActions() {
		m.stamp(a)
	}
	return l
}
