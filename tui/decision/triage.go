package decision

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
)

// Verbs about who looks after an incident, as they are typed.
const (
	SayAck      = "ack"
	SaySnooze   = "snooze"
	SayWake     = "wake"
	SayAssign   = "assign"
	SayNote     = "note"
	SayHandOver = "handover"
)

// needs is what a verb's first word is, "" where it takes none.
var needs = map[string]string{
	SaySnooze:   "a time, such as 30m or 2h",
	SayAssign:   "a name",
	SayHandOver: "a name",
	SayNote:     "a text",
}

// Say is what a person says of the incident on screen, from a command's words; nil where it
// can't be said. Nothing is guessed: a snooze without a time is refused.
func (o Operator) Say(verb string, words []string) (*falconv1.TriageRequest, Refusal) {
	inc := o.Subject.Incident()
	switch why := o.Lacks(roleOperator, verb); {
	case why != "":
		return nil, Refusal{Text: why}
	case verb == SayHandOver && o.Live.OpenIncidents() == 0:
		return nil, Refusal{Text: "no incident is open: there is nothing to hand over", Mild: true}
	case verb != SayHandOver && inc == nil:
		return nil, Refusal{Text: "no incident is on screen: " + verb + " is about one", Mild: true}
	case verb != SayHandOver && verb != SayNote && verb != SayAssign && !page.Open(inc):
		return nil, Refusal{
			Text: inc.GetId() + " is " + inc.GetState() + ": it alerts nobody",
			Mild: true,
		}
	case needs[verb] != "" && len(words) == 0:
		return nil, Refusal{Text: fmt.Sprintf("%s needs %s behind it", verb, needs[verb])}
	}
	q := &falconv1.TriageRequest{
		Incident: inc.GetId(),
		Verb:     verb,
		Text:     strings.Join(words, " "),
	}
	switch verb {
	case SaySnooze:
		span, err := time.ParseDuration(words[0])
		if err != nil {
			return nil, Refusal{
				Text: fmt.Sprintf("%q is no time: %s takes %s, then why", words[0], verb, needs[verb]),
			}
		}
		q.ForNs, q.Text = int64(span), strings.Join(words[1:], " ")
	case SayAssign:
		q.To, q.Text = words[0], strings.Join(words[1:], " ")
	case SayHandOver:
		q.Incident, q.To, q.Text = "", words[0], strings.Join(words[1:], " ")
	}
	return q, Refusal{}
}

// OnlyOther is the name of the one other person at a console, "" where there are none or several.
func OnlyOther(s *falconv1.SnapshotReply) string {
	name := ""
	for _, o := range s.GetOperators() {
		switch {
		case o.GetName() == s.GetActor() || o.GetName() == name:
		case name != "":
			return ""
		default:
			name = o.GetName()
		}
	}
	return name
}
