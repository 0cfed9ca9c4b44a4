package lab

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/failslow/falcon"
)

// maxLine bounds a line of trainer output.
const maxLine = 1 << 20

// line is what a trainer prints: one per iteration, one for each order and
// each step of a placement, one at the end.
type line struct {
	Rank      int      `json:"rank"` // that it holds
	Iteration *int64   `json:"iteration"`
	Ms        float64  `json:"ms"`
	PausedMs  float64  `json:"paused_ms"`
	Loss      *float64 `json:"loss"`
	Sample    int64    `json:"first_sample"`
	Sha       string   `json:"weights_sha256"`
	CPUMs     float64  `json:"cpu_ms"`
	EndNs     int64    `json:"end_unix_ns"`

	OrderMs float64 `json:"order_ms"`

	orderLine
	swapLine
	storageLine
	faultLine
	rejoinLine

	Bytes int64  `json:"bytes"`
	End   string `json:"end"`
}

// isRelevant reports whether the line is one of those that the lab reads.
func (l line) isRelevant() bool {
	return l.Iteration != nil ||
		l.Sha != "" ||
		l.Kind != "" ||
		l.Swap != 0 ||
		l.Checkpoint != nil ||
		l.Resume != nil ||
		l.End != "" ||
		l.Fault != "" ||
		l.Rejoin > 0
}

// readLines hands every JSON line of r to f until r ends. Other lines are
// dropped: they are for people, and are in the log file.
func readLines(r io.Reader, f func(line)) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	for sc.Scan() {
		var l line
		if json.Unmarshal(sc.Bytes(), &l) == nil && l.isRelevant() {
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
	// of ms, what a placement or a checkpoint that was ordered took
	OrderMs    float64 `json:"order_ms,omitempty"`
	Generation uint64  `json:"generation,omitempty"` // of the launch or the rejoin that ran it
	// that rank 0's replica was trained on, of the job's life
	Sample int64 `json:"first_sample"`
	// a recovery came between its update and its ranks' lines about it
	Untold bool `json:"untold,omitempty"`
}

// records gathers the trainers' own clocks, the truth that Falcon is scored
// against: iterations go on over generations of processes, and a rank is who
// holds its place. Owned by the lab's loop.
type records struct {
	world      int
	rows       []Iteration
	seen       []int     // ranks that reported row i
	cpuMs      []float64 // CPU of all ranks up to the end of row i
	endNs      []int64   // of row i on the slowest rank, wall clock
	done       int64     // iterations that all ranks have finished
	first      int64     // end of the first generation's rows, while it runs: none
	generation uint64
	uneven     bool // an S2 split was in force: sums were taken in another order
	fewer      bool // replicas were given up: so they were too
	sha        string
	orders     orders
	restarts   []Restart
	rejoins    []*rejoin
	stored     stored
}

func newRecords(world int) *records {
	return &records{
		world:  world,
		first:  falcon.NoIteration,
		stored: stored{behind: falcon.NoIteration},
	}
}

// hasIteration reports whether a generation has finished an iteration on some rank.
func (r *records) hasIteration(generation uint64) bool {
	return r.generation >= generation && len(r.rows) > 0
}

// addLine takes one line of a process and reports whether another iteration is
// complete.
func (r *records) addLine(generation uint64, l line) bool {
	if l.Sha != "" {
		r.sha = l.Sha
	}
	r.orders.addOrder(l)
	r.noteStorage(generation, l)
	if l.Kind == falcon.OrderMicroBatches && l.Status == 0 {
		r.uneven = true
	}
	if l.Iteration == nil ||
		*l.Iteration < 0 ||
		*l.Iteration > maxIterations ||
		generation < r.generation {
		return false
	}
	if generation > r.generation {
		r.addRestart(generation).Redone = max(0, int64(len(r.rows))-*l.Iteration)
		r.beginGeneration(generation, *l.Iteration)
	}
	return r.countIteration(l)
}

// beginGeneration opens a generation that goes on with iteration from: what an earlier
// one ran beyond it is run again.
func (r *records) beginGeneration(generation uint64, from int64) {
	if r.first == falcon.NoIteration {
		r.first = r.done
	}
	from = min(from, int64(len(r.rows)))
	r.rows, r.seen, r.cpuMs, r.endNs = r.rows[:from], r.seen[:from], r.cpuMs[:from], r.endNs[:from]
	r.done = min(r.done, from)
	r.generation = generation
}

// countIteration adds a rank's iteration to its row.
func (r *records) countIteration(l line) bool {
	i := *l.Iteration
	r.growRows(i + 1)
	r.cpuMs[i] += l.CPUMs
	r.endNs[i] = max(r.endNs[i], l.EndNs)
	row := &r.rows[i]
	row.Ms = max(row.Ms, l.Ms-l.PausedMs)
	row.PausedMs = max(row.PausedMs, l.PausedMs)
	row.OrderMs = max(row.OrderMs, l.OrderMs)
	if l.Rank == 0 && l.Loss != nil {
		row.Loss = *l.Loss
		row.Sample = l.Sample
	}
	r.seen[i]++
	before := r.done
	for r.done < int64(len(r.seen)) && r.seen[r.done] >= r.world {
		r.done++
		r.dateRestart()
	}
	return r.done > before
}

// growRows makes room for rows below n.
func (r *records) growRows(n int64) {
	for int64(len(r.rows)) < n {
		r.rows = append(r.rows, Iteration{
			Index:      int64(len(r.rows)),
			Generation: r.generation,
		})
		r.seen = append(r.seen, 0)
		r.cpuMs = append(r.cpuMs, 0)
		r.endNs = append(r.endNs, 0)
	}
}

// cpuPerIteration is what all ranks' processes used per iteration, in ms, after
// the first ones: starting up is not the job's steady cost. Later generations
// start their clocks again, and are left out.
func (r *records) cpuPerIteration() float64 {
	const skip = 10
	first := int64(skip)
	last := r.done - 1
	if r.first != falcon.NoIteration {
		last = r.first - 1
	}
	if last <= first || last >= int64(len(r.cpuMs)) {
		return 0
	}
	return (r.cpuMs[last] - r.cpuMs[first]) / float64(last-first)
}
