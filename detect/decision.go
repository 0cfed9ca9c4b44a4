package detect

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// Detector is what decided that the job's pace changed.
type Detector string

// The values of Detector.
const (
	ByPosterior Detector = Detector(bocd.ByPosterior) // an alarm of the change-point filter
	ByReference Detector = Detector(bocd.ByReference) // the level, held against what it was
	ByShift     Detector = Detector(bocd.ByShift)     // package shift's proof: it has no posterior
	// an early window and counters, before verification (early.go)
	ByEarly      Detector = "early"
	ByThroughput Detector = "throughput" // the job is below its best without an onset
	// two profile windows, without a change of the iteration time
	ByWindows Detector = "windows"
)

// Decision is what decided one alarm, as it was then: nothing of it is computed when it is read.
type Decision struct {
	By         Detector
	Kind       bocd.Kind   // jitter for an alarm that was turned down
	Rank       falcon.Rank // whose series it was of; −1 the job's, which is its slowest rank's
	Iteration  int64       // first of the new level
	DecidedAt  int64       // newest iteration of the series when it was decided
	BeforeMs   float64     // medians before and after, which verified it or turned it down
	AfterMs    float64
	Points     int  // iterations behind the change that were compared; of ByEarly, that were slow
	Drift      bool // ByShift: it was gradual
	Opened     bool // it opened an incident, or the next burst of one
	Onset      int64
	Filter     *FilterState  // nil where no filter took part
	Window     uint64        // ByEarly, ByWindows: the profile window
	Ranks      []falcon.Rank // ByEarly, ByWindows: which it accuses
	Confirming bool          // ByEarly: counters accuse them too
}

// FilterState is a filter at the moment of a decision, by iterations. ByShift and ByReference it
// looked on.
type FilterState struct {
	bocd.State
	CentreMs float64 // an iteration is fed as (ms − CentreMs)/ScaleMs
	ScaleMs  float64
	// first iteration that it was fed since it was last started over, at the
	// earliest the oldest held
	From    int64
	Removed []RemovedIteration
}

// RemovedIteration was not fed to the filter as it came: it was part of a burst.
type RemovedIteration struct {
	Iteration int64
	Ms, As    float64
}

// Bounds of what is kept.
const (
	decisionsMost = 64 // newest decisions
	voicesMost    = 8  // ranks of one onset whose decisions are kept
	voicesHeld    = 32 // alarms of ranks whose decisions are held until there are enough for an onset
)

// decisionLog keeps the newest decisions.
type decisionLog struct{ list []*Decision }

func (l *decisionLog) add(d *Decision) *Decision {
	l.list = append(l.list[max(0, len(l.list)-decisionsMost+1):], d)
	return d
}

func (l *decisionLog) startEpoch() {
	l.list = nil
}

// decisionOf is what decided a change of a series.
func decisionOf(rank falcon.Rank, s *series, c bocd.Change) *Decision {
	d := &Decision{
		By:        ByPosterior,
		Kind:      c.Kind,
		Rank:      rank,
		Iteration: s.iteration(c.Index),
		DecidedAt: s.iteration(c.DetectedAt),
		BeforeMs:  c.BeforeMs,
		AfterMs:   c.AfterMs,
	}
	if w := c.Why; w != nil {
		d.By = Detector(w.By)
		d.Points = w.Points
		d.Drift = w.Drift
		d.Filter = &FilterState{
			State:    w.State,
			CentreMs: w.CentreMs,
			ScaleMs:  w.ScaleMs,
			From:     s.iteration(w.From),
		}
		for _, r := range w.Removed {
			d.Filter.Removed = append(d.Filter.Removed, RemovedIteration{s.iteration(r.Index), r.Ms, r.As})
		}
	}
	return d
}

// noteOpened keeps the decisions that led to an onset, of few of the ranks that agree.
func (l *decisionLog) noteOpened(alarms []alarm, onset int64) {
	ranks := 0
	for _, a := range alarms {
		d := a.why
		if d == nil {
			continue
		}
		d.Opened, d.Onset = true, onset
		if d.Rank < 0 && d.By != ByEarly && d.By != ByThroughput {
			continue // it is in the list
		}
		if ranks++; ranks <= voicesMost {
			l.add(d)
		}
	}
}

// noteWindows keeps that profile windows opened an incident.
func (l *decisionLog) noteWindows(s *incidentState, at int64, window uint64, ranks []falcon.Rank) {
	l.add(&Decision{
		By:        ByWindows,
		Kind:      bocd.KindOnset,
		Rank:      -1,
		Iteration: s.OnsetIteration,
		DecidedAt: at,
		BeforeMs:  s.HealthyMs,
		AfterMs:   s.SlowMs,
		Opened:    true,
		Onset:     s.OnsetIteration,
		Window:    window,
		Ranks:     ranks,
	})
}

// Decisions are what decided the newest alarms of the job epoch, oldest first. They are not to be
// modified.
func (m *Machine) Decisions() []*Decision { return m.decided.list }
