package plain

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/phrase"
)

// diff remembers what has been told, so that each change is told once.
type diff struct {
	job       string
	conn      feed.Conn
	policy    string
	seq       uint64
	started   bool
	incidents map[string]string // id to what was told last
	actions   map[string]string // id to state
}

func newDiff() *diff {
	return &diff{incidents: map[string]string{}, actions: map[string]string{}}
}

// step lists what is new in s.
func (d *diff) step(s *feed.State) []string {
	var out []string
	out = append(out, d.connection(s))
	if s.Received.IsZero() {
		return out
	}
	job := s.Snap.GetJob()
	at := stamp(job)
	for _, l := range append(d.jobLines(s.Snap), d.eventLines(s)...) {
		out = append(out, at+l)
	}
	for _, i := range s.Snap.Incidents {
		if l := d.incident(i); l != "" {
			out = append(out, at+l)
		}
	}
	for _, a := range s.Snap.GetLadder().GetActions() {
		if l := d.action(a); l != "" {
			out = append(out, at+l)
		}
	}
	return out
}

// stamp is where the job was when a line was written.
func stamp(j *falconv1.Job) string {
	if j.GetIteration() < 0 {
		return "[start] "
	}
	return fmt.Sprintf("[iteration %s] ", phrase.Count(j.GetIteration()))
}

func (d *diff) connection(s *feed.State) string {
	if s.Conn == d.conn {
		return ""
	}
	was := d.conn
	d.conn = s.Conn
	switch {
	case s.Conn == feed.Lost:
		return fmt.Sprintf("engine unreachable since %s, retrying: %s", s.Since.UTC().Format("15:04:05Z"), s.Err)
	case was == feed.Lost:
		return "engine reached again"
	}
	return ""
}

func (d *diff) jobLines(s *falconv1.SnapshotReply) []string {
	var out []string
	job := s.GetJob()
	if !d.started && job.GetWorld() > 0 {
		d.started = true
		emulated := ""
		if job.Emulated {
			emulated = ", emulated silicon"
		}
		out = append(out, fmt.Sprintf("watching %s: %d ranks (tp %d, dp %d, pp %d)%s", job.Name, job.World, job.Tp, job.Dp, job.Pp, emulated))
	}
	if st := job.GetState(); st != d.job && st != "" {
		d.job = st
		out = append(out, jobState(job))
	}
	if mode := phrase.Mode(s.Policy); s.Policy != nil && mode != d.policy {
		d.policy = mode
		out = append(out, "mode is "+mode)
	}
	return out
}

func jobState(j *falconv1.Job) string {
	switch j.State {
	case "learning":
		return "learning the healthy iteration time"
	case "steady":
		return fmt.Sprintf("steady at %s an iteration, baseline %s", phrase.Ms(j.IterationMs), phrase.Ms(j.BaselineMs))
	case "slow":
		return fmt.Sprintf("slow: %s an iteration, %s against the baseline of %s", phrase.Ms(j.IterationMs), phrase.Percent(j.Slowdown), phrase.Ms(j.BaselineMs))
	case "finished":
		return "the job has finished"
	}
	return "job state: " + j.State
}

// told are the kinds of events that the snapshot's own changes tell better.
var told = map[string]bool{"incident": true, "verdict": true, "proposal": true, "decision": true, "action": true, "policy": true}

func (d *diff) eventLines(s *feed.State) []string {
	var out []string
	for _, e := range s.Events {
		if e.Seq <= d.seq {
			continue
		}
		d.seq = e.Seq
		if !told[e.Kind] {
			out = append(out, e.Kind+": "+e.Text)
		}
	}
	return out
}

func (d *diff) incident(i *falconv1.Incident) string {
	now := i.State
	if v := i.GetVerdict(); v != nil {
		now += "|" + phrase.Verdict(v)
	}
	if d.incidents[i.Id] == now {
		return ""
	}
	d.incidents[i.Id] = now
	switch i.State {
	case "verified":
		return fmt.Sprintf("%s: slow since iteration %s, verified at %s: %s → %s (%s)", i.Id, phrase.Iteration(i.OnsetIteration),
			phrase.Iteration(i.DetectedIteration), phrase.Ms(i.HealthyMs), phrase.Ms(i.SlowMs), phrase.Change(i.HealthyMs, i.SlowMs))
	case "located":
		return fmt.Sprintf("%s: %s, confidence %.0f%%", i.Id, phrase.Verdict(i.Verdict), 100*i.GetVerdict().GetConfidence())
	case "relieved":
		return fmt.Sprintf("%s: the fault has cleared, healthy again from iteration %s", i.Id, phrase.Iteration(i.RelievedIteration))
	case "closed":
		return i.Id + ": closed"
	}
	return i.Id + ": " + i.State
}

func (d *diff) action(a *falconv1.Action) string {
	now := fmt.Sprint(a.State, len(a.Approvals), a.State == "approved" && a.DeadlineUnixNs != 0)
	if d.actions[a.Id] == now {
		return ""
	}
	d.actions[a.Id] = now
	name := fmt.Sprintf("%s: %s (%s)", a.Incident, a.Rung, phrase.Rung(a.Rung))
	switch a.State {
	case "proposed":
		if phrase.Waits(a) {
			return fmt.Sprintf("%s approved by %s, waits for a second approver", name, phrase.Approvers(a))
		}
		return fmt.Sprintf("%s proposed: micro-batches %s, predicted %s → %s (%s); waits for a decision", name,
			phrase.Plan(a.Previous, a.MicroBatches, 60), phrase.Ms(a.BeforeMs), phrase.Ms(a.PredictedMs), phrase.Change(a.BeforeMs, a.PredictedMs))
	case "approved":
		if a.DeadlineUnixNs != 0 {
			at := time.Unix(0, a.DeadlineUnixNs).UTC().Format("15:04:05Z")
			return fmt.Sprintf("%s approved by %s, acts at %s unless somebody withdraws it", name, phrase.Approvers(a), at)
		}
		return fmt.Sprintf("%s approved by %s, waits to be ordered", name, phrase.Approvers(a))
	case "dispatched":
		return fmt.Sprintf("%s dispatched, decided by %s", name, phrase.Approvers(a))
	case "applied":
		return fmt.Sprintf("%s in force from iteration %s, decided by %s", name, phrase.Iteration(a.AppliedIteration), phrase.Approvers(a))
	case "kept":
		return name + " kept: " + measured(a)
	case "reverted":
		return fmt.Sprintf("%s reverted from iteration %s%s", name, phrase.Iteration(a.RevertedIteration), phrase.Because(a))
	case "vetoed":
		if by := phrase.Approvers(a); by != "" {
			return fmt.Sprintf("%s, approved by %s, withdrawn by %s%s", name, by, a.DecidedBy, phrase.Because(a))
		}
		return fmt.Sprintf("%s vetoed by %s%s", name, a.DecidedBy, phrase.Because(a))
	}
	return name + " " + a.State + phrase.Because(a)
}

func measured(a *falconv1.Action) string {
	return fmt.Sprintf("%s → %s measured (%s), %s predicted", phrase.Ms(a.BeforeMs), phrase.Ms(a.MeasuredMs),
		phrase.Change(a.BeforeMs, a.MeasuredMs), phrase.Ms(a.PredictedMs))
}

// Summary is one line on how things are.
func Summary(s *feed.State, now time.Time) string {
	if s.Received.IsZero() {
		return "no engine yet, retrying: " + s.Err
	}
	job := s.Snap.GetJob()
	line := stamp(job) + fmt.Sprintf("%s, %s an iteration (%s vs baseline)", job.GetState(),
		phrase.Ms(job.GetIterationMs()), phrase.Percent(job.GetSlowdown()))
	for _, i := range s.Snap.Incidents {
		if i.State == "verified" || i.State == "located" {
			line += fmt.Sprintf("; %s: %s", i.Id, phrase.Verdict(i.Verdict))
		}
	}
	if r := s.Snap.GetRecovery(); feed.Recovering(r) {
		line += fmt.Sprintf("; %s at %s: %s", r.Id, r.State, phrase.Faults(r.Faults))
	}
	if s.Conn != feed.Live {
		line += fmt.Sprintf("; engine unreachable for %ds", int(now.Sub(s.Since).Seconds()))
	}
	return line
}

// Story tells every incident from onset to end.
func Story(r *falconv1.IncidentsReply) []string {
	if len(r.Incidents) == 0 {
		return []string{"", "No incident."}
	}
	var out []string
	for n, i := range r.Incidents {
		out = append(out, fmt.Sprintf("%s  %s", i.Id, i.State))
		var l *falconv1.Ladder
		if n < len(r.Ladders) {
			l = r.Ladders[n]
		}
		for _, s := range tell(i, l) {
			out = append(out, "  "+s)
		}
	}
	return out
}

func tell(i *falconv1.Incident, l *falconv1.Ladder) []string {
	out := []string{fmt.Sprintf("onset     iteration %s, known at %s: %s → %s (%s), P(change) %.2f", phrase.Iteration(i.OnsetIteration),
		phrase.Iteration(i.DetectedIteration), phrase.Ms(i.HealthyMs), phrase.Ms(i.SlowMs), phrase.Change(i.HealthyMs, i.SlowMs), i.Probability)}
	if v := i.Verdict; v.GetCause() != "" {
		out = append(out, fmt.Sprintf("verdict   %s, severity %d, confidence %.0f%%", phrase.Verdict(v), v.Severity, 100*v.Confidence))
		for _, e := range v.Evidence {
			sign := "+"
			if e.Against {
				sign = "-"
			}
			out = append(out, fmt.Sprintf("evidence  %s %s: %s", sign, e.Kind, e.Text))
		}
	} else {
		out = append(out, "verdict   none reached")
	}
	acted := false
	for _, a := range l.GetActions() {
		out = append(out, actionStory(a)...)
		acted = acted || a.AppliedIteration > 0
	}
	if !acted {
		out = append(out, "action    nothing was changed in the job")
	}
	if i.RelievedIteration >= 0 && (i.State == "relieved" || i.State == "closed") {
		out = append(out, "relief    healthy again from iteration "+phrase.Iteration(i.RelievedIteration))
	}
	for _, a := range l.GetActions() {
		if a.RevertedIteration > 0 {
			out = append(out, fmt.Sprintf("revert    %s undone from iteration %s%s", a.Rung, phrase.Iteration(a.RevertedIteration), phrase.Because(a)))
		}
	}
	if l != nil {
		out = append(out, fmt.Sprintf("cost      %s of training time, %.4f GPU-hours", phrase.Ms(l.ImpactMs), l.LostGpuHours))
	}
	return out
}

func actionStory(a *falconv1.Action) []string {
	parts := []string{fmt.Sprintf("action    %s (%s) proposed at iteration %s", a.Rung, phrase.Rung(a.Rung), phrase.Iteration(a.ProposedIteration))}
	if a.DecidedBy != "" {
		parts = append(parts, a.State+", decided by "+a.DecidedBy)
	} else {
		parts = append(parts, a.State)
	}
	if a.AppliedIteration > 0 {
		parts = append(parts, fmt.Sprintf("in force from %s", phrase.Iteration(a.AppliedIteration)))
	}
	if p := phrase.Plan(a.Previous, a.MicroBatches, 60); p != "" {
		parts = append(parts, "micro-batches "+p)
	}
	out := []string{strings.Join(parts, ", ")}
	if a.MeasuredMs > 0 {
		out = append(out, "gain      "+measured(a)+", switch cost "+phrase.Ms(a.OverheadMs))
	}
	return out
}
