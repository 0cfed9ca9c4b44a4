// Package iterate turns what a training process left in shared memory into
// iterations and profile summaries.
//
// Marks turns the adapter's step marks, which are exact, into samples;
// Summarize turns the device timings of a profile window into a RankProfile.
// Everything here is plain arithmetic on values: no goroutines, no clock, no
// I/O, and memory bounded by what is passed in. It must not compare ranks:
// that is the detector's part.
package iterate

import (
	"math"

	"github.com/failslow/falcon"
)

// Mark is one step mark: iteration number, its start and how long the hook
// had held the rank until then. Times are CLOCK_MONOTONIC nanoseconds.
type Mark struct {
	Iteration int64
	StartNs   uint64
	PausedNs  uint64
}

// Marks pairs successive marks of one process.
type Marks struct {
	rank falcon.Rank
	last Mark
	some bool
}

// NewMarks starts a series for one rank.
func NewMarks(rank falcon.Rank) *Marks { return &Marks{rank: rank} }

// Any reports whether a mark was ever seen: from then on marks win over
// inference.
func (s *Marks) Any() bool { return s.some }

// Add takes the next mark and yields the sample of the iteration that it
// ends. A gap (marks overwritten before they were read) or a step back (the
// job resumed from an earlier iteration) yields none. EndNs of the sample is
// the mark's monotonic time; the caller shifts it to Unix time.
func (s *Marks) Add(m Mark) (falcon.Sample, bool) {
	prev, had := s.last, s.some
	s.last, s.some = m, true
	if !had || m.Iteration != prev.Iteration+1 || m.StartNs <= prev.StartNs {
		return falcon.Sample{}, false
	}
	paused := uint64(0)
	if m.PausedNs > prev.PausedNs {
		paused = min(m.PausedNs-prev.PausedNs, m.StartNs-prev.StartNs)
	}
	return falcon.Sample{
		Rank:      s.rank,
		Iteration: prev.Iteration,
		EndNs:     int64(m.StartNs),
		Ms:        float64(m.StartNs-prev.StartNs) / 1e6,
		PausedMs:  float64(paused) / 1e6,
		Exact:     true,
	}, true
}

// StepOf completes the low 32 bits of an iteration by the newest known one; records
// come before or after the mark of their own iteration.
func StepOf(low uint32, newest int64) int64 {
	if low == math.MaxUint32 {
		return UnknownIteration
	}
	return newest + int64(int32(low-uint32(newest)))
}
