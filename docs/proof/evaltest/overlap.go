package evaltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
)

// Overlapped is a data-parallel job whose communication runs behind its
// computation, as a model on device timelines: each rank has a stream that
// computes and one that communicates, and members of a collective end together.
// Bucketed reduces each layer's gradients while the backward pass goes on (DDP).
// Sharded gathers a layer's parameters while the one before it computes, and
// scatters gradients behind it (FSDP).
type Overlapped struct {
	Ranks, PerNode int
	Sharded        bool
	Layers         int
	ComputeMs      float64 // forward pass of a layer; backward is twice it
	TransferMs     float64 // of a layer's collective
	StepMs         float64 // optimizer
	Noise          float64 // relative deviation of passes and transfers

	Clock []float64 // of each rank's GPU, 1 = nominal
	Share []float64 // of the CPU that each rank's host gets, 1 = all
	Link  float64   // share of the bandwidth
	Read  bool      // the detector gets the clocks of the GPUs

	rng      *rand.Rand
	compute  []float64 // when each rank's computing stream is free
	stream   float64   // when the last collective ended
	ordinal  uint64
	next     int64
	offset   []float64 // of each rank's clock
	profiles []falcon.RankProfile
}

// NewOverlapped makes a healthy job of 8 ranks on 2 nodes.
func NewOverlapped(sharded bool, computeMs, transferMs float64, seed uint64) *Overlapped {
	j := &Overlapped{
		Ranks:      8,
		PerNode:    4,
		Sharded:    sharded,
		Layers:     12,
		ComputeMs:  computeMs,
		TransferMs: transferMs,
		StepMs:     4,
		Noise:      0.01,
		Link:       1,
		rng:        rand.New(rand.NewPCG(seed, 77)),
	}
	for range j.Ranks {
		j.Clock, j.Share = append(j.Clock, 1-unlike*j.rng.Float64()), append(j.Share, 1)
		j.compute, j.offset = append(j.compute, 0), append(j.offset, 1e4*j.rng.Float64())
	}
	return j
}

// unlike is by how much healthy GPUs differ in pace.
const unlike = 0.04

// hostMs is what a layer's launches take of a pass where a host has all its CPU.
const hostMs = 0.4

func (j *Overlapped) noisy(ms float64) float64 {
	return ms * math.Max(0.1, 1+j.Noise*j.rng.NormFloat64())
}

// pass computes ms on every rank, from when its stream is free and needs has come.
func (j *Overlapped) pass(ms, needs float64) {
	for r := range j.compute {
		device := j.noisy(ms) / j.Clock[r]
		j.compute[r] = math.Max(j.compute[r], needs) +
			math.Max(device, hostMs*ms/j.ComputeMs/j.Share[r]*j.noisy(1))
	}
}

// call is a collective that a rank enters when ready, behind the one before it.
func (j *Overlapped) call(op falcon.Op, bytes int64, ready []float64) (end float64) {
	last := j.stream
	for _, at := range ready {
		last = math.Max(last, at)
	}
	end = last + j.noisy(j.TransferMs)/j.Link
	for r, at := range ready {
		start := math.Max(at, j.stream)
		lead := 6.0
		if j.Share[r] < 1 {
			lead = 0.3
		}
		if j.profiles != nil {
			p := &j.profiles[r]
			p.Calls = append(p.Calls, falcon.CallTiming{
				Comm:       overlapComm,
				Ordinal:    j.ordinal,
				Op:         op,
				Peer:       -1,
				Bytes:      bytes,
				StartMs:    start + j.offset[r],
				DurationMs: end - start,
				QueueMs:    lead,
			})
		}
	}
	j.stream = end
	j.ordinal++
	return end
}

const overlapComm = 9

// play is one iteration; it returns when its last collective ended.
func (j *Overlapped) play() float64 {
	if j.Sharded {
		j.playSharded()
	} else {
		j.playBucketed()
	}
	j.pass(j.StepMs, j.stream)
	j.next++
	return j.stream
}

func (j *Overlapped) playBucketed() {
	for range j.Layers {
		j.pass(j.ComputeMs, 0)
	}
	for range j.Layers {
		j.pass(2*j.ComputeMs, 0)
		j.call(falcon.OpAllReduce, 1<<22, j.compute)
	}
}

// playSharded gathers one layer ahead, forwards and backwards.
func (j *Overlapped) playSharded() {
	here := j.call(falcon.OpAllGather, 1<<21, j.compute)
	for l := range j.Layers {
		ahead := here
		if l+1 < j.Layers {
			ahead = j.call(falcon.OpAllGather, 1<<21, slices.Clone(j.compute))
		}
		j.pass(j.ComputeMs, here)
		here = ahead
	}
	for l := range j.Layers {
		ahead := here
		if l+1 < j.Layers {
			ahead = j.call(falcon.OpAllGather, 1<<21, slices.Clone(j.compute))
		}
		j.pass(2*j.ComputeMs, here)
		here = ahead
		j.call(falcon.OpReduceScatter, 1<<21, j.compute)
	}
}

// Samples are the next iteration's.
func (j *Overlapped) Samples() []falcon.Sample {
	from := j.stream
	ms := j.play() - from
	out := make([]falcon.Sample, j.Ranks)
	for r := range out {
		out[r] = falcon.Sample{
			Rank:      falcon.Rank(r),
			Iteration: j.next - 1,
			Ms:        ms,
			Exact:     true,
		}
	}
	return out
}

// Window plays n iterations under a profile window.
func (j *Overlapped) Window(n int) ([]falcon.Sample, []falcon.RankProfile) {
	j.profiles = make([]falcon.RankProfile, j.Ranks)
	selves := make([][]float64, j.Ranks)
	var samples []falcon.Sample
	for range n {
		begin := slices.Clone(j.compute)
		from := len(j.profiles[0].Calls)
		samples = append(samples, j.Samples()...)
		for r := range j.profiles {
			selves[r] = append(selves[r], gapsOf(j.profiles[r].Calls[from:], begin[r]+j.offset[r]))
		}
	}
	out := j.profiles
	j.profiles = nil
	for r := range out {
		p := &out[r]
		p.Rank, p.Iterations, p.MicroBatches = falcon.Rank(r), n, 1
		p.SelfMs, p.QueueMs = falcon.Median(selves[r]), p.Calls[0].QueueMs
	}
	return samples, out
}

// gapsOf is the time free of communication from an iteration's begin to its last call.
func gapsOf(calls []falcon.CallTiming, begin float64) (ms float64) {
	for _, c := range calls {
		ms += math.Max(0, c.StartMs-begin)
		begin = math.Max(begin, c.StartMs+c.DurationMs)
	}
	return ms
}

// Describe is the job as the detector gets it.
func (j *Overlapped) Describe() detect.Job {
	d := detect.Job{
		Epoch:        1,
		Layout:       falcon.Layout{TP: 1, DP: j.Ranks, PP: 1},
		Comms:        map[falcon.Rank][]falcon.Comm{},
		Emulated:     true,
		MicroBatches: slices.Repeat([]int32{1}, j.Ranks),
	}
	for r := range j.Ranks {
		d.Placement = append(d.Placement, j.device(r))
		d.Comms[falcon.Rank(r)] = []falcon.Comm{{
			ID:         overlapComm,
			Dimension:  falcon.DimDP,
			Size:       j.Ranks,
			RankInComm: r,
		}}
	}
	return d
}

func (j *Overlapped) device(r int) falcon.Device {
	return falcon.NewDevice(falcon.Node(fmt.Sprint("n", r/j.PerNode)), r%j.PerNode)
}

// Story is what the detector made of one fault in an overlapped job.
type Story struct {
	Incidents []falcon.Incident // newest state of each
}

// Play gives the job to a detector without tests: as many healthy iterations as
// then follow each change.
func (j *Overlapped) Play(iterations int, changes ...func(*Overlapped)) Story {
	now := time.Unix(1000, 0)
	m := detect.New(detect.Config{})
	m.Step(now, j.Describe())
	var s Story
	var asked *detect.ProfileRequest
	for done := 0; j.next < int64((1+len(changes))*iterations); {
		if done < len(changes) && j.next >= int64((1+done)*iterations) {
			changes[done](j)
			done++
		}
		samples, profiles := []falcon.Sample(nil), []falcon.RankProfile(nil)
		if asked != nil {
			samples, profiles = j.Window(asked.Iterations)
		} else {
			samples = j.Samples()
		}
		now = now.Add(
			time.Duration(samples[0].Ms*float64(time.Millisecond)) * time.Duration(len(samples)/j.Ranks),
		)
		m.Step(now, j.readings(now))
		m.Step(now, detect.Samples{Samples: samples})
		if asked != nil {
			m.Step(now, detect.Profiled{Window: asked.Window, Profiles: profiles})
		}
		m.Tick(now)
		asked = s.collect(m, now)
	}
	return s
}

// readings are the clocks of the GPUs, at a share of their maximum.
func (j *Overlapped) readings(now time.Time) detect.Readings {
	var out detect.Readings
	for r := 0; j.Read && r < j.Ranks; r++ {
		out.GPUs = append(out.GPUs, falcon.GPUReading{
			Device:        j.device(r),
			AtNs:          now.UnixNano(),
			SMClockMHz:    uint32(1980 * j.Clock[r]),
			MaxSMClockMHz: 1980,
			ProbeUs:       150,
		})
	}
	return out
}

// collect takes what the detector says, refuses its tests, and returns the window that it asks for.
func (s *Story) collect(m *detect.Machine, now time.Time) (asked *detect.ProfileRequest) {
	for {
		r := m.Ready()
		for _, inc := range r.Incidents {
			i := slices.IndexFunc(s.Incidents, func(o falcon.Incident) bool {
				return o.ID == inc.ID
			})
			if i < 0 {
				i, s.Incidents = len(s.Incidents), append(s.Incidents, inc)
			}
			s.Incidents[i] = inc
		}
		for _, q := range r.Requests {
			asked = &q
		}
		asks := r.Asks

		m.Advance()
		if len(asks) == 0 {
			return asked
		}
		for _, a := range asks {
			m.Step(now, detect.Validated{Validation: falcon.Validation{
				Ask:    a,
				State:  falcon.ValidationRefused,
				Reason: "no tests here",
			}})
		}
	}
}

// Devices are those that the story's verdicts name.
func (s *Story) Devices() []falcon.Device {
	var out []falcon.Device
	for _, inc := range s.Incidents {
		out = append(out, inc.Verdict.Devices...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
