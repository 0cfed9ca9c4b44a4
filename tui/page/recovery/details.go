package recovery

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// lineWriter collects lines of a width.
type lineWriter struct {
	w   int
	out []page.Line
}

// sayLine wraps text; what goes on in further rows is indented.
func (t *lineWriter) sayLine(role themes.Role, format string, a ...any) {
	for i, l := range widget.Wrap(fmt.Sprintf(format, a...), max(10, t.w-2)) {
		if i > 0 {
			l = "  " + l
		}
		t.out = append(t.out, page.Line{Text: l, Role: role})
	}
}

// Details describes faults, decision, replacements and shards in rows of w columns.
func Details(s *page.State, v *falconv1.Recovery, w int) []page.Line {
	t := &lineWriter{w: w}
	t.sayState(s, v)
	for _, f := range v.GetFaults() {
		t.sayFault(s, f)
	}
	t.sayPlaces(s, v)
	t.sayResume(v)
	t.sayShards(v)
	return t.out
}

// sayState describes why it waits or failed, and who decided.
func (t *lineWriter) sayState(s *page.State, v *falconv1.Recovery) {
	role := themes.Accent
	switch falcon.RecoveryState(v.GetState()) {
	case falcon.RecoveryResumed:
		role = themes.Good
	case falcon.RecoveryFailed, falcon.RecoveryDenied, falcon.RecoveryCancelled:
		role = themes.Bad
	case falcon.RecoveryProposed:
		role = themes.Warn
	}
	t.sayLine(role, "%s", phrase.Capital(s.RecoverySummary(v)))
	if v.GetReason() != "" &&
		v.GetResumeIteration() < 0 &&
		!strings.Contains(s.RecoverySummary(v), v.Reason) {
		t.sayLine(themes.Warn, "Because %s", v.Reason)
	}
	_, limited := s.Left(v)
	if v.GetWait() != nil && limited && feed.Recovering(v) {
		t.sayLine(themes.Text, "%s", phrase.Capital(phrase.Progress(v)))
	}
	if v.GetDecidedBy() != "" {
		text := "Decided by " + v.DecidedBy
		if feed.Recovering(v) && v.GetNoReturn() {
			text += "; the ranks were ordered to rejoin, it can't be aborted"
		}
		t.sayLine(dim, "%s", text)
	}
}

func (t *lineWriter) sayFault(s *page.State, f *falconv1.Fault) {
	text := "Fault: " + phrase.FaultName(f)
	if at := cmp.Or(f.GetFirstUnixNs(), f.GetDetectedUnixNs()); at > 0 {
		text += ", first sign at " + phrase.Clock(time.Unix(0, at), s.EngineNow(), s.Zone)
	}
	known := float64(f.GetDetectedUnixNs()-f.GetFirstUnixNs()) / 1e6
	if known > 0 && f.GetFirstUnixNs() > 0 {
		text += ", certain " + phrase.Ms(known) + " later"
	}
	t.sayLine(themes.Title, "%s", text)
	if back := phrase.Returned(f); back != "" {
		t.sayLine(themes.Good, "%s", phrase.Capital(back))
	}
	for _, e := range f.GetEvidence() {
		t.sayLine(themes.Text, "+ %s", e)
	}
}

// sayPlaces describes who is replaced where, who stays and who is refused.
func (t *lineWriter) sayPlaces(s *page.State, v *falconv1.Recovery) {
	t.sayWhole(v)
	if len(v.GetReplaced()) > 0 {
		t.sayLine(themes.Text, "%s: %s",
			phrase.Capital(phrase.Replacing(falcon.RecoveryState(v.State), v.PhasesMs)),
			phrase.Replaced(v))
	}
	if v.GetEndedJob() {
		t.sayLine(themes.Warn, "Survivors: none: all processes were ordered to end")
	} else if n := len(v.GetSurvivors()); n > 0 {
		text := fmt.Sprintf("Survivors: %s", phrase.Count(int64(n)))
		if kept, of, ok := s.KeptPids(v); ok {
			text += fmt.Sprintf("; %d of %d seen have kept their process", kept, of)
		}
		t.sayLine(themes.Text, "%s", text)
	}
	if len(v.GetFenced()) > 0 {
		t.sayLine(themes.Text, "Fenced: %s", strings.Join(v.Fenced, ", "))
	}
}

// sayWhole describes a restart that keeps no process, and of replicas that are given up.
func (t *lineWriter) sayWhole(v *falconv1.Recovery) {
	if v.GetWhole() {
		t.sayLine(themes.Warn, "Whole restart: no process is kept, all are started again")
	}
	if x := v.GetShrink(); x != nil {
		t.sayLine(themes.Warn, "Fewer replicas: %d of %d stay and share the whole batch",
			len(x.GetKept()), x.GetOf())
	}
}

// sayResume describes where training goes on, and why there.
func (t *lineWriter) sayResume(v *falconv1.Recovery) {
	why := ""
	if v.GetReason() != "" &&
		(v.GetState() == string(falcon.RecoveryRejoin) || v.GetState() == string(falcon.RecoveryResumed)) {
		why = ": " + v.Reason
	}
	before := phrase.Iteration(v.GetBeforeIteration())
	switch at := phrase.Iteration(v.GetResumeIteration()); {
	case v.GetCheckpoint() && v.ResumeIteration >= 0:
		t.sayLine(themes.Warn,
			"All ranks go back to the checkpoint of iteration %s; %s was the newest begun%s",
			at, before, why)
	case v.GetCheckpoint():
		t.sayLine(themes.Warn, "All ranks go back to a checkpoint")
	case v.GetResumeIteration() >= 0:
		t.sayLine(themes.Text, "Goes on at iteration %s; %s was the newest begun%s", at, before, why)
	case feed.Recovering(v):
		t.sayLine(dim,
			"The iteration to go on at is chosen once all have reported what they hold; %s was the newest begun",
			before)
	}
}

// sayShards lists every move, those of one reason together.
func (t *lineWriter) sayShards(v *falconv1.Recovery) {
	if len(v.GetMoves()) == 0 {
		return
	}
	t.sayLine(themes.Title, "Shards to restore: %d", len(v.Moves))
	var order []string
	of := map[string][]string{}
	for _, m := range v.Moves {
		if _, seen := of[m.GetWhy()]; !seen {
			order = append(order, m.GetWhy())
		}
		from := fmt.Sprintf("copied from rank %d", m.GetFrom())
		if m.GetFrom() == int32(falcon.FromCheckpoint) {
			from = "read from storage"
		}
		of[m.GetWhy()] = append(of[m.GetWhy()], fmt.Sprintf("rank %d %s", m.GetRank(), from))
	}
	for _, why := range order {
		text := strings.Join(of[why], ", ")
		if why != "" {
			text += ": " + why
		}
		t.sayLine(themes.Text, "%s", text)
	}
}
