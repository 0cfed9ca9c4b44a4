package detect

import (
	"fmt"
	"math"
	"strings"

	"github.com/failslow/falcon"
)

// burst is a slowdown that was verified and passed before anybody was named.
type burst struct {
	from, to int64 // its first iteration, and the first one after it
	ms       float64
}

// alike says that two bursts slow the job to about the same level, so that they
// may be one fault that comes and goes.
func (b burst) alike(ms float64) bool { return ms <= b.ms*burstRatio && b.ms <= ms*burstRatio }

const (
	burstRatio = 1.25
	burstsMost = 16 // remembered
)

// introduce hands out a story that has lasted by the time it is verified, or
// that is one of several alike. Any other waits for TellAfter iterations or
// for a verdict: nobody should be woken for a handful of slow iterations that
// are over before a profile can say whose they were. The iteration of detection
// is that of now in either case.
func (m *Machine) introduce(s *story) {
	if s.recurs = m.recurring(s); s.recurs != "" {
		s.burstAt = s.OnsetIteration
		s.Verdict.Evidence = append(s.Verdict.Evidence, falcon.Evidence{Kind: falcon.EvidenceHistory, Text: s.recurs})
		m.bursts = nil
		m.tell(s)
		return
	}
	m.tellLasting(m.slow.last())
}

// tellLasting hands out the stories that nobody was named for yet and that had
// the job to themselves, once they have lasted.
func (m *Machine) tellLasting(iteration int64) {
	for _, s := range m.openStories() {
		if s.ID == "" && s.floorMs == 0 && iteration >= s.OnsetIteration+m.cfg.TellAfter-1 && m.stillSlow(s) {
			m.tell(s)
		}
	}
}

// stillSlow says that most of the newest iterations are.
func (m *Machine) stillSlow(s *story) bool {
	slow := 0
	for _, ms := range m.slow.tail(lastOver) {
		if ms > (s.HealthyMs+s.SlowMs)/2 {
			slow++
		}
	}
	return slow > lastOver/2
}

// lastOver is how many of the newest iterations say whether a slowdown lasts.
const lastOver = 3

// recurring says which bursts before a story make it intermittent; empty where
// they are too few, too old, of another level, or the job's own rhythm.
func (m *Machine) recurring(s *story) string {
	var spans []string
	var onsets []int64
	for _, b := range m.bursts {
		if b.from >= s.OnsetIteration-m.cfg.BurstWithin && b.alike(s.SlowMs) {
			spans, onsets = append(spans, fmt.Sprintf("%d–%d", b.from, b.to-1)), append(onsets, b.from)
		}
	}
	if len(spans)+1 < m.cfg.Bursts {
		return ""
	}
	if every, ok := regular(append(onsets, s.OnsetIteration)); ok {
		m.note(s.OnsetIteration, "jitter", "Slow again %d iterations after the last time, as every time before: the job's own rhythm, such as checkpoints", every)
		return ""
	}
	return fmt.Sprintf("Intermittent: the job was about as slow in iterations %s, and is again from %d on", strings.Join(spans, ", "), s.OnsetIteration)
}

// regular says that iterations follow each other at one distance, give or take
// what the placement of an onset is off by. Checkpoints and evaluations do;
// faults do not count iterations.
func regular(at []int64) (every int64, ok bool) {
	least, most := int64(math.MaxInt64), int64(0)
	for i := 1; i < len(at); i++ {
		least, most = min(least, at[i]-at[i-1]), max(most, at[i]-at[i-1])
	}
	return most, len(at) > 2 && most-least <= regularOff
}

const regularOff = 2

// burstAgain takes an onset as the next burst of an intermittent slowdown that
// is open, and has it profiled at once if nobody is named yet.
func (m *Machine) burstAgain(at int64, ms float64) bool {
	for _, s := range m.openStories() {
		if !s.between || !(burst{ms: s.SlowMs}).alike(ms) {
			continue
		}
		s.burstAt, s.between, s.tries = at, false, 0
		if !s.located() {
			s.notUntil = m.slow.last()
		}
		m.note(at, "onset", "%s is back from iteration %d on: %.1f ms", s.ID, at, ms)
		return true
	}
	return false
}

// pausing says that a story's slowdown is one that comes and goes, and that it
// is too early to call it relieved.
func (m *Machine) pausing(s *story, iteration int64) bool {
	if s.burstAt == 0 || iteration >= s.burstAt+m.cfg.BurstWithin {
		return false
	}
	if !s.between {
		s.between = true
		m.rearm()
		m.note(iteration, "jitter", "%s pauses: the iteration time is back since iteration %d", s.ID, m.backSince((s.HealthyMs+s.SlowMs)/2))
	}
	return true
}

// pass ends a slowdown that was not told: a line in the log, and a memory of it
// in case that others like it follow.
func (m *Machine) pass(s *story, at int64) {
	b := burst{from: s.OnsetIteration, to: max(at, s.OnsetIteration+1), ms: s.SlowMs}
	m.bursts = append(m.bursts[max(0, len(m.bursts)-burstsMost+1):], b)
	m.note(b.from, "jitter", "%d iterations at %.1f ms passed before anybody could be profiled: no incident", b.to-b.from, b.ms)
	m.drop(s)
	m.rearm()
	if !m.healthy.Known() {
		m.learn = learning{due: true, after: m.slow.last() + m.cfg.SettleAfter}
	}
}
