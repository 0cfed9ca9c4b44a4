package train

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/failslow/falcon"
)

// Log writes one JSON object per line, each with one write, so that readers
// see whole lines at once. It may be used by several goroutines.
type Log struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLog writes to w.
func NewLog(w io.Writer) *Log { return &Log{w: w} }

// startLine is the first line: which process writes this log.
type startLine struct {
	Rank       int    `json:"rank"` // as launched
	PID        int    `json:"pid"`
	Generation uint64 `json:"generation"` // of the launch, 0 = by none
	Join       bool   `json:"join,omitempty"`
}

// parkLine is written when this rank leaves training to wait for the agent's order.
type parkLine struct {
	Park   int32    `json:"park"` // adapter's status
	Rank   int      `json:"rank"`
	Next   int64    `json:"next_iteration"` // the one that was left
	Held   []int64  `json:"held"`           // steps of its shard
	Sums   []string `json:"sums"`           // their checksums
	Why    string   `json:"why,omitempty"`
	UnixNs int64    `json:"unix_ns"`
}

// rejoinLine is what became of an order to rejoin. Iterations are counted on
// from the one resumed at: earlier lines of those from it on are void.
type rejoinLine struct {
	Rejoin    uint64      `json:"rejoin"` // generation
	Rank      int         `json:"rank"`
	Begins    int64       `json:"resume_iteration"`
	Status    int32       `json:"status"`         // 0 = trains again
	From      falcon.Rank `json:"from"`           // whose shard it got; itself, or -2 = storage
	Replaced  bool        `json:"join,omitempty"` // it held nothing before
	Bytes     int64       `json:"bytes"`
	GroupsMs  float64     `json:"groups_ms"`
	RestoreMs float64     `json:"restore_ms"`
	Sum       string      `json:"sum,omitempty"` // of the shard that it goes on with
	Why       string      `json:"why,omitempty"`
	UnixNs    int64       `json:"unix_ns"`
}

// faultLine is what a rank logs before it carries out an injected fault.
type faultLine struct {
	Fault  string `json:"fault"` // the point
	Rank   int    `json:"rank"`
	At     int64  `json:"at_iteration"`
	Freeze bool   `json:"freeze"`
	UnixNs int64  `json:"unix_ns"`
}

// endLine is the last line.
type endLine struct {
	End  string `json:"end"` // End…
	Rank int    `json:"rank"`
	Next int64  `json:"next_iteration"`
	Why  string `json:"why,omitempty"`
}

// iterationLine is one iteration of this rank.
type iterationLine struct {
	Iteration    int64   `json:"iteration"`
	Rank         int     `json:"rank"`
	Ms           float64 `json:"ms"`        // from the end of the iteration before to the end of this one
	PausedMs     float64 `json:"paused_ms"` // of which the hook held this rank's calls
	Loss         float64 `json:"loss"`      // mean over the global batch, the same on all ranks
	MicroBatches int32   `json:"micro_batches"`
	// of the job's life, of those that this rank's replica was trained on
	FirstSample int64   `json:"first_sample"`
	CPUMs       float64 `json:"cpu_ms"` // of this process so far, user and system
	EndUnixNs   int64   `json:"end_unix_ns"`
	// of which a placement or a checkpoint took that was ordered
	OrderMs float64 `json:"order_ms,omitempty"`
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
	Order        uint64           `json:"order"`
	Rank         int              `json:"rank"` // held when it was decided
	Kind         falcon.OrderKind `json:"kind"`
	From         int64            `json:"from_iteration"`
	Status       int32            `json:"status"` // 0 = applied
	Reason       string           `json:"reason,omitempty"`
	MicroBatches []int32          `json:"all_micro_batches,omitempty"`
	Blocks       []int32          `json:"blocks,omitempty"` // of a placement
	Leave        bool             `json:"leave,omitempty"`  // of a checkpoint
}

// swapLine is the beginning or the end of a step of a placement.
type swapLine struct {
	Swap       uint64  `json:"swap"` // the order
	Rank       int     `json:"rank"` // held when the placement began
	Step       string  `json:"step"`
	State      string  `json:"state"` // begin, end, failed
	UnixNs     int64   `json:"unix_ns"`
	Ms         float64 `json:"ms,omitempty"`          // until all ranks had done it
	EmulatedMs float64 `json:"emulated_ms,omitempty"` // of which copying or sending state took
	ConnectMs  float64 `json:"connect_ms,omitempty"`  // of which making communicators took
	Bytes      int64   `json:"bytes,omitempty"`       // received
	Reason     string  `json:"reason,omitempty"`      // why it failed
}

// swapOverLine describes how a placement ended on this rank.
type swapOverLine struct {
	Swap       uint64             `json:"swap"`
	Rank       int                `json:"rank"`
	Step       string             `json:"step"`  // the last that began
	State      string             `json:"state"` // over
	Committed  bool               `json:"committed"`
	NewRank    int                `json:"new_rank"` // held from now on
	From       int64              `json:"from_iteration"`
	StepMs     map[string]float64 `json:"step_ms,omitempty"`
	EmulatedMs float64            `json:"emulated_ms"` // of all steps
	Bytes      int64              `json:"bytes"`
	Reason     string             `json:"reason,omitempty"` // why it was undone
}

// evaluationLine is an evaluation step, part of the iteration that it names.
type evaluationLine struct {
	Evaluation int64   `json:"evaluation"` // the iteration whose weights were judged
	Rank       int     `json:"rank"`
	Loss       float64 `json:"held_out_loss"` // mean over the held-out batch, the same on all ranks
	Ms         float64 `json:"ms"`
}

// checkpointLine is a checkpoint, part of the iteration that it names or, when
// it was ordered, right behind it.
type checkpointLine struct {
	Checkpoint int64   `json:"checkpoint"`
	Rank       int     `json:"rank"`
	Order      uint64  `json:"order,omitempty"`
	Resume     int64   `json:"resume_iteration"`
	File       string  `json:"file"`
	Bytes      int     `json:"bytes"`
	Ms         float64 `json:"ms"`       // until all ranks had written theirs
	DumpMs     float64 `json:"dump_ms"`  // of which copying to the host took
	StoreMs    float64 `json:"store_ms"` // and writing, and waiting for the others
}

// resumeLine is how a rank went on from a checkpoint.
type resumeLine struct {
	Resume    int64   `json:"resume"` // first iteration
	Rank      int     `json:"rank"`
	File      string  `json:"file"`
	Bytes     int     `json:"bytes"`
	LoadMs    float64 `json:"load_ms"`    // from storage
	RestoreMs float64 `json:"restore_ms"` // to the device, and waiting for the others
}

// weightsLine is the end of the run, written by rank 0.
type weightsLine struct {
	Weights string `json:"weights_sha256"`
}

func (l *Log) writeLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("trainer: log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err = l.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("trainer: log: %w", err)
	}
	return nil
}
