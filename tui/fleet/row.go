package fleet

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/phrase"
)

// Class is how a job stands, worst first.
type Class int

// The classes.
const (
	Stopped    Class = iota // it trains no more, and nothing gets it going by itself
	Recovering              // lost processes are being replaced, or the job is started again
	Slow
	Away       // its engine gives no picture: training goes on as it may, unseen
	Connecting // nothing is known yet
	Waiting    // for agents
	Learning   // the healthy iteration time
	Training
	Finished
	classes // how many there are
)

var classWords = [classes]string{
	"stopped", "recovering", "slow", "away", "connecting", "waiting", "learning", "training",
	"finished",
}

// String is the word for it.
func (c Class) String() string {
	return classWords[max(0, min(c, classes-1))]
}

// Wait is one thing that waits: for a person, or for a countdown that a person can end.
type Wait struct {
	What     string // "S2 for INC-0001", "REC-0001"
	Whom     string // "an approver", "a second approver", "you"; "" where it acts by itself
	Left     time.Duration
	Approved bool   // the countdown is that of an approval, which a veto withdraws
	Owner    string // who looks after its incident
}

// Row is one job as the table shows it.
type Row struct {
	*Job
	Class    Class
	Slowdown float64 // against the baseline, 0 or more
	Lost     float64 // GPU-hours, by the open incidents
	PerHour  float64 // GPU-hours that go an hour
	Waits    []Wait
	News     time.Duration // age of the newest picture and its data; negative = never
	said     []statements.Statement
	at       time.Time // by the engine's clock
}

// RowOf is a job's row at a moment.
func RowOf(j *Job, now time.Time) Row {
	snap := j.State.Snap
	at := j.State.EngineTime(now)
	said := statements.Of(statements.Picture{
		Snap: snap,
		Now:  at,
		Lost: j.State.Conn == feed.Lost,
	})
	r := Row{
		Job:      j,
		Class:    classOf(j, said),
		said:     said,
		at:       at,
		Slowdown: positive(snap.GetJob().GetSlowdown()),
		News:     -1,
		Lost:     positive(snap.GetBrief().GetLostGpuHours()),
		PerHour:  positive(60 * snap.GetBrief().GetLossPerMinuteGpuHours()),
	}
	if v := snap.GetRecovery(); feed.Recovering(v) {
		r.Lost += positive(v.GetLostGpuHours())
	}
	if r.Class >= Waiting {
		r.PerHour = 0
	}
	if !j.State.Received.IsZero() {
		r.News = max(0, j.State.Age(now))
		if r.Class != Finished { // nothing more comes of it
			r.Waits = r.waits()
		}
	}
	return r
}

// positive bounds an amount from the wire: what is none, or less than nothing, is 0.
func positive(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 0
	}
	return min(x, 1e9)
}

func classOf(j *Job, said []statements.Statement) Class {
	s := j.State
	switch {
	case s.Conn == feed.Lost || s.Err != "":
		return Away
	case s.Conn == feed.Connecting:
		return Connecting
	}
	return classOfSaid(s.Snap, said)
}

// classOfSaid is the class by what is said of a picture.
func classOfSaid(snap *falconv1.SnapshotReply, said []statements.Statement) Class {
	x := &said[slices.IndexFunc(said, func(x statements.Statement) bool { return x.OfJob() })]
	if x.Kind == statements.Finished {
		return Finished
	}
	for i := range said {
		if said[i].Kind == statements.Recovery &&
			said[i].Who == statements.Nobody &&
			said[i].Recovery.GetState() != string(falcon.RecoveryProposed) {
			return Recovering
		} else if said[i].Kind == statements.Recovery {
			return Stopped
		}
	}
	switch c, known := ofKind[x.Kind]; {
	case x.Kind == statements.Standing && x.Severity < statements.Bad:
		return Slow
	case known:
		return c
	case snap.GetBrief().GetOpen() > 0:
		return Slow
	case x.Kind == statements.Learning:
		return Learning
	case x.Kind == statements.Waiting &&
		falcon.JobState(snap.GetJob().GetState()) == falcon.JobWaiting:
		return Waiting
	}
	return Training
}

// ofKind are the classes that follow from how a job stands alone.
var ofKind = map[statements.Kind]Class{
	statements.Stopped:  Stopped,
	statements.Failed:   Stopped,
	statements.Gone:     Stopped,
	statements.Ended:    Stopped,
	statements.Standing: Stopped,
	statements.Resuming: Recovering,
	statements.Moving:   Recovering,
	statements.Slow:     Slow,
	statements.Slower:   Slow,
}

// NeedsPerson reports whether something waits that a person can decide on.
func (r *Row) NeedsPerson() bool { return len(r.Waits) > 0 }

// World is how many ranks the job has.
func (r *Row) World() int {
	return int(max(0, r.State.Snap.GetJob().GetWorld()))
}

// JobName is what the engine calls the job, "" where it is not known.
func (r *Row) JobName() string {
	return r.State.Snap.GetJob().GetName()
}

// Version is what is unusual about the engine's version, or "".
func (r *Row) Version() string {
	switch {
	case r.State.Received.IsZero() || r.Revision == falconv1.ConsoleRevision:
		return ""
	case r.Revision == 0:
		return "older engine: it sends whole pictures, pulled every " +
			strconv.Itoa(int(OlderPeriod.Seconds())) + " s"
	case r.Revision > falconv1.ConsoleRevision:
		return fmt.Sprintf("newer engine (protocol %d, this console has %d): what is new in it is not shown",
			r.Revision, falconv1.ConsoleRevision)
	}
	return fmt.Sprintf("older engine (protocol %d, this console has %d)",
		r.Revision, falconv1.ConsoleRevision)
}

// waits is what waits in a job, in the order of the statements.
func (r *Row) waits() (out []Wait) {
	snap := r.State.Snap
	for i := range r.said {
		x := &r.said[i]
		w := Wait{Owner: feed.TriageOf(snap, x.IncidentID()).GetOwner()}
		left, counts := x.Left(r.at)
		switch x.Kind {
		case statements.Recovery:
			w.What = x.Recovery.GetId()
			counts = counts && x.Recovery.GetState() == string(falcon.RecoveryProposed)
		case statements.Pending, statements.Decision:
			w.What = x.Action.GetRung() + " for " + x.Action.GetIncident()
			w.Approved = x.Action.GetState() == string(falcon.ActionApproved)
		default:
			continue
		}
		switch {
		case x.Who == statements.Second:
			w.Whom = "a second approver"
		case x.Who != statements.Nobody:
			w.Whom = whom(snap.GetRole())
		case !counts:
			continue
		default:
			w.Left = left
		}
		out = append(out, w)
	}
	return out
}

// roleApprover is the role that decides.
const roleApprover = "approver"

// whom is who must decide, as this operator reads it.
func whom(role string) string {
	if feed.Covers(role, roleApprover) {
		return "you"
	}
	return "an approver"
}

// Text is the wait in a few words.
func (w Wait) Text() string {
	text := w.What
	switch {
	case w.Whom != "":
		text += " waits for " + w.Whom
	case w.Approved:
		text += " approved, acts in " + phrase.Seconds(w.Left)
	default:
		text += " acts in " + phrase.Seconds(w.Left)
	}
	return text + phrase.Prefixed(", ", owned(w.Owner))
}

// Terse is the wait where room is short: who first.
func (w Wait) Terse() string {
	what := strings.Replace(w.What, " for ", " ", 1)
	if w.Whom != "" {
		return strings.TrimPrefix(strings.TrimPrefix(w.Whom, "an "), "a ") + ": " + what
	}
	return what + " in " + phrase.Seconds(w.Left)
}

func owned(name string) string {
	if name == "" {
		return ""
	}
	return name + "'s"
}
