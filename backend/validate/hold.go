package validate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// takeSurvey asks every node where its ranks stand. Each attempt is a pause of
// its own: hooks know pauses by their ids.
func (m *Machine) takeSurvey(now time.Time) {
	m.measurePause() // of the attempt before
	m.v.QuietMs = 0
	m.v.State = falcon.ValidationSurveying
	m.v.Attempts++
	m.pause, m.armed, m.failure = m.newID(), false, ""
	m.survey = map[falcon.Rank]*falconv1.RankPause{}
	m.accepted, m.armDone = map[falcon.Node]bool{}, map[falcon.Node]bool{}
	m.standing = map[falcon.Rank]*falconv1.RankPause{}
	m.turns, m.surveyed, m.until = nil, now, now.Add(surveyWait)
	for _, n := range m.nodes {
		m.send(Command{Node: n, Deadline: m.until, Pause: &falconv1.PauseCommand{
			Pause: m.pause, Phase: falconv1.PausePhase_PAUSE_PHASE_SURVEY,
		}})
	}
}

func (m *Machine) surveyAnswer(now time.Time, node falcon.Node, r *falconv1.CommandResult) {
	if m.v.State != falcon.ValidationSurveying || r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED {
		return
	}
	if refusedOrExpired(r) {
		m.fail(now, fmt.Sprintf("node %s can't be surveyed: %s", node, r.GetDetail()))
		return
	}
	for _, p := range r.GetPauses() {
		m.survey[falcon.Rank(p.GetRank())] = p
	}
	m.turns = append(m.turns, now.Sub(m.surveyed))
	if len(m.turns) == len(m.nodes) {
		m.arm(now)
	}
}

// arm writes the cuts where the counts of all ranks agree.
func (m *Machine) arm(now time.Time) {
	life := m.cfg.OrderLife()
	plan, why := cuts(m.begin.Members, m.survey, m.margin(now))
	if why != "" {
		m.fail(now, "no consistent boundary: "+why)
		return
	}
	if far := time.Duration(plan.waitMs * float64(time.Millisecond)); far > life/2 {
		m.fail(now, fmt.Sprintf("the next boundary is %.1f s ahead and an order lives %s: raise validation.life", far.Seconds(), life))
		return
	}
	m.v.State, m.v.Iteration, m.armed = falcon.ValidationArming, plan.boundary, true
	m.lifeEnds = now.Add(life)
	m.until = m.lifeEnds
	for _, n := range m.nodes {
		c := &falconv1.PauseCommand{Pause: m.pause, Phase: falconv1.PausePhase_PAUSE_PHASE_ARM, LifeMs: life.Milliseconds()}
		for _, r := range m.ranksOf[n] {
			c.Cuts = append(c.Cuts, plan.cuts[r])
		}
		m.send(Command{Node: n, Deadline: m.lifeEnds, Pause: c})
	}
	m.persist()
}

// margin is the boundary's distance from the newest iteration: one iteration
// and those that pass while the order travels. The counts were read after the
// survey was sent, and the order arrives within a round trip from now: the
// survey's own p99 stands for that. Each further attempt doubles it.
func (m *Machine) margin(now time.Time) int64 {
	iteration := 0.0
	for _, p := range m.survey {
		if ms := p.GetIterationMs(); ms > 0 && (iteration == 0 || ms < iteration) {
			iteration = ms
		}
	}
	margin := int64(marginLeast)
	if iteration > 0 {
		slices.Sort(m.turns)
		p99 := m.turns[(len(m.turns)*99-1)/100]
		travel := float64((now.Sub(m.surveyed) + p99).Microseconds()) / 1e3
		margin = max(margin, 1+int64(ceil(min(travel/iteration, marginMost))))
	}
	return min(margin<<(m.v.Attempts-1), marginMost)
}

func ceil(x float64) float64 {
	if n := float64(int64(x)); n < x {
		return n + 1
	}
	return x
}

// take keeps the newest word about every rank.
func (m *Machine) take(r *falconv1.CommandResult) {
	for _, p := range r.GetPauses() {
		if m.standing == nil {
			m.standing = map[falcon.Rank]*falconv1.RankPause{}
		}
		rank := falcon.Rank(p.GetRank())
		if old := m.standing[rank]; old != nil { // a last word need not repeat what was measured
			p.HeldMs, p.QuietMs = max(p.GetHeldMs(), old.GetHeldMs()), max(p.GetQuietMs(), old.GetQuietMs())
		}
		m.standing[rank] = p
		switch p.GetState() {
		case falconv1.PauseState_PAUSE_STATE_REACHED, falconv1.PauseState_PAUSE_STATE_QUIET:
			m.held = true
		default:
			m.held = m.held || p.GetHeldMs() > 0
		}
	}
}

func (m *Machine) armAnswer(now time.Time, node falcon.Node, r *falconv1.CommandResult) {
	m.take(r)
	switch {
	case m.v.State == falcon.ValidationResuming:
		if r.GetStatus() != falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED {
			m.secondThought(node, r)
			m.markArmDone(node)
			m.released(now)
		}
	case refusedOrExpired(r):
		m.armDone[node] = true
		m.missed(now, node, m.cannot(node, r))
	case done(r):
		m.armDone[node] = true
		m.fail(now, m.letGoEarly(node))
	default:
		m.accepted[node] = true
		m.progress(now, node)
	}
}

// refusal is what the first refused rank says, else the node.
func (m *Machine) refusal(node falcon.Node, r *falconv1.CommandResult) string {
	for _, rank := range m.ranksOf[node] {
		if p := m.standing[rank]; p.GetState() == falconv1.PauseState_PAUSE_STATE_REFUSED {
			return fmt.Sprintf("rank %d: %s", rank, p.GetReason())
		}
	}
	return r.GetDetail()
}

// letGoEarly says which rank of the node is not held although it should be.
func (m *Machine) letGoEarly(node falcon.Node) string {
	for _, rank := range m.ranksOf[node] {
		switch p := m.standing[rank]; p.GetState() {
		case falconv1.PauseState_PAUSE_STATE_EXPIRED:
			return fmt.Sprintf("rank %d let go at the order's deadline", rank)
		case falconv1.PauseState_PAUSE_STATE_REFUSED:
			return fmt.Sprintf("rank %d: %s", rank, p.GetReason())
		case falconv1.PauseState_PAUSE_STATE_RELEASED:
			return fmt.Sprintf("rank %d was let go by its agent", rank)
		}
	}
	return fmt.Sprintf("node %s let go", node)
}

func (m *Machine) cannot(node falcon.Node, r *falconv1.CommandResult) string {
	return fmt.Sprintf("node %s can't hold: %s", node, m.refusal(node, r))
}

// hopeful says that a cut farther ahead may do where the node refused this one:
// every rank that it names was late, in the middle of a group, or made other
// calls in one iteration (an evaluation, a log line) than in those before it.
func (m *Machine) hopeful(node falcon.Node) bool {
	some := false
	for _, rank := range m.ranksOf[node] {
		p := m.standing[rank]
		if p.GetState() != falconv1.PauseState_PAUSE_STATE_REFUSED {
			continue
		}
		switch p.GetReasonCode() {
		case falconv1.PauseReason_PAUSE_REASON_MISSED, falconv1.PauseReason_PAUSE_REASON_GROUP, falconv1.PauseReason_PAUSE_REASON_LATE,
			falconv1.PauseReason_PAUSE_REASON_UNEVEN:
			some = true
		default:
			return false
		}
	}
	return some
}

// secondThought gives up the next attempt where another node turns out not to
// be able to hold at all.
func (m *Machine) secondThought(node falcon.Node, r *falconv1.CommandResult) {
	if m.retry && r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_REFUSED && !m.hopeful(node) {
		m.retry, m.failure = false, fmt.Sprintf("%s (attempt %d)", m.cannot(node, r), m.v.Attempts)
	}
}

// missed takes everything back and, where that can help, tries again farther
// ahead.
func (m *Machine) missed(now time.Time, node falcon.Node, why string) {
	if m.v.Attempts >= AttemptsMost || m.v.State == falcon.ValidationTesting || !m.hopeful(node) {
		m.fail(now, fmt.Sprintf("%s (attempt %d)", why, m.v.Attempts))
		return
	}
	m.failure, m.retry = why, true
	m.release(now)
}

// progress looks whether all ranks are where they should be.
func (m *Machine) progress(now time.Time, node falcon.Node) {
	quiet := true
	for _, rank := range m.ranksOf[node] {
		switch m.standing[rank].GetState() {
		case falconv1.PauseState_PAUSE_STATE_RELEASED, falconv1.PauseState_PAUSE_STATE_EXPIRED:
			m.fail(now, m.letGoEarly(node))
			return
		case falconv1.PauseState_PAUSE_STATE_REFUSED:
			m.missed(now, node, m.letGoEarly(node))
			return
		case falconv1.PauseState_PAUSE_STATE_QUIET:
		default:
			quiet = false
		}
	}
	if m.v.State == falcon.ValidationArming && len(m.accepted) == len(m.nodes) {
		m.v.State = falcon.ValidationWaiting
	}
	if quiet && m.v.State == falcon.ValidationWaiting && m.laggards() == 0 {
		m.beginTests(now)
	}
}

// laggards counts the ranks that are not quiet yet.
func (m *Machine) laggards() int {
	n := 0
	for r := range m.begin.Members {
		if m.standing[falcon.Rank(r)].GetState() != falconv1.PauseState_PAUSE_STATE_QUIET {
			n++
		}
	}
	return n
}

// laggard says who kept the others waiting until the deadline.
func (m *Machine) laggard() string {
	for _, n := range m.nodes {
		if !m.accepted[n] {
			return fmt.Sprintf("node %s did not answer the order within %s", n, m.cfg.OrderLife())
		}
	}
	for r := range m.begin.Members {
		p := m.standing[falcon.Rank(r)]
		if p.GetState() == falconv1.PauseState_PAUSE_STATE_QUIET {
			continue
		}
		where := "had not come to the boundary"
		if p.GetState() == falconv1.PauseState_PAUSE_STATE_REACHED {
			where = "had work on its streams still"
		}
		ahead := ""
		if p.GetRunAhead() > 0 {
			ahead = fmt.Sprintf("; its host runs %d iterations ahead of the device", p.GetRunAhead())
		}
		return fmt.Sprintf("rank %d %s after %s (%d ranks were late)%s", r, where, m.cfg.OrderLife(), m.laggards(), ahead)
	}
	return "the order's time was over"
}

// silent is the first node without an answer to the survey.
func (m *Machine) silent() falcon.Node {
	for _, n := range m.nodes {
		for _, c := range m.open {
			if c.Node == n && c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_SURVEY {
				return n
			}
		}
	}
	return ""
}
