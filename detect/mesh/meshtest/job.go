package meshtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// Job is a generated job: its communicators, and one iteration of calls.
type Job struct {
	World   int
	Comms   map[falcon.Rank][]falcon.Comm
	Traffic map[falcon.Rank][]falcon.Traffic

	// Inside joins the ranks that communicate inside a micro-batch, each with the least
	// rank that it is joined with.
	Inside []falcon.Rank

	inside bool // a micro-batch is played
	ids    map[string]uint64
	counts map[falcon.Rank]map[kind]*count
}

type kind struct {
	comm uint64
	op   falcon.Op
}

// count is one kind of call of one rank.
type count struct {
	calls int
	bytes int64
	sizes map[int64]int
	peers map[int]bool
}

func newJob(world int) *Job {
	return &Job{
		Inside:  ascending(world),
		World:   world,
		Comms:   map[falcon.Rank][]falcon.Comm{},
		Traffic: map[falcon.Rank][]falcon.Traffic{},
		ids:     map[string]uint64{},
		counts:  map[falcon.Rank]map[kind]*count{},
	}
}

// communicator is one over some ranks, in their order.
type communicator struct {
	id    uint64
	ranks []falcon.Rank
}

// group makes a communicator: frameworks make one for each group, also where another
// one has the same ranks.
func (j *Job) group(name string, ranks []falcon.Rank) communicator {
	key := name + fmt.Sprint(ranks)
	id, known := j.ids[key]
	if !known {
		id = 1000 + uint64(len(j.ids))
		j.ids[key] = id
		for i, r := range ranks {
			j.Comms[r] = append(j.Comms[r], falcon.Comm{
				ID:         id,
				Size:       len(ranks),
				RankInComm: i,
			})
		}
	}
	return communicator{id, ranks}
}

func (j *Job) count(r falcon.Rank, c communicator, op falcon.Op, peer int, bytes int64) {
	if len(c.ranks) < 2 {
		return
	}
	if j.inside && peer < 0 {
		j.join(r, c.ranks[0])
	} else if j.inside {
		j.join(r, c.ranks[peer])
	}
	if j.counts[r] == nil {
		j.counts[r] = map[kind]*count{}
	}
	n := j.counts[r][kind{c.id, op}]
	if n == nil {
		n = &count{sizes: map[int64]int{}, peers: map[int]bool{}}
		j.counts[r][kind{c.id, op}] = n
	}
	n.calls++
	n.bytes += bytes
	n.sizes[bytes]++
	if op == falcon.OpSend || op == falcon.OpRecv {
		n.peers[peer] = true
	}
}

func (j *Job) join(a, b falcon.Rank) {
	x, y := j.Inside[a], j.Inside[b]
	if x == y {
		return
	}
	for i, at := range j.Inside {
		if at == max(x, y) {
			j.Inside[i] = min(x, y)
		}
	}
}

// all has every member make a collective call.
func (j *Job) all(c communicator, op falcon.Op, bytes int64) {
	for _, r := range c.ranks {
		j.count(r, c, op, -1, bytes)
	}
}

// send has member i of a communicator send to member k.
func (j *Job) send(c communicator, i, k int, bytes int64) {
	j.count(c.ranks[i], c, falcon.OpSend, k, bytes)
	j.count(c.ranks[k], c, falcon.OpRecv, i, bytes)
}

// allToAll is PyTorch's all_to_all_single: sends to all members, itself among them.
// Tokens are routed unevenly.
func (j *Job) allToAll(c communicator, bytes int64, call int) {
	for i := range c.ranks {
		for k := range c.ranks {
			j.send(
				c,
				i,
				k,
				bytes/int64(len(c.ranks))+int64((7*i+13*k+29*call)%64)*1024,
			)
		}
	}
}

// finish sums the calls up as an agent reports them.
func (j *Job) finish() *Job {
	for r, kinds := range j.counts {
		for k, n := range kinds {
			single := 0
			for _, calls := range n.sizes {
				if calls == 1 {
					single++
				}
			}
			j.Traffic[r] = append(j.Traffic[r], falcon.Traffic{
				Single: single,
				Comm:   k.comm,
				Op:     k.op,
				Calls:  n.calls,
				Bytes:  n.bytes,
				Alike:  slices.Max(slices.Collect(maps.Values(n.sizes))),
				Peers:  slices.Sorted(maps.Keys(n.peers)),
			})
		}
	}
	return j
}

// All are the ranks.
func (j *Job) All() []falcon.Rank { return ascending(j.World) }
