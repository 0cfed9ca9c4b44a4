package lab

import (
	"bufio"
	"encoding/json"
	"io"
)

// maxLine bounds a line of trainer output.
const maxLine = 1 << 20

// line is what a trainer prints: one per iteration, one at the end.
type line struct {
	Rank      int      `json:"rank"`
	Iteration *int64   `json:"iteration"`
	Ms        float64  `json:"ms"`
	PausedMs  float64  `json:"paused_ms"`
	Loss      *float64 `json:"loss"`
	Sha       string   `json:"weights_sha256"`
	CPUMs     float64  `json:"cpu_ms"`
}

// readLines hands every JSON line of r to f until r ends. Other lines are
// dropped: they are for people, and stand in the log file.
func readLines(r io.Reader, f func(line)) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	for sc.Scan() {
		var l line
		if json.Unmarshal(sc.Bytes(), &l) == nil && (l.Iteration != nil || l.Sha != "") {
			f(l)
		}
	}
	_, _ = io.Copy(io.Discard, r) // an overlong line must not block the trainer
}

// Iteration is one row of the report.
type Iteration struct {
	Index    int64   `json:"index"`
	Ms       float64 `json:"ms"` // slowest rank, pauses taken out
	Loss     float64 `json:"loss"`
	PausedMs float64 `json:"paused_ms"`
}

// records gathers the trainers' own clocks, the truth that Falcon is scored
// against. Owned by the lab's loop.
type records struct {
	world int
	rows  []Iteration
	seen  []int     // ranks that reported row i
	cpuMs []float64 // CPU of all ranks up to the end of row i
	done  int64     // iterations that all ranks have finished
	sha   string
}

func newRecords(world int) *records { return &records{world: world} }

// add takes one line and says whether another iteration is complete.
func (r *records) add(rank int, l line) bool {
	if l.Sha != "" {
		r.sha = l.Sha
	}
	if l.Iteration == nil || *l.Iteration < 0 || *l.Iteration > maxIterations {
		return false
	}
	for int64(len(r.rows)) <= *l.Iteration {
		r.rows = append(r.rows, Iteration{Index: int64(len(r.rows))})
		r.seen = append(r.seen, 0)
		r.cpuMs = append(r.cpuMs, 0)
	}
	r.cpuMs[*l.Iteration] += l.CPUMs
	row := &r.rows[*l.Iteration]
	row.Ms = max(row.Ms, l.Ms-l.PausedMs)
	row.PausedMs = max(row.PausedMs, l.PausedMs)
	if rank == 0 && l.Loss != nil {
		row.Loss = *l.Loss
	}
	r.seen[*l.Iteration]++
	before := r.done
	for r.done < int64(len(r.seen)) && r.seen[r.done] >= r.world {
		r.done++
	}
	return r.done > before
}

// cpuPerIteration is what all ranks' processes used per iteration, in ms, after
// the first ones: starting up is not the job's steady cost.
func (r *records) cpuPerIteration() float64 {
	const skip = 10
	first, last := int64(skip), r.done-1
	if last <= first {
		return 0
	}
	return (r.cpuMs[last] - r.cpuMs[first]) / float64(last-first)
}
