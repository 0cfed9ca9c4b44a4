package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
)

// mark is a point on the iteration axis that is worth a line in the chart.
type mark struct {
	iteration int64
	kind      string
}

// marksMax bounds the jitters remembered for charts.
const marksMax = 256

// operatorLog writes the lines that operators read: each is a record of the
// next batch, and is published once it is durable. Lines that agents can cause
// have budgets.
type operatorLog struct {
	now     func() time.Time
	det     Detector // for the iteration that a line belongs to
	batch   *batch
	log     *slog.Logger // each line is one of the engine's own log too
	budgets *budgets     // of what agents can have written
	jitters []mark       // newest last, for charts
	news    nodeNews     // of agents that come and go together
}

func newOperatorLog(cfg *Config, det Detector, b *batch) *operatorLog {
	return &operatorLog{
		now:     cfg.Now,
		det:     det,
		batch:   b,
		log:     cfg.Log,
		budgets: newBudgets(),
		news:    nodeNews{racks: cfg.Recovery.Racks},
	}
}

// logf writes a line at the newest iteration. about is the id of an incident, action,
// recovery or validation, else a rank, device or node; empty = the job.
func (l *operatorLog) logf(kind string, severity int32, about, format string, args ...any) {
	l.logAt(l.det.Steady().Iteration, kind, severity, about, format, args...)
}

func (l *operatorLog) logAt(iteration int64, kind string, severity int32, about, format string, args ...any) {
	if agentsCause(kind, severity) && !l.withinBudget(kind) {
		return
	}
	l.append(iteration, kind, severity, about, format, args...)
}

// agentsCause reports whether agents can have any number of such lines written.
func agentsCause(kind string, severity int32) bool {
	switch kind {
	case "agent", "rank", kindKernel, "jitter", "profile", "rebase", "settled":
		return true
	case "fault":
		return severity < 2 // what a recovery acts on is always logged
	}
	return false
}

// withinBudget reports whether one more line of a kind may be logged now: its node's
// budget first, then that of all nodes. What was left out is logged as a number
// when the next period begins.
func (l *operatorLog) withinBudget(kind string) bool {
	now := l.now()
	if node := l.budgets.sender; node != "" {
		ok, left := l.budgets.budgetOf(source{kind, node}, nodeLinesBurst, now).admit(now)
		if left > 0 {
			l.append(l.det.Steady().Iteration, kind, 1, string(node),
				"%d further lines of this kind from node %s were left out",
				left, node)
		}
		if !ok {
			return false
		}
	}
	ok, left := l.budgets.budgetOf(source{kind: kind}, linesBurst, now).admit(now)
	if left > 0 {
		l.append(l.det.Steady().Iteration, kind, 1, "", "%d further lines of this kind were left out", left)
	}
	return ok
}

func (l *operatorLog) append(
	iteration int64,
	kind string,
	severity int32,
	about, format string,
	args ...any,
) {
	text := clean(fmt.Sprintf(format, args...))
	l.batch.addRecords(record(l.now(), kindEvent, eventRecord{
		Iteration: iteration,
		Kind:      kind,
		Severity:  severity,
		About:     about,
		Text:      text,
	}))
	level := slog.LevelInfo
	if severity > 1 {
		level = slog.LevelWarn
	}
	l.log.Log(
		context.Background(),
		level,
		"event",
		slog.String("text", text),
		slog.String("kind", kind),
		slog.String("about", about),
		slog.Int64("iteration", iteration),
		slog.Int("severity", int(severity)),
	)
}

// planKind maps the planner's notes to the kinds that consoles know.
func planKind(kind string) string {
	if kind == "skip" {
		return "action"
	}
	return kind
}

// detected passes on what the detector judged to be nothing; onsets and
// reliefs are logged from the incident itself.
func (l *operatorLog) detected(n detect.Note) {
	switch n.Kind {
	case "onset", "relief":
		return
	case "jitter":
		l.jitters = append(l.jitters, mark{n.Iteration, n.Kind})
		if len(l.jitters) > marksMax {
			l.jitters = l.jitters[len(l.jitters)-marksMax/2:]
		}
	}
	l.logAt(n.Iteration, n.Kind, 0, n.About, "%s", n.Text)
}

// incident says what is new about an incident.
func (l *operatorLog) incident(old falcon.Incident, known bool, v falcon.Incident) {
	severity := int32(max(v.Verdict.Severity, 1))
	if !known {
		l.logAt(v.DetectedIteration, "incident", severity, v.ID,
			"%s: slow since iteration %d: %.1f ms instead of %.1f ms",
			v.ID, v.OnsetIteration, v.SlowMs, v.Before())
	}
	switch {
	case known && isBack(old, v):
		l.logAt(v.DetectedIteration, "incident", severity, v.ID,
			"%s is back, time %d since iteration %d: slow since iteration %d: %.1f ms instead of %.1f ms",
			v.ID, v.Times, v.FirstOnset, v.OnsetIteration, v.SlowMs, v.Before())
	case known && v.Times < old.Times:
		l.logf("incident", 0, v.ID, "%s is closed: what came after it is another fault", v.ID)
		return
	}
	if known && old.State == v.State {
		return
	}
	switch v.State {
	case falcon.IncidentLocated:
		l.logf("verdict", severity, v.ID, "%s: %s", v.ID, VerdictText(v.Verdict))
	case falcon.IncidentRelieved:
		if old.State != falcon.IncidentLocated && v.Verdict.Cause == falcon.CauseUnknown {
			l.logAt(v.RelievedIteration, "incident", 0, v.ID,
				"%s: the slowdown ended at iteration %d before a profile was taken: no culprit is named",
				v.ID, v.RelievedIteration)
			return
		}
		if v.Departed {
			l.logAt(v.RelievedIteration, "incident", 0, v.ID,
				"%s: what it names has left the job; healthy from iteration %d",
				v.ID, v.RelievedIteration)
			return
		}
		l.logAt(v.RelievedIteration, "incident", 0, v.ID,
			"%s: the fault has cleared; healthy from iteration %d",
			v.ID, v.RelievedIteration)
	case falcon.IncidentClosed:
		l.logf("incident", 0, v.ID, "%s is closed", v.ID)
	case falcon.IncidentVerified:
	}
}

// VerdictText is a verdict in one sentence.
func VerdictText(v falcon.Verdict) string {
	where := ""
	for _, d := range v.Devices {
		where += " " + string(d)
	}
	for _, l := range v.Links {
		where += " " + l.String()
	}
	if where != "" {
		where = " on" + where
	}
	if len(v.Ranks) > 0 {
		where += fmt.Sprintf(" (rank %s)", ranksText(v.Ranks))
	}
	if v.Confidence > 0 { // else nothing is named
		where += fmt.Sprintf(", confidence %.0f%%", 100*v.Confidence)
	}
	return v.Cause.Text() + where
}

func ranksText(ranks []falcon.Rank) string {
	s := ""
	for i, r := range ranks {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprint(int(r))
	}
	return s
}

// audit logs what a person did, in the batch that holds what it leads to.
func (l *operatorLog) audit(now time.Time, who Actor, d auditEntry) {
	d.Actor, d.Role, d.From = clean(who.Name), clean(who.Role), clean(who.From)
	l.batch.addRecords(record(now, kindEvent, eventRecord{
		Iteration: l.det.Steady().Iteration,
		Kind:      kindAudit,
		Text:      clean(d.sentence()),
		Audit:     &d,
	}))
}
