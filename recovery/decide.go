package recovery

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// Errors of decisions and demands.
var (
	ErrUnknown   = errors.New("recovery: no such recovery")
	ErrStalePlan = errors.New("recovery: the plan has changed")
	ErrDecided   = errors.New("recovery: nothing is left to decide")
	ErrNoReturn  = errors.New("recovery: the point of no return is passed")
	ErrDemand    = errors.New("recovery: it can't be done")
	ErrBadPolicy = errors.New("recovery: bad policy")
)

const byPolicyName = "policy"

// Check says in one sentence why a decision can't be taken, nil = it can.
func (m *Machine) Check(d Decision) error {
	c := m.find(d.Recovery)
	switch {
	case c == nil:
		return fmt.Errorf("%w: %q; the newest are listed by falcon recovery list", ErrUnknown, d.Recovery)
	case c.State.Over():
		return fmt.Errorf("%w: %s is %s", ErrDecided, c.ID, c.State)
	case d.PlanHash != "" && d.PlanHash != c.PlanHash:
		return fmt.Errorf("%w: that of %s is now %s, you decided on %s; look again", ErrStalePlan, c.ID, c.PlanHash, d.PlanHash)
	case d.Verb == Abort && c.NoReturn:
		return fmt.Errorf("%w: the ranks of %s were told to rejoin already; wait for its end", ErrNoReturn, c.ID)
	case d.Verb == Approve || d.Verb == Deny:
		if c.State != falcon.RecoveryProposed {
			return fmt.Errorf("%w: %s was approved by %s and is at %s; abort it instead", ErrDecided, c.ID, c.DecidedBy, c.State)
		}
	case d.Verb != Abort:
		return fmt.Errorf("%w: %q is none of approve, deny, abort", ErrDecided, d.Verb)
	}
	return nil
}

func (m *Machine) onDecision(now time.Time, d Decision) {
	if err := m.Check(d); err != nil {
		m.note("recovery", 1, "decision of %s refused: %s", d.By, err)
		return
	}
	why := d.Reason
	if why == "" {
		why = "no reason given"
	}
	switch d.Verb {
	case Approve:
		m.approve(now, d.By, d.From)
	case Deny:
		m.cur.DecidedBy, m.cur.DecidedFrom = d.By, d.From
		m.finish(now, falcon.RecoveryDenied, fmt.Sprintf("denied by %s: %s", d.By, why))
	case Abort:
		m.cur.DecidedBy, m.cur.DecidedFrom = d.By, d.From
		m.finish(now, falcon.RecoveryCancelled, fmt.Sprintf("aborted by %s: %s; the job stands", d.By, why))
	}
}

func (m *Machine) approve(now time.Time, by, from string) {
	c := m.cur
	c.DecidedBy, c.DecidedFrom = by, from
	m.note("recovery", 1, "%s approved by %s", c.ID, by)
	if c.Whole {
		c.Reason = wholeReason(c)
		m.relaunch(now)
		return
	}
	m.begin(now, "")
}

// byPolicy approves where policy lets it act by itself.
func (m *Machine) byPolicy(now time.Time) bool {
	c := m.cur
	if why := m.needsPerson(now); why != "" {
		if c.Reason != why {
			c.Reason = why
			m.deadline(now, 0)
			m.note("recovery", 2, "%s waits for a person: %s", c.ID, why)
		}
		return false
	}
	wait := time.Duration(m.policy.Recovery.Countdown * float64(time.Second))
	if wait > 0 && m.at.until.IsZero() {
		c.Reason = whatThen(c, "policy approves it when its countdown ends")
		m.deadline(now, wait)
	}
	if now.Before(m.at.until) || m.mayBeOver(now) {
		return false
	}
	m.approve(now, byPolicyName, byPolicyName)
	return true
}

// mayBeOver reports whether what is proposed was found before the console had to
// begin to listen again, and the job may go on by itself by now: iterations that
// begin are known some beats later.
func (m *Machine) mayBeOver(now time.Time) bool {
	if !m.mendsItself() || m.newestFault().After(m.hear.since) {
		return false
	}
	usual, _ := m.pace.usual()
	return m.hear.holds() || now.Sub(m.hear.since) < 4*m.cfg.Beat+min(2*usual, m.cfg.HangMin)
}

// needsPerson says why somebody must decide, empty = policy may.
func (m *Machine) needsPerson(now time.Time) string {
	why := m.asks(now)
	if why == "" {
		return ""
	}
	return whatThen(m.cur, why)
}

func (m *Machine) asks(now time.Time) string {
	p, c := m.policy.Recovery, m.cur
	most := p.PerHour
	if most == 0 {
		most = perHourDefault
	}
	switch {
	case c.Whole && m.job.Checkpoint < 0:
		return noCheckpoint
	case stuck(c) && hangWith(c, noneLeft):
		return "somebody may have stopped the job: approve to start it again from its newest checkpoint, or deny"
	case stuck(c) && hangWith(c, unheardOf):
		return "the console can't tell a dead node from its own blindness: look at the nodes that are not heard, then approve to suspend all and rejoin those that answer, or deny"
	case stuck(c):
		return "the processes are alive and the job may be waiting for something: approve to suspend all and rejoin them, or deny"
	case m.policy.Mode == falcon.ModeObserve:
		return "the console only observes"
	case m.policy.Frozen:
		return "policy is frozen"
	case p.Approval != "" && p.Approval != falcon.ApprovalAuto:
		return "policy asks for a person"
	case m.automatic(now) >= most:
		return fmt.Sprintf("%d recoveries within an hour were made without a person", most)
	}
	return ""
}

// hangWith reports whether the evidence of a hang contains a text.
func hangWith(c *falcon.Recovery, text string) bool {
	return slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool {
		return slices.ContainsFunc(f.Evidence, func(e string) bool { return strings.Contains(e, text) })
	})
}

// whatThen is a word on a proposal, with what it is about where that is no
// recovery in place.
func whatThen(c *falcon.Recovery, why string) string {
	if c.Shrink != nil || why == noCheckpoint {
		return wholeReason(c) + "; " + why
	}
	return why
}

const noCheckpoint = "no checkpoint is known of, so that a whole restart may begin from nothing: approve that, or deny"

// wholeReason is why survivors can't be kept, without what was added to it.
func wholeReason(c *falcon.Recovery) string {
	if c.Shrink != nil {
		return fewer(c.Shrink)
	}
	why, _, _ := strings.Cut(strings.TrimSuffix(c.Reason, "; "+noCheckpoint), awaitsAgents)
	return why
}

// automatic counts the recoveries of the last hour that policy approved.
func (m *Machine) automatic(now time.Time) int {
	n := 0
	for _, c := range m.recs {
		if c != m.cur && c.DecidedBy == byPolicyName && now.UnixNano()-c.StartedNs < int64(hour) {
			n++
		}
	}
	return n
}

// CheckDemand says in one sentence why a recovery by hand can't be had, nil =
// it can.
func (m *Machine) CheckDemand(d Demand) error {
	switch {
	case m.hasJob && m.ends.finished:
		return fmt.Errorf("%w: the job has finished: all its ranks ended normally; start it again if it is to train on", ErrDemand)
	case !m.hasJob || !m.anyAlive():
		return fmt.Errorf("%w: no process of a job is known", ErrDemand)
	case m.cur == nil && m.closed && m.recs[len(m.recs)-1].Attempts > 0:
		return fmt.Errorf("%w: the job stands since %s; start it again", ErrDemand, m.recs[len(m.recs)-1].ID)
	case m.cur != nil && m.cur.Whole:
		return fmt.Errorf("%w: %s restarts the whole job", ErrDemand, m.cur.ID)
	case d.Rank >= 0 && int(d.Rank) >= len(m.ranks):
		return fmt.Errorf("%w: there is no rank %d among %d", ErrDemand, d.Rank, len(m.ranks))
	case d.Rank < 0 && len(m.on[d.Node]) == 0:
		return fmt.Errorf("%w: the job has no rank on node %q", ErrDemand, d.Node)
	case d.Rank < 0 && m.isFenced(d.Node):
		return fmt.Errorf("%w: node %s is fenced already", ErrDemand, d.Node)
	}
	return nil
}

func (m *Machine) onDemand(now time.Time, d Demand) {
	if err := m.CheckDemand(d); err != nil {
		m.note("recovery", 1, "demand of %s refused: %s", d.By, err)
		return
	}
	m.closed = false
	f := falcon.Fault{Kind: falcon.FaultNode, Node: d.Node, AskedBy: d.By, FirstNs: now.UnixNano()}
	what := fmt.Sprintf("node %s be given up", d.Node)
	if d.Rank >= 0 {
		f.Kind, f.Device, f.Ranks = falcon.FaultExit, m.placement()[d.Rank], []falcon.Rank{d.Rank}
		f.Node, what = f.Device.Node(), fmt.Sprintf("rank %d be made anew", d.Rank)
	}
	f.Evidence = []string{fmt.Sprintf("%s asks that %s: %s", d.By, what, d.Reason)}
	proposed := m.cur == nil
	m.fault(now, f)
	if proposed && m.cur != nil && m.cur.State == falcon.RecoveryProposed {
		m.approve(now, d.By, d.From)
	}
}

// Bounds of a policy.
const (
	countdownMostS = 24 * 3600
	timesMost      = 1000
)

// ValidatePolicy says in one sentence what is wrong with the part of a policy
// that recoveries follow, and what to write instead.
func ValidatePolicy(p falcon.RecoveryPolicy) error {
	switch {
	case !slices.Contains([]string{"", falcon.ApprovalAuto, falcon.ApprovalPerson}, p.Approval):
		return fmt.Errorf("%w: approval %q of recovery is none of auto, person", ErrBadPolicy, p.Approval)
	case !(p.Countdown >= 0 && p.Countdown <= countdownMostS) || math.IsNaN(p.Countdown):
		return fmt.Errorf("%w: countdown_s %v of recovery is not between 0 and %d", ErrBadPolicy, p.Countdown, countdownMostS)
	case p.InPlace < -1 || p.InPlace > timesMost:
		return fmt.Errorf("%w: in_place %d is not between -1 (never) and %d", ErrBadPolicy, p.InPlace, timesMost)
	case p.PerHour < -1 || p.PerHour > timesMost:
		return fmt.Errorf("%w: per_hour %d of recovery is not between -1 (a person each time) and %d", ErrBadPolicy, p.PerHour, timesMost)
	}
	return nil
}
