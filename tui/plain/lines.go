package plain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// diff remembers what was printed, so that each change is printed once.
type diff struct {
	job       string
	conn      feed.Conn
	policy    string
	unseen    []string
	seq       uint64
	started   bool
	incidents map[string]string // id to what was printed last
	actions   map[string]string // id to state
	reader    *reader           // says less; nil = everything is printed
}

func newDiff() *diff {
	return &diff{incidents: map[string]string{}, actions: map[string]string{}}
}

// linesOf lists what is new in s.
func (d *diff) linesOf(s *feed.State) []string {
	var out []string
	out = append(out, d.connection(s))
	if s.Received.IsZero() {
		return out
	}
	job := s.Snap.GetJob()
	at := jobStamp(job)
	for _, l := range d.jobLines(s.Snap) {
		out = append(out, at+l)
	}
	out = append(out, d.eventLines(s)...)
	for _, i := range s.Snap.Incidents {
		if l := d.incident(i); l != "" {
			out = append(out, at+l)
		}
	}
	for _, a := range s.Snap.GetLadder().GetActions() {
		if l := d.actionLine(a); l != "" {
			out = append(out, at+l)
		}
	}
	return out
}

// jobStamp is where the job was when a line was written.
func jobStamp(j *falconv1.Job) string { return stamp(j.GetIteration()) }

func stamp(iteration int64) string {
	if iteration < 0 {
		return "[start] "
	}
	return fmt.Sprintf("[iteration %s] ", phrase.Count(iteration))
}

func (d *diff) connection(s *feed.State) string {
	if s.Conn == d.conn {
		return ""
	}
	was := d.conn
	d.conn = s.Conn
	switch {
	case s.Conn == feed.Lost:
		return fmt.Sprintf("engine unreachable since %s, retrying: %s",
			s.Since.UTC().Format("15:04:05Z"), s.Err)
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
		out = append(out, fmt.Sprintf("watching %s: %d ranks (tp %d, dp %d, pp %d)%s",
			job.Name, job.World, job.Tp, job.Dp, job.Pp, emulated))
	}
	at := time.Unix(0, s.GetAtUnixNs())
	x := statements.OfJob(statements.Picture{Snap: s, Now: at})
	if x.Kind != statements.Unknown && string(x.Kind) != d.job {
		d.job = string(x.Kind)
		out = append(out, phrase.Statement(&x, at))
	}
	if unseen := unseenLines(s); !slices.Equal(unseen, d.unseen) {
		d.unseen = unseen
		out = append(out, unseen...)
	}
	if mode := phrase.Mode(s.Policy); s.Policy != nil && mode != d.policy {
		d.policy = mode
		out = append(out, "mode is "+mode)
	}
	return out
}

// unseenLines are the processes that seem to be ranks and that are not followed.
func unseenLines(s *falconv1.SnapshotReply) []string {
	var out []string
	for _, n := range s.GetNodes() {
		for _, why := range n.GetUnseen() {
			out = append(out, "not watched on "+n.GetNode()+": "+why)
		}
	}
	return out
}

// derived are the kinds of events that follow from the snapshot's own changes.
var derived = map[string]bool{
	"incident": true,
	"verdict":  true,
	"proposal": true,
	"decision": true,
	"action":   true,
	"policy":   true,
}

func (d *diff) eventLines(s *feed.State) []string {
	var out []string
	for _, e := range s.Events {
		if e.Seq <= d.seq {
			continue
		}
		d.seq = e.Seq
		if !derived[e.Kind] && (d.reader == nil || d.reader.detail.says(e)) {
			// of its own time: a stream that attaches late has them all at once
			out = append(out, stamp(e.Iteration)+e.Kind+": "+e.Text)
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
	return i.Id + ": " + phrase.IncidentLogged(i)
}

func (d *diff) actionLine(a *falconv1.Action) string {
	now := fmt.Sprint(
		a.State,
		len(a.Approvals),
		a.State == string(falcon.ActionApproved) && a.DeadlineUnixNs != 0,
	)
	if d.actions[a.Id] == now {
		return ""
	}
	d.actions[a.Id] = now
	return a.Incident + ": " + phrase.ActionLogged(a)
}

// Summary is one line on how things are.
func Summary(s *feed.State, now time.Time) string {
	if s.Received.IsZero() {
		return "no engine yet, retrying: " + s.Err
	}
	line := jobStamp(s.Snap.GetJob()) + strings.Join(said(s, now), "; ")
	if s.Conn != feed.Live {
		line += fmt.Sprintf("; engine unreachable for %ds", int(now.Sub(s.Since).Seconds()))
	}
	return line
}

// said are the statements, the most important first.
func said(s *feed.State, now time.Time) (out []string) {
	at := s.EngineTime(now)
	for _, x := range statements.Of(statements.Picture{Snap: s.Snap, Now: at, Lost: s.Conn == feed.Lost}) {
		out = append(out, phrase.Statement(&x, at))
	}
	return out
}

// holdingLines returns who holds the job up.
func holdingLines(r *falconv1.SnapshotReply) []string {
	h := r.GetHang()
	if h == nil {
		return nil
	}
	out := []string{phrase.HangHeadline(h, time.Unix(0, r.GetAtUnixNs()))}
	for _, p := range phrase.HangParts(h) {
		out = append(out, "  "+p.GetText(), "  → "+p.GetAdvice())
	}
	for _, d := range h.GetDoubts() {
		out = append(out, "  "+d)
	}
	return out
}

// IncidentLines returns every incident in lines, from onset to end.
func IncidentLines(r *falconv1.IncidentsReply) []string {
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
		for _, s := range incidentLines(i, l) {
			out = append(out, "  "+s)
		}
		for _, s := range decidedLines(i, r.GetChart()) {
			out = append(out, "  "+s)
		}
	}
	return out
}

// decidedLines say what opened an incident, as long as the engine holds it.
func decidedLines(i *falconv1.Incident, chart *falconv1.Series) (out []string) {
	for _, d := range chart.GetDecisions() {
		if !d.GetOpened() || d.GetOnset() != i.GetOnsetIteration() {
			continue
		}
		out = append(out, "decided   "+phrase.Decided(d))
		if on := phrase.DecidedOn(d, chart.GetWindow()); on != "" {
			out = append(out, "          "+on)
		}
	}
	return out
}

func incidentLines(i *falconv1.Incident, l *falconv1.Ladder) []string {
	out := []string{fmt.Sprintf("onset     iteration %s, known at %s: %s, P(change) %.2f",
		phrase.Iteration(i.OnsetIteration),
		phrase.Iteration(i.DetectedIteration), phrase.Slowdown(i), i.Probability)}
	if v := i.Verdict; v.GetCause() != "" {
		out = append(out,
			fmt.Sprintf("verdict   %s, severity %d", phrase.Verdict(v), v.Severity)+phrase.Confidence(v),
		)
		for _, e := range v.Evidence {
			out = append(out, fmt.Sprintf("evidence  %s %s: %s",
				phrase.Sign(e), e.Kind, e.Text))
		}
	} else {
		out = append(out, "verdict   none reached")
	}
	acted := false
	for _, a := range l.GetActions() {
		out = append(out, actionLines(a)...)
		acted = acted || a.AppliedIteration > 0
	}
	if !acted {
		out = append(out, "action    nothing was changed in the job")
	}
	if i.RelievedIteration >= 0 && !page.Open(i) {
		out = append(out, "relief    healthy again from iteration "+phrase.Iteration(i.RelievedIteration))
	}
	for _, a := range l.GetActions() {
		switch {
		case a.State == string(falcon.ActionRetained):
			out = append(out, "end       "+phrase.Action(a))
		case a.RevertedIteration > 0:
			out = append(out, fmt.Sprintf("revert    %s undone from iteration %s%s",
				a.Rung, phrase.Iteration(a.RevertedIteration), phrase.Because(a)))
		}
	}
	if l != nil {
		out = append(out, fmt.Sprintf("cost      %s of training time, %.4f GPU-hours",
			phrase.Ms(l.ImpactMs), l.LostGpuHours))
	}
	return out
}

func actionLines(a *falconv1.Action) []string {
	parts := []string{
		fmt.Sprintf("action    %s (%s) proposed at iteration %s",
			a.Rung, phrase.Does(a.Rung, a.Variant), phrase.Iteration(a.ProposedIteration)),
		a.State + phrase.Prefixed(", decided by ", a.DecidedBy),
	}
	if a.AppliedIteration > 0 {
		parts = append(parts, fmt.Sprintf("in force from %s", phrase.Iteration(a.AppliedIteration)))
	}
	if p := phrase.Plan(a.Previous, a.MicroBatches, 60); p != "" {
		parts = append(parts, "micro-batches "+p)
	}
	out := []string{strings.Join(parts, ", ")}
	if a.MeasuredMs > 0 {
		out = append(out, "gain      "+phrase.Measured(a)+", switch cost "+phrase.Ms(a.OverheadMs))
	}
	return out
}
