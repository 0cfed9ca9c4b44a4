package statements

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Kind is what a statement says.
type Kind string

// The kinds. A picture has exactly one of those about the job.
const (
	Unseen Kind = "unseen" // the engine does not answer: all else is from its last picture

	// Of the job.
	Unknown  Kind = "unknown"  // nothing is known of it so far
	Waiting  Kind = "waiting"  // for agents, or for the first iteration that is heard of
	Learning Kind = "learning" // it runs, and its healthy iteration time is not known yet
	Running  Kind = "running"
	Slower   Kind = "slower"   // it runs slower than it did, and that is being checked
	Slow     Kind = "slow"     // an open incident says why
	Held     Kind = "held"     // a test holds it, and lets it go by itself
	Standing Kind = "standing" // no iteration comes, and nobody has said that it should be so
	Resuming Kind = "resuming" // a recovery is at work, or has just ended
	Moving   Kind = "moving"   // it is being started again
	Stopped  Kind = "stopped"  // somebody has ended its processes
	Failed   Kind = "failed"   // its processes ended by themselves, without success
	Gone     Kind = "gone"     // its processes ended, and how is not reported: they were stopped, or failed
	Ended    Kind = "ended by falcon"
	Finished Kind = "finished" // all of its processes ended by themselves, with success

	// Of what is done about it.
	Recovery Kind = "recovery" // that is not over
	Acting   Kind = "acting"   // an action is being carried out
	Pending  Kind = "pending"  // an action goes out by itself unless a person stops it
	Decision Kind = "decision" // an action waits for a person
	Frozen   Kind = "frozen"   // nothing new goes out until a person unfreezes
	Incident Kind = "incident" // that is open
	InForce  Kind = "in force" // an action, until it is undone
	Fenced   Kind = "fenced"   // nodes that are kept out
	Last     Kind = "last"     // the newest incident or recovery that is over
)

// Severity is how bad what a statement says is.
type Severity int

// The severities, mildest first.
const (
	Good   Severity = iota // all is as it should be
	Plain                  // news
	Warn                   // worth a look
	Bad                    // the job loses time
	Urgent                 // and a person decides about it, or can still stop what is about to happen
)

var severityWords = [...]string{"good", "plain", "warn", "bad", "urgent"}

func (s Severity) String() string {
	return severityWords[min(max(s, Good), Urgent)]
}

// Ends is whose processes an action ends.
type Ends int

// What actions end.
const (
	EndsNone Ends = iota
	EndsNode      // those of one node
	EndsAll
)

// Who must act for it to go on.
type Who string

// Those who must act.
const (
	Nobody   Who = ""
	Approver Who = "approver"
	Second   Who = "second approver" // another one than who has approved it
)

// Statement is one thing that is said. What it refers to belongs to the picture and is not changed.
type Statement struct {
	Kind     Kind
	Severity Severity

	Job      *falconv1.Job
	Incident *falconv1.Incident
	Action   *falconv1.Action
	Recovery *falconv1.Recovery
	Hang     *falconv1.Hang
	Test     *falconv1.Validation
	Nodes    []string // Fenced; Waiting: whose agents are connected, where no job is known
	Ranks    []int32  // that it names, whom keys open

	Ends  Ends
	Who   Who
	Since time.Time     // zero = not known
	Until time.Time     // when it goes on by itself; zero = it does not, or that is not known
	Usual time.Duration // of an iteration; 0 = not known

	// Acting: the recovery that is said above is how it is carried out. Resuming: that the job stands
	// is its doing.
	carried bool
}

// For is how long it has been so; 0 where that is not known.
func (s *Statement) For(now time.Time) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Since))
}

// Left is the time until it goes on by itself; ok is false where it does not.
func (s *Statement) Left(now time.Time) (left time.Duration, ok bool) {
	if s.Until.IsZero() {
		return 0, false
	}
	return max(0, s.Until.Sub(now)), true
}

// About is the id of what it is about: of an action, a recovery or an incident; "" of the job.
func (s *Statement) About() string {
	switch {
	case s.Action != nil:
		return s.Action.GetId()
	case s.Recovery != nil:
		return s.Recovery.GetId()
	}
	return s.Incident.GetId()
}

// IncidentID is the incident that it is about, or "".
func (s *Statement) IncidentID() string {
	if s.Action != nil {
		return s.Action.GetIncident()
	}
	return s.Incident.GetId()
}

// ofJob are the kinds that say how the job stands.
var ofJob = map[Kind]bool{
	Unknown:  true,
	Waiting:  true,
	Learning: true,
	Running:  true,
	Slower:   true,
	Slow:     true,
	Held:     true,
	Standing: true,
	Resuming: true,
	Moving:   true,
	Stopped:  true,
	Failed:   true,
	Gone:     true,
	Ended:    true,
	Finished: true,
}

// OfJob reports whether it says how the job stands.
func (s *Statement) OfJob() bool { return ofJob[s.Kind] }
