package mitigate

import "github.com/failslow/falcon"

// iterationLog is the newest iteration times of the job.
type iterationLog struct {
	cfg     *Config
	list    []Iteration // ascending, at most historyLimit
	trained Clock       // when the newest iteration came in
}

const (
	historyLimit  = 1024    // iterations kept to price an incident from its onset
	storyLimit    = 64      // incidents kept; the oldest closed ones go first
	revertLimit   = 5       // orders tried at once to undo one action
	revertAgain   = 100     // iterations between further tries
	curveCapTimes = 4       // a replica is never given more than this times its even share
	totalMost     = 1 << 16 // micro-batches in a batch that is still priced
)

func (l *iterationLog) newest() int64 {
	if n := len(l.list); n > 0 {
		return l.list[n-1].Index
	}
	return falcon.NoIteration
}

// slowMs is the present iteration time: the median of the newest iterations
// since onset, the detector's own figure before there are enough.
func (l *iterationLog) slowMs(s *story) float64 {
	var recent []float64
	for i := len(l.list) - 1; i >= 0 && len(recent) < l.cfg.MeasureIterations; i-- {
		if l.list[i].Index < s.cost.From {
			break
		}
		recent = append(recent, l.list[i].Ms)
	}
	if len(recent) < min(3, l.cfg.MeasureIterations) {
		return s.incident.SlowMs
	}
	return falcon.Median(recent)
}

// span lists the times of iterations from..to−1 that were seen.
func (l *iterationLog) between(from, to int64) []float64 {
	var out []float64
	for _, it := range l.list {
		if it.Index >= from && it.Index < to {
			out = append(out, it.Ms)
		}
	}
	return out
}
