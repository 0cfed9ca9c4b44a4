package swarm

import (
	"fmt"
	"math/rand/v2"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What one iteration of the emulated job is made of.
const (
	microBatches = 8
	computeShare = 0.8 // of an iteration, in which a healthy rank computes
	tpCalls      = 4   // all-reduces of a micro-batch
	dpCalls      = 4   // gradient buckets of an iteration
	noise        = 0.003
	transferMs   = 1.0
	opAllReduce  = 1
	opSend       = 9
	opRecv       = 10
)

// Fault makes one rank slow.
type Fault struct {
	Rank   falcon.Rank
	Factor float64 // of its computation, above 1
	From   int64   // iteration
}

// job is the one job of the swarm; its times follow from the iteration's number.
type job struct {
	layout falcon.Layout
	perMs  float64 // one healthy iteration
	fault  Fault
}

// newJob lays nodes of gpus ranks out: tensor parallel within a node, up to eight stages.
func newJob(nodes, gpus int, perMs float64, f Fault) (job, error) {
	pp := 1
	for p := 2; p <= 8; p *= 2 {
		if nodes%p == 0 && nodes/p >= p {
			pp = p
		}
	}
	l := falcon.Layout{TP: gpus, DP: nodes / pp, PP: pp}
	if nodes < 1 || gpus < 1 || l.World() != nodes*gpus {
		return job{}, fmt.Errorf("swarm: %d nodes of %d GPUs make no job", nodes, gpus)
	}
	return job{layout: l, perMs: perMs, fault: f}, nil
}

// selfMs is what a rank computes in one micro-batch of an iteration.
func (j *job) selfMs(r falcon.Rank, iteration int64) float64 {
	return j.perMs * computeShare / microBatches * j.factor(r, iteration)
}

func (j *job) factor(r falcon.Rank, iteration int64) float64 {
	if j.fault.Factor > 1 && r == j.fault.Rank && iteration >= j.fault.From {
		return j.fault.Factor
	}
	return 1
}

// lateMs is how much later than the others a rank comes to the end of an iteration's
// computation: all wait for it.
func (j *job) lateMs(r falcon.Rank, iteration int64) float64 {
	return j.perMs * computeShare * (j.factor(r, iteration) - 1)
}

// iterationMs is what an iteration takes.
func (j *job) iterationMs(iteration int64) float64 {
	return j.perMs + j.lateMs(j.fault.Rank, iteration)
}

// comms are a rank's communicators; an id names the same group on all its ranks.
func (j *job) comms(r falcon.Rank) []*falconv1.Comm {
	var out []*falconv1.Comm
	for n, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		ranks := j.group(r, d)
		if len(ranks) < 2 {
			continue
		}
		at := 0
		for i, x := range ranks {
			if x == r {
				at = i
			}
		}
		out = append(out, &falconv1.Comm{
			Id:   uint64(n+1)<<40 | uint64(ranks[0]),
			Name: string(d),
			Size: int32(len(ranks)),
			Rank: int32(at),
		})
	}
	return out
}

// group are the ranks that differ from r in one dimension alone, ascending.
func (j *job) group(r falcon.Rank, d falcon.Dimension) []falcon.Rank {
	c := j.layout.Coord(r)
	size := map[falcon.Dimension]int{
		falcon.DimTP: j.layout.TP,
		falcon.DimDP: j.layout.DP,
		falcon.DimPP: j.layout.PP,
	}[d]
	var out []falcon.Rank
	for i := range size {
		x := c
		switch d {
		case falcon.DimTP:
			x.TP = i
		case falcon.DimDP:
			x.DP = i
		default:
			x.PP = i
		}
		out = append(out, j.layout.RankOf(x))
	}
	return out
}

// rankState describes a rank as its agent does.
func (j *job) rankState(node string, r falcon.Rank, gpu int) *falconv1.RankState {
	l := j.layout
	return &falconv1.RankState{
		Rank:          int32(r),
		Device:        fmt.Sprintf("%s.g%d", node, gpu),
		Pid:           1000 + int32(gpu),
		Alive:         true,
		Tp:            int32(l.TP),
		Dp:            int32(l.DP),
		Pp:            int32(l.PP),
		World:         int32(l.World()),
		MicroBatches:  microBatches,
		Comms:         j.comms(r),
		Nic:           fmt.Sprintf("%s.nic%d", node, gpu),
		TestWorkspace: 64 << 20,
		Coverage: ring.CoverInit | ring.CoverColl | ring.CoverP2P | ring.CoverWaiting |
			ring.CoverAdapter | ring.CoverStays,
		Can: &falconv1.Capabilities{
			Split:      true,
			Place:      true,
			Checkpoint: true,
			Versions:   1,
		},
		StateBytes:  10 << 30,
		CopyMbs:     20_000,
		Bound:       1,
		NcclVersion: 22809,
	}
}

// profile is what the hook measures of a rank in n iterations.
func (j *job) profile(r falcon.Rank, first int64, n int, rng *rand.Rand) *falconv1.RankProfile {
	out := &falconv1.RankProfile{
		Rank:         int32(r),
		Iterations:   int32(n),
		MicroBatches: microBatches,
	}
	self := j.selfMs(r, first) * (1 + noise*rng.NormFloat64())
	out.SelfMs = self
	comms := j.comms(r)
	at := 0.0
	ordinal := map[uint64]uint64{}
	call := func(c *falconv1.Comm, op uint32, peer int32, bytes int64, waited float64) {
		took := transferMs*(1+0.05*rng.Float64()) + waited
		out.Calls = append(out.Calls, &falconv1.CallTiming{
			Comm:       c.GetId(),
			Ordinal:    uint64(first)*1000 + ordinal[c.GetId()],
			Op:         op,
			Peer:       peer,
			Bytes:      bytes,
			StartMs:    at,
			DurationMs: took,
			QueueMs:    0.2,
		})
		ordinal[c.GetId()]++
		at += took
	}
	for i := range int64(n) {
		for range microBatches {
			for _, c := range comms {
				switch c.GetName() {
				case string(falcon.DimTP):
					for range tpCalls {
						at += self / tpCalls
						call(
							c,
							opAllReduce,
							-1,
							8<<20,
							j.waited(r, falcon.DimTP, first+i)/tpCalls/microBatches,
						)
					}
				case string(falcon.DimPP):
					call(c, opSend, (c.GetRank()+1)%c.GetSize(), 4<<20, 0)
					call(
						c,
						opRecv,
						(c.GetRank()+c.GetSize()-1)%c.GetSize(),
						4<<20,
						j.waited(r, falcon.DimPP, first+i)/microBatches,
					)
				}
			}
		}
		for _, c := range comms {
			for k := 0; c.GetName() == string(falcon.DimDP) && k < dpCalls; k++ {
				waited := 0.0
				if k == 0 {
					waited = j.waited(r, falcon.DimDP, first+i)
				}
				call(c, opAllReduce, -1, 64<<20, waited)
			}
		}
	}
	return out
}

// waited is how long a rank waits in a dimension for the slow one, in an iteration.
func (j *job) waited(r falcon.Rank, d falcon.Dimension, iteration int64) float64 {
	late := j.lateMs(j.fault.Rank, iteration)
	if late == 0 || r == j.fault.Rank {
		return 0
	}
	mine := j.layout.Coord(r)
	slow := j.layout.Coord(j.fault.Rank)
	sameTP := mine.TP == slow.TP
	sameDP := mine.DP == slow.DP
	samePP := mine.PP == slow.PP
	switch {
	case d == falcon.DimTP && sameDP && samePP, d == falcon.DimPP && sameDP && !samePP,
		d == falcon.DimDP && !sameDP && (samePP || sameTP):
		return late
	}
	return 0
}
