package statements

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Picture is the state at a moment.
type Picture struct {
	Snap *falconv1.SnapshotReply
	Now  time.Time // by the engine's clock, as all times of the snapshot
	Lost bool      // the engine does not answer: the snapshot is the last that it gave
}

// Of is what is said of a picture, the most important first.
func Of(p Picture) []Statement {
	if p.Snap == nil {
		p.Snap = &falconv1.SnapshotReply{}
	}
	if p.Lost { // nothing is known of the time since
		p.Now = time.Unix(0, p.Snap.GetAtUnixNs())
	}
	var out []Statement
	if p.Lost {
		out = append(out, Statement{Kind: Unseen, Severity: Bad, Since: p.Now})
	}
	out = append(out, p.job())
	out = append(out, p.recovery()...)
	for _, a := range p.actions() {
		out = append(out, p.action(a)...)
	}
	if p.Snap.GetPolicy().GetFrozen() {
		out = append(out, Statement{Kind: Frozen, Severity: Warn, Who: Approver})
	}
	for _, v := range p.Snap.GetIncidents() {
		if isOpen(v) {
			out = append(out, incident(v))
		}
	}
	if list := p.Snap.GetFenced(); len(list) > 0 {
		out = append(out, Statement{Kind: Fenced, Severity: Plain, Nodes: list})
	}
	out = append(out, p.last()...)
	slices.SortStableFunc(out, before)
	return out
}

// First is the first statement, which every picture has.
func First(p Picture) Statement { return Of(p)[0] }

// OfJob is what is said of how the job itself stands.
func OfJob(p Picture) Statement {
	list := Of(p)
	return list[slices.IndexFunc(list, func(s Statement) bool { return s.OfJob() })]
}

// place is where a statement belongs: lower is earlier.
func (s *Statement) place() int {
	if s.carried {
		return 7 // a recovery says it above, and what waits for a person comes before it
	}
	switch s.Kind {
	case Unseen:
		return 0
	case Stopped, Failed, Gone, Ended, Finished: // how it ended comes before what is asked about it
		return 1
	case Recovery:
		return 2
	case Standing, Moving, Held, Resuming:
		return 3
	case Acting:
		if s.Ends == EndsAll { // the standstill is its doing
			return 2
		}
		return 5
	case Pending:
		return 4
	case Decision, Frozen:
		return 6
	case Slower:
		return 7
	case Incident:
		return 8
	case Running, Learning, Waiting, Unknown, Slow:
		return 9
	case InForce, Fenced:
		return 10
	}
	return 11
}

// before orders two statements; equal ones stay in the order of the picture.
func before(a, b Statement) int {
	if n := a.place() - b.place(); n != 0 {
		return n
	}
	if a.Action == nil || b.Action == nil {
		return 0
	}
	if n := danger(&b) - danger(&a); n != 0 {
		return n
	}
	return a.untilOr(b.Until).Compare(b.untilOr(a.Until))
}

// untilOr puts what has no time behind what has one.
func (s *Statement) untilOr(other time.Time) time.Time {
	if s.Until.IsZero() {
		return other.Add(time.Nanosecond)
	}
	return s.Until
}

// danger is what an action may do to the job: whose processes it ends, then its height.
func danger(s *Statement) int {
	return 10*int(s.Ends) + falcon.Rung(s.Action.GetRung()).Level()
}

func isOpen(v *falconv1.Incident) bool {
	switch falcon.IncidentState(v.GetState()) {
	case falcon.IncidentVerified, falcon.IncidentLocated:
		return true
	case falcon.IncidentRelieved, falcon.IncidentClosed:
	}
	return false
}

// incident is an open one.
func incident(v *falconv1.Incident) Statement {
	severity := Bad
	if falcon.IsMinor(v.GetHealthyMs(), v.GetSlowMs()) {
		severity = Warn
	}
	return Statement{
		Kind:     Incident,
		Severity: severity,
		Incident: v,
		Ranks:    v.GetVerdict().GetRanks(),
		Since:    at(v.GetOnsetUnixNs()),
	}
}

// last is the newest of the incidents and recoveries that are over.
func (p Picture) last() []Statement {
	var v *falconv1.Incident
	for _, x := range p.Snap.GetIncidents() {
		if !isOpen(x) && (v == nil || x.GetEndUnixNs() > v.GetEndUnixNs()) {
			v = x
		}
	}
	r := p.Snap.GetRecovery()
	if r == nil ||
		!falcon.RecoveryState(r.GetState()).Over() ||
		r.GetEndedUnixNs() < v.GetEndUnixNs() {
		r = nil
	}
	switch {
	case r != nil:
		return []Statement{{
			Kind:     Last,
			Severity: Plain,
			Recovery: r,
			Since:    at(r.GetEndedUnixNs()),
		}}
	case v != nil:
		return []Statement{{
			Kind:     Last,
			Severity: Plain,
			Incident: v,
			Since:    at(v.GetEndUnixNs()),
		}}
	}
	return nil
}

// at is a moment of the picture, zero where it has none.
func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
