package page

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/key"
)

// Target is what a line refers to: a page, and the thing to show there.
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
	return falcon.RankSubject(falcon.Rank(t.Rank))
}

var named = regexp.MustCompile(`^(INC|REC|VAL)-\d{4,9}$`)

var homes = map[string]key.Scope{
	"INC": key.Ladder,
	"REC": key.Recovery,
	"VAL": key.Validate,
}

// TargetOf is what an event is about: an incident, recovery or validation, else
// a rank, or the first rank of a device or node. A line without a subject whose
// kind is about incidents leads to the present one.
func (s *State) TargetOf(e *falconv1.EventLine) (Target, bool) {
	about := cmp.Or(e.GetAudit().GetAbout(), e.GetAbout())
	if t, ok := targetOfID(about); ok {
		return t, true
	}
	if r, ok := falcon.SubjectRank(about); ok {
		return Target{Page: key.Ranks, Rank: int32(r)}, int(r) < s.Roster.World()
	}
	if about != "" {
		for r, v := range s.Roster.Views() {
			d := falcon.Device(v.GetDevice())
			if string(d) == about || string(d.Node()) == about {
				return Target{Page: key.Ranks, Rank: r}, true
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
	return Target{Page: home, ID: id}, ok && named.MatchString(id)
}

// aboutIncident are kinds that are always about an incident, by default the present one.
var aboutIncident = map[string]bool{
	"incident": true,
	"verdict":  true,
	"proposal": true,
	"decision": true,
	"action":   true,
}

// Go looks at a target and returns its page.
func (s *State) Go(t Target) key.Scope {
	if t.ID != "" {
		s.LookAt(t.ID)
	} else {
		s.Select(t.Rank)
	}
	return t.Page
}
