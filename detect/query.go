package detect

import (
	"slices"

	"github.com/failslow/falcon"
)

// Rank is the present view of one rank; false when the job has no such rank.
func (m *Machine) Rank(r falcon.Rank) (RankStatus, bool) {
	if !m.job.known || r < 0 || int(r) >= len(m.samples.ranks) {
		return RankStatus{}, false
	}
	s, p := m.samples.ranks[r], m.profile.shown[r]
	out := RankStatus{
		Iteration:   s.lastIteration(),
		Probability: s.tracker.PRecent(),
		BaselineMs:  s.tracker.BaselineMs(),
		SelfMs:      p.SelfMs,
		SelfRatio:   m.peers.ratio(r),
		WaitMs:      p.WaitMs,
	}
	out.SlowSteps, out.Failing = m.rankWatch.steps.Steps(r)
	if m.baseline.restoredMs > 0 &&
		(out.BaselineMs == 0 || out.BaselineMs > m.baseline.restoredMs*(1+m.cfg.Settled)) {
		out.BaselineMs = m.baseline.restoredMs // learnt before a restart, while the job is slow
	}
	if s.seen > 0 {
		out.Ms = s.valueAt(s.seen - 1)
	}
	if out.BaselineMs > 0 && out.Ms > 0 {
		out.Slowdown = out.Ms/out.BaselineMs - 1
	}
	for _, st := range m.incidents.list {
		out.Suspect = out.Suspect || (st.Open() && st.ID != "" && st.namesAnyRank(r))
	}
	return out, true
}

// Series is the newest iterations of one rank, oldest first: at most columns of them, each with the
// state that the filter of the job's series had after that iteration, as it was then. That is
// the filter that raises alarms: under lockstep a rank's own series is about the job's, and
// its filter rests. Each posterior is cut to runLengths entries, the last of which holds the tail; it is
// empty where the filter had learned nothing yet. Nil for a rank that the job does not have. With 0
// runLengths it is the times alone, of this epoch.
func (m *Machine) Series(r falcon.Rank, columns, runLengths int) []Column {
	if !m.job.known ||
		r < 0 ||
		int(r) >= len(m.samples.ranks) ||
		columns < 1 ||
		runLengths < 0 ||
		runLengths == 1 {
		return nil
	}
	out := m.samples.ranks[r].newestColumns(columns)
	job := m.samples.slowest
	if runLengths == 0 || job.seen == 0 {
		return out
	}
	at := job.oldest()
	for i := range out {
		c := &out[i]
		for at < job.seen && job.iteration(at) < c.Iteration {
			at++
		}
		if at == job.seen || job.iteration(at) != c.Iteration {
			continue
		}
		if s, known := job.tracker.StateAt(at); known {
			c.Probability = job.tracker.RecentOf(s)
			c.MAP = s.MAP
			c.Alarm = s.Alarm
			c.Posterior = make([]float64, runLengths)
			s.Binned(c.Posterior)
		}
	}
	return out
}

// meanAndSpread is the median of values, and a robust scale of them: that of the
// steps from one to the next, so that a change of level does not count as
// noise; never below 1 % of the level.
func meanAndSpread(values []float64) (centre, scale float64) {
	steps := make([]float64, 0, len(values))
	for i := 1; i < len(values); i++ {
		steps = append(steps, max(values[i]-values[i-1], values[i-1]-values[i]))
	}
	centre = falcon.Median(append([]float64(nil), values...))
	const toSigma = 1.4826 / 1.4142 // of the median absolute difference of two draws
	return centre, max(toSigma*falcon.Median(steps), 0.01*centre, 1e-9)
}

// Steady is how the machine is doing as a whole.
func (m *Machine) Steady() Steady {
	if !m.job.known {
		return Steady{
			Learning:   true,
			BaselineMs: m.baseline.restoredMs,
			Iteration:  -1,
		}
	}
	return Steady{
		Learning:   m.samples.isLearning(),
		BaselineMs: m.baseline.currentMs(),
		CurrentMs:  m.samples.currentLevel(),
		Iteration:  m.samples.lastIteration(),
		Slower:     m.samples.slowerInRow(m.baseline.currentMs()),
	}
}

// slowerMost bounds how far back slower iterations are counted.
const slowerMost = 64

// slowerInRow counts the newest iterations that are slower than the baseline, and not only a little.
func (l *sampleLog) slowerInRow(base float64) (n int) {
	if base <= 0 || l.isLearning() {
		return 0
	}
	for _, ms := range slices.Backward(l.slowest.newestValues(slowerMost)) {
		if falcon.IsMinor(base, ms) {
			break
		}
		n++
	}
	return n
}

// Speeds are the last complete profile's self times by rank, ms per micro-batch, or nil.
func (m *Machine) Speeds() []float64 {
	if !m.profile.haveLast {
		return nil
	}
	out := make([]float64, len(m.profile.last.Ranks))
	for i, r := range m.profile.last.Ranks {
		out[i] = r.SelfMs
	}
	return out
}

// Open are the incidents whose fault lasts, in order of their onset.
func (m *Machine) Open() []falcon.Incident {
	var out []falcon.Incident
	for _, s := range m.incidents.list {
		if s.Open() && s.ID != "" {
			out = append(out, s.Incident)
		}
	}
	return out
}
