package sim

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
)

// probes are the hardware counters that agents read; they only grow.
type probes struct {
	at      time.Time
	thermal map[falcon.Device]uint64
	marks   map[falcon.Node]uint64
}

const (
	fullClockMHz   = 1980
	calmMarks      = 1   // congestion marks a second on a healthy port
	congestedMarks = 300 // at the ends of a slow link
)

// read looks at every GPU, host and port once.
func (p *probes) read(j *Job, now time.Time) detect.Readings {
	if p.thermal == nil {
		p.thermal, p.marks, p.at = map[falcon.Device]uint64{}, map[falcon.Node]uint64{}, now
	}
	passed := now.Sub(p.at)
	p.at = now
	for l := range j.link {
		p.marks[l.A] += uint64(congestedMarks * passed.Seconds())
		p.marks[l.B] += uint64(congestedMarks * passed.Seconds())
	}
	in := detect.Readings{}
	for node := range j.Nodes() {
		p.node(j, nodeName(node), now, passed, &in)
	}
	return in
}

func (p *probes) node(j *Job, n falcon.Node, now time.Time, passed time.Duration, in *detect.Readings) {
	ns := now.UnixNano()
	for g := range j.GPUsPerNode {
		d := falcon.NewDevice(n, g)
		clock := uint32(fullClockMHz / times(j.device[d]))
		if clock < fullClockMHz {
			p.thermal[d] += uint64(passed)
		}
		in.GPUs = append(in.GPUs, falcon.GPUReading{
			Device:        d,
			AtNs:          ns,
			SMClockMHz:    clock,
			MaxSMClockMHz: fullClockMHz,
			ThermalNs:     p.thermal[d],
			ProbeUs:       150,
		})
	}
	p.marks[n] += uint64(calmMarks * passed.Seconds())
	in.Hosts = append(in.Hosts, falcon.HostReading{
		Node:       n,
		AtNs:       ns,
		StealShare: 0.01,
		Emulated:   true,
	})
	in.NICs = append(in.NICs, falcon.NICReading{
		NIC:        falcon.NIC(string(n) + ".nic0"),
		AtNs:       ns,
		RateMbps:   400_000,
		Active:     true,
		CNPHandled: p.marks[n],
		Emulated:   true,
	})
}
