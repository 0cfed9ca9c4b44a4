package jobtest

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/work"
)

// callNs is how long a host is in a communication call.
const callNs = 2000

// host is what the agent beside a rank keeps of its calls. It is the agent's own code: a
// sample says of the job's work what a real one would.
type host struct {
	tracker *work.Tracker
	beginNs int64
	micro   int // declared
}

// watch feeds a rank's calls of the newest iteration to the agent's code.
func (j *Job) watch(p *playing, r falcon.Rank) *falcon.Work {
	for len(j.hosts) < j.Layout.World() {
		j.hosts = append(j.hosts, &host{tracker: work.NewTracker()})
	}
	h := j.hosts[r]
	n := j.MicroBatches[j.Layout.Replica(r)]
	if n != h.micro && !j.Undeclared { // as an agent does
		h.micro = n
		h.tracker.Reset()
	}
	for i := range p.ran[r] {
		t := &p.ran[r][i]
		enter := h.beginNs + int64(t.enter*1e6)
		h.tracker.Add(work.Call{
			Comm:    j.lanes[r][t.lane].group.id,
			Op:      t.op.op,
			Peer:    int32(t.peer),
			Bytes:   t.bytes,
			EnterNs: enter,
			ExitNs:  enter + callNs,
		})
	}
	end := h.beginNs + int64(p.end*1e6)
	w := h.tracker.Close(h.beginNs, end, !j.Unmarked)
	h.beginNs = end
	return w
}

// addStops has hosts wait for their data, and one stop somewhere.
func (j *Job) addStops(p *playing) {
	for r, ms := range j.DataMs {
		if ms > 0 && int(r) < len(p.ops) {
			p.ops[r] = slices.Insert(p.ops[r], 0, op{kind: stop, ms: ms})
		}
	}
	if j.Garbage > 0 && j.rng.Float64() < j.Garbage {
		r := j.rng.IntN(len(p.ops))
		at := 1 + j.rng.IntN(max(1, len(p.ops[r])/2))
		p.ops[r] = slices.Insert(p.ops[r], at, op{
			kind: stop,
			ms:   j.GarbageMs * (0.7 + 0.6*j.rng.Float64()),
		})
	}
}

// sizeOf is a message's payload: as long as its micro-batch where messages are.
func (j *Job) sizeOf(bytes int64, r falcon.Rank, mb int) int64 {
	if !j.Sized {
		return bytes
	}
	return int64(float64(bytes) * j.lengthOf(r, mb))
}
