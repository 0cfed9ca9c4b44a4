package cluster

import (
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"time"
)

// epoch is the time by the engine's clock at which every run begins.
var epoch = time.Unix(1_800_000_000, 0)

// event is something that happens at a moment; equal moments keep their order.
type event struct {
	at time.Duration
	no uint64
	do func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].no < q[j].no
}

func (q events) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
}

func (q *events) Push(x any) {
	*q = append(*q, x.(event))
}

func (q *events) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// linesKept bounds the trace that a failing run prints.
const linesKept = 400000

// World is the clock, the queue of what will happen, the only source of chance,
// and the trace of what did.
type World struct {
	now   time.Duration
	queue events
	no    uint64
	rng   *rand.Rand
	sum   hash.Hash
	lines []string
	bad   []string // what broke an invariant

	frames bool // every frame is logged
}

func newWorld(seed uint64) *World {
	return &World{rng: rand.New(rand.NewPCG(seed, 0xfa1c04)), sum: sha256.New()}
}

func (w *World) after(d time.Duration, do func()) {
	w.no++
	heap.Push(&w.queue, event{w.now + max(d, 0), w.no, do})
}

// between draws a duration.
func (w *World) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

// run plays until a moment, or until something is bad.
func (w *World) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until && len(w.bad) == 0 {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	if len(w.bad) == 0 {
		w.now = until
	}
}

// log adds a line to the trace.
func (w *World) log(format string, args ...any) {
	line := fmt.Sprintf("%9.3f  ", w.now.Seconds()) + fmt.Sprintf(format, args...)
	w.sum.Write([]byte(line))
	w.lines = append(w.lines, line)
	if len(w.lines) > linesKept {
		w.lines = slices.Delete(w.lines, 0, linesKept/2)
	}
}

// violate notes a broken invariant; the run ends with it.
func (w *World) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.log("VIOLATION: %s", text)
	w.bad = append(w.bad, text)
}

func (w *World) hash() string {
	return hex.EncodeToString(w.sum.Sum(nil)[:8])
}
