package detect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// window is the profile window in flight; there is at most one.
type window struct {
	id         uint64
	iterations int
	asked      time.Time
	iteration  int64 // newest iteration when it was asked for
	parts      map[falcon.Rank]falcon.RankProfile
	refused    []string
}

// learning is the need for a profile of the healthy job.
type learning struct {
	due   bool
	tries int
	after int64  // iteration before which it is not asked for
	seen  string // who looked slow in the window before
}

// Bounds on waiting for a window.
const (
	refusalGrace  = 2 * time.Second // for the other nodes' parts after a refusal
	deadlineTimes = 4               // windows long, at least
	deadlineMost  = time.Minute
)

// plan asks for the profile window that is needed most, if none is in flight:
// the culprit of an onset, then the relief of a watched one, then the healthy
// state.
func (m *Machine) plan() {
	if !m.has || m.window != nil || m.slow.tracker.Learning() {
		return
	}
	at := m.slow.last()
	for _, s := range m.stories {
		if s.Open() && !s.between && (!s.judged() || s.puzzling()) && at >= s.notUntil {
			m.request(m.cfg.Profile.Iterations, fmt.Sprintf("%s slower since iteration %d: who is it?", s.name(), s.OnsetIteration))
			return
		}
	}
	if m.lookAt > 0 && at >= m.lookAt && !m.held() {
		m.lookAt = 0
		m.request(m.cfg.Profile.Iterations, "How do the ranks compute on their new devices?")
		return
	}
	if m.validate(at) || m.askLine(at) || m.held() {
		return
	}
	for _, s := range m.stories {
		if m.due(s, at) {
			m.request(m.cfg.Relief.Iterations, fmt.Sprintf("%s: is %s healthy again?", s.ID, culprits(s.Verdict)))
			return
		}
	}
	if m.learn.due && at >= m.learn.after && !m.settling(at) && len(m.openStories()) == 0 {
		m.request(m.cfg.Profile.Iterations, "How does the job compute now?")
		return
	}
	if m.watchDue(at) {
		m.request(m.cfg.Watch.Iterations, "How do the ranks compute?")
	}
}

// due says that a watched culprit should be looked at.
func (m *Machine) due(s *story, at int64) bool {
	if !s.Open() || !s.located() || m.waits(s) {
		return false
	}
	if s.check {
		return true
	}
	every := m.cfg.Relief.Every
	if s.streak > 0 || s.urgent {
		every = m.cfg.Relief.Confirm
	}
	return s.watching() && at >= s.asked+every && at >= s.since
}

func culprits(v falcon.Verdict) string {
	var names []string
	for _, d := range v.Devices {
		names = append(names, string(d))
	}
	for _, l := range v.Links {
		names = append(names, l.String())
	}
	if len(names) == 0 {
		return fmt.Sprintf("the group of ranks %v", v.Ranks)
	}
	return strings.Join(names, ", ")
}

// request asks all ranks for a window. The first id comes from the clock, so
// that windows of before a restart are not taken for new ones.
func (m *Machine) request(iterations int, why string) {
	if m.windows == 0 {
		m.windows = uint64(max(0, m.now.Unix())) & 0x3fffffff
	}
	m.windows++
	m.window = &window{
		id: m.windows, iterations: iterations, asked: m.now, iteration: m.slow.last(),
		parts: map[falcon.Rank]falcon.RankProfile{},
	}
	for _, s := range m.stories {
		s.asked = max(s.asked, m.window.iteration)
	}
	m.ready.Requests = append(m.ready.Requests, ProfileRequest{Window: m.windows, Iterations: iterations, Why: why})
}

func (m *Machine) stepProfiled(in Profiled) {
	w := m.window
	if w == nil || in.Window != w.id {
		return
	}
	if in.Refused != "" && !slices.Contains(w.refused, in.Refused) {
		w.refused = append(w.refused, in.Refused)
	}
	for _, p := range in.Profiles {
		if p.Rank >= 0 && int(p.Rank) < len(m.ranks) {
			w.parts[p.Rank] = m.perMicroBatch(p)
		}
	}
	m.checkWindow()
}

// perMicroBatch divides the self time of a profile that does not know its
// micro-batches by those that the job has.
func (m *Machine) perMicroBatch(p falcon.RankProfile) falcon.RankProfile {
	replica := m.job.Layout.Replica(p.Rank)
	if p.MicroBatches == 0 && replica < len(m.job.MicroBatches) && m.job.MicroBatches[replica] > 0 {
		p.MicroBatches = int(m.job.MicroBatches[replica])
		p.SelfMs /= float64(p.MicroBatches)
	}
	return p
}

// checkWindow ends the window when all ranks are in, or when it is late.
func (m *Machine) checkWindow() {
	w := m.window
	if w == nil {
		return
	}
	waited := m.now.Sub(w.asked)
	expected := time.Duration(deadlineTimes * float64(w.iterations) * m.level() * float64(time.Millisecond))
	deadline := min(max(m.cfg.Profile.Deadline, expected), deadlineMost)
	switch {
	case len(w.parts) == len(m.ranks):
	case waited >= deadline:
	case len(w.refused) > 0 && waited >= refusalGrace:
	case len(w.refused) > 0 && len(w.parts) == 0 && len(m.job.nodes()) == 1:
	default:
		return
	}
	m.window = nil
	if len(w.parts) == 0 {
		m.failed(w)
		return
	}
	m.judge(w)
}

// nodes are the nodes that hold ranks.
func (j *Job) nodes() []falcon.Node {
	var out []falcon.Node
	seen := map[falcon.Node]bool{}
	for _, d := range j.Placement {
		if n := d.Node(); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// failed is a window of which nothing came.
func (m *Machine) failed(w *window) {
	why := "no node answered in time"
	if len(w.refused) > 0 {
		why = strings.Join(w.refused, "; ")
	}
	m.note(m.slow.last(), "profile", "Profile %d failed: %s", w.id, why)
	for _, s := range slices.Clone(m.stories) {
		if s.Open() && !s.judged() && w.id > s.after {
			if !m.again(s) {
				m.giveUp(s)
			}
		}
		s.check = false
	}
	m.learnAgain()
}

// learnAgain tries the healthy profile again later, a bounded number of times.
func (m *Machine) learnAgain() {
	m.learn.tries++
	m.learn.after = m.slow.last() + m.cfg.Profile.Spacing*int64(m.learn.tries)
	m.learn.due = m.learn.due && m.learn.tries < m.cfg.Profile.Tries
}

// level is the median of the job's last iterations, ms.
func (m *Machine) level() float64 { return falcon.Median(m.slow.tail(levelOver)) }

// levelOver is how many iterations make the present level.
const levelOver = 5
