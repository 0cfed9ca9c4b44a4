package train

import (
	"encoding/json"
	"fmt"
	"io"
	"syscall"
)

// Log writes one JSON object per line, each with one write, so that readers
// see whole lines at once.
type Log struct{ w io.Writer }

// NewLog writes to w.
func NewLog(w io.Writer) *Log { return &Log{w} }

// iterationLine is one iteration of this rank.
type iterationLine struct {
	Iteration    int64   `json:"iteration"`
	Rank         int     `json:"rank"`
	Ms           float64 `json:"ms"`        // from the end of the iteration before to the end of this one
	PausedMs     float64 `json:"paused_ms"` // of which the hook held this rank's calls
	Loss         float64 `json:"loss"`      // mean over the global batch, the same on all ranks
	MicroBatches int32   `json:"micro_batches"`
	CPUMs        float64 `json:"cpu_ms"` // of this process so far, user and system
	EndUnixNs    int64   `json:"end_unix_ns"`
}

// cpuMs is the CPU time of this process so far.
func cpuMs() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// orderLine is an order that the ranks agreed on.
type orderLine struct {
	Order        uint64  `json:"order"`
	Rank         int     `json:"rank"`
	Kind         string  `json:"kind"`
	From         int64   `json:"from_iteration"`
	Status       int32   `json:"status"` // 0 = applied
	Reason       string  `json:"reason,omitempty"`
	MicroBatches []int32 `json:"all_micro_batches,omitempty"`
}

// evaluationLine is an evaluation step, part of the iteration that it names.
type evaluationLine struct {
	Evaluation int64   `json:"evaluation"` // the iteration whose weights were judged
	Rank       int     `json:"rank"`
	Loss       float64 `json:"held_out_loss"` // mean over the held-out batch, the same on all ranks
	Ms         float64 `json:"ms"`
}

// checkpointLine is a checkpoint step, part of the iteration that it names.
type checkpointLine struct {
	Checkpoint int64   `json:"checkpoint"`
	Rank       int     `json:"rank"`
	File       string  `json:"file"`
	Bytes      int     `json:"bytes"`
	Ms         float64 `json:"ms"` // until all ranks had written theirs
}

// weightsLine is the end of the run, written by rank 0.
type weightsLine struct {
	Weights string `json:"weights_sha256"`
}

func (l *Log) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("trainer: log: %w", err)
	}
	if _, err = l.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("trainer: log: %w", err)
	}
	return nil
}
