package convert

import (
	"slices"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what a brief picture lists.
const (
	BriefIncidents = 4 // open ones
	briefNames     = 3 // devices, links, faults and causes of one
	briefRanks     = 8
)

// Brief is a picture as a list of many jobs shows it. Role and actor stay out: they are the
// caller's. The engine makes it for those who ask for it, and a console of what an older engine
// has sent. The result shares no message with r.
func Brief(r *falconv1.SnapshotReply) *falconv1.SnapshotReply {
	out := &falconv1.SnapshotReply{
		Version:    r.GetVersion(),
		EngineId:   r.GetEngineId(),
		AtUnixNs:   r.GetAtUnixNs(),
		Job:        briefJob(r.GetJob()),
		Policy:     briefPolicy(r.GetPolicy()),
		Validation: briefValidation(r.GetValidation()),
		Recovery:   briefRecovery(r.GetRecovery()),
		Hang:       briefHang(r.GetHang()),
		Fenced:     firstOf(r.GetFenced(), briefRanks),
		Brief:      &falconv1.Brief{Revision: falconv1.ConsoleRevision},
	}
	if e := r.GetEngine(); e != nil {
		out.Engine = &falconv1.Build{
			Version:  e.GetVersion(),
			Agents:   e.GetAgents(),
			Consoles: e.GetConsoles(),
		}
	}
	if r.GetRecovery().GetState() == string(falcon.RecoveryProposed) &&
		needsPerson(r, r.GetRecovery().GetDeadlineUnixNs()) {
		out.Brief.Waiting++
	}
	open := openIncidents(r)
	out.Brief.Open = int32(len(open))
	for i, v := range open {
		l := ladderOf(r, v.GetId())
		out.Brief.LostGpuHours += l.GetLostGpuHours()
		out.Brief.LossPerMinuteGpuHours += l.GetLossPerMinuteGpuHours()
		if isProposed(l) && needsPerson(r, l.GetProposal().GetDeadlineUnixNs()) {
			out.Brief.Waiting++
		}
		if i < BriefIncidents {
			addBrief(out, r, v, l)
		}
	}
	return out
}

// needsPerson reports whether nothing but a person decides: policy has no countdown, or is frozen.
func needsPerson(r *falconv1.SnapshotReply, deadlineNs int64) bool {
	return deadlineNs == 0 || r.GetPolicy().GetFrozen()
}

// openIncidents are those that last, those with a proposal first.
func openIncidents(r *falconv1.SnapshotReply) []*falconv1.Incident {
	var out []*falconv1.Incident
	for _, v := range r.GetIncidents() {
		switch falcon.IncidentState(v.GetState()) {
		case falcon.IncidentVerified, falcon.IncidentLocated:
			out = append(out, v)
		case falcon.IncidentRelieved, falcon.IncidentClosed:
		}
	}
	slices.SortStableFunc(out, func(a, b *falconv1.Incident) int {
		return boolean(isProposed(ladderOf(r, b.GetId()))) - boolean(isProposed(ladderOf(r, a.GetId())))
	})
	return out
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func isProposed(l *falconv1.Ladder) bool {
	return l.GetProposal().GetState() == string(falcon.ActionProposed)
}

func ladderOf(r *falconv1.SnapshotReply, incident string) *falconv1.Ladder {
	for _, l := range append([]*falconv1.Ladder{r.GetLadder()}, r.GetOthers()...) {
		if l.GetIncident() == incident {
			return l
		}
	}
	return nil
}

// addBrief lists one incident with its ladder and who looks after it.
func addBrief(out, r *falconv1.SnapshotReply, v *falconv1.Incident, l *falconv1.Ladder) {
	out.Incidents = append(out.Incidents, briefIncident(v))
	if l := briefLadder(v.GetId(), l); out.Ladder == nil {
		out.Ladder = l
	} else {
		out.Others = append(out.Others, l)
	}
	for _, t := range r.GetTriage() {
		if t.GetIncident() == v.GetId() {
			out.Triage = append(out.Triage, &falconv1.Triage{
				Incident:           v.GetId(),
				Owner:              t.GetOwner(),
				AckedBy:            t.GetAckedBy(),
				AckedUnixNs:        t.GetAckedUnixNs(),
				SnoozedBy:          t.GetSnoozedBy(),
				SnoozedUntilUnixNs: t.GetSnoozedUntilUnixNs(),
				Quiet:              t.GetQuiet(),
			})
			return
		}
	}
}

func briefJob(j *falconv1.Job) *falconv1.Job {
	return &falconv1.Job{
		Name:             j.GetName(),
		World:            j.GetWorld(),
		Iteration:        j.GetIteration(),
		IterationMs:      j.GetIterationMs(),
		BaselineMs:       j.GetBaselineMs(),
		Slowdown:         j.GetSlowdown(),
		DataAgeMs:        j.GetDataAgeMs(),
		Epoch:            j.GetEpoch(),
		State:            j.GetState(),
		Emulated:         j.GetEmulated(),
		Alarm:            j.GetAlarm(),
		Restart:          j.GetRestart(),
		IterationUnixNs:  j.GetIterationUnixNs(),
		SlowerIterations: j.GetSlowerIterations(),
		UsualMs:          j.GetUsualMs(),
		End:              briefEnd(j.GetEnd()),
	}
}

// briefWords bounds a sentence, in bytes.
const briefWords = 256

func briefEnd(e *falconv1.JobEnd) *falconv1.JobEnd {
	if e == nil {
		return nil
	}
	why := e.GetWhy()
	return &falconv1.JobEnd{
		How:      e.GetHow(),
		By:       e.GetBy(),
		Why:      strings.ToValidUTF8(why[:min(len(why), briefWords)], ""),
		AtUnixNs: e.GetAtUnixNs(),
		Ranks:    e.GetRanks(),
	}
}

func briefPolicy(p *falconv1.Policy) *falconv1.Policy {
	out := &falconv1.Policy{
		Mode:   p.GetMode(),
		Cap:    p.GetCap(),
		Frozen: p.GetFrozen(),
	}
	if r := p.GetRecovery(); r != nil {
		out.Recovery = &falconv1.RecoveryPolicy{Approval: r.GetApproval()}
	}
	return out
}

func briefIncident(v *falconv1.Incident) *falconv1.Incident {
	w := v.GetVerdict()
	return &falconv1.Incident{
		Id:               v.GetId(),
		State:            v.GetState(),
		OnsetIteration:   v.GetOnsetIteration(),
		HealthyMs:        v.GetHealthyMs(),
		SlowMs:           v.GetSlowMs(),
		OnsetUnixNs:      v.GetOnsetUnixNs(),
		Times:            v.GetTimes(),
		FirstOnsetUnixNs: v.GetFirstOnsetUnixNs(),
		Verdict: &falconv1.Verdict{
			Cause:      w.GetCause(),
			Also:       firstOf(w.GetAlso(), briefNames),
			Reason:     w.GetReason(),
			Confidence: w.GetConfidence(),
			Severity:   w.GetSeverity(),
			Devices:    firstOf(w.GetDevices(), briefNames),
			Links:      firstOf(w.GetLinks(), briefNames),
			Ranks:      firstOf(w.GetRanks(), briefRanks),
		},
	}
}

// briefLadder keeps what waits: the proposal, and actions that can be withdrawn.
func briefLadder(incident string, l *falconv1.Ladder) *falconv1.Ladder {
	out := &falconv1.Ladder{
		Incident:              incident,
		LostGpuHours:          l.GetLostGpuHours(),
		LossPerMinuteGpuHours: l.GetLossPerMinuteGpuHours(),
	}
	if isProposed(l) {
		out.Proposal = briefAction(l.GetProposal())
	}
	if n := len(l.GetActions()); n > 0 { // the newest alone can be approved and not ordered
		out.Actions = []*falconv1.Action{briefAction(l.GetActions()[n-1])}
	}
	return out
}

func briefAction(a *falconv1.Action) *falconv1.Action {
	return &falconv1.Action{
		Id:               a.GetId(),
		Incident:         a.GetIncident(),
		Rung:             a.GetRung(),
		State:            a.GetState(),
		PlanHash:         a.GetPlanHash(),
		Variant:          a.GetVariant(),
		DecidedBy:        a.GetDecidedBy(),
		DecidedUnixNs:    a.GetDecidedUnixNs(),
		ProposedUnixNs:   a.GetProposedUnixNs(),
		Phase:            a.GetPhase(),
		BeforeMs:         a.GetBeforeMs(),
		PredictedMs:      a.GetPredictedMs(),
		MeasuredMs:       a.GetMeasuredMs(),
		DeadlineUnixNs:   a.GetDeadlineUnixNs(),
		JobEpoch:         a.GetJobEpoch(),
		AppliedIteration: a.GetAppliedIteration(),
		Approvals: mapped(
			firstOf(a.GetApprovals(), briefNames),
			func(p *falconv1.Approval) *falconv1.Approval {
				return &falconv1.Approval{By: p.GetBy(), UnixNs: p.GetUnixNs()}
			},
		),
	}
}

func briefValidation(v *falconv1.Validation) *falconv1.Validation {
	if v == nil {
		return nil
	}
	return &falconv1.Validation{
		Id:       v.GetId(),
		State:    v.GetState(),
		By:       v.GetBy(),
		AtUnixNs: v.GetAtUnixNs(),
	}
}

func briefRecovery(v *falconv1.Recovery) *falconv1.Recovery {
	if v == nil {
		return nil
	}
	out := &falconv1.Recovery{
		Id:              v.GetId(),
		State:           v.GetState(),
		Generation:      v.GetGeneration(),
		Attempts:        v.GetAttempts(),
		Reason:          v.GetReason(),
		BeforeIteration: v.GetBeforeIteration(),
		ResumeIteration: v.GetResumeIteration(),
		StartedUnixNs:   v.GetStartedUnixNs(),
		EndedUnixNs:     v.GetEndedUnixNs(),
		DeadlineUnixNs:  v.GetDeadlineUnixNs(),
		PlanHash:        v.GetPlanHash(),
		Together:        v.GetTogether(),
		EndedJob:        v.GetEndedJob(),
		LostGpuHours:    v.GetLostGpuHours(),
		Whole:           v.GetWhole(),
		AwaitsProof:     v.GetAwaitsProof(),
	}
	if w := v.GetWait(); w != nil {
		out.Wait = &falconv1.RecoveryWait{
			Nodes:       firstOf(w.GetNodes(), briefNames),
			Spare:       w.GetSpare(),
			UntilUnixNs: w.GetUntilUnixNs(),
			Then:        w.GetThen(),
		}
	}
	for _, f := range firstOf(v.GetFaults(), briefNames) {
		out.Faults = append(out.Faults, &falconv1.Fault{
			Kind:   f.GetKind(),
			Node:   f.GetNode(),
			Device: f.GetDevice(),
			Ranks:  firstOf(f.GetRanks(), briefRanks),
		})
	}
	return out
}

func briefHang(h *falconv1.Hang) *falconv1.Hang {
	if h == nil {
		return nil
	}
	out := &falconv1.Hang{
		SinceUnixNs:  h.GetSinceUnixNs(),
		JudgedUnixNs: h.GetJudgedUnixNs(),
		Waiting:      h.GetWaiting(),
		World:        h.GetWorld(),
	}
	for _, p := range firstOf(h.GetCulprits(), briefNames) {
		out.Culprits = append(out.Culprits, &falconv1.HangPart{
			Kind:    p.GetKind(),
			Ranks:   firstOf(p.GetRanks(), briefRanks),
			Devices: firstOf(p.GetDevices(), briefRanks),
		})
	}
	return out
}

// firstOf is a copy of at most n items.
func firstOf[T any](list []T, n int) []T {
	return slices.Clone(list[:min(len(list), n)])
}
