package mitigate

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
)

// iterationLog is the newest iteration times of the job.
type iterationLog struct {
	cfg     *Config
	list    []Iteration // ascending, at most historyLimit
	trained Clock       // when the newest iteration came in
}

const (
	iterationsMost = 1024    // iterations kept to price an incident from its onset
	incidentsMost  = 64      // incidents kept; the oldest closed ones go first
	revertTries    = 5       // orders tried at once to undo one action
	revertAgain    = 100     // iterations between further tries
	curveCapTimes  = 4       // a replica is never given more than this times its even share
	totalMost      = 1 << 16 // micro-batches in a batch that is still priced
)

// add takes an iteration that is newer than all others, false = it is not.
func (l *iterationLog) add(now Clock, it Iteration) bool {
	if n := len(l.list); n > 0 && it.Index <= l.list[n-1].Index {
		return false
	}
	l.list = append(l.list, it)
	l.trained = now
	return true
}

// full reports whether older iterations have to be dropped.
func (l *iterationLog) full() bool { return len(l.list) > iterationsMost }

// keepNewest drops all but the newest n iterations and returns those dropped.
func (l *iterationLog) keepNewest(n int) []Iteration {
	dropped := slices.Clone(l.list[:len(l.list)-n])
	l.list = slices.Delete(l.list, 0, len(l.list)-n)
	return dropped
}

// since are the iterations from an index on.
func (l *iterationLog) since(index int64) []Iteration {
	return l.list[l.position(index):]
}

// before are the iterations below an index.
func (l *iterationLog) before(index int64) []Iteration {
	return l.list[:l.position(index)]
}

func (l *iterationLog) position(index int64) int {
	i, _ := slices.BinarySearchFunc(l.list, index, func(it Iteration, index int64) int {
		return cmp.Compare(it.Index, index)
	})
	return i
}

// lastTrained is when the newest iteration came in.
func (l *iterationLog) lastTrained() Clock { return l.trained }

func (l *iterationLog) newestIndex() int64 {
	if n := len(l.list); n > 0 {
		return l.list[n-1].Index
	}
	return falcon.NoIteration
}

// presentMs is the present iteration time: the median of the newest iterations
// since onset, the detector's own figure before there are enough.
func (l *iterationLog) presentMs(s *incidentState) float64 {
	var recent []float64
	for _, it := range slices.Backward(l.since(s.cost.From)) {
		if len(recent) < l.cfg.MeasureIterations {
			recent = append(recent, it.Ms)
		}
	}
	if len(recent) < min(3, l.cfg.MeasureIterations) {
		return s.incident.SlowMs
	}
	return falcon.Median(recent)
}

// between lists the times of iterations from..to−1 that were seen.
func (l *iterationLog) between(from, to int64) []float64 {
	var out []float64
	for _, it := range l.since(from) {
		if it.Index < to {
			out = append(out, it.Ms)
		}
	}
	return out
}
