package plain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
	"github.com/failslow/falcon/tui/roster"
)

// readerWord is one thing that can be asked for, answered in sentences.
type readerWord struct {
	name, usage, help string
	say               func(s *feed.State, arg string, now time.Time) []string
}

// readerWords stand for the pages of the screen.
var readerWords = []readerWord{
	{"why", "why", "the present incident: what is wrong, the evidence, what is proposed", sayWhy},
	{"incidents", "incidents", "every incident that is listed", sayIncidents},
	{"ranks", "ranks", "how many ranks there are, and each that is not healthy", sayRanks},
	{"rank", "rank N", "one rank, with its node, process history and tests", sayRank},
	{"ladder", "ladder", "what can be done about the incident, with cost and gain", sayLadder},
	{"test", "test", "what the newest test found", sayTest},
	{"recovery", "recovery", "the newest recovery", sayRecovery},
	{"events", "events", "the last ten events", sayEvents},
	{"who", "who", "who you are, who may act, and who else is here", sayWho},
}

func sayWhy(s *feed.State, _ string, at time.Time) []string {
	now := s.EngineTime(at)
	live := pictured(s)
	inc := live.Incident()
	switch {
	case s.Snap.GetJob() == nil:
		return []string{page.NoRanks(live)}
	case s.Snap.GetHang() != nil:
		return holdingLines(s.Snap)
	case !page.Open(inc):
		return said(s, at)
	}
	out := append(said(
		s,
		at,
	),
		fmt.Sprintf("%s is %s: %s; slow since %s; %s",
			inc.Id, inc.State, phrase.Verdict(inc.Verdict),
			cmp.Or(phrase.Since(inc, now, nil), "iteration "+phrase.Iteration(inc.OnsetIteration)),
			phrase.Slowdown(inc)),
	)
	for _, e := range inc.GetVerdict().GetEvidence() {
		out = append(out, "  "+phrase.Sign(e)+" "+e.Kind+": "+e.Text)
	}
	return append(out, page.Doing(live))
}

func sayIncidents(s *feed.State, _ string, now time.Time) []string {
	now = s.EngineTime(now)
	list := s.Snap.GetIncidents()
	if len(list) == 0 {
		return []string{"there has been no incident"}
	}
	out := make([]string, 0, len(list))
	for _, i := range list {
		out = append(out, fmt.Sprintf("%s, %s, since %s: %s",
			i.Id, i.State,
			cmp.Or(phrase.Since(i, now, nil), "iteration "+phrase.Iteration(i.OnsetIteration)),
			phrase.Verdict(i.Verdict)))
	}
	return out
}

func sayRanks(s *feed.State, _ string, _ time.Time) []string {
	live := page.NewState(s)
	if live.Roster.World() == 0 {
		return []string{page.NoRanks(live)}
	}
	out := []string{fmt.Sprintf("%d ranks: %s", live.Roster.World(), live.Tally())}
	worst := slices.SortedStableFunc(slices.Values(live.Anomalies()), func(a, b int32) int {
		return roster.Gravity(live.Roster.Standing(b)) - roster.Gravity(live.Roster.Standing(a))
	})
	for _, r := range worst {
		out = append(out, rankSentence(live, r))
	}
	return out
}

func sayRank(s *feed.State, arg string, _ time.Time) []string {
	live := page.NewState(s)
	n, err := strconv.Atoi(arg)
	if err != nil || n < 0 || n >= live.Roster.World() {
		return []string{fmt.Sprintf("rank takes a number from 0 to %d",
			max(0, live.Roster.World()-1))}
	}
	out := []string{rankSentence(live, int32(n))}
	for _, l := range page.AboutRank(live, int32(n), 1<<10) {
		out = append(out, l.Text)
	}
	return out
}

// rankSentence is a row of the table of ranks as a sentence.
func rankSentence(s *page.State, rank int32) string {
	v := s.Roster.View(rank)
	_, word, _ := s.Health(v)
	if v == nil {
		return fmt.Sprintf("rank %d: nothing is known of it", rank)
	}
	parts := []string{fmt.Sprintf("iteration time %s, %s against its own baseline",
		phrase.Ms(v.Ms), phrase.Percent(v.Slowdown))}
	if v.SelfRatio > 0 {
		parts = append(parts, fmt.Sprintf("self time %.2f times its peers'", v.SelfRatio))
	}
	if v.WaitMs > 0 {
		parts = append(parts, "waits "+phrase.Ms(v.WaitMs)+" for others")
	}
	if v.SmClockMhz > 0 {
		parts = append(parts, fmt.Sprintf("SM clock %d MHz, %d degrees Celsius",
			v.SmClockMhz, v.TemperatureC))
	}
	if text := phrase.Busy(v); text != "" {
		parts = append(parts, text)
	}
	if v.CnpPerS > 0 {
		parts = append(parts, fmt.Sprintf("%.0f congestion marks a second", v.CnpPerS))
	}
	return fmt.Sprintf("rank %d on %s is %s: %s",
		rank, cmp.Or(v.Device, "no known device"), word, strings.Join(parts, "; "))
}

func sayLadder(s *feed.State, _ string, _ time.Time) []string {
	l := s.Snap.GetLadder()
	if len(l.GetRungs()) == 0 {
		return []string{"there is no incident to act on"}
	}
	out := []string{fmt.Sprintf("lost to %s so far: %s of training time, %.4f GPU-hours",
		l.Incident, phrase.Ms(l.ImpactMs), l.LostGpuHours)}
	for _, g := range l.Rungs {
		out = append(out, rungSentence(g))
	}
	return out
}

// rungSentence is a row of the ladder as a sentence.
func rungSentence(g *falconv1.RungView) string {
	name := g.Rung + ", " + phrase.Does(g.Rung, g.Variant)
	switch {
	case g.Rung == string(falcon.RungS1):
		return name + ": costs nothing and changes nothing"
	case !g.Applicable:
		return name + ": can't be done" + phrase.Prefixed(", ", g.Reason)
	}
	text := fmt.Sprintf("%s: costs %s once, gains %s an iteration, predicted %s",
		name, phrase.Ms(g.OverheadMs), phrase.Ms(g.GainMs), phrase.Ms(g.PredictedMs))
	if g.BreakEven >= 0 {
		text += ", pays back after " + iterationsText(g.BreakEven)
	}
	if g.Current {
		text += "; in force"
	}
	return text
}

func iterationsText(n int64) string {
	if n == 1 {
		return "1 iteration"
	}
	return phrase.Count(n) + " iterations"
}

func sayTest(s *feed.State, _ string, _ time.Time) []string {
	v := s.Snap.GetValidation()
	if v.GetId() == "" {
		return []string{"no test is listed"}
	}
	return testSentences(v)
}

func sayRecovery(s *feed.State, _ string, _ time.Time) []string {
	if v := s.Snap.GetRecovery(); v != nil {
		return Recoveries([]*falconv1.Recovery{v})
	}
	return []string{"nothing had to be recovered so far"}
}

const eventsSaid = 10

func sayEvents(s *feed.State, _ string, _ time.Time) []string {
	list := s.Events[max(0, len(s.Events)-eventsSaid):]
	if len(list) == 0 {
		return []string{"nothing has happened so far"}
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s, %s: %s",
			time.Unix(0, e.AtUnixNs).UTC().Format("15:04:05"), e.Kind, e.Text))
	}
	return out
}

func sayWho(s *feed.State, _ string, _ time.Time) []string {
	var names []string
	for _, o := range s.Others() {
		names = append(names, o.GetName())
	}
	others := "nobody else is at a console"
	if len(names) > 0 {
		others = "also here: " + strings.Join(names, ", ")
	}
	return []string{fmt.Sprintf("you are %s, role %s; mode %s; %s",
		s.Snap.GetActor(), s.Snap.GetRole(), phrase.Mode(s.Snap.GetPolicy()), others)}
}

// precisionText is the width of the numbers that a device multiplied, "" where it is not known.
func precisionText(g *falconv1.GemmResult) string {
	if g.Bits <= 0 {
		return ""
	}
	return fmt.Sprintf(" of %d-bit numbers", g.Bits)
}

// testSentences are what came of a test: the outcome, then a sentence for each result that is slow
// or was not judged.
func testSentences(v *falconv1.Validation) []string {
	tests := report.ValidationOf(v)
	if tests.State != falcon.ValidationDone {
		return []string{v.Id + " is " + v.State + phrase.Prefixed(": ", v.Reason)}
	}
	out := []string{v.Id + ": " + report.Headline(tests)}
	for _, g := range v.GetGemm() {
		if g.Slow || g.Unjudged != "" || g.Err != "" {
			out = append(out, fmt.Sprintf("rank %d on %s: matrix products%s %s, %.2f times the median, %s",
				g.Rank, g.Device, precisionText(g), phrase.Ms(g.Ms), g.Ratio,
				report.Judgement(g.Slow, g.Unjudged, g.Err)))
		}
	}
	for _, l := range v.GetLinks() {
		if l.Slow || l.Unjudged != "" || l.Err != "" {
			out = append(out, fmt.Sprintf("from %s to %s: %s, %s",
				l.FromDevice, l.ToDevice, phrase.Ms(l.Ms),
				report.Judgement(l.Slow, l.Unjudged, l.Err)))
		}
	}
	return out
}
