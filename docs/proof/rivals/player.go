package rivals

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
)

// Named is one culprit that a method names: a device, a node or a link.
type Named struct {
	At   int // newest iteration
	Name string
}

// Falcon plays the story to the production detector, with its profile windows. With
// counters it also reads clocks, hosts and ports, and its tests are run; without, all
// tests are refused and timing decides alone.
func (s *Story) Falcon(counters bool) []Named {
	s.reset()
	p := &player{
		story:    s,
		counters: counters,
		m:        detect.New(detect.Config{}),
		now:      time.Unix(1000, 0),
		thermal:  map[falcon.Device]uint64{},
		handled:  map[falcon.Node]uint64{},
	}
	p.describe()
	for int(s.job.Next()) < s.To {
		if !p.struck && int(s.job.Next()) >= s.From {
			p.struck = true
			s.beginFault()
		}
		p.advance()
	}
	return p.named
}

// player gives a job to a detector, as the engine would.
type player struct {
	story    *Story
	counters bool
	struck   bool
	m        *detect.Machine
	now      time.Time
	request  *detect.ProfileRequest
	ask      *falcon.ValidationAsk
	tested   int
	read     time.Time
	thermal  map[falcon.Device]uint64
	handled  map[falcon.Node]uint64
	named    []Named
}

func (p *player) describe() {
	j := p.story.job
	d := detect.Job{
		Epoch:     1,
		Layout:    j.Layout,
		Placement: j.Placement,
		Comms:     j.Comms,
		Emulated:  true,
	}
	for _, m := range j.MicroBatches {
		d.MicroBatches = append(d.MicroBatches, int32(m))
	}
	p.step(d)
}

func (p *player) step(in detect.Input) {
	p.metered(func() { p.m.Step(p.now, in) })
	p.drain()
}

// metered runs the detector's part, so that a caller can time it.
func (p *player) metered(do func()) {
	if p.story.Meter != nil {
		p.story.Meter(do)
		return
	}
	do()
}

// drain takes what the detector asks for and notes whom it names.
func (p *player) drain() {
	var r detect.Ready
	p.metered(func() { r = p.m.Ready() })
	for _, inc := range r.Incidents {
		for _, d := range inc.Verdict.Devices {
			p.name(string(d))
		}
		for _, l := range inc.Verdict.Links {
			p.name(l.String())
		}
	}
	for _, q := range r.Requests {
		p.request = &q
	}
	for _, a := range r.Asks {
		p.ask = &a
	}
	p.m.Advance()
}

func (p *player) name(name string) {
	if !slices.ContainsFunc(p.named, func(n Named) bool { return n.Name == name }) {
		p.named = append(p.named, Named{
			At:   int(p.story.job.Next()) - 1,
			Name: name,
		})
	}
}

// advance plays the next iteration, or the window that is asked for. A fault that falls into
// a window begins behind it; delays count from where it is in the rivals' play.
func (p *player) advance() {
	held := p.test()
	j := p.story.job
	if p.request == nil {
		p.deliver(j.Samples(1), held)
		return
	}
	q := p.request
	p.request = nil
	samples, profiles := j.Iteration(q.Iterations, q.Window)
	p.deliver(samples, held)
	p.step(detect.Profiled{Window: q.Window, Profiles: profiles})
}

// heldMs is what a test holds the job for.
const heldMs = 350

// test answers the detector's ask and returns how long the job was held, ms.
func (p *player) test() float64 {
	ask := p.ask
	if p.ask = nil; ask == nil {
		return 0
	}
	p.tested++
	v := falcon.Validation{
		Ask:    *ask,
		State:  falcon.ValidationRefused,
		Reason: "no tests here",
	}
	held := 0.0
	if p.counters {
		v, held = p.story.job.Validate(*ask), heldMs
	}
	v.ID = fmt.Sprintf("VAL-%04d", p.tested)
	p.now = p.now.Add(time.Duration(held * float64(time.Millisecond)))
	p.step(detect.Validated{Validation: v})
	return held
}

// deliver feeds samples iteration by iteration; the first was held.
func (p *player) deliver(samples []falcon.Sample, held float64) {
	world := p.story.Layout.World()
	for i := range samples[:world] {
		samples[i].Ms += held
		samples[i].PausedMs += held
	}
	for i := 0; i < len(samples); i += world {
		p.now = p.now.Add(time.Duration(samples[i].Ms * float64(time.Millisecond)))
		p.probe(samples[i].Ms)
		p.step(detect.Samples{Samples: samples[i : i+world]})
	}
	p.metered(func() { p.m.Tick(p.now) })
	p.drain()
}

const fullMHz = 1980

// probe reads the counters about once a second.
func (p *player) probe(ms float64) {
	j := p.story.job
	for d, c := range j.Clock {
		if c < 1 {
			p.thermal[d] += uint64(ms * 1e6)
		}
	}
	if !p.counters || p.now.Sub(p.read) < time.Second {
		return
	}
	p.read = p.now
	var in detect.Readings
	seen := map[falcon.Node]bool{}
	for _, d := range j.Placement {
		clock := uint32(fullMHz)
		if c := j.Clock[d]; c > 0 {
			clock = uint32(fullMHz * c)
		}
		in.GPUs = append(in.GPUs, falcon.GPUReading{
			Device:        d,
			AtNs:          p.now.UnixNano(),
			SMClockMHz:    clock,
			MaxSMClockMHz: fullMHz,
			ThermalNs:     p.thermal[d],
			ProbeUs:       150,
		})
		n := d.Node()
		if seen[n] {
			continue
		}
		seen[n] = true
		steal := 0.01
		if s := j.Share[n]; s > 0 {
			steal = 1 - s
		}
		in.Hosts = append(in.Hosts, falcon.HostReading{
			Node:       n,
			AtNs:       p.now.UnixNano(),
			StealShare: steal,
			Emulated:   true,
		})
		p.handled[n] += uint64(p.story.marked(n))
		in.NICs = append(in.NICs, falcon.NICReading{
			NIC:        falcon.NIC(string(n) + ".nic0"),
			AtNs:       p.now.UnixNano(),
			RateMbps:   400_000,
			Active:     true,
			CNPHandled: p.handled[n],
			Emulated:   true,
		})
	}
	p.step(in)
}
