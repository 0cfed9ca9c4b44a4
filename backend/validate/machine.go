package validate

import (
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Machine does one validation after the other.
type Machine struct {
	cfg Config
	out results

	v      falcon.Validation // without its results, which are the tests'
	active bool
	roster roster
	nodes  nodeStates
	survey survey
	ranks  rankStates
	tests  testRun

	pause    uint64    // of the present attempt: hooks know pauses by their ids
	armed    bool      // some node may hold a rank
	held     bool      // some rank was
	failure  string    // why it fails; empty = it does not
	retry    bool      // release, then try again
	deadline time.Time // of the present state
	lifeEnds time.Time // of the order
	previous time.Time // until when ranks of the validation before may be held
	quietAt  time.Time // when all ranks were quiet
}

// New makes an idle machine. newID gives out ids that grow over the job's
// life; commands, pauses and tests are named by them.
func New(cfg Config, newID func() uint64) *Machine {
	return &Machine{cfg: cfg, out: results{newID: newID}}
}

// Active reports whether a validation is in progress.
func (m *Machine) Active() bool { return m.active }

// View is the validation in progress, else the last; false before the first.
func (m *Machine) View() (falcon.Validation, bool) {
	v := m.v
	v.GEMM, v.Links, v.PassesDone = m.tests.results()
	return v, v.ID != ""
}

// SendsAgain reports whether a command goes to an agent that connects again: a RESUME that its
// node has not confirmed. No other is sent twice, as a validation ends with the loss of an agent.
func (m *Machine) SendsAgain(c Command) bool {
	return m.Awaits(c.ID) && c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_RESUME
}

// Awaits reports whether an answer to this command is of use.
func (m *Machine) Awaits(id uint64) bool {
	_, known := m.out.pending[id]
	return known
}

// MayHold reports whether ranks may still be held for a validation that is over:
// those of a node that was lost before it confirmed the release. Their hooks
// let go by themselves when the order's life ends.
func (m *Machine) MayHold(now time.Time) bool {
	return now.Before(m.holdsUntil())
}

// holdsUntil is when the last hook has let go at the latest; zero where every
// node has confirmed.
func (m *Machine) holdsUntil() time.Time {
	if m.lifeEnds.IsZero() || m.nodes.allReleased() {
		return m.previous
	}
	if end := m.lifeEnds.Add(releaseWait); end.After(m.previous) {
		return end
	}
	return m.previous
}

// Ends is when the hold is over at the latest; zero while nothing is held.
func (m *Machine) Ends() time.Time { return m.lifeEnds }

// Ready is what is to be done now.
func (m *Machine) Ready() Ready { return m.out.ready }

// Advance confirms that it was done.
func (m *Machine) Advance() {
	m.out.ready = Ready{}
}

// Step takes one input.
func (m *Machine) Step(now time.Time, in Input) {
	switch in := in.(type) {
	case Begin:
		m.start(now, in)
	case Recover:
		m.recover(now, in)
	case HeldOn:
		if in.Until.After(m.previous) {
			m.previous = in.Until
		}
	case Answer:
		m.answer(now, in)
	case Lost:
		m.loseNode(now, in.Node)
	case Stop:
		m.fail(now, in.Why)
	}
}

// Tick ends what takes too long.
func (m *Machine) Tick(now time.Time) {
	if !m.active || now.Before(m.deadline) {
		return
	}
	switch m.v.State {
	case falcon.ValidationSurveying:
		m.fail(now, fmt.Sprintf("node %s did not answer the survey within %s", m.notSurveyed(), surveyWait))
	case falcon.ValidationArming, falcon.ValidationWaiting:
		m.fail(now, m.lateness())
	case falcon.ValidationTesting:
		m.fail(now, fmt.Sprintf("%s did not answer a test in time", m.tests.firstAwaited()))
	case falcon.ValidationResuming:
		m.finish()
	}
}

func (m *Machine) start(now time.Time, b Begin) {
	if m.active {
		panic("validate: a validation is in progress already")
	}
	r := newRoster(b.Members)
	*m = Machine{
		cfg:      m.cfg,
		out:      m.out.restarted(),
		active:   true,
		previous: m.holdsUntil(),
		roster:   r,
		nodes:    newNodeStates(r.nodes),
		tests:    newTestRun(m.cfg, b, r),
	}
	m.v = falcon.Validation{
		ID:        b.ID,
		Ask:       b.Ask,
		State:     falcon.ValidationSurveying,
		Iteration: falcon.NoIteration,
		Emulated:  b.Emulated,
		AtNs:      now.UnixNano(),
	}
	m.v.Passes, m.v.ExtraPasses = m.tests.passCounts()
	m.v.Ask.GEMMSide = int(m.tests.gemmSide)
	m.v.Ask.MessageBytes = m.tests.messageBytes
	m.persist()
	m.out.addNote(b.ID, 0, "%s: %s wants the job held to test %s (%s)",
		b.ID, b.Ask.By, m.tests.description(), b.Ask.Why)
	m.out.flushNotes()
	m.startSurvey(now)
}

// recover releases what may be held, and ends as failed.
func (m *Machine) recover(now time.Time, in Recover) {
	*m = Machine{
		cfg:      m.cfg,
		out:      m.out.restarted(),
		active:   true,
		previous: m.holdsUntil(),
		roster:   roster{nodes: in.Nodes},
		nodes:    newNodeStates(in.Nodes),
		tests:    recoveredTestRun(in.Validation),
	}
	m.ranks = newRankStates(m.roster)
	m.v, m.pause = in.Validation, in.Pause
	m.failure = "the engine was started again while it was in progress"
	if in.Pause == 0 {
		m.finish()
		return
	}
	m.armed = true
	m.held = true
	m.lifeEnds = now.Add(LifeMost)
	m.release(now)
}

// persist asks for the present state of the validation to be made durable.
func (m *Machine) persist() {
	v, _ := m.View()
	pause := m.pause
	until := time.Time{}
	if !m.armed {
		pause = 0
	}
	if !m.active {
		until = m.holdsUntil()
	}
	m.out.persist(v, pause, until)
}

func (m *Machine) answer(now time.Time, in Answer) {
	c, closed, known := m.out.answered(in)
	if !known {
		return
	}
	if closed &&
		c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_RESUME &&
		c.Pause.GetPause() == m.pause {
		m.nodes.released[c.Node] = true
	}
	if !m.active {
		return
	}
	switch {
	case c.Test != nil:
		m.testAnswer(now, c, in.Result)
	case c.Pause.GetPause() != m.pause:
	case c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_SURVEY:
		m.surveyAnswer(now, c.Node, in.Result)
	case c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_ARM:
		m.armAnswer(now, c.Node, in.Result)
	case c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_RESUME:
		m.resumeAnswer(now, c.Node, in.Result)
	}
}

// isAccepted reports whether a further answer follows.
func isAccepted(r *falconv1.CommandResult) bool {
	return r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
}

func isRefusedOrExpired(r *falconv1.CommandResult) bool {
	s := r.GetStatus()
	return s == falconv1.CommandStatus_COMMAND_STATUS_REFUSED ||
		s == falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
}

func isDone(r *falconv1.CommandResult) bool {
	return r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_DONE
}

// finish judges what was measured and ends.
func (m *Machine) finish() {
	m.addDurations()
	m.tests.judge()
	if m.failure == "" && m.tests.nothingMeasured() {
		m.failure = "no test gave a result: " + m.tests.firstError()
	}
	m.v.Reason = m.failure
	switch {
	case m.failure == "":
		m.v.State = falcon.ValidationDone
	case m.held:
		m.v.State = falcon.ValidationFailed
	default:
		m.v.State = falcon.ValidationRefused
	}
	m.active, m.armed = false, false
	m.summarize()
	m.out.flushNotes()
	m.persist()
	m.out.ready.Over = true
}

func (m *Machine) addDurations() {
	held, quiet := m.ranks.durations()
	m.v.PausedMs = max(m.v.PausedMs, held)
	m.v.QuietMs = max(m.v.QuietMs, quiet)
}

// summarize notes how it ended; the detector judges what was slow.
func (m *Machine) summarize() {
	switch m.v.State {
	case falcon.ValidationDone:
		gemm, links, passes := m.tests.results()
		what := joinCounts(
			pluralize(len(gemm), "device"),
			pluralize(len(links), "direction")+" of links in "+pluralize(passes, "pass"),
			len(gemm),
			len(links),
		)
		m.out.addNote(m.v.ID, 0, "%s: done, %s tested; the job was held for %.0f ms",
			m.v.ID, what, m.v.PausedMs)
	case falcon.ValidationFailed:
		m.out.addNote(m.v.ID, 2, "%s: failed: %s; the job was let go after %.0f ms",
			m.v.ID, m.failure, m.v.PausedMs)
	default:
		m.out.addNote(m.v.ID, 1, "%s: refused, nothing was held: %s", m.v.ID, m.failure)
	}
}

// joinCounts names two kinds of tests, of which one may be left out.
func joinCounts(devices, links string, nDevices, nLinks int) string {
	switch {
	case nLinks == 0:
		return devices
	case nDevices == 0:
		return links
	}
	return devices + " and " + links
}

// pluralize is a number with its noun.
func pluralize(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
