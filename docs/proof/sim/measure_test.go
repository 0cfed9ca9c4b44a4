package sim

import (
	"strconv"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// hostLeadMs is how far the host runs ahead of the device: hosts are never slow
// here.
const hostLeadMs = 50

func nodeName(i int) falcon.Node {
	return falcon.Node("n" + strconv.Itoa(i))
}

// Communicator ids: one per group, by dimension and first rank.
const (
	commDP uint64 = 1 << 32
	commPP uint64 = 2 << 32
)

// comm is the id of r's communicator along a dimension.
func (j *Job) comm(d falcon.Dimension, r falcon.Rank) uint64 {
	at := j.Layout.Coord(r)
	if d == falcon.DimDP {
		at.DP = 0
		return commDP + uint64(j.Layout.RankOf(at))
	}
	at.PP = 0
	return commPP + uint64(j.Layout.RankOf(at))
}

// Comms lists every rank's communicators, as an agent reports them.
func (j *Job) Comms() map[falcon.Rank][]falcon.Comm {
	out := map[falcon.Rank][]falcon.Comm{}
	for r := range j.Placement {
		r, at := falcon.Rank(r), j.Layout.Coord(falcon.Rank(r))
		if j.Layout.DP > 1 {
			out[r] = append(out[r], falcon.Comm{
				ID:         j.comm(falcon.DimDP, r),
				Dimension:  falcon.DimDP,
				Size:       j.Layout.DP,
				RankInComm: at.DP,
			})
		}
		if j.Layout.PP > 1 {
			out[r] = append(out[r], falcon.Comm{
				ID:         j.comm(falcon.DimPP, r),
				Dimension:  falcon.DimPP,
				Size:       j.Layout.PP,
				RankInComm: at.PP,
			})
		}
	}
	return out
}

// window gathers the profile of some iterations running.
type window struct {
	id       uint64
	job      *Job
	offset   float64
	profiles []falcon.RankProfile
}

func (j *Job) newWindow(id uint64, iterations int) *window {
	w := &window{
		id:       id,
		job:      j,
		profiles: make([]falcon.RankProfile, j.Layout.World()),
	}
	for r := range w.profiles {
		w.profiles[r] = falcon.RankProfile{
			Rank:         falcon.Rank(r),
			Window:       id,
			Iterations:   iterations,
			MicroBatches: int(j.Split[j.Layout.Replica(falcon.Rank(r))]),
			QueueMs:      hostLeadMs,
		}
	}
	return w
}

// add takes one iteration in, as the hook would have timed it.
func (w *window) add(p played) {
	for r := range w.profiles {
		q := &w.profiles[r]
		q.SelfMs += p.self[r] / float64(q.MicroBatches) / float64(q.Iterations)
		for _, c := range p.sent[r] {
			key := callKey{q.Rank, c.comm}
			q.Calls = append(q.Calls, falcon.CallTiming{
				Comm:       c.comm,
				Ordinal:    w.job.calls[key],
				Op:         c.op,
				Peer:       c.peer,
				Bytes:      c.bytes,
				StartMs:    w.offset + c.start,
				DurationMs: c.end - c.start,
				QueueMs:    hostLeadMs,
			})
			w.job.calls[key]++
		}
	}
	w.offset += p.ms
}

// Healthy times of the active tests, ms, and their noise.
const (
	gemmMs     = 20
	exchangeMs = 5
	testCoV    = 0.01
)

// Validate runs the tests of an ask on the job as it is, and has production judge them.
func (j *Job) Validate(ask falcon.ValidationAsk) falcon.Validation {
	v := falcon.Validation{
		Ask:       ask,
		State:     falcon.ValidationDone,
		Iteration: j.next,
		Emulated:  true,
	}
	for _, r := range ask.GEMM {
		v.GEMM = append(v.GEMM, falcon.GEMMResult{
			Rank:   r,
			Device: j.Placement[r],
			Ms:     j.noisy(gemmMs*j.slow[r], testCoV),
		})
	}
	for _, ring := range ask.Rings {
		for i := range ring {
			if len(ring) > 2 || i == 0 {
				v.Links = append(v.Links, j.exchange(ring[i], ring[(i+1)%len(ring)])...)
			}
		}
	}
	for _, p := range ask.Pairs {
		v.Links = append(v.Links, j.exchange(p[0], p[1])...)
	}
	passes.JudgeGEMM(v.GEMM)
	passes.Judge(v.Links, nil)
	return v
}

// exchange times both directions between two ranks.
func (j *Job) exchange(a, b falcon.Rank) []falcon.LinkResult {
	one := func(a, b falcon.Rank) falcon.LinkResult {
		x, y := j.Placement[a], j.Placement[b]
		r := falcon.LinkResult{
			From:       a,
			To:         b,
			FromDevice: x,
			ToDevice:   y,
			Class:      falcon.LinkIntraNode,
			Bytes:      1 << 20,
			Ms:         exchangeMs / 5,
			Basis:      "class",
		}
		if x.Node() != y.Node() {
			link := falcon.NewLink(x.Node(), y.Node())
			r.Class, r.Link, r.Ms = falcon.LinkCrossRail, link.String(), exchangeMs*times(j.link[link])
			if x.Index() == y.Index() {
				r.Class = falcon.LinkSameRail
			}
		}
		r.Ms = j.noisy(r.Ms, testCoV)
		return r
	}
	return []falcon.LinkResult{one(a, b), one(b, a)}
}
