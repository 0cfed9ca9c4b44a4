package jobtest

import (
	"slices"

	"github.com/failslow/falcon"
)

type kind int

const (
	compute kind = iota
	stop         // of the host
	collective
	send
	recv
)

// op is one entry of a rank's stream.
type op struct {
	kind  kind
	ms    float64 // compute
	lane  int     // the communicator, by its place among the rank's
	op    falcon.Op
	bytes int64
	peer  int // in the communicator, for send and recv
	mb    int // micro-batch of a message
	back  bool
	pass  bool // of a forward or backward pass
	other falcon.Rank
}

// timed is one op as it ran: host enter, device start and end.
type timed struct {
	op
	enter, start, end float64
	ordinal           uint64
}

// group is one communicator.
type group struct {
	id        uint64
	dimension falcon.Dimension
	ranks     []falcon.Rank
	worst     float64    // how much longer its slowest link takes, in this iteration
	meetings  [2]meeting // the open ones: no rank is further than one ahead of another
}

// meeting is one collective call of a group.
type meeting struct {
	arrived, left int
	last, end     float64
	ended         bool // end is known
}

// lane is a rank's place in a communicator.
type lane struct {
	group   *group
	calls   uint64
	nth     int  // of the next collective, this iteration
	arrived bool // at it
}

// playing is one iteration under way.
type playing struct {
	job    *Job
	ops    [][]op
	at     []int
	host   []float64
	device []float64
	ran    [][]timed
	sent   [][2][]float64 // per rank: when it sent each micro-batch's activation and gradient, -1 = not yet
	nodes  []falcon.Node
	launch []float64 // of a kernel, per rank
	clock  []float64 // share of nominal, per rank
	traces []Kernels // per rank
	end    float64
}

// play runs one iteration: streams advance until all are done.
func (j *Job) play() *playing {
	j.draw()
	p := &j.playing
	p.reset(j)
	for r := range p.ops {
		p.ops[r] = p.program(p.ops[r][:0], falcon.Rank(r))
	}
	if j.Hiccup > 0 && j.rng.Float64() < j.Hiccup {
		r := j.rng.IntN(len(p.ops))
		p.ops[r] = slices.Insert(p.ops[r], len(p.ops[r])/2, op{
			kind: compute,
			ms:   40,
		})
	}
	j.addStops(p)
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
		p.end = max(p.end, p.device[r])
	}
	p.end += j.SaveMs
	return p
}

// reset begins an iteration of the job as it is now.
func (p *playing) reset(j *Job) {
	world := j.Layout.World()
	if p.job != j || len(p.ops) != world {
		*p = playing{
			job:    j,
			ops:    make([][]op, world),
			at:     make([]int, world),
			host:   make([]float64, world),
			device: make([]float64, world),
			ran:    make([][]timed, world),
			sent:   make([][2][]float64, world),
			nodes:  make([]falcon.Node, world),
			launch: make([]float64, world),
			clock:  make([]float64, world),
			traces: make([]Kernels, world),
		}
	}
	p.end = 0
	for r := range world {
		p.at[r], p.host[r], p.device[r], p.ran[r], p.traces[r] = 0, 0, 0, p.ran[r][:0], Kernels{}
		p.nodes[r] = j.Placement[r].Node()
		p.launch[r], p.clock[r] = j.launch(p.nodes[r]), j.clockOf(falcon.Rank(r))
		for way := range p.sent[r] {
			p.sent[r][way] = p.sent[r][way][:0]
			for range j.MicroBatches[j.Layout.Replica(falcon.Rank(r))] + j.Evaluate {
				p.sent[r][way] = append(p.sent[r][way], -1)
			}
		}
	}
	for _, g := range j.groups {
		g.worst = 1
		if g.dimension == falcon.DimWorld || len(g.ranks) < 2 {
			continue
		}
		if len(j.Link) == 0 {
			continue
		}
		for _, e := range nodeEdges(g.ranks, j.Placement, j.Trees) {
			g.worst = max(g.worst, j.slowerBy(e[0], e[1]))
		}
	}
}

// step runs the next op of a rank, false when it has to wait for another rank.
func (p *playing) step(r falcon.Rank) bool {
	o := &p.ops[r][p.at[r]]
	switch o.kind {
	case compute:
		p.compute(r, o)
		p.at[r]++
		return true
	case stop:
		p.host[r] += o.ms
		p.at[r]++
		return true
	}
	enter := p.host[r] + p.launch[r]
	start := max(p.device[r], enter)
	end, way := start, 0
	if o.back {
		way = 1
	}
	switch o.kind {
	case send:
		p.sent[r][way][o.mb] = start
		end = start + 0.01
	case recv:
		sent := p.sent[o.other][way][o.mb]
		if sent < 0 {
			return false
		}
		end = max(start, sent) + p.job.noisy(p.job.PPMs*p.slowest(r, o.other))
	case collective:
		last, ok := p.meet(&p.job.lanes[r][o.lane], start)
		if !ok {
			return false
		}
		end = max(start, last)
		if o.pass && !o.back {
			p.traces[r].ForwardSpanMs += end - p.device[r]
		}
	}
	p.host[r], p.device[r] = enter, end
	if p.job.Blocking {
		p.host[r] = end
	}
	own := &p.job.lanes[r][o.lane]
	p.ran[r] = append(p.ran[r], timed{
		op:      *o,
		enter:   enter,
		start:   start,
		end:     end,
		ordinal: own.calls,
	})
	own.calls++
	p.at[r]++
	return true
}

// compute runs a pass: the host enqueues its kernels one by one.
func (p *playing) compute(r falcon.Rank, o *op) {
	from := p.device[r]
	busy := 0.0
	for range kernels {
		p.host[r] += p.launch[r]
		ms := p.job.noisy(o.ms / kernels)
		p.device[r] = max(p.device[r], p.host[r]) + ms
		busy += ms
	}
	p.traces[r].add(o, busy, kernels*p.launch[r], p.device[r]-from)
}

// meet registers a rank at a collective and says when it ends, once all
// members are there: all members end together.
func (p *playing) meet(own *lane, start float64) (float64, bool) {
	g := own.group
	m := &g.meetings[own.nth%2]
	if !own.arrived {
		own.arrived = true
		if m.arrived++; len(g.ranks) > 1 { // a lone rank waits for no one
			m.last = max(m.last, start)
		}
	}
	if m.arrived < len(g.ranks) {
		return 0, false
	}
	if !m.ended {
		m.end = m.last + p.job.transfer(g)
		m.ended = true
	}
	end := m.end
	own.nth++
	own.arrived = false
	if m.left++; m.left == len(g.ranks) {
		*m = meeting{}
	}
	return end, true
}

func (j *Job) transfer(g *group) float64 {
	switch g.dimension {
	case falcon.DimWorld:
		return j.noisy(0.05)
	case falcon.DimTP:
		return j.noisy(j.TPMs * g.worst)
	}
	return j.noisy(j.DPMs * g.worst)
}

// slowest is how much longer the link between two ranks takes.
func (p *playing) slowest(a, b falcon.Rank) float64 {
	return p.job.slowerBy(p.nodes[a], p.nodes[b])
}

// slowerBy is how much longer the link between two nodes takes.
func (j *Job) slowerBy(x, y falcon.Node) float64 {
	if x == y || len(j.Link) == 0 {
		return 1
	}
	if f := j.Link[falcon.NewLink(x, y)]; f > 0 {
		return 1 / f
	}
	return 1
}

// launch is how long a node's host takes for one kernel.
func (j *Job) launch(n falcon.Node) float64 {
	if s := j.Share[n]; s > 0 {
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
	q.Calls = slices.Grow(q.Calls, len(p.ran[r]))
	for i := range p.ran[r] {
		t := &p.ran[r][i]
		self -= t.end - t.start
		q.Calls = append(q.Calls, falcon.CallTiming{
			Comm:       p.job.lanes[r][t.lane].group.id,
			Ordinal:    t.ordinal,
			Op:         t.op.op,
			Peer:       t.peer,
			Bytes:      t.bytes,
			StartMs:    offset + t.start,
			DurationMs: t.end - t.start,
			QueueMs:    t.start - t.enter,
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
func (p *playing) program(ops []op, r falcon.Rank) []op {
	j := p.job
	at := j.Layout.Coord(r)
	m := j.MicroBatches[at.DP]
	warm := min(j.Layout.PP-at.PP-1, m)
	f, b := 0, 0
	for range warm {
		ops = p.forward(ops, r, f)
		f++
	}
	for b < m {
		if f < m {
			ops = p.forward(ops, r, f)
			f++
		}
		ops = p.backward(ops, r, b)
		b++
	}
	ops = p.collectives(ops, r, falcon.DimDP, dpBytes)
	if j.StepMs > 0 {
		ops = append(ops, op{kind: compute, ms: j.StepMs / p.clock[r]})
	}
	for mb := range j.Evaluate {
		ops = p.forward(ops, r, m+mb)
	}
	return p.collectives(ops, r, falcon.DimWorld, 64)
}

// collectives are an all-reduce on the rank's communicators of a dimension.
func (p *playing) collectives(ops []op, r falcon.Rank, d falcon.Dimension, bytes int64) []op {
	for i := range p.job.lanes[r] {
		if p.job.lanes[r][i].group.dimension == d {
			ops = append(ops, op{
				kind:  collective,
				lane:  i,
				op:    falcon.OpAllReduce,
				bytes: bytes,
				peer:  -1,
			})
		}
	}
	return ops
}

func (p *playing) forward(ops []op, r falcon.Rank, mb int) []op {
	ops = p.message(ops, recv, r, -1, mb, false)
	ops = p.pass(ops, r, mb, p.job.ForwardMs*p.job.lengthOf(r, mb), false)
	return p.message(ops, send, r, +1, mb, false)
}

func (p *playing) backward(ops []op, r falcon.Rank, mb int) []op {
	ops = p.message(ops, recv, r, +1, mb, true)
	ops = p.pass(ops, r, mb, 2*p.job.ForwardMs*p.job.lengthOf(r, mb), true)
	return p.message(ops, send, r, -1, mb, true)
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
	replica := j.Layout.Replica(r)
	if replica < len(j.work) && mb < len(j.work[replica]) {
		return j.work[replica][mb]
	}
	return 1
}

// pass is compute on the rank's device, then the tensor-parallel all-reduce.
func (p *playing) pass(ops []op, r falcon.Rank, mb int, ms float64, back bool) []op {
	ms /= p.clock[r]
	if stage := p.job.Layout.Coord(r).PP; stage < len(p.job.Load) {
		ms *= p.job.Load[stage]
	}
	from := len(ops)
	ops = p.collectives(
		append(ops, op{kind: compute, ms: ms}),
		r,
		falcon.DimTP,
		p.job.sizeOf(tpBytes, r, mb),
	)
	for i := from; i < len(ops); i++ {
		ops[i].pass, ops[i].back = true, back
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
func (p *playing) message(ops []op, k kind, r falcon.Rank, step, mb int, back bool) []op {
	at := p.job.Layout.Coord(r)
	at.PP += step
	if at.PP < 0 || at.PP >= p.job.Layout.PP {
		return ops
	}
	o := op{
		kind:  k,
		op:    falcon.OpSend,
		bytes: p.job.sizeOf(ppBytes, r, mb),
		peer:  at.PP,
		mb:    mb,
		back:  back,
		other: p.job.Layout.RankOf(at),
	}
	if k == recv {
		o.op = falcon.OpRecv
	}
	for i := range p.job.lanes[r] {
		if p.job.lanes[r][i].group.dimension == falcon.DimPP {
			o.lane = i
		}
	}
	return append(ops, o)
}
