package fleet

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
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

var classWords = [classes]string{"stopped", "recovering", "slow", "away", "connecting", "waiting", "learning", "training", "finished"}

// String is the word for it.
func (c Class) String() string { return classWords[max(0, min(c, classes-1))] }

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
}

// RowOf is a job's row at a moment.
func RowOf(j *Job, now time.Time) Row {
	snap := j.State.Snap
	r := Row{
		Job: j, Class: classOf(j), Slowdown: positive(snap.GetJob().GetSlowdown()), News: -1,
		Lost: positive(snap.GetBrief().GetLostGpuHours()), PerHour: positive(60 * snap.GetBrief().GetLossPerMinuteGpuHours()),
	}
	if r.Class >= Waiting {
		r.PerHour = 0
	}
	if !j.State.Received.IsZero() {
		r.News = max(0, j.State.Age(now))
		if r.Class != Finished { // nothing more comes of it
			r.Waits = waitsOf(j, now)
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

func classOf(j *Job) Class {
	s := j.State
	switch {
	case s.Conn == feed.Lost || s.Err != "":
		return Away
	case s.Conn == feed.Connecting:
		return Connecting
	}
	return classOfSnap(s.Snap)
}

// classOfSnap is the class by a picture alone.
func classOfSnap(snap *falconv1.SnapshotReply) Class {
	state := falcon.JobState(snap.GetJob().GetState())
	switch r := snap.GetRecovery(); {
	case state == falcon.JobFinished:
		return Finished
	case feed.Recovering(r) && r.GetState() != string(falcon.RecoveryProposed):
		return Recovering
	case snap.GetHang() != nil, feed.Recovering(r), standsAfter(snap):
		return Stopped
	}
	switch state {
	case falcon.JobLost:
		return Stopped
	case falcon.JobRecovering, falcon.JobRestarting:
		return Recovering
	case falcon.JobWaiting:
		return Waiting
	case falcon.JobLearning, falcon.JobSteady, falcon.JobSlow, falcon.JobFinished:
	}
	switch {
	case snap.GetBrief().GetOpen() > 0 || state == falcon.JobSlow:
		return Slow
	case state == falcon.JobLearning:
		return Learning
	}
	return Training
}

// standsAfter reports whether the newest recovery failed and the job has not trained since.
func standsAfter(snap *falconv1.SnapshotReply) bool {
	r := snap.GetRecovery()
	return r.GetState() != "" && !feed.Recovering(r) && r.GetState() != string(falcon.RecoveryResumed) && snap.GetJob().GetIteration() <= r.GetBeforeIteration()
}

// NeedsPerson reports whether something waits that a person can decide on.
func (r *Row) NeedsPerson() bool { return len(r.Waits) > 0 }

// World is how many ranks the job has.
func (r *Row) World() int { return int(max(0, r.State.Snap.GetJob().GetWorld())) }

// JobName is what the engine calls the job, "" where it is not known.
func (r *Row) JobName() string { return r.State.Snap.GetJob().GetName() }

// Version is what is unusual about the engine's version, or "".
func (r *Row) Version() string {
	switch {
	case r.State.Received.IsZero() || r.Revision == falconv1.ConsoleRevision:
		return ""
	case r.Revision == 0:
		return "older engine: it sends whole pictures, pulled every " + strconv.Itoa(int(OlderPeriod.Seconds())) + " s"
	case r.Revision > falconv1.ConsoleRevision:
		return fmt.Sprintf("newer engine (protocol %d, this console has %d): what is new in it is not shown", r.Revision, falconv1.ConsoleRevision)
	}
	return fmt.Sprintf("older engine (protocol %d, this console has %d)", r.Revision, falconv1.ConsoleRevision)
}

// waitsOf is what waits in a job, what a person must decide first.
func waitsOf(j *Job, now time.Time) []Wait {
	snap := j.State.Snap
	engineNow := time.Unix(0, snap.GetAtUnixNs()).Add(max(0, now.Sub(j.State.Received)))
	var must, may []Wait
	put := func(w Wait, deadlineNs int64) {
		if deadlineNs == 0 || snap.GetPolicy().GetFrozen() {
			w.Whom, w.Approved = cmp.Or(w.Whom, whom(snap.GetRole())), false
			must = append(must, w)
			return
		}
		w.Whom, w.Left = "", max(0, time.Unix(0, deadlineNs).Sub(engineNow))
		may = append(may, w)
	}
	if r := snap.GetRecovery(); r.GetState() == string(falcon.RecoveryProposed) {
		put(Wait{What: r.GetId()}, r.GetDeadlineUnixNs())
	}
	for _, l := range append([]*falconv1.Ladder{snap.GetLadder()}, snap.GetOthers()...) {
		w := Wait{Owner: feed.TriageOf(snap, l.GetIncident()).GetOwner()}
		if p := l.GetProposal(); p.GetState() == string(falcon.ActionProposed) {
			w.What = p.GetRung() + " for " + p.GetIncident()
			if phrase.Waits(p) {
				w.Whom = "a second approver"
			}
			put(w, p.GetDeadlineUnixNs())
			continue
		}
		for _, a := range l.GetActions() {
			if a.GetState() == string(falcon.ActionApproved) && a.GetDeadlineUnixNs() != 0 && !snap.GetPolicy().GetFrozen() {
				w.What, w.Approved = a.GetRung()+" for "+a.GetIncident(), true
				put(w, a.GetDeadlineUnixNs())
			}
		}
	}
	return append(must, may...)
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
