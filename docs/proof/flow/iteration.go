package flow

import (
	"cmp"
	"slices"
)

// Iteration makes the graph of a job's iteration on a network as it is.
func (n *Network) Iteration(j Job) *Iteration {
	j.Chunks, j.Buckets = max(1, j.Chunks), max(1, j.Buckets)
	if j.Stages == 1 {
		j.Chunks = 1
	}
	it := &Iteration{job: j, net: n}
	b := builder{
		Iteration: it,
		passesOf:  make([][]passEnds, len(j.At)),
		last:      make([]Op, len(j.At)),
		buckets:   make([]Op, len(j.At)*j.Chunks*j.Buckets),
	}
	for s := range j.Stages {
		for d := range j.Replicas {
			b.addStage(d, s)
		}
	}
	b.addMessages()
	for s := range j.Stages {
		for lane := range j.Lanes {
			b.addSums(lane, s)
		}
	}
	return it
}

// builder makes an iteration's graph.
type builder struct {
	*Iteration
	passesOf [][]passEnds // by rank, and by passIndex
	last     []Op         // by rank: its last pass's end
	buckets  []Op         // by bucketIndex: its gradients are there
}

// passEnds are a pass's first operation and its end, and what its rank does before.
type passEnds struct {
	begin, end, before Op
	hasBefore          bool
}

// passIndex is where a pass of a rank with so many micro-batches is kept.
func (b *builder) passIndex(p pass, micro int) int {
	i := p.chunk*micro + p.micro
	if p.backward {
		i += b.job.Chunks * micro
	}
	return i
}

func (b *builder) bucketIndex(rank, chunk, bucket int) int {
	return (rank*b.job.Chunks+chunk)*b.job.Buckets + bucket
}

// addStage adds the passes of one stage of one replica, in order.
func (b *builder) addStage(replica, stage int) {
	j := b.job
	micro := j.Split[replica]
	ready := make([][]Op, j.Lanes) // by lane: what the next pass needs
	begins, ends := make([]Op, j.Lanes), make([]Op, j.Lanes)
	for lane := range j.Lanes {
		b.passesOf[j.Rank(lane, replica, stage)] = make([]passEnds, 2*j.Chunks*micro)
	}
	for _, p := range passOrder(stage, j.Stages, j.Chunks, micro) {
		ms := j.ForwardMs[stage] / float64(j.Chunks)
		if p.backward {
			ms = j.BackwardMs[stage] / float64(j.Chunks)
		}
		for lane := range j.Lanes {
			begins[lane], ends[lane] = b.addPass(
				j.Rank(lane, replica, stage),
				p,
				ms,
				p.backward && p.micro == micro-1,
				ready[lane],
			)
		}
		before := ready
		ready = b.addInner(replica, stage, ends, before)
		for lane := range j.Lanes {
			rank := j.Rank(lane, replica, stage)
			at := &b.passesOf[rank][b.passIndex(p, micro)]
			at.begin, at.end, b.last[rank] = begins[lane], ready[lane][0], ready[lane][0]
			if len(before[lane]) > 0 {
				at.before, at.hasBefore = before[lane][0], true
			}
		}
	}
}

// addPass adds the computation of a pass; a chunk's last backward pass in as many
// parts as there are buckets, each of which makes one bucket's gradients.
func (b *builder) addPass(rank int, p pass, ms float64, final bool, after []Op) (first, end Op) {
	parts := 1
	if final {
		parts = b.job.Buckets
	}
	for i := range parts {
		op := b.graph.Compute(ms/float64(parts), after...)
		b.passes = append(b.passes, passOp{op, rank, ms / float64(parts)})
		if i == 0 {
			first = op
		}
		if final {
			b.buckets[b.bucketIndex(rank, p.chunk, i)] = op
		}
		after, end = []Op{op}, op
	}
	return first, end
}

// addInner adds the lanes' communication in a pass, and returns by lane what ends it.
func (b *builder) addInner(replica, stage int, ends []Op, before [][]Op) [][]Op {
	j := b.job
	at := slices.Clone(ends)
	for _, in := range j.Inner {
		for first := range j.Lanes {
			if first/in.Stride%in.Size != 0 {
				continue
			}
			c := Collective{MB: in.MB}
			var after, lanes []int
			for i := range in.Size {
				lane := first + i*in.Stride
				lanes = append(lanes, lane)
				c.Members = append(c.Members, j.At[j.Rank(lane, replica, stage)])
				after = append(after, int(at[lane]))
			}
			b.addAmong(in, c, lanes, after, at, before)
		}
	}
	out := make([][]Op, j.Lanes)
	for lane := range out {
		out[lane] = []Op{at[lane]}
	}
	return out
}

// addAmong adds one group's communication. What goes beside the computation
// begins when all members have ended what was before.
func (b *builder) addAmong(in Inner, c Collective, lanes, after []int, at []Op, before [][]Op) {
	var needs []Op
	for i, lane := range lanes {
		if in.Beside {
			needs = append(needs, before[lane]...)
		} else {
			needs = append(needs, Op(after[i])) //#nosec G115 -- it was an Op
		}
	}
	var end Op
	if in.Exchange {
		end = b.graph.Exchange(b.net, c, needs...)
	} else {
		end = b.graph.Ring(b.net, c, needs...)
	}
	for _, lane := range lanes {
		if in.Beside {
			at[lane] = b.graph.Join(at[lane], end)
		} else {
			at[lane] = end
		}
	}
}

// addMessages joins each pass to the one before it in its direction.
func (b *builder) addMessages() {
	j := b.job
	for s := range j.Stages {
		for d := range j.Replicas {
			for c := range j.Chunks {
				for k := range j.Split[d] {
					b.addMessage(d, s, c, k, 1)
					b.addMessage(d, s, c, k, -1)
				}
			}
		}
	}
}

// addMessage adds what a pass sends on: activations (step 1) or their gradients
// (−1), to the next stage that way, or to the next chunk at the pipeline's ends.
func (b *builder) addMessage(replica, stage, chunk, micro, step int) {
	j := b.job
	virtual := chunk*j.Stages + stage + step
	if virtual < 0 || virtual >= j.Chunks*j.Stages {
		return
	}
	toStage, toChunk := virtual%j.Stages, virtual/j.Stages
	for lane := range j.Lanes {
		m := messageOp{
			from: j.Rank(lane, replica, stage),
			to:   j.Rank(lane, replica, toStage),
		}
		to := b.passesOf[m.to][b.passIndex(pass{toChunk, micro, step < 0}, j.Split[replica])]
		m.made = b.passesOf[m.from][b.passIndex(pass{chunk, micro, step < 0}, j.Split[replica])].end
		m.posted, m.hasPosted = to.before, to.hasBefore
		needs := []Op{m.made}
		if m.hasPosted && !j.Eager {
			needs = append(needs, m.posted)
		}
		m.op = b.graph.Send(
			b.net,
			j.At[m.from],
			j.At[m.to],
			j.ActivationMB,
			needs...,
		)
		b.graph.After(to.begin, m.op)
		b.messages = append(b.messages, m)
	}
}

// addSums adds the reductions of one stage's lane over the replicas, bucket after
// bucket as a device queues them, and the optimizer behind them.
func (b *builder) addSums(lane, stage int) {
	j := b.job
	var ranks []int
	c := Collective{
		MB:       j.GradientMB[stage] / float64(j.Chunks*j.Buckets),
		Channels: j.Channels,
	}
	for d := range j.Replicas {
		ranks = append(ranks, j.Rank(lane, d, stage))
		c.Members = append(c.Members, j.At[ranks[d]])
	}
	var before []Op
	for chunk := range j.Chunks {
		for bucket := range j.Buckets {
			s := sumOp{ranks: ranks, mb: c.MB}
			for _, r := range ranks {
				ready := b.last[r]
				if !j.Serial {
					ready = b.buckets[b.bucketIndex(r, j.Chunks-1-chunk, bucket)]
				}
				s.ready = append(s.ready, ready)
			}
			needs := append(slices.Clone(s.ready), before...)
			if len(before) > 0 {
				s.before, s.hasBefore = before[0], true
			}
			if j.Tree {
				s.op = b.graph.Tree(b.net, c, needs...)
			} else {
				s.op = b.graph.Ring(b.net, c, needs...)
			}
			before = []Op{s.op}
			if len(ranks) > 1 && c.MB > 0 {
				b.sums = append(b.sums, s)
			}
		}
	}
	for _, r := range ranks {
		b.rests = append(b.rests, b.graph.Compute(j.OptimizerMs, append(before, b.last[r])...))
	}
}

// calls lists what each rank's device saw of its communication.
func (it *Iteration) calls(t Times) [][]Call {
	out := make([][]Call, len(it.job.At))
	for _, m := range it.messages {
		posted := 0.0
		if m.hasPosted {
			posted = t.End[m.posted]
		}
		mb := it.job.ActivationMB
		out[m.from] = append(out[m.from], Call{CallSend, m.to, mb, t.End[m.made], t.End[m.op]})
		out[m.to] = append(out[m.to], Call{CallReceive, m.from, mb, posted, max(posted, t.End[m.op])})
	}
	for _, s := range it.sums {
		for i, r := range s.ranks {
			start := t.End[s.ready[i]]
			if s.hasBefore {
				start = max(start, t.End[s.before])
			}
			out[r] = append(out[r], Call{CallSum, -1, s.mb, start, t.End[s.op]})
		}
	}
	for _, calls := range out {
		slices.SortStableFunc(calls, func(a, b Call) int {
			return cmp.Compare(a.Start, b.Start)
		})
	}
	return out
}
