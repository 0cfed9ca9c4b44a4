package page

import (
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/phrase"
)

// Statements are what is said of the job, the most important first, whichever incident is looked at.
func Statements(s *State) []statements.Statement {
	return statements.Of(picture(s))
}

// First is the first of them.
func First(s *State) statements.Statement {
	return statements.First(picture(s))
}

// Ended reports whether the job has ended, however that was.
func Ended(s *State) bool {
	switch statements.OfJob(picture(s)).Kind {
	case statements.Finished, statements.Ended, statements.Failed, statements.Gone, statements.Stopped:
		return true
	}
	return false
}

// Idle reports whether no iteration is to come now: what was measured last says nothing of the job,
// and that nothing is measured is no sign of a late picture.
func Idle(s *State) bool {
	switch statements.OfJob(picture(s)).Kind {
	case statements.Standing, statements.Resuming, statements.Moving, statements.Held,
		statements.Stopped, statements.Failed, statements.Gone, statements.Ended:
		return true
	}
	return false
}

func picture(s *State) statements.Picture {
	snap := s.Snap()
	if s.whole != nil {
		snap = s.whole
	}
	return statements.Picture{
		Snap: snap,
		Now:  s.EngineNow(),
		Lost: s.Feed.Conn == feed.Lost,
	}
}

// Browses reports whether an incident is in the present one's place because it is looked at.
func Browses(s *State) bool { return s.whole != nil }

// Say is a statement in one line, as drawn now.
func Say(s *State, x *statements.Statement) string {
	return phrase.Statement(x, s.EngineNow())
}

// roles are how statements are drawn.
var roles = map[statements.Severity]themes.Role{
	statements.Good:   themes.Good,
	statements.Plain:  themes.Text,
	statements.Warn:   themes.Warn,
	statements.Bad:    themes.Bad,
	statements.Urgent: themes.Urgent,
}

// RoleOf is how a statement of a severity is drawn.
func RoleOf(x statements.Severity) themes.Role { return roles[x] }

// pressingFirst is a picture with the incident in front of which the first statement about one
// speaks: what is shown is what is said first, and what keys act on.
func pressingFirst(f *feed.State) *feed.State {
	id := pressing(f)
	at := slices.IndexFunc(f.Snap.GetIncidents(), func(i *falconv1.Incident) bool {
		return i.GetId() == id
	})
	if at < 0 {
		return f
	}
	snap, ok := inFront(f.Snap, at)
	if !ok {
		return f
	}
	out := *f
	out.Snap = snap
	return &out
}

// pressing is the incident of the first statement that is about an open one, or "".
func pressing(f *feed.State) string {
	for _, x := range statements.Of(statements.Picture{
		Snap: f.Snap,
		Now:  time.Unix(0, f.Snap.GetAtUnixNs()),
	}) {
		if x.Kind == statements.Last || x.Kind == statements.InForce {
			return ""
		}
		if id := x.IncidentID(); id != "" {
			return id
		}
	}
	return ""
}

// inFront is a snapshot with one of its open incidents in front, and its ladder; ok is false where
// it is there already, or its ladder is not known.
func inFront(snap *falconv1.SnapshotReply, at int) (*falconv1.SnapshotReply, bool) {
	inc := snap.GetIncidents()[at]
	n := slices.IndexFunc(snap.GetOthers(), func(l *falconv1.Ladder) bool {
		return l.GetIncident() == inc.GetId()
	})
	if n < 0 || !Open(inc) {
		return snap, false
	}
	out := feed.Shallow(snap)
	others := snap.GetOthers()
	out.Incidents = slices.Concat(
		snap.Incidents[at:at+1],
		snap.Incidents[:at],
		snap.Incidents[at+1:],
	)
	out.Ladder = others[n]
	out.Others = slices.Concat([]*falconv1.Ladder{snap.GetLadder()}, others[:n], others[n+1:])
	return out, true
}
