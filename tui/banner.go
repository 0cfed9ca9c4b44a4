package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// banner draws what frames the page, for one picture: the header's two lines
// and the proposal bar. They are about one incident and say which; the bar's
// keys act on that one and no other.
type banner struct {
	*skin
	decision.Operator
	opts  *Options
	clock time.Time
	w     int
}

func (m *Model) newBanner() banner {
	return banner{m.skin, m.whoDecides(), &m.opts, m.shownTime(), m.w}
}

// nameW is the width from which on the header has room for whole words.
const nameW = 100

// staleAfter is the data age that is worth a warning.
const staleAfter = 5 * time.Second

// companyW is the most of a name that the header shows.
const companyW = 12

func (b banner) windowTitle() string {
	t := "falcon"
	if name := b.Live.Snap().GetJob().GetName(); name != "" {
		t += " · " + b.jobTitle(name)
	}
	if x := page.First(b.Live); x.Severity >= statements.Warn {
		about, _, _ := strings.Cut(x.About(), "/")
		t = "! " + cmp.Or(about, string(x.Kind)) + " · " + t
	}
	return t
}

// drawHeader draws the two lines that never change their meaning.
func (b banner) drawHeader() string {
	base := b.pal.Style(themes.Header)
	bold := base.With(themes.Bold).Lipgloss()
	job := b.Live.Snap().GetJob()
	right := b.headerRight()
	left := b.headerLeft(bold, b.w-lipgloss.Width(right)-2)
	if job.GetBaselineMs() > 0 && job.GetIterationMs() > 0 && !page.Idle(b.Live) {
		change := " " + phrase.Percent(job.GetSlowdown())
		against := " vs base"
		if lipgloss.Width(left+change+against)+lipgloss.Width(right) >= b.w {
			against = "" // a figure is worth more than the word
		}
		left += b.styled(slowdownRole(job.GetSlowdown()), change+against)
	}
	return layoutRow(base, b.w, left, right, 1) + "\n" + b.headerSecond()
}

// headerLeft is the job and its pace in w columns: what says least goes first, a figure is never cut.
func (b banner) headerLeft(bold lipgloss.Style, w int) string {
	job := b.Live.Snap().GetJob()
	emulated, ranks, iteration := "", "", ""
	if n := b.Live.Roster.World(); n > 0 {
		ranks = fmt.Sprintf("  %d ranks", n)
	}
	if i := job.GetIteration(); job != nil && i >= 0 {
		iteration = "  iter " + phrase.Iteration(i)
	}
	if job.GetEmulated() {
		emulated = " (emulated)"
	}
	name := " " + bold.Render(b.jobTitle(cmp.Or(job.GetName(), noJob)))
	pace := ""
	if job.GetIterationMs() > 0 && !page.Idle(b.Live) { // else it is of before
		pace = "  " + bold.Render(phrase.Ms(job.GetIterationMs()))
	}
	for _, text := range []string{
		name + emulated + iteration + ranks + pace,
		name + iteration + ranks + pace,
		name + iteration + pace,
	} {
		if lipgloss.Width(text) <= w {
			return text
		}
	}
	return name + pace
}

// jobTitle is a job's name, after what a console of several jobs calls it.
func (b banner) jobTitle(name string) string {
	if b.opts.Context == "" || b.opts.Context == name {
		return name
	}
	return widget.Cut(b.opts.Context, 24) + " · " + name
}

// headerRight is connection, data age and mode.
func (b banner) headerRight() string {
	mode := b.pal.Style(themes.Header).With(themes.Bold)
	switch p := b.Live.Snap().GetPolicy(); {
	case p.GetFrozen():
		mode = b.pal.Style(themes.Lost)
	case phrase.ActsAlone(p):
		mode = b.pal.Style(themes.Auto)
	}
	text, role := b.connection()
	return b.recordingMark() +
		b.styled(role, text) +
		" " +
		mode.Lipgloss().Render(
			" "+
				widget.Arrows(
					phrase.Mode(b.Live.Snap().GetPolicy())+
						phrase.Prefixed(", ", phrase.RecoveryMode(b.Live.Snap().GetPolicy())),
					b.ascii,
				)+" ",
		)
}

func (b banner) connection() (string, themes.Role) {
	f := b.Live.Feed
	since := b.at(f.Since)
	switch f.Conn {
	case feed.Connecting:
		if f.Err == "" {
			return "connecting", themes.Header
		}
		return " no engine yet since " + since + ", retrying ", themes.Urgent
	case feed.Lost:
		return " engine unreachable since " + since + ", retrying ", themes.Urgent
	case feed.Live:
	}
	if b.Live.Over() {
		return "finished", themes.Header
	}
	if b.opts.Lag != nil {
		if lag := b.opts.Lag(); lag > 0 {
			return fmt.Sprintf("LAG %ds", int(lag.Round(time.Second).Seconds())), themes.Warn
		}
	}
	age := f.Age(b.clock)
	if page.Idle(b.Live) { // nothing is measured: the picture is as new as it can be
		age = f.PictureAge(b.clock)
	}
	text := fmt.Sprintf("data %.1fs", max(0, age.Seconds()))
	if age >= 10*time.Second {
		text = fmt.Sprintf("data %ds old", int(age.Seconds()))
	}
	if f.Slow {
		text = "LAG  " + text
	}
	if age > staleAfter {
		return text, themes.Warn
	}
	return text, themes.Header
}

func (b banner) headerSecond() string {
	snap := b.Live.Snap()
	right := b.at(b.clock) + b.localTime() + " "
	if b.Replay {
		right = b.replayHead()
	}
	if snap.Actor != "" && b.w >= nameW {
		right = fmt.Sprintf("%s (%s)%s  %s",
			snap.Actor, cmp.Or(snap.Role, "none"), b.otherOperators(), right)
	} else if snap.Actor != "" {
		right = widget.Cut(snap.Actor, 12) + b.otherOperators() + "  " + right
	}
	left := " " + b.situation()
	return layoutRow(b.pal.Style(themes.Header), b.w, left, right, 1)
}

// situation is the first statement that is no action: those are the bar's.
func (b banner) situation() string {
	list := page.Statements(b.Live)
	x := list[slices.IndexFunc(list, func(x statements.Statement) bool {
		return x.Action == nil && x.Kind != statements.Frozen
	})]
	inc := b.Subject.Incident()
	if x.Kind != statements.Incident {
		return b.styled(headRole(x.Severity), widget.Arrows(page.Say(b.Live, &x), b.ascii))
	}
	return b.styled(themes.Bad, inc.GetId()) +
		b.othersOpen() +
		fmt.Sprintf(" %s %s  %s",
			inc.GetState(), b.standing(inc), phrase.Verdict(inc.GetVerdict()))
}

// headRole is a severity's role in the header.
func headRole(x statements.Severity) themes.Role {
	if x == statements.Plain {
		return themes.Header
	}
	return page.RoleOf(x)
}

// localTime is the present by the clock of who sits at the terminal, where the times on screen are by
// another and there is room; else "".
func (b banner) localTime() string {
	local := b.opts.Local
	if local == nil || b.w < nameW {
		return ""
	}
	shown := b.clock.In(cmp.Or(b.Live.Zone, time.UTC))
	here := b.clock.In(local)
	_, a := shown.Zone()
	if _, x := here.Zone(); a == x {
		return ""
	}
	return here.Format(" = 15:04 MST")
}

// at is a moment by the operator's clock.
func (b banner) at(t time.Time) string {
	return phrase.Clock(t, b.clock, b.Live.Zone)
}

// standing is for how long an incident has lasted, or since which iteration where its time is
// not known.
func (b banner) standing(i *falconv1.Incident) string {
	if i.GetOnsetUnixNs() == 0 {
		return "since " + phrase.Iteration(i.GetOnsetIteration())
	}
	return "for " + phrase.Lasting(b.Live.EngineNow().Sub(time.Unix(0, i.GetOnsetUnixNs())))
}

// othersOpen counts the open incidents beside the one that is named.
func (b banner) othersOpen() string {
	if n := b.Live.OpenIncidents() - 1; n > 0 {
		return b.styled(themes.Bad, fmt.Sprintf(" +%d open", n))
	}
	return ""
}

// otherOperators is whose other screen is open, or how many are, for the header.
func (b banner) otherOperators() string {
	switch others := b.Live.Feed.Others(); len(others) {
	case 0:
		return ""
	case 1:
		return " +" + widget.Cut(others[0].GetName(), companyW)
	default:
		return fmt.Sprintf(" +%d", len(others))
	}
}

// replayHead is drawn where a live console shows the time.
func (b banner) replayHead() string {
	s := b.opts.Replay.Status()
	state := "×" + strconv.FormatFloat(s.Speed, 'g', 3, 64)
	switch {
	case s.Over && s.Cut != "":
		state = "cut here"
	case s.Over:
		state = "end"
	case !s.Playing:
		state = "paused"
	}
	head := " REPLAY " + b.at(b.clock) + " " + state + " "
	if b.w >= 100 {
		head = " REPLAY " +
			b.clock.UTC().Format("2006-01-02 15:04:05Z") +
			" " +
			state +
			"  " +
			strconv.Itoa(s.Frame+1) +
			"/" +
			strconv.Itoa(s.Frames) +
			" "
	}
	lost := ""
	if s.Dropped > 0 {
		lost = b.styled(
			themes.Urgent,
			" "+strconv.FormatUint(s.Dropped, 10)+" pictures missing before this ",
		) + " "
	}
	base := b.pal.Style(themes.Header).With(themes.Bold | themes.Reverse)
	return lost + base.Lipgloss().Render(head)
}

// recordingMark shows whether this session is recorded: what is done here stays in a file.
func (b banner) recordingMark() string {
	switch {
	case b.opts.Recorder == nil:
		return ""
	case b.opts.Recorder.Stopped() != "":
		return b.styled(themes.Warn, "recording stopped") + "  "
	}
	word := " recording"
	if b.w < nameW {
		word = " rec"
	}
	if b.ascii {
		return b.styled(themes.Header, "*"+word) + "  "
	}
	return b.styled(themes.Bad, "●") + b.styled(themes.Header, word) + "  "
}

// drawBar draws what waits for a decision, else what is being done. It speaks of one
// incident and says which; its keys act on that one and no other.
func (b banner) drawBar() string {
	if bar, ok := b.recoveryBar(); ok {
		return bar
	}
	s := b.At
	prop := s.Proposal()
	if standing := page.Standing(s, s.Awaited()); standing != "" {
		return b.approvedBar(s, standing)
	}
	if prop == nil {
		return layoutRow(b.blankStyle(), b.w, b.drawQuietBar(s), b.elsewhere(), 2)
	}
	keys := b.decisionKeys() + " "
	text := b.proposalText(s, prop, b.w-lipgloss.Width(keys)-2)
	room := b.w - lipgloss.Width(text+keys) - 2
	plan := "  " + phrase.Plan(prop.Previous, prop.MicroBatches, room-2)
	if lipgloss.Width(plan) <= room {
		text += plan
	}
	return layoutRow(
		b.pal.Style(themes.Urgent),
		b.w,
		widget.Arrows(text, b.ascii),
		keys,
		2,
	)
}

// recoveryBar draws the recovery that waits or runs, or the job that one has
// left standing; ok is false where there is none.
func (b banner) recoveryBar() (string, bool) {
	more := b.keyAndAction(key.ShowRecovery) + " "
	if r := b.Live.Asked(); r != nil {
		text := fmt.Sprintf(" RECOVERY PROPOSED  %s: %s", r.Id, phrase.Faults(r.Faults))
		approve := b.keyAndAction(key.Approve)
		deny := " deny  "
		if phrase.Together(r) != "" { // nothing of it is a loss
			text = fmt.Sprintf(" START AGAIN?  %s: all ranks ended", r.Id)
			approve = b.Live.Key(key.Global, key.Approve) + " start again"
			deny = " leave it  "
		}
		if d := b.Live.Deadline(r); d != "" {
			text += "  " + d
		}
		keys := approve + "  " + b.Live.Key(key.Global, key.Veto) + deny + more
		if why := b.LacksApprover("it"); why == decision.NotInReplay {
			keys = "recorded: no decision here  " + more
		} else if why != "" {
			keys = "needs role approver  " + more
			if b.Live.Feed.Conn != feed.Live {
				keys = "engine unreachable "
			}
		}
		return layoutRow(b.pal.Style(themes.Urgent), b.w, text, keys, 2), true
	}
	if r := b.Live.Recovering(); r != nil {
		left := " " + b.styled(themes.Warn, r.Id+" ") + b.styled(themes.Text, b.Live.RecoverySummary(r))
		return layoutRow(b.blankStyle(), b.w, left, b.styled(themes.Dim, more), 2), true
	}
	if r := b.Live.Stands(); r != nil {
		left := " " + b.styled(themes.Bad, r.Id+" "+b.Live.RecoverySummary(r))
		return layoutRow(b.blankStyle(), b.w, left, b.styled(themes.Dim, more), 2), true
	}
	return "", false
}

// approvedBar is the proposal bar after a first approval.
func (b banner) approvedBar(s *page.State, standing string) string {
	a := s.Awaited()
	text := " " + a.Rung + " " + standing + phrase.Ends(a)
	if b.Live.OpenIncidents() > 1 {
		text = " " + a.Incident + text
	}
	keys := b.keyAndAction(key.Why)
	switch {
	case b.Replay || b.Live.Feed.Conn != feed.Live || !b.MayDecide():
		keys = b.decisionKeys()
	case !phrase.Waits(a):
		text += ", " + b.Live.Key(key.Global, key.Veto) + " withdraws it"
	case decision.HasApproved(b.Live, a):
		keys = b.keyAndAction(key.Veto) + "  " + keys
	default:
		keys = b.decisionKeys()
	}
	return layoutRow(b.pal.Style(themes.Urgent), b.w, text, keys+" ", 2)
}

// proposalText describes a proposal in w columns. Where room is short the times go first, then that
// others wait, never the incident, the countdown, or whose processes end.
func (b banner) proposalText(s *page.State, prop *falconv1.Action, w int) string {
	change := phrase.Change(prop.BeforeMs, prop.PredictedMs)
	rest := ""
	if left, ok := page.Countdown(s, prop); ok {
		rest += "  acts in " + phrase.Seconds(left)
	}
	rest += phrase.Ends(prop)
	text := " " + prop.Incident + " " + prop.Rung + " PROPOSED" + rest
	if n := len(b.Others); n > 0 {
		rest += fmt.Sprintf("  +%d waiting", n)
	}
	least := text
	for _, gain := range []string{
		fmt.Sprintf("PROPOSED  %s → %s (%s)", phrase.Ms(prop.BeforeMs), phrase.Ms(prop.PredictedMs), change),
		fmt.Sprintf("PROPOSED  %s → %s", phrase.Ms(prop.BeforeMs), phrase.Ms(prop.PredictedMs)),
		"PROPOSED  " + change,
		"PROPOSED",
	} {
		text = fmt.Sprintf(" %s %s %s%s", prop.Incident, prop.Rung, gain, rest)
		if lipgloss.Width(text) <= w {
			return text
		}
	}
	return least // that others wait is said in NOW
}

// decisionKeys names the keys, or why they don't work.
func (b banner) decisionKeys() string {
	if b.Replay {
		return "recorded: no decision here  i why"
	}
	if !b.MayDecide() {
		return "needs role approver  " + b.keyAndAction(key.Why)
	}
	if b.Live.Feed.Conn != feed.Live {
		return "engine unreachable"
	}
	return b.keyAndAction(key.Approve) + "  " + b.keyAndAction(key.Veto) + "  " + b.keyAndAction(key.Why)
}

func (b banner) drawQuietBar(s *page.State) string {
	left := " "
	inc := s.Incident()
	switch {
	case b.Live.Snap().GetPolicy().GetFrozen():
		left += b.styled(themes.Lost, " FROZEN ") +
			b.styled(
				themes.Text,
				" nothing new is dispatched; "+b.Live.Key(key.Global, key.Freeze)+" unfreezes. ",
			)
	case b.Live.Feed.Conn == feed.Lost:
		left += b.styled(themes.Warn, "the last picture is shown: "+b.Live.Feed.Err+"  ")
	}
	if auto := page.Auto(s); auto != "" && (inc == nil || !page.Open(inc)) {
		left += b.styled(themes.Auto, " "+auto+" ") + " "
	}
	if !page.Open(inc) || page.Idle(b.Live) && s.Awaited() == nil { // a standstill comes before what was done
		return left + b.jobMark()
	}
	return left + b.styled(themes.Warn, inc.Id+" ") + b.styled(themes.Text, page.Doing(s))
}

// signs are how the first statement is marked, with and without signs.
var signs = map[statements.Severity][2]string{
	statements.Good:   {"● ", "* "},
	statements.Plain:  {"○ ", "- "},
	statements.Warn:   {"▲ ", "! "},
	statements.Bad:    {"✖ ", "X "},
	statements.Urgent: {"✖ ", "X "},
}

// jobMark is what is said first while nothing is done about an incident. Good news alone is green.
func (b banner) jobMark() string {
	x := page.First(b.Live)
	mark, text := signs[x.Severity][0], page.Say(b.Live, &x)
	if b.ascii {
		mark = signs[x.Severity][1]
	}
	return b.styled(page.RoleOf(min(x.Severity, statements.Bad)), mark) +
		b.styled(themes.Text, widget.Arrows(text, b.ascii))
}

// elsewhere names another incident of which an action is proposed where none of the bar's own
// is, with the key that leads to it; else "".
func (b banner) elsewhere() string {
	list := b.Others
	if len(list) == 0 {
		return ""
	}
	what := " waits for a decision: "
	if slices.ContainsFunc(page.Statements(b.Live), func(x statements.Statement) bool {
		return x.Kind == statements.Pending && x.IncidentID() == list[0]
	}) {
		what = " has an action pending: "
	}
	return b.styled(themes.Urgent, " "+list[0]+what+b.keyAndAction(key.Why)+" ")
}

// keyAndAction names a key with its word, as the footer would.
func (b banner) keyAndAction(a key.Action) string {
	k := b.Live.Keys.ForAction(key.Global, a)
	if len(k.Keys()) == 0 {
		return k.Help().Desc + " by " + b.Live.Key(key.Global, key.Command)
	}
	return k.Help().Key + " " + k.Help().Desc
}

func slowdownRole(x float64) themes.Role {
	switch {
	case x >= 0.5:
		return themes.Bad
	case x >= 0.1:
		return themes.Warn
	}
	return themes.Good
}

// noJob stands for a job that is not known yet.
const noJob = "no job yet"
