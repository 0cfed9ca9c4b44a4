// Package decision holds what an operator can decide on, one type a question,
// and the rules under which an answer may be submitted: the guard after a
// question is shown, staleness, the second approver, the typed word, the
// reason. The screen's dialogs and the plain stream both ask by it, so that
// they cannot differ.
//
// A question is fixed when it is asked: it submits the action, plan hash and
// job epoch that were shown, and Stale reports when the engine's newest state
// no longer fits them. Pure values and functions: no I/O, no clock; the engine
// checks every request again.
package decision

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
)

// Guard is how long a question that has just been shown takes no answer: what
// was typed before it could be read is not meant for it.
const Guard = 400 * time.Millisecond

// ReasonMax bounds a reason, in characters.
const ReasonMax = 120

// Question is one decision as it was asked.
type Question interface {
	// Subject names what is decided on, for other operators to see; "" = nothing.
	Subject() string
	// Incident is the incident it is about, or "".
	Incident() string
	// Stale returns why the question no longer fits the newest state, or "".
	Stale(live *page.State) string
	// Entry is what has to be typed.
	Entry() Entry
	// Request is what an answer submits.
	Request(Typed) Request
}

// Need is whether a reason is asked for.
type Need int

// The needs.
const (
	NoReason Need = iota
	MayReason
	MustReason
)

// Entry is what a question has typed before it submits anything.
type Entry struct {
	Word   string // exactly; it can't be pasted
	What   string // what the word is
	Reason Need
}

// Typed is what was typed.
type Typed struct{ Word, Reason string }

// Missing returns what still has to be typed, or "".
func (e Entry) Missing(t Typed) string {
	switch {
	case t.Word != e.Word:
		return "type " + e.What
	case e.Reason == MustReason && strings.TrimSpace(t.Reason) == "":
		return "say why: the reason is kept with the decision"
	}
	return ""
}

// Request is what is submitted; one field is set.
type Request struct {
	Decide   *falconv1.DecideRequest
	Recover  *falconv1.RecoverRequest
	Validate *falconv1.ValidateRequest
	Policy   *falconv1.Policy
	Triage   *falconv1.TriageRequest
	Freeze   bool
	Leave    bool // ends the console; nothing is sent
}

// Blocked returns why a question can't be submitted now, or "".
func Blocked(q Question, live *page.State, t Typed) string {
	if _, leaves := q.(*Leave); leaves {
		return ""
	}
	if why := q.Stale(live); why != "" {
		return why
	}
	if live.Feed.Conn != feed.Live {
		return "the engine is unreachable"
	}
	return q.Entry().Missing(t)
}

// boundedReason is a reason as it is submitted.
func boundedReason(reason string) string {
	r := []rune(strings.TrimSpace(reason))
	return string(r[:min(len(r), ReasonMax)])
}

// general is what questions have in common that are about no incident: nothing is
// typed and no state makes them stale, unless the question has its own methods.
type general struct{}

// Subject implements Question.
func (general) Subject() string { return "" }

// Incident implements Question.
func (general) Incident() string { return "" }

// Stale implements Question.
func (general) Stale(*page.State) string { return "" }

// Entry implements Question.
func (general) Entry() Entry { return Entry{} }

// Leave asks before the console ends, where more ends with it.
type Leave struct {
	general
	Note string
}

// Request implements Question.
func (*Leave) Request(Typed) Request { return Request{Leave: true} }

const planChanged = "the plan has changed since this dialog opened; close and look again"

// otherEpoch returns that the job was restarted since a question was asked, or "".
func otherEpoch(live *page.State, asked uint64) string {
	if now := live.Snap().GetJob().GetEpoch(); now != asked {
		return fmt.Sprintf(
			"the job was restarted since this dialog opened (epoch %d, now %d); close and look again",
			asked, now,
		)
	}
	return ""
}
