package bocd

import (
	"slices"

	"github.com/failslow/falcon"
)

// Thresholds of Workers.
const (
	slowFromStart = 1.5 // times the peers' median that flags a worker from its first row
	peersLeast    = 2   // peers without which nothing is compared
	together      = 8   // rows within which onsets of workers count as one
)

// Flag is one worker's slow spell. Indexes count that worker's observations.
type Flag struct {
	Worker string
	Onset  int     // 0 where it was slow from the start
	Relief int     // first observation after it, -1 while it lasts
	Ratio  float64 // to its own baseline; to its peers when slow from the start
}

// Workers watches workers that do the same work, each against its own past by
// a Tracker and against its peers: a slowdown that most of them share is the
// job's, not a worker's, and lasting differences below slowFromStart are how
// the machines are.
type Workers struct {
	cfg   TrackerConfig
	order []string
	by    map[string]*worker
}

type worker struct {
	tracker *Tracker
	first   []float64 // the warm-up
	flags   []Flag
}

// NewWorkers returns a watcher that has seen nothing.
func NewWorkers(cfg TrackerConfig) *Workers {
	return &Workers{cfg: cfg, by: make(map[string]*worker)}
}

// Count is how many workers were seen.
func (w *Workers) Count() int { return len(w.order) }

// Observe takes in a worker's next value. Errors are Tracker.Observe's.
func (w *Workers) Observe(name string, value float64) error {
	one, known := w.by[name]
	if !known {
		one = &worker{tracker: NewTracker(w.cfg)}
		w.by[name] = one
		w.order = append(w.order, name)
	}
	changes, err := one.tracker.Observe(value)
	if err != nil {
		return err
	}
	if len(one.first) < one.tracker.cfg.WarmUp {
		one.first = append(one.first, value)
	}
	for _, c := range changes {
		one.applyChange(name, c)
	}
	return nil
}

// applyChange opens a spell at an onset and closes it when the level is back.
func (o *worker) applyChange(name string, c Change) {
	last := len(o.flags) - 1
	open := last >= 0 && o.flags[last].Relief < 0
	ratio := clampFinite(c.AfterMs / o.tracker.BaselineMs())
	switch {
	case c.Kind == KindOnset && !open:
		o.flags = append(o.flags, Flag{
			Worker: name,
			Onset:  c.Index,
			Relief: -1,
			Ratio:  ratio,
		})
	case c.Kind == KindOnset:
		o.flags[last].Ratio = max(o.flags[last].Ratio, ratio)
	case c.Kind == KindRelief && open && !o.tracker.Slow():
		o.flags[last].Relief = c.Index
	}
}

// Flagged lists the slow spells of single workers, in the order of the workers.
func (w *Workers) Flagged() []Flag {
	var out []Flag
	for _, name := range w.order {
		if f, slow := w.fromStart(name); slow {
			out = append(out, f)
		}
		for _, f := range w.by[name].flags {
			if !w.isShared(f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// fromStart compares a worker's first values with its peers'.
func (w *Workers) fromStart(name string) (Flag, bool) {
	var peers []float64
	for _, other := range w.order {
		if other != name {
			peers = append(peers, falcon.Median(slices.Clone(w.by[other].first)))
		}
	}
	typical := falcon.Median(peers)
	if len(peers) < peersLeast || typical <= 0 {
		return Flag{}, false
	}
	one := w.by[name]
	ratio := clampFinite(falcon.Median(slices.Clone(one.first)) / typical)
	if ratio < slowFromStart {
		return Flag{}, false
	}
	f := Flag{Worker: name, Relief: -1, Ratio: ratio}
	if one.tracker.LevelMs() < slowFromStart*typical && !one.tracker.Learning() {
		f.Relief = one.tracker.from
	}
	return f, true
}

// isShared reports whether at least half of the peers slowed down at the same time.
func (w *Workers) isShared(f Flag) bool {
	peers, same := 0, 0
	for _, other := range w.order {
		if other == f.Worker {
			continue
		}
		peers++
		for _, g := range w.by[other].flags {
			if max(g.Onset-f.Onset, f.Onset-g.Onset) <= together {
				same++
				break
			}
		}
	}
	return peers >= peersLeast && 2*same > peers
}
