package meshtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Model is a transformer and its batch.
type Model struct {
	Layers, Hidden, Sequence, Vocabulary, MicroBatches int
}

// layerParams are the parameters of one layer, tensor by tensor, over tp ranks.
func (m Model) layerParams(tp int) []int64 {
	h := int64(m.Hidden)
	return []int64{
		h,
		h,
		3 * h * h / int64(tp),
		3 * h / int64(tp),
		h * h / int64(tp),
		h,
		h,
		h,
		4 * h * h / int64(tp),
		4 * h / int64(tp),
		4 * h * h / int64(tp),
		h,
	}
}

// buckets are the sizes in elements of a reduction of parameters in order.
func buckets(params []int64, first, most int64) []int64 {
	var out []int64
	sum := int64(0)
	for _, p := range params {
		sum += p
		limit := most
		if len(out) == 0 {
			limit = first
		}
		if sum >= limit {
			out = append(out, sum)
			sum = 0
		}
	}
	if sum > 0 {
		out = append(out, sum)
	}
	return out
}

// DDP is PyTorch's DistributedDataParallel: buckets of 25 MB, the first of 1 MB.
func DDP(world int, m Model) *Job {
	j := newJob(world)
	all := j.group("default_pg", ascending(world))
	params := []int64{int64(m.Hidden)}
	for range m.Layers {
		layer := m.layerParams(1)
		slices.Reverse(layer) // gradients come from the last one
		params = append(params, layer...)
	}
	params = append(params, int64(m.Vocabulary*m.Hidden))
	for _, n := range buckets(params, 1<<18, 25<<18) {
		j.all(all, falcon.OpAllReduce, 4*n)
	}
	j.all(all, falcon.OpAllReduce, 4) // the loss, for the log
	return j.finish()
}

func ascending(n int) []falcon.Rank {
	out := make([]falcon.Rank, n)
	for i := range out {
		out[i] = falcon.Rank(i)
	}
	return out
}

// Megatron is a job of Megatron-core. Sizes not given are 1; ETP is TP by default.
type Megatron struct {
	Model
	TP, CP, EP, ETP, DP, PP int
	Order                   string // default tp-cp-ep-dp-pp
	SequenceParallel        bool
	DistributedOptimizer    bool
	OverlapReduce           bool // buckets of 40 M elements instead of one
	AllGatherCP             bool // cp_comm_type all_gather instead of a ring
}

// rankGroups are the groups of ranks along some dimensions, by counting through all
// coordinates in order.
func rankGroups(order []string, size map[string]int, along ...string) [][]falcon.Rank {
	out := [][]falcon.Rank{}
	at := map[string]int{}
	byRest := map[string]int{}
	world := 1
	for _, d := range order {
		world *= size[d]
	}
	for r := range world {
		rest := ""
		n := r
		for _, d := range order {
			at[d] = n % size[d]
			n /= size[d]
			if !slices.Contains(along, d) {
				rest += fmt.Sprint(d, at[d], " ")
			}
		}
		i, known := byRest[rest]
		if !known {
			i = len(out)
			byRest[rest] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], falcon.Rank(r))
	}
	return out
}

// Job plays one iteration.
func (g Megatron) Job() *Job {
	for _, n := range []*int{&g.TP, &g.CP, &g.EP, &g.DP, &g.PP} {
		*n = max(*n, 1)
	}
	if g.ETP == 0 {
		g.ETP = g.TP
	}
	if g.Order == "" {
		g.Order = "tp-cp-ep-dp-pp"
	}
	p := &player{
		Megatron: g,
		Job:      newJob(g.TP * g.CP * g.DP * g.PP),
		order:    strings.Split(g.Order, "-"),
		dense: map[string]int{
			"tp": g.TP,
			"cp": g.CP,
			"ep": 1,
			"dp": g.DP,
			"pp": g.PP,
		},
		expert: map[string]int{
			"tp": g.ETP,
			"cp": 1,
			"ep": g.EP,
			"dp": g.TP * g.CP * g.DP / g.ETP / g.EP,
			"pp": g.PP,
		},
	}
	p.makeGroups()
	p.inside = true
	for range g.MicroBatches {
		p.microBatch()
	}
	p.inside = false
	p.gradients()
	return p.finish()
}

// player plays an iteration of Megatron.
type player struct {
	Megatron
	*Job
	order         []string
	dense, expert map[string]int

	tp, cp, dp, pp, ep, edp, embedding []communicator
	world                              communicator
	routed                             int
}

func (p *player) made(name string, groups [][]falcon.Rank) []communicator {
	var out []communicator
	for _, g := range groups {
		out = append(out, p.group(name, g))
	}
	return out
}

func (p *player) makeGroups() {
	p.world = p.group("default_pg", ascending(p.World))
	p.dp = p.made("dp_cp", rankGroups(p.order, p.dense, "dp", "cp"))
	p.made("dp", rankGroups(p.order, p.dense, "dp"))
	p.cp = p.made("cp", rankGroups(p.order, p.dense, "cp"))
	p.made("mp", rankGroups(p.order, p.dense, "tp", "pp"))
	p.tp = p.made("tp", rankGroups(p.order, p.dense, "tp"))
	p.pp = p.made("pp", rankGroups(p.order, p.dense, "pp"))
	p.made("tp_dp_cp", rankGroups(p.order, p.dense, "tp", "dp", "cp"))
	p.ep = p.made("ep", rankGroups(p.order, p.expert, "ep"))
	p.edp = p.made("edp", rankGroups(p.order, p.expert, "dp"))
	if p.PP > 1 {
		for _, c := range p.pp {
			p.embedding = append(p.embedding, p.group("embd", []falcon.Rank{
				c.ranks[0],
				c.ranks[len(c.ranks)-1],
			}))
		}
	}
}

// stage is that of a group's ranks.
func (p *player) stage(c communicator) int {
	for _, g := range p.pp {
		if i := slices.Index(g.ranks, c.ranks[0]); i >= 0 {
			return i
		}
	}
	return -1
}

func (p *player) microBatch() {
	tokens := int64(p.Sequence / p.CP)
	activation := 2 * tokens * int64(p.Hidden)
	last := p.PP - 1
	for _, c := range p.tp {
		fields := 1 // the attention mask
		if s := p.stage(c); s == 0 || s == last {
			fields = 5
		}
		for range fields {
			p.all(c, falcon.OpBroadcast, 8*tokens)
		}
		p.tensorCalls(c, activation)
	}
	for _, c := range p.cp {
		for range p.Layers / p.PP {
			p.contextCalls(c, activation/int64(p.TP))
		}
	}
	if p.EP > 1 {
		for _, c := range p.ep {
			for range p.Layers / p.PP {
				p.all(c, falcon.OpAllGather, int64(8*p.EP)) // how many tokens go where
				for range 4 {                               // dispatch and combine, forward and backward
					p.routed++
					p.allToAll(c, activation/int64(p.TP), p.routed)
				}
			}
		}
	}
	if p.SequenceParallel {
		activation /= int64(p.TP)
	}
	for _, c := range p.pp {
		for i := range last {
			p.send(c, i, i+1, activation)
			p.send(c, i+1, i, activation)
		}
	}
}

// tensorCalls are those of one tensor-parallel group in a micro-batch.
func (p *player) tensorCalls(c communicator, activation int64) {
	small := activation / int64(p.TP)
	for range p.Layers / p.PP {
		for range 2 { // attention and MLP
			if !p.SequenceParallel {
				p.all(c, falcon.OpAllReduce, activation)
				p.all(c, falcon.OpAllReduce, activation)
				continue
			}
			for _, op := range []falcon.Op{
				falcon.OpAllGather, falcon.OpReduceScatter, falcon.OpAllGather, falcon.OpAllGather,
				falcon.OpReduceScatter,
			} {
				p.all(c, op, small)
			}
		}
	}
	if p.stage(c) == 0 { // the embedding
		if p.SequenceParallel {
			p.all(c, falcon.OpReduceScatter, small)
			p.all(c, falcon.OpAllGather, small)
		} else {
			p.all(c, falcon.OpAllReduce, activation)
		}
	}
	if p.stage(c) == p.PP-1 { // the loss over a divided vocabulary
		for range 3 {
			p.all(c, falcon.OpAllReduce, int64(4*p.Sequence/p.CP))
		}
		if p.SequenceParallel {
			p.all(c, falcon.OpAllGather, small)
			p.all(c, falcon.OpReduceScatter, small)
		} else {
			p.all(c, falcon.OpAllReduce, activation)
		}
	}
}

// contextCalls are those of one context-parallel group in one layer of a micro-batch.
func (p *player) contextCalls(c communicator, keys int64) {
	n := len(c.ranks)
	if p.AllGatherCP {
		p.all(c, falcon.OpAllGather, 2*keys)
		p.all(c, falcon.OpAllGather, 2*keys)
		p.all(c, falcon.OpReduceScatter, 2*keys)
		return
	}
	for range n - 1 {
		for i := range n {
			p.send(c, i, (i+1)%n, 2*keys) // keys and values
			p.send(c, i, (i+1)%n, 2*keys) // and in backward with their gradients
			p.send(c, i, (i+1)%n, 2*keys)
		}
	}
}

func (p *player) reduce(c communicator, params []int64) {
	whole := int64(0)
	for _, n := range params {
		whole += n
	}
	sizes := []int64{whole}
	if p.OverlapReduce {
		sizes = buckets(params, 40_000_000, 40_000_000)
	}
	for _, n := range sizes {
		if p.DistributedOptimizer {
			p.all(c, falcon.OpReduceScatter, 4*n/int64(len(c.ranks)))
			p.all(c, falcon.OpAllGather, 2*n/int64(len(c.ranks)))
		} else {
			p.all(c, falcon.OpAllReduce, 4*n)
		}
	}
}

func (p *player) gradients() {
	vocabulary := int64(p.Vocabulary * p.Hidden / p.TP)
	for _, c := range p.dp {
		var params []int64
		for range p.Layers / p.PP {
			params = append(params, p.layerParams(p.TP)...)
		}
		if s := p.stage(c); s == 0 || s == p.PP-1 {
			params = append(params, vocabulary)
		}
		p.reduce(c, params)
		p.all(c, falcon.OpAllReduce, 4) // the loss
	}
	if p.EP > 1 {
		for _, c := range p.edp {
			var params []int64
			for range p.Layers / p.PP {
				params = append(params,
					p.layerParams(p.ETP)[8],
					p.layerParams(p.ETP)[10],
				)
			}
			p.reduce(c, params)
		}
	}
	for _, c := range p.embedding {
		p.all(c, falcon.OpAllReduce, 4*vocabulary)
	}
	p.all(p.world, falcon.OpAllReduce, 8) // the norm
}

// FSDP is a job of torchtitan: FSDP2 over shard ranks, HSDP where there are replicas,
// tensor parallel with sequence parallel inside, pipeline stages outside.
type FSDP struct {
	Model
	TP, Shard, Replicas, PP int
	Keep                    bool // reshard_after_forward=False
}

// Job plays one iteration.
func (f FSDP) Job() *Job {
	for _, n := range []*int{&f.TP, &f.Shard, &f.Replicas, &f.PP} {
		*n = max(*n, 1)
	}
	order := []string{"tp", "shard", "replicate", "pp"}
	size := map[string]int{
		"tp":        f.TP,
		"shard":     f.Shard,
		"replicate": f.Replicas,
		"pp":        f.PP,
	}
	j := newJob(f.TP * f.Shard * f.Replicas * f.PP)
	world := j.group("default_pg", ascending(j.World))
	activation := int64(2 * f.Sequence * f.Hidden / f.TP)
	unit := int64(0)
	for _, n := range f.layerParams(f.TP * f.Shard) {
		unit += n
	}
	for range f.MicroBatches {
		j.inside = true
		for _, g := range rankGroups(order, size, "tp") {
			c := j.group("mesh_tp", g)
			for range f.Layers / f.PP {
				for range 2 {
					for _, op := range []falcon.Op{
						falcon.OpAllGather, falcon.OpReduceScatter, falcon.OpAllGather,
						falcon.OpReduceScatter, falcon.OpAllGather,
					} {
						j.all(c, op, activation)
					}
				}
			}
		}
		for _, g := range rankGroups(order, size, "shard") {
			f.shard(j, j.group("mesh_shard", g), unit)
		}
		for _, g := range rankGroups(order, size, "pp") {
			for i := range f.PP - 1 {
				j.send(j.group("mesh_pp", g), i, i+1, activation)
				j.send(j.group("mesh_pp", g), i+1, i, activation)
			}
		}
	}
	j.inside = false
	for range f.MicroBatches { // the gradient, which an adapter leaves to the last micro-batch
		for _, g := range rankGroups(order, size, "replicate") {
			for range f.Layers/f.PP + 1 {
				j.all(j.group("mesh_replicate", g), falcon.OpAllReduce, 4*unit)
			}
		}
	}
	j.all(world, falcon.OpAllReduce, 4)
	return j.finish()
}

// shard is what one shard group communicates in a micro-batch: its layers and the root.
func (f FSDP) shard(j *Job, c communicator, unit int64) {
	root := int64(f.Vocabulary * f.Hidden / f.TP / f.Shard)
	j.all(c, falcon.OpAllGather, 2*root)
	for range f.Layers / f.PP {
		j.all(c, falcon.OpAllGather, 2*unit)
		if !f.Keep {
			j.all(c, falcon.OpAllGather, 2*unit) // again in backward
		}
		j.all(c, falcon.OpReduceScatter, 4*unit)
	}
	j.all(c, falcon.OpReduceScatter, 4*root)
}
