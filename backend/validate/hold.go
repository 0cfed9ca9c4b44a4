package validate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// startSurvey asks every node where its ranks are. Each attempt is a pause of
// its own: hooks know pauses by their ids.
func (m *Machine) startSurvey(now time.Time) {
	m.addDurations() // of the attempt before
	m.v.QuietMs = 0
	m.v.State = falcon.ValidationSurveying
	m.v.Attempts++
	m.pause = m.out.newID()
	m.armed = false
	m.failure = ""
	m.nodes.startAttempt()
	m.ranks = newRankStates(m.roster)
	m.survey = newSurvey(now)
	m.deadline = now.Add(surveyWait)
	for _, n := range m.roster.nodes {
		m.out.sendPhase(falconv1.PausePhase_PAUSE_PHASE_SURVEY, m.pause, Command{
			Node:     n,
			Deadline: m.deadline,
		})
	}
}

// notSurveyed is the first node without an answer to the survey.
func (m *Machine) notSurveyed() falcon.Node {
	for _, n := range m.roster.nodes {
		if len(m.out.pendingPhase(n, falconv1.PausePhase_PAUSE_PHASE_SURVEY)) > 0 {
			return n
		}
	}
	return ""
}

func (m *Machine) surveyAnswer(now time.Time, node falcon.Node, r *falconv1.CommandResult) {
	if m.v.State != falcon.ValidationSurveying || isAccepted(r) {
		return
	}
	if isRefusedOrExpired(r) {
		m.fail(now, fmt.Sprintf("node %s can't be surveyed: %s", node, r.GetDetail()))
		return
	}
	if m.survey.add(now, r.GetPauses()) == len(m.roster.nodes) {
		m.arm(now)
	}
}

// arm sends the cuts where the counts of all ranks agree.
func (m *Machine) arm(now time.Time) {
	life := m.cfg.OrderLife()
	plan, why := planCuts(
		m.roster.members,
		m.survey.answers,
		m.survey.margin(now, m.v.Attempts),
	)
	if why != "" {
		m.fail(now, "no consistent boundary: "+why)
		return
	}
	if far := time.Duration(plan.waitMs * float64(time.Millisecond)); far > life/2 {
		m.fail(now, fmt.Sprintf(
			"the next boundary is %.1f s ahead and an order lives %s: raise validation.life",
			far.Seconds(), life,
		))
		return
	}
	m.v.State = falcon.ValidationArming
	m.v.Iteration = plan.boundary
	m.armed = true
	m.lifeEnds = now.Add(life)
	m.deadline = m.lifeEnds
	for _, n := range m.roster.nodes {
		c := &falconv1.PauseCommand{LifeMs: life.Milliseconds()}
		for _, r := range m.roster.ranksOf[n] {
			c.Cuts = append(c.Cuts, plan.cuts[r])
		}
		m.out.sendPhase(falconv1.PausePhase_PAUSE_PHASE_ARM, m.pause, Command{
			Node:     n,
			Deadline: m.lifeEnds,
			Pause:    c,
		})
	}
	m.persist()
}

func (m *Machine) updateRanks(r *falconv1.CommandResult) {
	m.held = m.ranks.update(r.GetPauses()) || m.held
}

func (m *Machine) armAnswer(now time.Time, node falcon.Node, r *falconv1.CommandResult) {
	m.updateRanks(r)
	switch {
	case m.v.State == falcon.ValidationResuming:
		if !isAccepted(r) {
			m.dropRetry(node, r)
			m.nodes.armEnded[node] = true
			m.afterRelease(now)
		}
	case isRefusedOrExpired(r):
		m.nodes.armEnded[node] = true
		m.failOrRetry(now, node, m.ranks.refusal(node, r.GetDetail()))
	case isDone(r):
		m.nodes.armEnded[node] = true
		m.fail(now, m.ranks.earlyRelease(node))
	default:
		m.progress(now, node)
	}
}

// dropRetry gives up the next attempt where another node turns out not to
// be able to hold at all.
func (m *Machine) dropRetry(node falcon.Node, r *falconv1.CommandResult) {
	if m.retry &&
		r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_REFUSED &&
		!m.ranks.retryable(node) {
		m.retry, m.failure = false,
			fmt.Sprintf("%s (attempt %d)", m.ranks.refusal(node, r.GetDetail()), m.v.Attempts)
	}
}

// failOrRetry takes everything back and, where that can help, tries again farther
// ahead.
func (m *Machine) failOrRetry(now time.Time, node falcon.Node, why string) {
	if m.v.Attempts >= AttemptsMost ||
		m.v.State == falcon.ValidationTesting ||
		!m.ranks.retryable(node) {
		m.fail(now, fmt.Sprintf("%s (attempt %d)", why, m.v.Attempts))
		return
	}
	m.failure, m.retry = why, true
	m.release(now)
}

// progress begins the tests once all ranks are quiet.
func (m *Machine) progress(now time.Time, node falcon.Node) {
	all := m.nodes.accept(node)
	quiet, broken := m.ranks.nodeQuiet(node)
	switch broken {
	case falconv1.PauseState_PAUSE_STATE_UNSPECIFIED:
	case falconv1.PauseState_PAUSE_STATE_REFUSED:
		m.failOrRetry(now, node, m.ranks.earlyRelease(node))
		return
	default:
		m.fail(now, m.ranks.earlyRelease(node))
		return
	}
	if m.v.State == falcon.ValidationArming && all {
		m.v.State = falcon.ValidationWaiting
	}
	if quiet &&
		m.v.State == falcon.ValidationWaiting &&
		len(m.ranks.notQuiet()) == 0 {
		m.beginTests(now)
	}
}

// lateness describes who kept the others waiting until the deadline.
func (m *Machine) lateness() string {
	if n, waits := m.nodes.notAccepted(); waits {
		return fmt.Sprintf("node %s did not answer the order within %s", n, m.cfg.OrderLife())
	}
	return m.ranks.lateness(m.cfg.OrderLife())
}

// loseNode goes on with a release without the node, and fails anything else.
func (m *Machine) loseNode(now time.Time, node falcon.Node) {
	if !m.active || !slices.Contains(m.roster.nodes, node) {
		return
	}
	m.nodes.lost[node] = true
	m.fail(now, fmt.Sprintf("the agent of node %s is gone", node))
	if m.active && m.v.State == falcon.ValidationResuming {
		m.afterRelease(now)
	}
}

// fail releases all nodes; what was measured stays.
func (m *Machine) fail(now time.Time, why string) {
	if !m.active {
		return
	}
	if m.v.State == falcon.ValidationResuming {
		if m.retry { // between two attempts: there is no next one
			m.retry, m.failure = false, why
		}
		return
	}
	m.failure = why
	m.release(now)
}

// release sends RESUME to all nodes, or ends at once where nothing is held.
func (m *Machine) release(now time.Time) {
	if !m.armed {
		m.finish()
		return
	}
	m.v.State = falcon.ValidationResuming
	m.nodes.startRelease()
	m.deadline = m.lifeEnds.Add(releaseWait)
	m.out.closeAllButArm()
	for _, n := range m.roster.nodes {
		m.out.sendPhase(falconv1.PausePhase_PAUSE_PHASE_RESUME, m.pause, Command{
			Node:     n,
			Deadline: m.lifeEnds.Add(LifeMost),
		})
	}
}

func (m *Machine) resumeAnswer(now time.Time, node falcon.Node, r *falconv1.CommandResult) {
	m.updateRanks(r)
	if m.v.State != falcon.ValidationResuming || isAccepted(r) {
		return
	}
	m.nodes.released[node] = true
	if len(r.GetPauses()) > 0 {
		m.nodes.armEnded[node] = true
	}
	m.afterRelease(now)
}

// afterRelease goes on once every node that can answer has released its ranks:
// with the next attempt, or to the end.
func (m *Machine) afterRelease(now time.Time) {
	if !m.nodes.releaseOver() {
		return
	}
	if m.retry {
		m.retry = false
		m.startSurvey(now)
		return
	}
	m.finish()
}
