package flow

// Op names an operation of a graph.
type Op int32

// Graph is one iteration: operations, and what each needs to have ended before
// it begins. Operations never wait for anything else, so that the order on a
// device is part of the graph.
type Graph struct {
	nodes   []node
	scratch *run // of the last run
}

// node is a delay, and then for a transfer its bytes.
type node struct {
	ms   float64
	mb   float64
	uses []Use
	next []Op
	deps int32
}

// Compute adds an operation that takes so many ms.
func (g *Graph) Compute(ms float64, after ...Op) Op {
	return g.addNode(node{ms: ms}, after)
}

// Transfer adds a flow of so many MB, which begins latencyMs after what it needs.
func (g *Graph) Transfer(latencyMs, mb float64, uses []Use, after ...Op) Op {
	return g.addNode(node{ms: latencyMs, mb: mb, uses: uses}, after)
}

// Join adds an operation that takes no time.
func (g *Graph) Join(after ...Op) Op { return g.Compute(0, after...) }

func (g *Graph) addNode(n node, after []Op) Op {
	op := Op(len(g.nodes)) //#nosec G115 -- graphs have far fewer operations
	g.nodes = append(g.nodes, n)
	g.After(op, after...)
	return op
}

// After adds what op needs.
func (g *Graph) After(op Op, needs ...Op) {
	for _, n := range needs {
		g.nodes[n].next = append(g.nodes[n].next, op)
		g.nodes[op].deps++
	}
}

// SetMs changes what a computation takes, for the next run.
func (g *Graph) SetMs(op Op, ms float64) {
	g.nodes[op].ms = ms
}

// Len is the number of operations.
func (g *Graph) Len() int { return len(g.nodes) }

// Times is when each operation began and ended.
type Times struct {
	Start, End []float64
	Last       float64 // end of the last one
}

// Run plays the graph on links of these capacities. It panics where operations
// wait for each other in a circle. The times are valid until the next run.
func (g *Graph) Run(capacity []float64) Times {
	r := g.newRun(capacity)
	for i := range g.nodes {
		if r.waits[i] = g.nodes[i].deps; r.waits[i] == 0 {
			r.beginOp(Op(i)) //#nosec G115 -- see addNode
		}
	}
	for len(r.events) > 0 {
		r.playInstant()
	}
	if r.ended != len(g.nodes) {
		panic("flow: operations wait for each other in a circle")
	}
	r.times.Last = r.now
	return r.times
}

// newRun is an empty run, in the memory of the last one where that fits.
func (g *Graph) newRun(capacity []float64) *run {
	r := g.scratch
	if r == nil || len(r.waits) != len(g.nodes) || len(r.on) != len(capacity) {
		n := len(g.nodes)
		r = &run{
			g:     g,
			waits: make([]int32, n),
			flows: make([]active, n),
			on:    make([][]Op, len(capacity)),
			dirty: make([]bool, len(capacity)),
			seen:  make([]bool, n),
			times: Times{Start: make([]float64, n), End: make([]float64, n)},
		}
		g.scratch = r
	}
	r.sharing, r.now, r.ended, r.events = newSharing(capacity), 0, 0, r.events[:0]
	clear(r.flows)
	return r
}

// run is one run of a graph.
type run struct {
	g       *Graph
	sharing *sharing
	now     float64
	events  events
	waits   []int32
	flows   []active
	on      [][]Op // by link: flows under way
	dirty   []bool // by link: a flow began or ended on it in this instant
	touched []int  // those links
	seen    []bool // by op: it is in batch
	batch   []Op   // flows whose rates are computed again
	ended   int
	times   Times
}

// active is a flow under way.
type active struct {
	left, rate, since float64
	version           uint32 // of its end's event
	underWay          bool
}

// event is the end of a delay or of a flow.
type event struct {
	at      float64
	op      Op
	version uint32 // 0 = the delay
}

// events is a heap by time, then by operation.
type events []event

func (e events) before(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].op < e[j].op
}

func (e *events) add(ev event) {
	*e = append(*e, ev)
	h := *e
	for i := len(h) - 1; i > 0 && h.before(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (e *events) takeFirst() event {
	h := *e
	first, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < n && h.before(child, least) {
				least = child
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*e = h
	return first
}

// playInstant plays all that happens at the next time, then shares the links again.
func (r *run) playInstant() {
	r.now = r.events[0].at
	for len(r.events) > 0 && r.events[0].at == r.now {
		ev := r.events.takeFirst()
		switch f := &r.flows[ev.op]; {
		case ev.version == 0 && r.g.nodes[ev.op].mb > 0:
			r.beginFlow(ev.op)
		case ev.version == 0:
			r.endOp(ev.op)
		case f.underWay && f.version == ev.version:
			r.endFlow(ev.op)
		}
	}
	r.shareAgain()
}

func (r *run) beginOp(op Op) {
	r.times.Start[op] = r.now
	r.events.add(event{at: r.now + r.g.nodes[op].ms, op: op})
}

func (r *run) endOp(op Op) {
	r.times.End[op] = r.now
	r.ended++
	for _, n := range r.g.nodes[op].next {
		if r.waits[n]--; r.waits[n] == 0 {
			r.beginOp(n)
		}
	}
}

func (r *run) beginFlow(op Op) {
	n := &r.g.nodes[op]
	if len(n.uses) == 0 {
		r.endOp(op)
		return
	}
	r.flows[op] = active{left: n.mb, since: r.now, underWay: true}
	for _, u := range n.uses {
		r.on[u.Link] = append(r.on[u.Link], op)
		r.touch(u.Link)
	}
}

func (r *run) endFlow(op Op) {
	r.flows[op].underWay = false
	for _, u := range r.g.nodes[op].uses {
		list := r.on[u.Link]
		for i, o := range list {
			if o == op {
				list[i] = list[len(list)-1]
				r.on[u.Link] = list[:len(list)-1]
				break
			}
		}
		r.touch(u.Link)
	}
	r.endOp(op)
}

func (r *run) touch(link int) {
	if !r.dirty[link] {
		r.dirty[link] = true
		r.touched = append(r.touched, link)
	}
}

// shareAnew finds the rates of all flows that share a link, directly or through
// others, with one that began or ended. The rates of the rest don't change.
func (r *run) shareAgain() {
	if len(r.touched) == 0 {
		return
	}
	r.batch = r.batch[:0]
	for i := 0; i < len(r.touched); i++ { // it grows on the way
		for _, op := range r.on[r.touched[i]] {
			if r.seen[op] {
				continue
			}
			r.seen[op] = true
			r.batch = append(r.batch, op)
			for _, u := range r.g.nodes[op].uses {
				r.touch(u.Link)
			}
		}
	}
	r.sharing.flows = r.sharing.flows[:0]
	for _, op := range r.batch {
		r.sharing.flows = append(r.sharing.flows, r.g.nodes[op].uses)
	}
	for i, rate := range r.sharing.fillRates() {
		r.setRate(r.batch[i], rate)
		r.seen[r.batch[i]] = false
	}
	for _, l := range r.touched {
		r.dirty[l] = false
	}
	r.touched = r.touched[:0]
}

func (r *run) setRate(op Op, rate float64) {
	f := &r.flows[op]
	if rate == f.rate {
		return
	}
	f.left = max(0, f.left-f.rate*(r.now-f.since))
	f.rate, f.since = rate, r.now
	f.version++
	if rate > 0 {
		r.events.add(event{at: r.now + f.left/rate, op: op, version: f.version})
	}
}
