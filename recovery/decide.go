package recovery

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
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

// Check returns why a decision can't be taken, nil = it can.
func (m *Machine) Check(d Decision) error {
	c := m.hist.findByID(d.Recovery)
	switch {
	case c == nil:
		return fmt.Errorf("%w: %q; the newest are listed by falcon recovery list", ErrUnknown, d.Recovery)
	case c.State.Over():
		return fmt.Errorf("%w: %s is %s", ErrDecided, c.ID, c.State)
	case d.PlanHash != "" && d.PlanHash != c.PlanHash:
		return fmt.Errorf("%w: that of %s is now %s, you decided on %s; look again",
			ErrStalePlan, c.ID, c.PlanHash, d.PlanHash)
	case d.Verb == Abort && c.NoReturn:
		return fmt.Errorf("%w: the ranks of %s were ordered to rejoin already; wait for its end",
			ErrNoReturn, c.ID)
	case d.Verb == Approve || d.Verb == Deny:
		if c.State != falcon.RecoveryProposed {
			return fmt.Errorf("%w: %s was approved by %s and is at %s; abort it instead",
				ErrDecided, c.ID, c.DecidedBy, c.State)
		}
	case d.Verb == Ended:
		if !c.AwaitsProof {
			return fmt.Errorf("%w: %s does not wait for a proof that the job's processes have ended",
				ErrDecided, c.ID)
		}
	case d.Verb != Abort:
		return fmt.Errorf("%w: %q is none of approve, deny, abort, ended", ErrDecided, d.Verb)
	}
	return nil
}

func (m *Machine) onDecision(now time.Time, d Decision) {
	if err := m.Check(d); err != nil {
		m.out.addNote(d.Recovery, "recovery", 1, "decision of %s refused: %s", d.By, err)
		return
	}
	why := cmp.Or(d.Reason, "no reason given")
	switch d.Verb {
	case Approve:
		m.flow.approveRecovery(now, d.By, d.From)
	case Deny:
		m.op.recordDecision(d.By, d.From)
		m.flow.finishRecovery(
			now,
			falcon.RecoveryDenied,
			fmt.Sprintf("denied by %s: %s", d.By, why),
		)
	case Ended:
		m.flow.takeStatement(now, d.By, why)
	case Abort:
		m.op.recordDecision(d.By, d.From)
		m.flow.finishRecovery(
			now,
			falcon.RecoveryCancelled,
			fmt.Sprintf("aborted by %s: %s; the job stays stopped", d.By, why),
		)
	}
}

// CheckDemand returns why a recovery by hand can't be had, nil = it can.
func (m *Machine) CheckDemand(d Demand) error {
	last := m.hist.newest()
	switch {
	case d.Action != "" && m.op.rec != nil:
		return fmt.Errorf("%w: %s is in progress", ErrDemand, m.op.rec.ID)
	case m.hasJob && m.ends.Finished():
		return fmt.Errorf(
			"%w: the job has finished: all its ranks ended normally; start it again if it is to train on",
			ErrDemand,
		)
	case !m.hasJob || !m.ranks.anyProcessAlive():
		return fmt.Errorf("%w: no process of a job is known", ErrDemand)
	case m.op.rec == nil && m.stop.isStopped() && last.Attempts > 0:
		return fmt.Errorf("%w: the job has been stopped since %s; start it again", ErrDemand, last.ID)
	case m.op.rec != nil && m.op.rec.Whole:
		return fmt.Errorf("%w: %s restarts the whole job", ErrDemand, m.op.rec.ID)
	case d.Rank >= 0 && !m.ranks.hasRank(d.Rank):
		return fmt.Errorf("%w: there is no rank %d among %d", ErrDemand, d.Rank, m.ranks.worldSize())
	case d.Rank >= 0 && m.op.isReplacing(d.Rank):
		return fmt.Errorf("%w: %s is replacing rank %d already", ErrDemand, m.op.rec.ID, d.Rank)
	case d.Rank < 0 && len(m.ranks.ranksOnNode(d.Node)) == 0:
		return fmt.Errorf("%w: the job has no rank on node %q", ErrDemand, d.Node)
	case d.Rank < 0 && m.op.isFenced(d.Node):
		return fmt.Errorf("%w: node %s is fenced already", ErrDemand, d.Node)
	}
	return nil
}

func (m *Machine) onDemand(now time.Time, d Demand) {
	if err := m.CheckDemand(d); err != nil {
		m.out.addNote(string(d.Node), "recovery", 1, "demand of %s refused: %s", d.By, err)
		return
	}
	m.stop.reopen()
	f := falcon.Fault{
		Kind:    falcon.FaultNode,
		Node:    d.Node,
		AskedBy: d.By,
		Action:  d.Action,
		Spare:   d.Spare,
		FirstNs: now.UnixNano(),
	}
	if m.op.rec == nil && m.detect.stallUnexplained(now) {
		f.FirstNs = m.pace.Moved().UnixNano() // the standstill is what is ended
	}
	what := fmt.Sprintf("node %s be given up", d.Node)
	if d.Rank >= 0 {
		f.Kind = falcon.FaultExit
		f.Device = m.ranks.deviceOf(d.Rank)
		f.Ranks = []falcon.Rank{d.Rank}
		f.Node = f.Device.Node()
		what = fmt.Sprintf("rank %d be replaced", d.Rank)
	}
	f.Evidence = []string{fmt.Sprintf("%s asks that %s: %s", d.By, what, d.Reason)}
	if d.Action != "" {
		f.Evidence = []string{fmt.Sprintf("%s, approved by %s: %s is slow and gives way to %s: %s",
			d.Action, d.By, d.Node, d.Spare, d.Reason)}
	}
	proposed := m.op.rec == nil
	m.flow.onFault(now, f)
	if proposed && m.op.rec != nil && m.op.rec.State == falcon.RecoveryProposed {
		m.flow.approveRecovery(now, d.By, d.From)
	}
}

// Bounds of a policy.
const (
	countdownMostS = 24 * 3600
	timesMost      = 1000
)

// ValidatePolicy returns the first value that makes no sense, with what to write instead.
func ValidatePolicy(p falcon.RecoveryPolicy) error {
	switch {
	case !slices.Contains([]string{"", falcon.ApprovalAuto, falcon.ApprovalPerson}, p.Approval):
		return fmt.Errorf("%w: approval %q of recovery is none of auto, person", ErrBadPolicy, p.Approval)
	case !(p.Countdown >= 0 && p.Countdown <= countdownMostS) || math.IsNaN(p.Countdown):
		return fmt.Errorf("%w: countdown_s %v of recovery is not between 0 and %d",
			ErrBadPolicy, p.Countdown, countdownMostS)
	case p.InPlace < -1 || p.InPlace > timesMost:
		return fmt.Errorf("%w: in_place %d is not between -1 (never) and %d",
			ErrBadPolicy, p.InPlace, timesMost)
	case p.PerHour < -1 || p.PerHour > timesMost:
		return fmt.Errorf("%w: per_hour %d of recovery is not between -1 (a person each time) and %d",
			ErrBadPolicy, p.PerHour, timesMost)
	}
	return nil
}
