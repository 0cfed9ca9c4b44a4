package detect

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// returnLog remembers the incidents that have ended by themselves a short time ago. A slowdown
// with the culprit and the cause of one of them is that incident again, with a count: a fault that
// comes and goes is one thing to look after. What an action was taken for, what has left the job,
// and work that has become the job's pace does not come back.
//
// A slowdown that would be reported before its culprit is known waits a little for its verdict if an
// incident that was about as slow has named one. After one that named none it is that incident again;
// if a verdict then names a culprit, that one is closed as it was, and the slowdown has a number of
// its own: a second fault is never part of the first.
type returnLog struct {
	cfg       *Config
	clock     *clock
	out       *output
	samples   *sampleLog
	incidents *incidentSet
	list      []ended // oldest first
}

// ended is an incident that is over.
type ended struct {
	falcon.Incident
	levelMs float64   // of its first occurrence
	at      time.Time // when its relief was seen
}

// returnsMost bounds the incidents that are remembered.
const returnsMost = 32

// add remembers an incident that is relieved, unless more than the fault's own end may have ended it.
func (l *returnLog) add(s *incidentState) {
	if s.ID == "" || s.Departed || s.actions.taken || l.cfg.ReturnWithin < 0 {
		return
	}
	e := ended{
		Incident: s.Incident,
		levelMs:  s.SlowMs,
		at:       l.clock.now,
	}
	if s.past != nil {
		e.levelMs = s.past.levelMs
	}
	l.forget(s.ID)
	l.list = append(l.list[max(0, len(l.list)+1-returnsMost):], e)
}

func (l *returnLog) forget(id string) {
	l.list = slices.DeleteFunc(l.list, func(e ended) bool { return e.ID == id })
}

func (l *returnLog) startEpoch() {
	l.list = nil
}

// namesCulprit reports whether an incident named one.
func (e *ended) namesCulprit() bool {
	return len(e.Verdict.Devices)+len(e.Verdict.Links)+len(e.Verdict.Ranks) > 0
}

// takeUnnamed gives a slowdown whose culprit is still sought the number of the newest incident that
// was about as slow and named none.
func (l *returnLog) takeUnnamed(s *incidentState) {
	l.take(s, func(e *ended) bool {
		return !e.namesCulprit() && burst{ms: e.levelMs}.similarTo(s.SlowMs)
	})
}

// Bounds of the wait for a verdict: it comes some iterations after the onset, and of a job with
// iterations of milliseconds a profile takes longer than they.
const (
	namedAfter = 24 // iterations
	namedFor   = 2 * time.Second
)

// awaitsName reports whether the report of a slowdown waits for its verdict, as it may be an incident
// that named a culprit.
func (l *returnLog) awaitsName(s *incidentState, iteration int64) bool {
	began := l.samples.times.startOfIteration(s.OnsetIteration)
	if iteration >= s.OnsetIteration+namedAfter && l.clock.now.Sub(began) >= namedFor {
		return false
	}
	return slices.ContainsFunc(l.list, func(e ended) bool {
		return e.namesCulprit() &&
			l.isRecent(s, &e) &&
			burst{ms: e.levelMs}.similarTo(s.SlowMs)
	})
}

// settle is called before each verdict on an incident: it finds the incident that is back, or parts
// the slowdown from the one whose number it has and whose culprit it does not name.
func (l *returnLog) settle(s *incidentState, v falcon.Verdict) {
	if s.past != nil && !s.actions.taken && !l.isSame(s, s.past, v) {
		l.part(s)
	}
	if s.ID == "" && !s.FromStart {
		l.take(s, func(e *ended) bool { return l.isSame(s, e, v) })
	}
}

// take lets an unreported slowdown be the newest of the incidents that may be back.
func (l *returnLog) take(s *incidentState, same func(*ended) bool) {
	for i := len(l.list) - 1; i >= 0; i-- {
		if e := l.list[i]; l.isRecent(s, &e) && same(&e) {
			l.list = slices.Delete(l.list, i, i+1)
			l.incidents.removeIf(func(o *incidentState) bool { return o.ID == e.ID })
			s.past = &e
			s.ID = e.ID
			s.Times = max(e.Times, 1) + 1
			s.FirstOnset = e.FirstOnset
			if e.Times < 2 {
				s.FirstOnset = e.OnsetIteration
			}
			l.out.addNote(s.ID, s.OnsetIteration, "onset",
				"%s is back from iteration %d on, time %d: %.1f ms",
				s.ID, s.OnsetIteration, s.Times, s.SlowMs)
			return
		}
	}
}

// part closes the incident whose number a slowdown has, as it was. The slowdown has none.
func (l *returnLog) part(s *incidentState) {
	e := *s.past
	e.State = falcon.IncidentClosed
	l.out.updateIncident(&incidentState{Incident: e.Incident})
	l.out.addNote(e.ID, s.OnsetIteration, "onset",
		"%s is closed: what is slow since iteration %d is another fault",
		e.ID, s.OnsetIteration)
	l.list = append(l.list, e)
	s.past = nil
	s.ID = ""
	s.Times = 0
	s.FirstOnset = 0
}

// isRecent reports whether an incident ended so short a time before a slowdown began that it may be
// back.
func (l *returnLog) isRecent(s *incidentState, e *ended) bool {
	if s.OnsetIteration <= e.RelievedIteration {
		return false
	}
	began := l.samples.times.startOfIteration(s.OnsetIteration)
	if began.IsZero() {
		began = l.clock.now
	}
	return began.Sub(e.at) <= l.cfg.ReturnWithin ||
		s.OnsetIteration-e.RelievedIteration <= l.cfg.BurstWithin
}

// isSame reports whether a verdict names the cause and no culprit but those of an incident that is
// over. Where neither names any, the slowdown must be no worse.
func (l *returnLog) isSame(s *incidentState, e *ended, v falcon.Verdict) bool {
	was := &e.Verdict
	switch {
	case v.Cause != was.Cause || v.Reason != was.Reason:
		return false
	case len(v.Devices)+len(v.Links) > 0:
		return isPartOf(v.Devices, was.Devices) && isPartOf(v.Links, was.Links)
	case e.namesCulprit() || len(v.Ranks) > 0: // seen less closely
		return len(v.Ranks) > 0 &&
			len(was.Ranks) > 0 &&
			(isPartOf(v.Ranks, was.Ranks) || isPartOf(was.Ranks, v.Ranks))
	}
	return s.SlowMs <= e.levelMs*burstRatio
}

// isPartOf reports whether all of a are in b.
func isPartOf[T comparable](a, b []T) bool {
	return !slices.ContainsFunc(a, func(x T) bool {
		return !slices.Contains(b, x)
	})
}
