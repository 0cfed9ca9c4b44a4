package page

import (
	"regexp"
	"strconv"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/key"
)

// Target is what a line tells of: a page, and the thing to show there.
type Target struct {
	Page key.Scope
	ID   string // "INC-0001", "REC-0001", "VAL-0001"; empty = a rank
	Rank int32  // with ID empty
}

// Name is the target in words.
func (t Target) Name() string {
	if t.ID != "" {
		return t.ID
	}
	return "rank " + strconv.Itoa(int(t.Rank))
}

var (
	named  = regexp.MustCompile(`\b(INC|REC|VAL)-\d{4,9}\b`)
	ranked = regexp.MustCompile(`\branks? (\d{1,7})\b`)
	placed = regexp.MustCompile(`\b[\w.-]+\.g\d{1,3}\b`)
)

var homes = map[string]key.Scope{"INC": key.Ladder, "REC": key.Recovery, "VAL": key.Validate}

// TargetOf finds what an event is about: the id that its audit has, else, as the
// other kinds have none, the first incident, recovery or validation in its text,
// else the first rank or device that the job has.
func (s *State) TargetOf(e *falconv1.EventLine) (Target, bool) {
	if t, ok := targetOfID(e.GetAudit().GetAbout()); ok {
		return t, true
	}
	if t, ok := targetOfID(named.FindString(e.GetText())); ok {
		return t, true
	}
	if m := ranked.FindStringSubmatch(e.GetText()); m != nil {
		if r, err := strconv.Atoi(m[1]); err == nil && r < s.Roster.World() {
			return Target{Page: key.Ranks, Rank: int32(r)}, true
		}
	}
	if d := placed.FindString(e.GetText()); d != "" {
		for _, r := range s.Roster.Views() {
			if r.GetDevice() == d {
				return Target{Page: key.Ranks, Rank: r.Rank}, true
			}
		}
	}
	if inc := s.Incident(); inc != nil && aboutIncident[e.GetKind()] {
		return Target{Page: key.Ladder, ID: inc.Id}, true
	}
	return Target{}, false
}

// targetOfID is what an id names; of an action, "INC-0001/S2/1", the incident.
func targetOfID(id string) (Target, bool) {
	id, _, _ = strings.Cut(id, "/")
	kind, _, _ := strings.Cut(id, "-")
	home, ok := homes[kind]
	return Target{Page: home, ID: id}, ok && named.FindString(id) == id
}

// aboutIncident are kinds that are always about an incident, by default the present one.
var aboutIncident = map[string]bool{"incident": true, "verdict": true, "proposal": true, "decision": true, "action": true}

// Go looks at a target and returns its page.
func (s *State) Go(t Target) key.Scope {
	if t.ID != "" {
		s.LookAt(t.ID)
	} else {
		s.Select(t.Rank)
	}
	return t.Page
}
