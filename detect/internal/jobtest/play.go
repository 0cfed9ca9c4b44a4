package jobtest

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

type kind int

const (
	compute kind = iota
	collective
	send
	recv
)

// op is one entry of a rank's stream.
type op struct {
	kind  kind
	ms    float64 // compute
	comm  uint64
	op    falcon.Op
	bytes int64
	peer  int // in the communicator, for send and recv
	tag   int // distinguishes messages: micro-batch, negative for gradients
	other falcon.Rank
}

// timed is one op as it ran: host enter, device start and end.
type timed struct {
	op
	enter, start, end float64
	ordinal           uint64
}

// playing is one iteration under way.
type playing struct {
	job     *Job
	ops     [][]op
	at      []int
	host    []float64
	device  []float64
	ran     [][]timed
	arrived map[meeting]map[falcon.Rank]float64
	sent    map[message]float64
	nth     map[call]int
	end     float64
}

type meeting struct {
	comm uint64
	nth  int
}

type message struct {
	from, to falcon.Rank
	tag      int
}

// play runs one iteration: streams advance until all are done.
func (j *Job) play() *playing {
	world := j.Layout.World()
	j.draw()
	p := &playing{
		job: j, ops: make([][]op, world), at: make([]int, world),
		host: make([]float64, world), device: make([]float64, world), ran: make([][]timed, world),
		arrived: map[meeting]map[falcon.Rank]float64{}, sent: map[message]float64{}, nth: map[call]int{},
	}
	for r := range p.ops {
		p.ops[r] = j.program(falcon.Rank(r))
	}
	if j.Hiccup > 0 && j.rng.Float64() < j.Hiccup {
		r := j.rng.IntN(world)
		p.ops[r] = slices.Insert(p.ops[r], len(p.ops[r])/2, op{kind: compute, ms: 40})
	}
	for moved := true; moved; {
		moved = false
		for r := range p.ops {
			for p.at[r] < len(p.ops[r]) && p.step(falcon.Rank(r)) {
				moved = true
			}
		}
	}
	for r := range p.ops {
		if p.at[r] < len(p.ops[r]) {
			panic("jobtest: schedule deadlocked")
		}
		p.end = math.Max(p.end, p.device[r])
	}
	return p
}

// step runs the next op of a rank, false when it has to wait for another rank.
func (p *playing) step(r falcon.Rank) bool {
	o := p.ops[r][p.at[r]]
	enter := p.host[r] + p.job.launch(r)
	start := math.Max(p.device[r], enter)
	end := start
	switch o.kind {
	case compute:
		p.compute(r, o.ms)
		p.at[r]++
		return true
	case send:
		p.sent[message{r, o.other, o.tag}] = start
		end = start + 0.01
	case recv:
		sent, ok := p.sent[message{o.other, r, o.tag}]
		if !ok {
			return false
		}
		end = math.Max(start, sent) + p.job.noisy(p.job.PPMs*p.job.slowest(r, o.other))
	case collective:
		last, ok := p.meet(r, o.comm, start)
		if !ok {
			return false
		}
		end = math.Max(start, last)
	}
	p.host[r], p.device[r] = enter, end
	p.job.calls[call{r, o.comm}]++
	p.ran[r] = append(p.ran[r], timed{op: o, enter: enter, start: start, end: end, ordinal: p.job.calls[call{r, o.comm}] - 1})
	p.at[r]++
	return true
}

// compute runs a pass: the host enqueues its kernels one by one.
func (p *playing) compute(r falcon.Rank, ms float64) {
	for range kernels {
		p.host[r] += p.job.launch(r)
		p.device[r] = math.Max(p.device[r], p.host[r]) + p.job.noisy(ms/kernels)
	}
}

// meet registers a rank at a collective and says when it ends, once all
// members are there: all members end together.
func (p *playing) meet(r falcon.Rank, comm uint64, start float64) (float64, bool) {
	k := meeting{comm, p.nth[call{r, comm}]}
	if p.arrived[k] == nil {
		p.arrived[k] = map[falcon.Rank]float64{}
	}
	p.arrived[k][r] = start
	members := p.job.members(r, comm)
	end := 0.0
	for _, q := range members {
		at, ok := p.arrived[k][q]
		if !ok {
			return 0, false
		}
		end = math.Max(end, at)
	}
	if p.arrived[k][-1] == 0 {
		p.arrived[k][-1] = end + p.job.transfer(comm, members)
	}
	p.nth[call{r, comm}]++
	return p.arrived[k][-1], true
}

func (j *Job) members(r falcon.Rank, comm uint64) []falcon.Rank {
	for _, c := range j.Comms[r] {
		if c.ID == comm {
			return j.Layout.Peers(r, c.Dimension)
		}
	}
	return nil
}

func (j *Job) transfer(comm uint64, members []falcon.Rank) float64 {
	if comm == WorldComm {
		return j.noisy(0.05)
	}
	base := j.DPMs
	for _, c := range j.Comms[members[0]] {
		if c.ID == comm && c.Dimension == falcon.DimTP {
			base = j.TPMs
		}
	}
	worst := 1.0
	for i, r := range members {
		worst = math.Max(worst, j.slowest(r, members[(i+1)%len(members)]))
	}
	return j.noisy(base * worst)
}

// slowest is how much longer the link between two ranks takes.
func (j *Job) slowest(a, b falcon.Rank) float64 {
	x, y := j.Placement[a].Node(), j.Placement[b].Node()
	if x == y {
		return 1
	}
	if f := j.Link[falcon.NewLink(x, y)]; f > 0 {
		return 1 / f
	}
	return 1
}

func (j *Job) launch(r falcon.Rank) float64 {
	if s := j.Share[j.Placement[r].Node()]; s > 0 {
		return j.LaunchMs / s
	}
	return j.LaunchMs
}

func (j *Job) noisy(ms float64) float64 {
	return ms * (1 + j.Noise*max(-3, min(3, j.rng.NormFloat64())))
}

// measure adds an iteration to a rank's profile as the hook would: calls as
// the device saw them. It returns the self time: the rest of the iteration.
func (p *playing) measure(q *falcon.RankProfile, r falcon.Rank, offset float64) float64 {
	self := p.device[r]
	for _, t := range p.ran[r] {
		self -= t.end - t.start
		q.Calls = append(q.Calls, falcon.CallTiming{
			Comm: t.comm, Ordinal: t.ordinal, Op: t.op.op, Peer: t.peer, Bytes: t.bytes,
			StartMs: offset + t.start, DurationMs: t.end - t.start, QueueMs: t.start - t.enter,
		})
	}
	return self
}

func medianQueue(calls []falcon.CallTiming) float64 {
	q := make([]float64, len(calls))
	for i, c := range calls {
		q[i] = c.QueueMs
	}
	return falcon.Median(q)
}

// program is a rank's stream for one iteration: 1F1B, then the gradient
// all-reduce, then the vote.
func (j *Job) program(r falcon.Rank) []op {
	at := j.Layout.Coord(r)
	m := j.MicroBatches[at.DP]
	warm := min(j.Layout.PP-at.PP-1, m)
	var ops []op
	f, b := 0, 0
	for range warm {
		ops = j.forward(ops, r, f)
		f++
	}
	for b < m {
		if f < m {
			ops = j.forward(ops, r, f)
			f++
		}
		ops = j.backward(ops, r, b)
		b++
	}
	for _, c := range j.Comms[r] {
		if c.Dimension == falcon.DimDP {
			ops = append(ops, op{kind: collective, comm: c.ID, op: falcon.OpAllReduce, bytes: dpBytes, peer: -1})
		}
	}
	if j.StepMs > 0 {
		ops = append(ops, op{kind: compute, ms: j.StepMs / j.clockOf(r)})
	}
	return append(ops, op{kind: collective, comm: WorldComm, op: falcon.OpAllReduce, bytes: 64, peer: -1})
}

func (j *Job) forward(ops []op, r falcon.Rank, mb int) []op {
	ops = j.message(ops, recv, r, -1, mb+1)
	ops = j.pass(ops, r, j.ForwardMs*j.lengthOf(r, mb))
	return j.message(ops, send, r, +1, mb+1)
}

func (j *Job) backward(ops []op, r falcon.Rank, mb int) []op {
	ops = j.message(ops, recv, r, +1, -mb-1)
	ops = j.pass(ops, r, 2*j.ForwardMs*j.lengthOf(r, mb))
	return j.message(ops, send, r, -1, -mb-1)
}

// draw gives the micro-batches of an iteration their lengths.
func (j *Job) draw() {
	j.work = nil
	if j.Lengths <= 0 {
		return
	}
	for _, m := range j.MicroBatches {
		of := make([]float64, m)
		for i := range of {
			of[i] = max(0.2, 1+j.Lengths*j.rng.NormFloat64())
		}
		j.work = append(j.work, of)
	}
}

func (j *Job) lengthOf(r falcon.Rank, mb int) float64 {
	if replica := j.Layout.Replica(r); replica < len(j.work) {
		return j.work[replica][mb]
	}
	return 1
}

// pass is compute on the rank's device, then the tensor-parallel all-reduce.
func (j *Job) pass(ops []op, r falcon.Rank, ms float64) []op {
	ms /= j.clockOf(r)
	if stage := j.Layout.Coord(r).PP; stage < len(j.Load) {
		ms *= j.Load[stage]
	}
	ops = append(ops, op{kind: compute, ms: ms})
	for _, c := range j.Comms[r] {
		if c.Dimension == falcon.DimTP {
			ops = append(ops, op{kind: collective, comm: c.ID, op: falcon.OpAllReduce, bytes: tpBytes, peer: -1})
		}
	}
	return ops
}

// clockOf is the share of its nominal clock that a rank's device runs at.
func (j *Job) clockOf(r falcon.Rank) float64 {
	if c := j.Clock[j.Placement[r]]; c > 0 {
		return c
	}
	return 1
}

// message is a send to, or a receive from, the neighbour stage, if there is
// one.
func (j *Job) message(ops []op, k kind, r falcon.Rank, step, tag int) []op {
	at := j.Layout.Coord(r)
	at.PP += step
	if at.PP < 0 || at.PP >= j.Layout.PP {
		return ops
	}
	other := j.Layout.RankOf(at)
	o := op{kind: k, op: falcon.OpSend, bytes: ppBytes, peer: at.PP, tag: tag, other: other}
	if k == recv {
		o.op = falcon.OpRecv
	}
	for _, c := range j.Comms[r] {
		if c.Dimension == falcon.DimPP {
			o.comm = c.ID
		}
	}
	return append(ops, o)
}
