package plain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// step is what a question waits for.
type step int

const (
	choose  step = iota // a number
	confirm             // the words that approve
	reason              // of an approval that needs one, or of a veto
	sending             // the engine's answer
)

// question is one decision as it was printed, and how far its answer has come.
type question struct {
	*decision.Pending
	step   step
	chosen decision.Question // with confirm and reason: what the number chose
	typed  decision.Typed
	since  time.Time // when this step was printed
}

// request is what is to be sent to the engine, or done here.
type request struct {
	decision.Request
	freeze bool
	quit   bool
}

// asker turns states and typed lines into prompts and requests, without I/O or a clock.
type asker struct {
	role   string
	closed bool // nothing more can be typed
	open   *question
	asked  map[string]bool // what was asked about, by key
}

func newAsker() *asker {
	return &asker{asked: map[string]bool{}}
}

func (a *asker) may(need string) bool {
	return feed.Covers(a.role, need)
}

// state takes a new state: it withdraws a stale question and asks the next.
func (a *asker) state(s *feed.State, now time.Time) []string {
	a.role = s.Snap.GetRole()
	if a.closed || !a.may("approver") || s.Conn != feed.Live {
		return a.withdraw(s)
	}
	if out := a.withdraw(s); out != nil {
		return append(out, a.next(s, now)...)
	}
	if a.open == nil {
		return a.next(s, now)
	}
	return nil
}

// withdraw drops the open question when it is no longer what the engine asks.
func (a *asker) withdraw(s *feed.State) []string {
	q := a.open
	if q == nil || q.step == sending {
		return nil
	}
	why := q.Changed(pictured(s))
	if why == "" && !a.closed {
		return nil
	}
	a.open = nil
	delete(a.asked, q.Key())
	if a.closed {
		return []string{"no more input: the decision on " + q.Name() + " is left to others"}
	}
	return []string{"question withdrawn: " + why}
}

// pictured is a state as pages see it, for their words.
func pictured(s *feed.State) *page.State {
	return &page.State{Feed: s, Now: s.Received, Keys: key.Default()}
}

// next asks what has not been asked yet.
func (a *asker) next(s *feed.State, now time.Time) []string {
	live := pictured(s)
	live.Now = now
	for _, p := range decision.Waiting(live) {
		if !a.asked[p.Key()] {
			a.asked[p.Key()] = true
			a.open = &question{Pending: p, since: now}
			return append(a.open.head(live), a.open.choices())
		}
	}
	return nil
}

func (q *question) head(s *page.State) []string {
	if q.Recovery != nil {
		return []string{fmt.Sprintf("DECISION NEEDED: recovery %s, plan %s: %s",
			q.Recovery.Id, q.Recovery.PlanHash, phrase.Faults(q.Recovery.Faults))}
	}
	x := q.Action
	standing := page.Standing(s, x)
	if q.OnlyRefuse() {
		return []string{fmt.Sprintf("%s (%s) for %s, plan %s, is %s",
			x.Rung, phrase.Does(x.Rung, x.Variant), x.Incident, x.PlanHash, standing)}
	}
	line := fmt.Sprintf("DECISION NEEDED: %s (%s) for %s, plan %s: %s → %s predicted (%s)",
		x.Rung, phrase.Does(x.Rung, x.Variant), x.Incident, x.PlanHash,
		phrase.Ms(x.BeforeMs), phrase.Ms(x.PredictedMs),
		phrase.Change(x.BeforeMs, x.PredictedMs))
	if p := phrase.Plan(x.Previous, x.MicroBatches, 60); p != "" {
		line += ", micro-batches " + p
	}
	if standing != "" {
		line += "; " + standing
	}
	return []string{line}
}

// refusal names what the second choice is.
func (q *question) refusal() string {
	switch {
	case q.Recovery != nil:
		return "deny"
	case q.Withdraws():
		return "withdrawal"
	}
	return "veto"
}

func (q *question) choices() string {
	switch {
	case q.Withdraws():
		return "2) withdraw it  3) show evidence  (type a number and press enter)"
	case q.OnlyRefuse():
		return "another person has to approve it, too: 2) veto  3) show evidence  (type a number and press enter)"
	}
	return "1) approve  2) " + q.refusal() + "  3) show evidence  (type a number and press enter)"
}

// line takes one typed line.
func (a *asker) line(text string, s *feed.State, now time.Time) ([]string, *request) {
	text = strings.TrimSpace(clean.String(text))
	if out, r, ok := a.word(text, s, now); ok {
		return out, r
	}
	q := a.open
	switch {
	case q == nil && text == "":
		return nil, nil
	case q == nil:
		return []string{a.idle()}, nil
	case q.step == sending || now.Sub(q.since) < decision.Guard:
		return []string{"too early, ignored: read the question first"}, nil
	}
	switch q.step {
	case choose:
		return a.choice(text, s, now), nil
	case confirm:
		return a.confirmed(text, s, now)
	default:
		return a.reasoned(text, s, now)
	}
}

func (a *asker) idle() string {
	if !a.may("approver") {
		return "nothing is asked: your role " + a.role +
			" may look; deciding needs approver (words: status, help, quit" + a.freezeWord() + ")"
	}
	return "nothing is asked now (words: status, help, quit" + a.freezeWord() + ")"
}

func (a *asker) freezeWord() string {
	if a.may("operator") {
		return ", freeze"
	}
	return ""
}

// word handles what can be typed at any time, but for a reason's text.
func (a *asker) word(text string, s *feed.State, now time.Time) ([]string, *request, bool) {
	if a.open != nil && a.open.step == reason && text != "cancel" {
		return nil, nil, false
	}
	switch text {
	case "status":
		return append([]string{Summary(s, now)}, a.again(now)...), nil, true
	case "help":
		return []string{
			"words: status, help, quit" + a.freezeWord() +
				"; a question is answered by its numbers, cancel goes back to them",
		}, nil, true
	case "quit":
		return nil, &request{quit: true}, true
	case "cancel":
		return a.again(now), nil, true
	case "freeze":
		if !a.may("operator") {
			return []string{"freezing needs the role operator; yours is " + a.role}, nil, true
		}
		// Who freezes has changed their mind: a question half answered starts again.
		return append([]string{"freezing …"}, a.again(now)...), &request{freeze: true}, true
	}
	return nil, nil, false
}

// again goes back to the choices of the open question.
func (a *asker) again(now time.Time) []string {
	if a.open == nil || a.open.step == sending {
		return nil
	}
	a.open.enter(choose, now)
	return []string{a.open.choices()}
}

// enter goes on to a step that has just been printed.
func (q *question) enter(s step, now time.Time) {
	q.step, q.since = s, now
}

// choice takes the number of an answer.
func (a *asker) choice(text string, s *feed.State, now time.Time) []string {
	q := a.open
	if text == "1" && q.OnlyRefuse() {
		return []string{"you can't approve that now: " + q.choices()}
	}
	q.typed = decision.Typed{}
	switch text {
	case "1":
		q.chosen = q.Approve()
		q.enter(confirm, now)
		return []string{q.confirmLine(pictured(s))}
	case "2":
		q.chosen = q.Refuse()
		q.enter(reason, now)
		return []string{"reason for the " + q.refusal() + "? (one line; - for none; cancel goes back)"}
	case "3":
		q.since = now
		return append(q.evidence(), q.choices())
	}
	return []string{"that is none of the numbers: " + q.choices()}
}

func (q *question) confirmLine(live *page.State) string {
	then := ""
	label := "recovery " + q.Name()
	if a := q.Action; a != nil {
		label = a.Rung + " for " + a.Incident
		undo := decision.Undo(live, a.Rung)
		switch {
		case decision.WantsTwo(live, a.Rung) && len(a.Approvals) == 0:
			then = "another person has to approve it, too; "
		case undo > 0:
			then = "it goes out " + phrase.Seconds(undo) + " later, and can be withdrawn until then; "
		}
	}
	if word := q.chosen.Entry().Word; word != "" {
		return then + label +
			" ends every process of the job after a checkpoint and starts them again; type " +
			strconv.Quote(word) + " to approve, anything else cancels"
	}
	return then + "approve " + label + " with plan " + q.PlanHash() +
		"? type yes to approve, anything else cancels"
}

// confirmed takes the words that approve.
func (a *asker) confirmed(text string, s *feed.State, now time.Time) ([]string, *request) {
	q := a.open
	word := q.chosen.Entry().Word
	switch {
	case word == "" && text == "yes":
		return a.send(s, now)
	case word != "" && text == word:
		q.typed.Word = text
		q.enter(reason, now)
		return []string{
			"reason for the restart? (one line; it is kept with the decision; cancel goes back)",
		}, nil
	}
	return append([]string{"cancelled, nothing was sent"}, a.again(now)...), nil
}

// reasoned takes the reason.
func (a *asker) reasoned(text string, s *feed.State, now time.Time) ([]string, *request) {
	must := a.open.chosen.Entry().Reason == decision.MustReason
	if text == "" || must && text == "-" {
		return []string{
			"say why in one line" + map[bool]string{false: ", or - for no reason"}[must] +
				"; cancel goes back",
		}, nil
	}
	if text != "-" {
		a.open.typed.Reason = text
	}
	return a.send(s, now)
}

// send submits the answer, unless something blocks it by now.
func (a *asker) send(s *feed.State, now time.Time) ([]string, *request) {
	q := a.open
	if why := decision.Blocked(q.chosen, pictured(s), q.typed); why != "" {
		return append([]string{"not sent: " + why}, a.again(now)...), nil
	}
	q.step = sending
	return nil, &request{Request: q.chosen.Request(q.typed)}
}

// answered is the engine's answer; it ends its question, and a refused one is asked again
// if it still waits.
func (a *asker) answered(got answer) []string {
	if q := a.open; got.own && q != nil {
		a.open = nil
		if got.err != nil {
			delete(a.asked, q.Key())
		}
	}
	if got.err != nil {
		return []string{"not done: " + clean.String(got.err.Error())}
	}
	return []string{got.text}
}

// evidence is what a decision rests on.
func (q *question) evidence() []string {
	if q.Recovery != nil {
		return q.recoveryEvidence()
	}
	var out []string
	if v := q.Verdict; v != nil {
		out = append(out, "  verdict: "+phrase.Verdict(v)+phrase.Confidence(v))
		for _, e := range page.ClearestFirst(v.Evidence) {
			out = append(out, "  "+phrase.Sign(e)+" "+e.Kind+": "+e.Text)
		}
	}
	x := q.Action
	out = append(out, fmt.Sprintf("  expected: %s → %s an iteration, switching costs %s",
		phrase.Ms(x.BeforeMs), phrase.Ms(x.PredictedMs), phrase.Ms(x.OverheadMs)))
	if x.Why != "" {
		out = append(out, "  why now: "+x.Why)
	}
	return append(out, "  if it is wrong: the gain is measured, and what does not help is reverted")
}

func (q *question) recoveryEvidence() []string {
	out := []string{"  faults: " + phrase.Faults(q.Recovery.Faults)}
	if q.Recovery.Reason != "" {
		out = append(out, "  it waits because "+q.Recovery.Reason)
	}
	for _, f := range q.Recovery.Faults {
		for _, e := range f.Evidence {
			out = append(out, "  + "+e)
		}
	}
	return append(out,
		"  approved: healthy ranks park, the lost ones are replaced, state comes from replicas or the checkpoint",
	)
}
