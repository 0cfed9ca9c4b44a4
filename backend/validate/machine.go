package validate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

// Machine does one validation after the other.
type Machine struct {
	cfg   Config
	newID func() uint64

	v       falcon.Validation
	active  bool
	begin   Begin
	nodes   []falcon.Node                 // that hold ranks, sorted
	ranksOf map[falcon.Node][]falcon.Rank // ascending
	lost    map[falcon.Node]bool

	pause     uint64
	armed     bool // some node may hold a rank
	held      bool // some rank was
	failure   string
	retry     bool      // let go, then try again
	until     time.Time // the present state's end
	lifeEnds  time.Time // the order's
	older     time.Time // until when ranks of the validation before may be held
	quietAt   time.Time // when all ranks were quiet
	surveyed  time.Time // when the survey was sent
	turns     []time.Duration
	survey    map[falcon.Rank]*falconv1.RankPause
	standing  map[falcon.Rank]*falconv1.RankPause
	accepted  map[falcon.Node]bool // ARM
	armDone   map[falcon.Node]bool
	letGo     map[falcon.Node]bool
	schedule  []passes.Pass
	steps     []step
	confirms  int                  // rounds in which slow passes were run again
	awaited   map[falcon.Rank]bool // results of the present step
	ids       map[passes.Pair]ids
	gemmRanks []falcon.Rank
	open      map[uint64]Command // not answered for good
	notes     []Note             // told once the job goes on again: writing takes time
	ready     Ready
}

// New makes an idle machine. newID gives out ids that grow over the job's
// life; commands, pauses and tests are named by them.
func New(cfg Config, newID func() uint64) *Machine {
	return &Machine{cfg: cfg, newID: newID}
}

// Active says that a validation is in progress.
func (m *Machine) Active() bool { return m.active }

// View is the validation in progress, else the last; false before the first.
func (m *Machine) View() (falcon.Validation, bool) {
	v := m.v
	v.GEMM, v.Links = slices.Clone(v.GEMM), slices.Clone(v.Links)
	return v, v.ID != ""
}

// Open lists the orders to let go that a node has not confirmed, for an agent
// that comes back. Nothing else is told twice: a validation ends with the loss
// of an agent.
func (m *Machine) Open(node falcon.Node) []Command {
	var out []Command
	for _, id := range slices.Sorted(maps.Keys(m.open)) {
		if c := m.open[id]; c.Node == node && c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_RESUME {
			out = append(out, c)
		}
	}
	return out
}

// Awaits says that an answer to this command is of use.
func (m *Machine) Awaits(id uint64) bool { _, known := m.open[id]; return known }

// MayHold reports whether ranks may still be held for a validation that is over:
// those of a node that was lost before it confirmed to have let go. Their hooks
// let go by themselves when the order's life ends.
func (m *Machine) MayHold(now time.Time) bool { return now.Before(m.holdsUntil()) }

// holdsUntil is when the last hook has let go at the latest; zero where every
// node has confirmed.
func (m *Machine) holdsUntil() time.Time {
	all := !slices.ContainsFunc(m.nodes, func(n falcon.Node) bool { return !m.letGo[n] })
	if m.lifeEnds.IsZero() || all {
		return m.older
	}
	if end := m.lifeEnds.Add(goWait); end.After(m.older) {
		return end
	}
	return m.older
}

// Ends is when the hold is over at the latest; zero while nothing is held.
func (m *Machine) Ends() time.Time { return m.lifeEnds }

// Ready is what is to be done now.
func (m *Machine) Ready() Ready { return m.ready }

// Advance says that it was done.
func (m *Machine) Advance() { m.ready = Ready{} }

// Step takes one input.
func (m *Machine) Step(now time.Time, in Input) {
	switch in := in.(type) {
	case Begin:
		m.start(now, in)
	case Recover:
		m.recover(now, in)
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
	if !m.active || now.Before(m.until) {
		return
	}
	switch m.v.State {
	case falcon.ValidationSurveying:
		m.fail(now, fmt.Sprintf("node %s did not answer the survey within %s", m.silent(), surveyWait))
	case falcon.ValidationArming, falcon.ValidationWaiting:
		m.fail(now, m.laggard())
	case falcon.ValidationTesting:
		m.fail(now, fmt.Sprintf("%s did not answer a test in time", m.missingResults()))
	case falcon.ValidationResuming:
		m.finish(now)
	}
}

func (m *Machine) start(now time.Time, b Begin) {
	if m.active {
		panic("validate: a validation is in progress already")
	}
	*m = Machine{cfg: m.cfg, newID: m.newID, ready: m.ready, begin: b, active: true, older: m.holdsUntil(), lost: map[falcon.Node]bool{}, open: map[uint64]Command{}}
	m.ranksOf = map[falcon.Node][]falcon.Rank{}
	for r, x := range b.Members {
		n := x.Device.Node()
		m.ranksOf[n] = append(m.ranksOf[n], falcon.Rank(r))
	}
	m.nodes = slices.Sorted(maps.Keys(m.ranksOf))
	m.schedule = passes.Split(passes.Plan(b.Ask), func(r falcon.Rank) string { return string(m.nic(r)) })
	m.gemmRanks = slices.Compact(slices.Sorted(slices.Values(b.Ask.GEMM)))
	m.v = falcon.Validation{
		ID: b.ID, Ask: b.Ask, State: falcon.ValidationSurveying, Iteration: falcon.NoIteration, Emulated: b.Emulated, AtNs: now.UnixNano(),
		Passes: len(m.schedule), ExtraPasses: passes.Extra(m.schedule),
	}
	m.v.Ask.GEMMSide, m.v.Ask.MessageBytes = int(m.gemmSide()), m.bytes()
	m.persist()
	m.note(0, "%s: %s wants the job held to test %s (%s)", b.ID, b.Ask.By, m.wanted(), b.Ask.Why)
	m.flush()
	m.takeSurvey(now)
}

// wanted says what will be tested.
func (m *Machine) wanted() string {
	links := 0
	for _, p := range m.schedule {
		links += len(p.Pairs)
	}
	s := both(count(len(m.gemmRanks), "device"), count(links, "link")+" in "+count(len(m.schedule), "pass"), len(m.gemmRanks), links)
	if m.v.ExtraPasses > 0 {
		s += fmt.Sprintf(" (%d of them because pairs would share a port)", m.v.ExtraPasses)
	}
	return s
}

// both names two kinds of tests, of which one may be left out.
func both(devices, links string, nDevices, nLinks int) string {
	switch {
	case nLinks == 0:
		return devices
	case nDevices == 0:
		return links
	}
	return devices + " and " + links
}

// count is a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// recover lets go of what may be held, and ends as failed.
func (m *Machine) recover(now time.Time, in Recover) {
	*m = Machine{cfg: m.cfg, newID: m.newID, ready: m.ready, active: true, lost: map[falcon.Node]bool{}, open: map[uint64]Command{}}
	m.v, m.pause, m.nodes = in.Validation, in.Pause, in.Nodes
	m.failure = "the engine was started again while it was in progress"
	if in.Pause == 0 {
		m.finish(now)
		return
	}
	m.armed, m.held, m.lifeEnds = true, true, now.Add(LifeMost)
	m.release(now)
}

// persist asks for the validation as it stands to be made durable.
func (m *Machine) persist() {
	v, _ := m.View()
	m.ready.Persist, m.ready.Pause = &v, m.pause
	if !m.armed {
		m.ready.Pause = 0
	}
}

func (m *Machine) note(severity int32, format string, args ...any) {
	m.notes = append(m.notes, Note{severity, fmt.Sprintf(format, args...)})
}

func (m *Machine) flush() {
	m.ready.Notes = append(m.ready.Notes, m.notes...)
	m.notes = nil
}

// send queues a command for one node.
func (m *Machine) send(c Command) {
	c.ID = m.newID()
	if c.Test != nil {
		c.Test.Test = c.ID
	}
	m.open[c.ID] = c
	m.ready.Commands = append(m.ready.Commands, c)
}

func (m *Machine) answer(now time.Time, in Answer) {
	c, known := m.open[in.Result.GetId()]
	if !known || c.Node != in.Node {
		return
	}
	status := in.Result.GetStatus()
	if status != falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED {
		delete(m.open, c.ID)
		if c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_RESUME && c.Pause.GetPause() == m.pause && m.letGo != nil {
			m.letGo[c.Node] = true
		}
	}
	if !m.active {
		return
	}
	switch {
	case c.Test != nil:
		m.tested(now, c, in.Result)
	case c.Pause.GetPause() != m.pause:
	case c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_SURVEY:
		m.surveyAnswer(now, c.Node, in.Result)
	case c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_ARM:
		m.armAnswer(now, c.Node, in.Result)
	case c.Pause.GetPhase() == falconv1.PausePhase_PAUSE_PHASE_RESUME:
		m.resumeAnswer(now, c.Node, in.Result)
	}
}

func refusedOrExpired(r *falconv1.CommandResult) bool {
	s := r.GetStatus()
	return s == falconv1.CommandStatus_COMMAND_STATUS_REFUSED || s == falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
}

func done(r *falconv1.CommandResult) bool {
	return r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_DONE
}

// loseNode goes on letting go without the node, and fails anything else.
func (m *Machine) loseNode(now time.Time, node falcon.Node) {
	if !m.active || !slices.Contains(m.nodes, node) {
		return
	}
	m.lost[node] = true
	m.fail(now, fmt.Sprintf("the agent of node %s is gone", node))
	if m.active && m.v.State == falcon.ValidationResuming {
		m.released(now)
	}
}

// fail lets go everywhere; what was measured stays.
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

// release orders all nodes to let go, or ends at once where nothing is held.
func (m *Machine) release(now time.Time) {
	if !m.armed {
		m.finish(now)
		return
	}
	m.v.State = falcon.ValidationResuming
	m.letGo = map[falcon.Node]bool{}
	m.until = m.lifeEnds.Add(goWait)
	for id, c := range m.open { // what is not answered yet does not matter any more, but ARM's last word
		if c.Pause.GetPhase() != falconv1.PausePhase_PAUSE_PHASE_ARM {
			delete(m.open, id)
		}
	}
	for _, n := range m.nodes {
		m.send(Command{Node: n, Deadline: m.lifeEnds.Add(LifeMost), Pause: &falconv1.PauseCommand{
			Pause: m.pause, Phase: falconv1.PausePhase_PAUSE_PHASE_RESUME,
		}})
	}
}

func (m *Machine) resumeAnswer(now time.Time, node falcon.Node, r *falconv1.CommandResult) {
	m.take(r)
	if m.v.State != falcon.ValidationResuming || r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED {
		return
	}
	m.letGo[node] = true
	if len(r.GetPauses()) > 0 {
		m.markArmDone(node)
	}
	m.released(now)
}

func (m *Machine) markArmDone(node falcon.Node) {
	if m.armDone != nil {
		m.armDone[node] = true
	}
}

// released goes on once every node that can answer has let go and said for how
// long it had held.
func (m *Machine) released(now time.Time) {
	for _, n := range m.nodes {
		waits := m.accepted[n] && !m.armDone[n]
		if !m.lost[n] && (!m.letGo[n] || waits) {
			return
		}
	}
	if m.retry {
		m.retry = false
		m.takeSurvey(now)
		return
	}
	m.finish(now)
}

// finish judges what was measured and ends.
func (m *Machine) finish(now time.Time) {
	m.measurePause()
	slices.SortStableFunc(m.v.GEMM, func(a, b falcon.GEMMResult) int { return int(a.Rank - b.Rank) })
	slices.SortStableFunc(m.v.Links, byPass)
	passes.Judge(m.v.Links, m.begin.Own)
	passes.JudgeGEMM(m.v.GEMM)
	if m.failure == "" && m.nothingMeasured() {
		m.failure = "no test gave a result: " + m.firstErr()
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
	m.flush()
	m.persist()
	m.ready.Over = true
}

func byPass(a, b falcon.LinkResult) int {
	return cmp.Or(a.Pass-b.Pass, int(min(a.From, a.To)-min(b.From, b.To)), int(a.From-b.From))
}

func (m *Machine) measurePause() {
	for _, s := range m.standing {
		m.v.PausedMs = max(m.v.PausedMs, s.GetHeldMs())
		m.v.QuietMs = max(m.v.QuietMs, s.GetQuietMs())
	}
}

// summarize says how it ended; what was slow is for the detector to say.
func (m *Machine) summarize() {
	switch m.v.State {
	case falcon.ValidationDone:
		devices, ways := len(m.v.GEMM), len(m.v.Links)
		what := both(count(devices, "device"), count(ways, "direction")+" of links in "+count(m.v.PassesDone, "pass"), devices, ways)
		m.note(0, "%s: done, %s tested; the job was held for %.0f ms", m.v.ID, what, m.v.PausedMs)
	case falcon.ValidationFailed:
		m.note(2, "%s: failed: %s; the job was let go after %.0f ms", m.v.ID, m.failure, m.v.PausedMs)
	default:
		m.note(1, "%s: refused, nothing was held: %s", m.v.ID, m.failure)
	}
}

func (m *Machine) nic(r falcon.Rank) falcon.NIC {
	if n := m.begin.Members[r].NIC; n != "" {
		return n
	}
	// Unknown: taken for the node's only port, so that nothing shares it by mistake.
	return falcon.NIC(m.begin.Members[r].Device.Node() + ".nic")
}
