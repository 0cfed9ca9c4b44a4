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
	if s.recurs = m.bursts.recurring(s); s.recurs != "" {
		s.burstAt = s.OnsetIteration
		s.Verdict.Evidence = append(s.Verdict.Evidence, falcon.Evidence{Kind: falcon.EvidenceHistory, Text: s.recurs})
		m.bursts.list = nil
		m.incidents.publish(s)
		return
	}
	m.tellLasting(m.samples.slowest.last())
}

// tellLasting hands out the stories that nobody was named for yet and that had
// the job to themselves, once they have lasted.
func (m *Machine) tellLasting(iteration int64) {
	for _, s := range m.incidents.open() {
		if s.ID == "" && s.floorMs == 0 && iteration >= s.OnsetIteration+m.cfg.TellAfter-1 && m.samples.stillSlow(s) {
			m.incidents.publish(s)
		}
	}
}

// recurring says which bursts before a story make it intermittent; empty where
// they are too few, too old, of another level, or the job's own rhythm.
func (u *burstLog) recurring(s *story) string {
	var spans []string
	var onsets []int64
	for _, b := range u.list {
		if b.from >= s.OnsetIteration-u.cfg.BurstWithin && b.alike(s.SlowMs) {
			spans, onsets = append(spans, fmt.Sprintf("%d–%d", b.from, b.to-1)), append(onsets, b.from)
		}
	}
	if len(spans)+1 < u.cfg.Bursts {
		return ""
	}
	if every, ok := regular(append(onsets, s.OnsetIteration)); ok {
		u.out.note(s.OnsetIteration, "jitter", "Slow again %d iterations after the last time, as every time before: the job's own rhythm, such as checkpoints", every)
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
	for _, s := range m.incidents.open() {
		if !s.between || !(burst{ms: s.SlowMs}).alike(ms) {
			continue
		}
		s.burstAt, s.between, s.tries = at, false, 0
		if !s.located() {
			s.notUntil = m.samples.slowest.last()
		}
		m.out.note(at, "onset", "%s is back from iteration %d on: %.1f ms", s.ID, at, ms)
		return true
	}
	return false
}

// burstLog remembers slowdowns that passed before they were reported.
type burstLog struct {
	cfg  *Config
	out  *output
	list []burst // newest last
}
