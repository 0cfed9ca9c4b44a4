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

// similarTo reports whether two bursts slow the job to about the same level, so that they
// may be one fault that comes and goes.
func (b burst) similarTo(ms float64) bool {
	return ms <= b.ms*burstRatio && b.ms <= ms*burstRatio
}

const (
	burstRatio = 1.25
	burstsMost = 16 // remembered
)

// publishOrWait hands out an incident that has lasted by the time it is verified, or
// that is one of several alike. Any other waits for TellAfter iterations or
// for a verdict: operators are not woken for a handful of slow iterations that
// are over before a profile can say whose they were. The iteration of detection
// is that of now in either case.
func (m *Machine) publishOrWait(s *incidentState) {
	if s.burst.evidence = m.bursts.recurring(s); s.burst.evidence != "" {
		s.burst.onset = s.OnsetIteration
		s.Verdict.Evidence = append(s.Verdict.Evidence, falcon.Evidence{
			Kind: falcon.EvidenceHistory,
			Text: s.burst.evidence,
		})
		m.bursts.clear()
		m.returns.takeUnnamed(s)
		m.incidents.handOut(s)
		return
	}
	m.publishLasting(m.samples.lastIteration())
}

// publishLasting hands out the incidents that no culprit was named for yet and that had
// the job to themselves, once they have lasted.
func (m *Machine) publishLasting(iteration int64) {
	for _, s := range m.incidents.openIncidents() {
		if s.ID == "" &&
			s.floorMs == 0 &&
			s.hasPaidItself(m.cfg, iteration) &&
			m.samples.stillSlow(s) {
			if s.lasted = true; m.returns.awaitsName(s, iteration) {
				continue
			}
			m.returns.takeUnnamed(s)
			m.incidents.handOut(s)
		}
	}
}

// recurring says which bursts before an incident make it intermittent; empty where
// they are too few, too old, of another level, or the job's own rhythm.
func (u *burstLog) recurring(s *incidentState) string {
	var spans []string
	var onsets []int64
	for _, b := range u.list {
		if b.from >= s.OnsetIteration-u.cfg.BurstWithin && b.similarTo(s.SlowMs) {
			spans = append(spans, fmt.Sprintf("%d–%d", b.from, b.to-1))
			onsets = append(onsets, b.from)
		}
	}
	if len(spans)+1 < u.cfg.Bursts {
		return ""
	}
	if every, ok := isRegular(append(onsets, s.OnsetIteration)); ok {
		u.out.addNote("", s.OnsetIteration, "jitter",
			"Slow again %d iterations after the last time, as every time before: the job's own rhythm, such as checkpoints",
			every)
		return ""
	}
	return fmt.Sprintf("Intermittent: the job was about as slow in iterations %s, and is again from %d on",
		strings.Join(spans, ", "), s.OnsetIteration)
}

// isRegular reports whether iterations follow at one distance, as checkpoints do and faults
// do not, within the error of placing an onset.
func isRegular(at []int64) (every int64, ok bool) {
	least := int64(math.MaxInt64)
	most := int64(0)
	for i := 1; i < len(at); i++ {
		least = min(least, at[i]-at[i-1])
		most = max(most, at[i]-at[i-1])
	}
	return most, len(at) > 2 && most-least <= regularOff
}

const regularOff = 2

// resumeBurst takes an onset as the next burst of an intermittent slowdown that
// is open, and has it profiled at once if no rank is named yet.
func (m *Machine) resumeBurst(at int64, ms float64) bool {
	for _, s := range m.incidents.openIncidents() {
		if !s.burst.paused || !(burst{ms: s.SlowMs}).similarTo(ms) {
			continue
		}
		s.burst.onset = at
		s.burst.paused = false
		s.search.tries = 0
		if !s.isLocated() {
			s.search.notBefore = m.samples.lastIteration()
		}
		m.out.addNote(s.ID, at, "onset", "%s is back from iteration %d on: %.1f ms", s.ID, at, ms)
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

// add remembers a burst; the oldest goes where there are too many.
func (u *burstLog) add(b burst) {
	u.list = append(u.list[max(0, len(u.list)-burstsMost+1):], b)
}

func (u *burstLog) clear() {
	u.list = nil
}
