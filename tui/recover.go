package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/phrase"
)

// Words on a recovery, and what can be asked for by hand, as the engine takes
// them.
const (
	verbApprove = "approve"
	verbDeny    = "deny"
	verbAbort   = "abort"
	verbFence   = "fence"
	verbRenew   = "renew"
	verbLift    = "lift"
)

// recoverAsk is a word on a recovery as it was seen when the dialog opened.
type recoverAsk struct {
	verb  string
	rec   *falconv1.Recovery // approve, deny, abort
	node  string             // fence, renew, lift
	ranks []int32            // fence, renew: what was on the node, or the rank
}

type recoveredMsg struct {
	dialog   int
	verb     string
	recovery *falconv1.Recovery
	err      error
}

// openWord asks about approving, denying or aborting the recovery in progress.
func (m *Model) openWord(verb string) tea.Cmd {
	if why := m.lacks("approver", "a word on a recovery"); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	switch r := m.live.Recovering(); {
	case r == nil:
		m.say(themes.Dim, "no recovery is in progress")
	case verb == verbAbort && r.NoReturn:
		m.say(themes.Warn, r.Id+" can't be aborted: the ranks were told to rejoin")
	default:
		return m.open(&dialog{kind: kindRecover, focus: buttonCancel, ask: &recoverAsk{verb: verb, rec: r}})
	}
	return nil
}

// promptFor fills a command in, for the reason to be typed behind.
func (m *Model) promptFor(verb string) {
	at, ok := m.pages[key.Recovery].(*recovery.Page)
	if !ok {
		return
	}
	what := at.Node(m.state)
	if verb == verbRenew {
		what = strconv.Itoa(int(at.Rank(m.state)))
	}
	text := verb + " "
	if what != "" {
		text += what + " "
	}
	m.openPalette(text)
}

// openDemand asks about fencing a node, making a rank anew or lifting a fence:
// words are its name, then the reason.
func (m *Model) openDemand(verb string, words []string) tea.Cmd {
	if why := m.lacks("approver", "a "+verb); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	if len(words) == 0 {
		m.say(themes.Warn, verb+" takes a "+map[bool]string{true: "rank", false: "node"}[verb == verbRenew]+" and the reason")
		return nil
	}
	ask, why := m.demand(verb, words[0])
	if why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	d := &dialog{kind: kindRecover, focus: buttonCancel, ask: ask}
	cmd := m.open(d)
	d.input.SetValue(strings.Join(words[1:], " "))
	return cmd
}

// demand is what a name means now, or why it means nothing.
func (m *Model) demand(verb, name string) (*recoverAsk, string) {
	ask := &recoverAsk{verb: verb, node: name}
	switch verb {
	case verbRenew:
		n, err := strconv.Atoi(name)
		if err != nil || n < 0 || n >= len(m.live.Ranks) {
			return nil, fmt.Sprintf("renew takes a rank from 0 to %d and the reason", len(m.live.Ranks)-1)
		}
		ask.ranks = []int32{int32(n)}
		ask.node = nodeName(m.live.Ranks[n])
	case verbFence:
		ask.ranks = m.ranksOn(name)
		if len(ask.ranks) == 0 {
			return nil, "no rank of the job is on node " + strconv.Quote(name)
		}
	}
	return ask, ""
}

func nodeName(r *falconv1.RankView) string { return string(falcon.Device(r.GetDevice()).Node()) }

func (m *Model) ranksOn(node string) []int32 {
	var out []int32
	for i, r := range m.live.Ranks {
		if nodeName(r) == node {
			out = append(out, int32(i))
		}
	}
	return out
}

// wantsReason says whether a reason must be given: what no fault asks for is
// explained to those who read the journal.
func (a *recoverAsk) wantsReason() bool { return a != nil && a.rec == nil }

// takesReason says whether one may be given.
func (a *recoverAsk) takesReason() bool { return a != nil && a.verb != verbApprove }

func (a *recoverAsk) titles() (title, do string) {
	switch a.verb {
	case verbApprove:
		return "APPROVE RECOVERY " + a.rec.Id + "?", "Approve"
	case verbDeny:
		return "DENY RECOVERY " + a.rec.Id + "?", "Deny"
	case verbAbort:
		return "ABORT RECOVERY " + a.rec.Id + "?", "Abort it"
	case verbFence:
		return "FENCE NODE " + a.node + "?", "Fence it"
	case verbRenew:
		return "MAKE " + strings.ToUpper(phrase.Ranks(a.ranks, 1)) + " ANEW?", "Renew it"
	}
	return "LIFT THE FENCE OF " + a.node + "?", "Lift it"
}

// stale says why what the dialog shows is not what would be done, or "".
func (m *Model) stale(a *recoverAsk) string {
	if a.rec == nil {
		return m.moved(a)
	}
	now := m.live.Recovering()
	switch {
	case now.GetId() != a.rec.Id:
		return a.rec.Id + " is no longer in progress; close and look again"
	case now.PlanHash != a.rec.PlanHash:
		return "the plan has changed since this dialog opened; close and look again"
	case a.verb == verbAbort && now.NoReturn:
		return "too late: the ranks were told to rejoin"
	case a.verb != verbAbort && now.State != a.rec.State:
		return "it is no longer proposed; close and look again"
	}
	return ""
}

// moved says that a node or rank is not what it was.
func (m *Model) moved(a *recoverAsk) string {
	if a.verb == verbLift {
		return ""
	}
	rank := a.ranks[0]
	if a.verb == verbRenew && (int(rank) >= len(m.live.Ranks) || nodeName(m.live.Ranks[rank]) != a.node) ||
		a.verb == verbFence && !slices.Equal(m.ranksOn(a.node), a.ranks) {
		return "the ranks have changed places since this dialog opened; close and look again"
	}
	return ""
}

// sendRecover submits what the dialog showed.
func (m *Model) sendRecover(d *dialog) tea.Cmd {
	d.sending, d.err = true, ""
	a := d.ask
	r := &falconv1.RecoverRequest{Verb: a.verb, Reason: strings.TrimSpace(d.input.Value())}
	switch {
	case a.rec != nil:
		r.Recovery, r.PlanHash = a.rec.Id, a.rec.PlanHash
	case a.verb == verbRenew:
		r.Rank = a.ranks[0]
	default:
		r.Node = a.node
	}
	id := d.id
	return func() tea.Msg {
		got, err := m.src.Recover(context.Background(), r)
		return recoveredMsg{id, r.Verb, got, err}
	}
}

func (m *Model) recovered(msg recoveredMsg) {
	if msg.err != nil {
		m.failed(msg.dialog, "not done ("+msg.verb+"): "+msg.err.Error())
		return
	}
	m.close(msg.dialog)
	text := msg.verb + " taken"
	if msg.recovery.GetId() != "" {
		text = msg.recovery.Id + " " + msg.recovery.State
	}
	m.say(themes.Good, text)
}

// recoverLines say what is about to happen.
func (m *Model) recoverLines(a *recoverAsk, w int) []ladder.Line {
	if a.rec == nil {
		return m.demandLines(a, w)
	}
	now := m.live.Recovering()
	if now.GetId() != a.rec.Id {
		now = a.rec
	}
	out := wrapped(themes.Title, a.rec.Id+": "+phrase.Faults(a.rec.Faults), w)
	if a.rec.Reason != "" {
		out = append(out, wrapped(themes.Warn, "It waits because "+a.rec.Reason, w)...)
	}
	for _, f := range a.rec.Faults {
		for _, e := range f.Evidence {
			out = append(out, wrapped(themes.Text, "+ "+e, w)...)
		}
	}
	out = append(out, wrapped(themes.Text, consequences[a.verb], w)...)
	if sum := predictedSum(now); a.verb == verbApprove && sum > 0 {
		out = append(out, wrapped(themes.Text, "Predicted: "+phrase.Ms(sum)+" until the job trains again.", w)...)
	}
	return out
}

// consequences are what each word leads to.
var consequences = map[string]string{
	verbApprove: "All healthy ranks leave their collectives and park; the lost ones are made anew on their devices or on a spare; state comes from replicas, or else from the checkpoint. Healthy processes go on unless the reason above says otherwise.",
	verbDeny:    "Nothing is done about the fault: the job stands until somebody acts.",
	verbAbort:   "The recovery ends here. The job stands: parked ranks stay parked for a while and then end.",
}

func predictedSum(r *falconv1.Recovery) float64 {
	sum := 0.0
	for _, ms := range r.GetPredictedMs() {
		sum += ms
	}
	return sum
}

func (m *Model) demandLines(a *recoverAsk, w int) []ladder.Line {
	switch a.verb {
	case verbLift:
		return wrapped(themes.Text, "What "+a.node+" sends is taken again, and it may be used as a spare. Lift a fence only once the node is sound.", w)
	case verbRenew:
		device := m.live.Ranks[a.ranks[0]].GetDevice()
		return append(wrapped(themes.Title, "The process of "+phrase.Ranks(a.ranks, 1)+" on "+device+" ends and is made anew", w),
			wrapped(themes.Text, "All other ranks park meanwhile; its state comes from a replica. No further approval is asked for.", w)...)
	}
	out := wrapped(themes.Title, a.node+" holds "+phrase.Ranks(a.ranks, 6), w)
	out = append(out, wrapped(themes.Text, "Everything from the node is refused from now on; its processes end, and its ranks are made anew on a spare. All other ranks park meanwhile. No further approval is asked for.", w)...)
	for _, x := range m.live.Feed.Recoveries.GetExposures() {
		if x.GetDomain() == a.node {
			out = append(out, wrapped(themes.Warn, recovery.Explain(m.live, x), w)...)
		}
	}
	return out
}

// recoveryBar draws the recovery that waits or runs, or the job that one has
// left standing; ok is false where there is none.
func (m *Model) recoveryBar() (string, bool) {
	more := m.does(key.ShowRecovery) + " "
	if r := m.live.Asked(); r != nil {
		text := fmt.Sprintf(" RECOVERY PROPOSED  %s: %s", r.Id, phrase.Faults(r.Faults))
		if d := m.live.Deadline(r); d != "" {
			text += "  " + d
		}
		keys := m.does(key.Approve) + "  " + m.table.Name(key.Veto, key.Global) + " deny  " + more
		if why := m.lacks("approver", "it"); why == noDecision {
			keys = "recorded: no decision here  " + more
		} else if why != "" {
			keys = "needs role approver  " + more
			if m.live.Feed.Conn != feed.Live {
				keys = "engine unreachable "
			}
		}
		return row(m.pal.Style(themes.Urgent), m.w, text, keys, 2), true
	}
	if r := m.live.Recovering(); r != nil {
		left := " " + m.put(themes.Warn, r.Id+" ") + m.put(themes.Text, m.live.Story(r))
		return row(m.blank(), m.w, left, m.put(themes.Dim, more), 2), true
	}
	if r := m.live.Stands(); r != nil {
		left := " " + m.put(themes.Bad, r.Id+" "+m.live.Story(r))
		return row(m.blank(), m.w, left, m.put(themes.Dim, more), 2), true
	}
	return "", false
}

// recoveryHead is the header's word on a recovery in progress, or on one that
// left the job standing; else "".
func (m *Model) recoveryHead() string {
	r := m.live.Recovering()
	if r == nil {
		r = m.live.Stands()
	}
	if r == nil {
		return ""
	}
	text := m.put(themes.Bad, r.Id) + " " + r.State
	if r.Attempts > 0 {
		text += fmt.Sprintf(", generation %d", r.Generation)
	}
	return text + "  " + phrase.Faults(r.Faults)
}

// decisionOn gives a word to what waits: a recovery comes before a mitigation.
func (m *Model) decisionOn(approve bool) tea.Cmd {
	switch {
	case m.live.Asked() != nil && approve:
		return m.openWord(verbApprove)
	case m.live.Asked() != nil:
		return m.openWord(verbDeny)
	case approve:
		return m.openApprove()
	}
	return m.openVeto()
}
