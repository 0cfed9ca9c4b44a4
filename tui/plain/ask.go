package plain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// guard is how long a question that has just been printed takes no answer:
// what was typed or piped before it was seen is not meant for it.
const guard = 400 * time.Millisecond

// rungRestart ends the job's processes: approving it takes typed words.
const rungRestart = "S4"

// step is what a question waits for.
type step int

const (
	choose  step = iota // a number
	confirm             // the words that approve
	reason              // of an approval that needs one, or of a veto
	sending             // the engine's answer
)

// question is one decision, on what was printed when it was asked: what it
// sends never changes, and when the engine's picture no longer matches it, it
// is withdrawn.
type question struct {
	action  *falconv1.Action   // proposed, or approved and not ordered; or
	rec     *falconv1.Recovery // a recovery
	verdict *falconv1.Verdict
	mine    bool // the operator is the first of two approvers: another has to approve
	undo    time.Duration
	two     bool // policy asks for a second approver
	epoch   uint64
	words   string // to be typed before an approval
	step    step
	approve bool
	since   time.Time // when this step was printed
}

// request is what is to be sent to the engine.
type request struct {
	decide  *falconv1.DecideRequest
	recover *falconv1.RecoverRequest
	freeze  bool
	quit    bool
}

// asker turns states and typed lines into prompts and requests. It does no I/O
// and keeps no time of its own.
type asker struct {
	role   string
	closed bool // nothing more can be typed
	open   *question
	told   map[string]bool // proposals that were asked about, by key
}

func newAsker() *asker { return &asker{told: map[string]bool{}} }

func (a *asker) may(need string) bool { return feed.Covers(a.role, need) }

// state takes a new picture: it withdraws a question that no longer fits, and
// asks the next.
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
	why := q.stale(s)
	if why == "" && !a.closed {
		return nil
	}
	a.open = nil
	delete(a.told, q.key())
	if a.closed {
		return []string{"no more input: the decision on " + q.name() + " is left to others"}
	}
	return []string{"question withdrawn: " + why}
}

// stale says why a question no longer fits, or "".
func (q *question) stale(s *feed.State) string {
	if s.Conn != feed.Live {
		return "the engine is unreachable"
	}
	now := q.now(s)
	switch rec := s.Snap.GetRecovery(); {
	case q.rec == nil && rec.GetState() == "proposed":
		return "recovery " + rec.Id + " comes first"
	case now == nil:
		return q.name() + " no longer waits for a decision"
	case now.stage() != q.stage():
		return q.name() + " is " + page.Standing(pictured(s), now.action)
	case now.hash() != q.hash():
		return "the plan of " + q.name() + " has changed"
	case now.epoch != q.epoch:
		return "the job's epoch has changed"
	}
	return ""
}

// now is the same question as the engine asks it now, or nil.
func (q *question) now(s *feed.State) *question {
	for _, x := range asked(s) {
		if x.name() == q.name() {
			return x
		}
	}
	return nil
}

// asked are the questions that wait for a decision: a recovery's first, then
// those of the present incident and of the other open ones.
func asked(s *feed.State) []*question {
	var out []*question
	job := s.Snap.GetJob()
	if r := s.Snap.GetRecovery(); r.GetState() == "proposed" {
		out = append(out, &question{rec: r, epoch: job.GetEpoch()})
	}
	for _, l := range append([]*falconv1.Ladder{s.Snap.GetLadder()}, s.Snap.GetOthers()...) {
		for _, x := range l.GetActions() {
			if x.State == "proposed" || x.State == "approved" {
				out = append(out, questionOn(s, x))
			}
		}
	}
	return out
}

func questionOn(s *feed.State, x *falconv1.Action) *question {
	job := s.Snap.GetJob()
	q := &question{action: x, epoch: job.GetEpoch()}
	q.policy(s.Snap.GetPolicy().GetRungs()[x.Rung], s.Snap.GetActor())
	for _, i := range s.Snap.Incidents {
		if i.Id == x.Incident {
			q.verdict = i.Verdict
		}
	}
	if x.Rung == rungRestart {
		q.words = fmt.Sprintf("%s %d", job.GetName(), job.GetWorld())
	}
	return q
}

func (q *question) name() string {
	if q.rec != nil {
		return q.rec.Id
	}
	return q.action.Id
}

func (q *question) hash() string {
	if q.rec != nil {
		return q.rec.PlanHash
	}
	return q.action.PlanHash
}

func (q *question) key() string { return q.name() + " " + q.hash() + " " + q.stage() }

// policy notes what policy asks of an approval.
func (q *question) policy(p *falconv1.RungPolicy, me string) {
	q.two, q.undo = p.GetSecond(), time.Duration(p.GetUndoS()*float64(time.Second))
	q.mine = q.two && phrase.Waits(q.action) && phrase.Has(q.action, me)
}

// stage tells the questions about one action apart: by its state and by how
// many have approved it.
func (q *question) stage() string {
	if q.rec != nil {
		return ""
	}
	return fmt.Sprint(q.action.State, len(q.action.Approvals))
}

// withdraws says that the action is approved: there is nothing left to approve.
func (q *question) withdraws() bool { return q.rec == nil && q.action.State == "approved" }

// pictured is a state as pages see it, for their words.
func pictured(s *feed.State) *page.State { return &page.State{Feed: s, Now: s.Received} }

// next asks what has not been asked yet.
func (a *asker) next(s *feed.State, now time.Time) []string {
	for _, q := range asked(s) {
		if !a.told[q.key()] {
			a.told[q.key()] = true
			a.open, q.since = q, now
			p := pictured(s)
			p.Now = now
			return append(q.head(p), q.choices())
		}
	}
	return nil
}

func (q *question) head(s *page.State) []string {
	if q.rec != nil {
		return []string{fmt.Sprintf("DECISION NEEDED: recovery %s, plan %s: %s", q.rec.Id, q.rec.PlanHash, phrase.Faults(q.rec.Faults))}
	}
	x := q.action
	standing := page.Standing(s, x)
	if q.withdraws() || q.mine {
		return []string{fmt.Sprintf("%s (%s) for %s, plan %s, is %s", x.Rung, phrase.Rung(x.Rung), x.Incident, x.PlanHash, standing)}
	}
	line := fmt.Sprintf("DECISION NEEDED: %s (%s) for %s, plan %s: %s → %s predicted (%s)", x.Rung, phrase.Rung(x.Rung), x.Incident, x.PlanHash,
		phrase.Ms(x.BeforeMs), phrase.Ms(x.PredictedMs), phrase.Change(x.BeforeMs, x.PredictedMs))
	if p := phrase.Plan(x.Previous, x.MicroBatches, 60); p != "" {
		line += ", micro-batches " + p
	}
	if standing != "" {
		line += "; " + standing
	}
	return []string{line}
}

func (q *question) no() string {
	switch {
	case q.rec != nil:
		return "deny"
	case q.withdraws():
		return "withdrawal"
	}
	return "veto"
}

func (q *question) choices() string {
	switch {
	case q.withdraws():
		return "2) withdraw it  3) show evidence  (type a number and press enter)"
	case q.mine:
		return "another person has to approve it, too: 2) veto  3) show evidence  (type a number and press enter)"
	}
	return "1) approve  2) " + q.no() + "  3) show evidence  (type a number and press enter)"
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
	case q.step == sending || now.Sub(q.since) < guard:
		return []string{"too early, ignored: read the question first"}, nil
	}
	switch q.step {
	case choose:
		return a.chosen(text, now), nil
	case confirm:
		return a.confirmed(text, now)
	default:
		return a.reasoned(text)
	}
}

func (a *asker) idle() string {
	if !a.may("approver") {
		return "nothing is asked: your role " + a.role + " may look; deciding needs approver (words: status, help, quit" + a.freezeWord() + ")"
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
		return []string{"words: status, help, quit" + a.freezeWord() + "; a question is answered by its numbers, cancel goes back to them"}, nil, true
	case "quit":
		return nil, &request{quit: true}, true
	case "cancel":
		return a.again(now), nil, true
	case "freeze":
		if !a.may("operator") {
			return []string{"freezing needs the role operator; yours is " + a.role}, nil, true
		}
		// Who freezes has changed their mind: a question half answered begins anew.
		return append([]string{"freezing …"}, a.again(now)...), &request{freeze: true}, true
	}
	return nil, nil, false
}

// again goes back to the choices of the open question.
func (a *asker) again(now time.Time) []string {
	if a.open == nil || a.open.step == sending {
		return nil
	}
	a.open.to(choose, now)
	return []string{a.open.choices()}
}

func (q *question) to(s step, now time.Time) { q.step, q.since = s, now }

func (a *asker) chosen(text string, now time.Time) []string {
	q := a.open
	if text == "1" && (q.withdraws() || q.mine) {
		return []string{"you can't approve that now: " + q.choices()}
	}
	switch text {
	case "1":
		q.approve = true
		q.to(confirm, now)
		return []string{q.confirmLine()}
	case "2":
		q.approve = false
		q.to(reason, now)
		return []string{"reason for the " + q.no() + "? (one line; - for none; cancel goes back)"}
	case "3":
		q.since = now
		return append(q.evidence(), q.choices())
	}
	return []string{"that is none of the numbers: " + q.choices()}
}

func (q *question) confirmLine() string {
	then := ""
	switch {
	case q.two && len(q.action.Approvals) == 0:
		then = "another person has to approve it, too; "
	case q.undo > 0:
		then = "it goes out " + phrase.Seconds(q.undo) + " later, and can be withdrawn until then; "
	}
	if q.words != "" {
		return then + q.label() + " ends every process of the job after a checkpoint and starts them again; type " + strconv.Quote(q.words) + " to approve, anything else cancels"
	}
	return then + "approve " + q.label() + " with plan " + q.hash() + "? type yes to approve, anything else cancels"
}

func (q *question) label() string {
	if q.rec != nil {
		return "recovery " + q.rec.Id
	}
	return q.action.Rung + " for " + q.action.Incident
}

func (a *asker) confirmed(text string, now time.Time) ([]string, *request) {
	q := a.open
	switch {
	case q.words == "" && text == "yes":
		return a.send("")
	case q.words != "" && text == q.words:
		q.to(reason, now)
		return []string{"reason for the restart? (one line; it is kept with the decision; cancel goes back)"}, nil
	}
	return append([]string{"cancelled, nothing was sent"}, a.again(now)...), nil
}

func (a *asker) reasoned(text string) ([]string, *request) {
	q := a.open
	if text == "" || q.approve && text == "-" {
		return []string{"say why in one line" + map[bool]string{false: ", or - for no reason"}[q.approve] + "; cancel goes back"}, nil
	}
	if text == "-" {
		text = ""
	}
	return a.send(text)
}

// reasonMax bounds a reason, in characters, as the screen's dialogs do.
const reasonMax = 120

func (a *asker) send(why string) ([]string, *request) {
	q := a.open
	q.step = sending
	if r := []rune(why); len(r) > reasonMax {
		why = string(r[:reasonMax])
	}
	if q.rec != nil {
		return nil, &request{recover: &falconv1.RecoverRequest{
			Recovery: q.rec.Id, PlanHash: q.rec.PlanHash, Verb: map[bool]string{true: "approve", false: "deny"}[q.approve], Reason: why,
		}}
	}
	return nil, &request{decide: &falconv1.DecideRequest{
		Incident: q.action.Incident, Action: q.action.Id, PlanHash: q.action.PlanHash, Approve: q.approve, JobEpoch: q.epoch, Reason: why,
	}}
}

// answered tells what the engine said, and ends the question that it was
// about; one that was refused is asked again if it still waits.
func (a *asker) answered(got answer) []string {
	if q := a.open; got.own && q != nil {
		a.open = nil
		if got.err != nil {
			delete(a.told, q.key())
		}
	}
	if got.err != nil {
		return []string{"not done: " + clean.String(got.err.Error())}
	}
	return []string{got.text}
}

// evidence is what a decision rests on.
func (q *question) evidence() []string {
	if q.rec != nil {
		return q.recoveryEvidence()
	}
	var out []string
	if v := q.verdict; v != nil {
		out = append(out, fmt.Sprintf("  verdict: %s, confidence %.0f%%", phrase.Verdict(v), 100*v.Confidence))
		for _, e := range v.Evidence {
			sign := "+"
			if e.Against {
				sign = "-"
			}
			out = append(out, "  "+sign+" "+e.Kind+": "+e.Text)
		}
	}
	x := q.action
	out = append(out, fmt.Sprintf("  expected: %s → %s an iteration, switching costs %s", phrase.Ms(x.BeforeMs), phrase.Ms(x.PredictedMs), phrase.Ms(x.OverheadMs)))
	if x.Why != "" {
		out = append(out, "  why now: "+x.Why)
	}
	return append(out, "  if it is wrong: the gain is measured, and what does not help is reverted")
}

func (q *question) recoveryEvidence() []string {
	out := []string{"  faults: " + phrase.Faults(q.rec.Faults)}
	if q.rec.Reason != "" {
		out = append(out, "  it waits because "+q.rec.Reason)
	}
	for _, f := range q.rec.Faults {
		for _, e := range f.Evidence {
			out = append(out, "  + "+e)
		}
	}
	return append(out, "  approved: healthy ranks park, the lost ones are made anew, state comes from replicas or the checkpoint")
}
