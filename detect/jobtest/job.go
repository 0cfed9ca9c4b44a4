package jobtest

import (
	"math/rand/v2"

	"github.com/failslow/falcon"
)

// Job is a synthetic job. Fields may be changed between iterations.
type Job struct {
	Layout       falcon.Layout
	Placement    falcon.Placement
	Comms        map[falcon.Rank][]falcon.Comm
	MicroBatches []int // per replica

	ForwardMs float64 // device time of one forward pass of a stage, healthy; backward is twice it
	DPMs      float64 // transfer of one gradient all-reduce between nodes
	PPMs      float64 // transfer of one activation
	TPMs      float64 // transfer of one tensor-parallel all-reduce
	StepMs    float64 // device time of the optimizer's step, once an iteration; 0 = none
	LaunchMs  float64 // host time to enqueue one kernel
	Noise     float64 // relative deviation of kernels and transfers
	Hiccup    float64 // probability that an iteration has one rank stop for 40 ms

	Clock map[falcon.Device]float64 // share of nominal; absent = 1
	Share map[falcon.Node]float64   // of the CPU the hosts get; absent = 1
	Link  map[falcon.Link]float64   // share of bandwidth; absent = 1
	Load  []float64                 // factor on the work, per stage; nil = 1
	// Lengths is the relative deviation of the micro-batches' work, as of
	// sequences of different length: drawn again for each, the same in all
	// stages of its replica; 0 = all alike.
	Lengths float64

	OwnWork

	rng  *rand.Rand
	next int64
	// generation counts the sets of communicators.
	generation uint64
	groups     []*group    // the communicators
	lanes      [][]lane    // per rank: its place in each of its communicators, in the order of Comms
	work       [][]float64 // of this iteration's micro-batches, per replica
	playing    playing     // the newest iteration; its memory serves the next
	hosts      []*host
}

// OwnWork is what a job itself does or reports, whatever its hardware.
type OwnWork struct {
	DataMs     map[falcon.Rank]float64 // its host waits so long before its first call; absent = 0
	SaveMs     float64                 // all hosts stop behind the last call of an iteration
	Garbage    float64                 // probability that an iteration has one host stop for GarbageMs
	GarbageMs  float64
	Evaluate   int  // forward passes behind the training of every iteration
	Sized      bool // messages are as long as their micro-batch (Lengths)
	Undeclared bool // the number of micro-batches is not reported
	Unmarked   bool // no step marks: iterations are cut at calls
	Trees      bool // all-reduces go over NCCL's two trees, not a ring
	Blocking   bool // hosts wait for the device at every call
}

// Kernels per compute pass, and payloads of the communication calls.
const (
	kernels = 8
	dpBytes = 1 << 22
	ppBytes = 1 << 18
	tpBytes = 1 << 19
	// WorldComm is the communicator over all ranks, on which they vote.
	WorldComm = 1
)

// New makes a healthy job over nodes of equal size, ranks laid out in order.
func New(l falcon.Layout, nodes, microBatches int, seed uint64) *Job {
	j := &Job{
		Layout:    l,
		ForwardMs: 5,
		DPMs:      3,
		PPMs:      0.2,
		TPMs:      0.1,
		LaunchMs:  0.1,
		Noise:     0.01,
		Clock:     map[falcon.Device]float64{},
		Share:     map[falcon.Node]float64{},
		Link:      map[falcon.Link]float64{},
		rng:       rand.New(rand.NewPCG(seed, 1)),
		OwnWork:   OwnWork{DataMs: map[falcon.Rank]float64{}},
	}
	per := max(1, l.World()/nodes)
	for r := range l.World() {
		node := falcon.Node("n" + itoa(r/per))
		j.Placement = append(j.Placement, falcon.NewDevice(node, r%per))
	}
	for range l.DP {
		j.MicroBatches = append(j.MicroBatches, microBatches)
	}
	j.connect()
	return j
}

// connect makes the communicators, with ids that no earlier ones had.
func (j *Job) connect() {
	l := j.Layout
	before := j.lanes
	j.Comms, j.groups, j.lanes = map[falcon.Rank][]falcon.Comm{}, nil, make([][]lane, l.World())
	j.generation++
	id := 100 + (j.generation-1)*(100+3*uint64(l.World()))
	for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		for _, g := range l.Groups(d) {
			id++
			j.join(id, d, g.Ranks)
		}
	}
	all := make([]falcon.Rank, l.World())
	for r := range all {
		all[r] = falcon.Rank(r)
	}
	j.join(WorldComm, falcon.DimWorld, all)
	for r, own := range before { // the ranks go on counting their votes
		if n := len(j.lanes[r]); n > 0 && len(own) > 0 {
			j.lanes[r][n-1].calls = own[len(own)-1].calls
		}
	}
}

// Place has the processes of block b take block blocks[b] over (S3): each keeps
// its device and its place in the block, and all communicators are new.
func (j *Job) Place(blocks []int32) {
	per := len(j.Placement) / len(blocks)
	now := make(falcon.Placement, len(j.Placement))
	for b, to := range blocks {
		copy(now[int(to)*per:(int(to)+1)*per], j.Placement[b*per:(b+1)*per])
	}
	j.Placement = now
	j.connect()
	for _, h := range j.hosts { // as an agent does when communicators have gone
		h.tracker.Reset()
	}
}

// Relaunch starts the job again on other devices, from an iteration on (S4).
func (j *Job) Relaunch(p falcon.Placement, next int64) {
	j.Placement = p
	j.next = next
	j.lanes = nil
	j.hosts = nil
	j.connect()
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func (j *Job) join(id uint64, d falcon.Dimension, ranks []falcon.Rank) {
	if len(ranks) < 2 && id != WorldComm {
		return
	}
	g := &group{id: id, dimension: d, ranks: ranks}
	j.groups = append(j.groups, g)
	for i, r := range ranks {
		j.lanes[r] = append(j.lanes[r], lane{group: g})
		if len(ranks) < 2 {
			continue // no communicator, but it votes
		}
		j.Comms[r] = append(j.Comms[r], falcon.Comm{
			ID:         id,
			Dimension:  d,
			Size:       len(ranks),
			RankInComm: i,
		})
	}
}

// Samples plays n iterations and returns every rank's samples.
func (j *Job) Samples(n int) []falcon.Sample {
	samples := make([]falcon.Sample, 0, n*j.Layout.World())
	for range n {
		samples = j.sample(samples, j.play())
	}
	return samples
}

// sample adds every rank's sample of the iteration that ends.
func (j *Job) sample(samples []falcon.Sample, p *playing) []falcon.Sample {
	for r := range j.Layout.World() {
		samples = append(samples, falcon.Sample{
			Rank:      falcon.Rank(r),
			Iteration: j.next,
			Ms:        p.end,
			Exact:     !j.Unmarked,
			Work:      j.watch(p, falcon.Rank(r)),
		})
	}
	j.next++
	return samples
}

// Iteration plays n iterations and returns every rank's samples and what the
// hook measured in them.
func (j *Job) Iteration(n int, window uint64) ([]falcon.Sample, []falcon.RankProfile) {
	var samples []falcon.Sample
	profiles := make([]falcon.RankProfile, j.Layout.World())
	offset := 0.0
	selfs := make([][]float64, j.Layout.World())
	for range n {
		p := j.play()
		for r := range profiles {
			self := p.measure(&profiles[r], falcon.Rank(r), offset)
			if j.Unmarked { // the gap behind the last call is none of computation
				self = max(0, self-j.DataMs[falcon.Rank(r)])
			}
			selfs[r] = append(selfs[r], self)
		}
		offset += p.end
		samples = j.sample(samples, p)
	}
	for r := range profiles {
		q := &profiles[r]
		q.Rank = falcon.Rank(r)
		q.Window = window
		q.Iterations = n
		q.MicroBatches = j.MicroBatches[j.Layout.Replica(q.Rank)]
		q.SelfMs = falcon.Median(selfs[r]) / float64(q.MicroBatches)
		if j.Undeclared {
			q.SelfMs = falcon.Median(selfs[r])
			q.MicroBatches = 0
		}
		q.QueueMs = medianQueue(q.Calls)
	}
	return samples, profiles
}

// Next is the number of the next iteration.
func (j *Job) Next() int64 { return j.next }
