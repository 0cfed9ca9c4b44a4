package report

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/phrase"
)

// Triage is who looks after an incident.
type Triage struct {
	Incident           string       `json:"incident"`
	Owner              string       `json:"owner,omitempty"`
	AckedBy            string       `json:"acked_by,omitempty"`
	AckedUnixNs        int64        `json:"acked_unix_ns,omitempty"`
	SnoozedBy          string       `json:"snoozed_by,omitempty"`
	SnoozedUntilUnixNs int64        `json:"snoozed_until_unix_ns,omitempty"`
	Snoozed            bool         `json:"snoozed"` // now
	Notes              []TriageNote `json:"notes,omitempty"`

	text string
}

// TriageNote is one note.
type TriageNote struct {
	By     string `json:"by"`
	UnixNs int64  `json:"unix_ns"`
	Text   string `json:"text"`
}

// Text says it in one line, "-" where no one has said anything.
func (t *Triage) Text() string {
	if t == nil || t.text == "" {
		return "-"
	}
	return t.text
}

// TriageOf converts what an engine has answered at a time of its own.
func TriageOf(list []*falconv1.Triage, atUnixNs int64) []*Triage {
	now := time.Unix(0, atUnixNs)
	out := make([]*Triage, len(list))
	for i, v := range list {
		clean.Message(v)
		out[i] = &Triage{
			Incident:           v.GetIncident(),
			Owner:              v.GetOwner(),
			AckedBy:            v.GetAckedBy(),
			AckedUnixNs:        v.GetAckedUnixNs(),
			SnoozedBy:          v.GetSnoozedBy(),
			SnoozedUntilUnixNs: v.GetSnoozedUntilUnixNs(),
			Snoozed:            phrase.Snoozed(v, now),
			text:               phrase.Triage(v, now, nil),
		}
		for _, n := range v.GetNotes() {
			out[i].Notes = append(out[i].Notes, TriageNote{n.GetBy(), n.GetUnixNs(), n.GetText()})
		}
	}
	return out
}

// writeTriage lists who looked after the incident and what people wrote.
func (s Incident) writeTriage(b *strings.Builder) {
	if s.Triage == nil {
		return
	}
	fmt.Fprintf(b, "\n## Looked after\n\n%s\n", markdown(s.Triage.Text()))
	for _, n := range s.Triage.Notes {
		fmt.Fprintf(b, "\n- %s UTC, %s: %s",
			time.Unix(0, n.UnixNs).UTC().Format(time.DateTime), markdown(n.By), markdown(n.Text))
	}
	if len(s.Triage.Notes) > 0 {
		b.WriteString("\n")
	}
}
