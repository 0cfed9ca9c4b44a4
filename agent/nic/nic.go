// Package nic reads the network ports of one node through sysfs.
//
// It guarantees that a counter in a reading never falls, although hardware
// counters wrap at 32 bits and start over when a driver is loaded again; that
// what a port does not offer is named in NICReading.Err and never passed off as
// zero trouble; and that a read which the driver holds does not block the caller: Latest
// and Of answer from memory. Open starts one goroutine; Close ends it and
// waits, at most CloseMax for one that a driver holds.
//
// Ports are those of class/infiniband (RoCE and InfiniBand), else the physical
// ones of class/net. Port i of node n1 is "n1.nic<i>" in the order of device
// names, numbers in them taken as numbers; a port keeps its name for the
// prober's life. It must not judge, and must not write to sysfs.
package nic

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/clock"
)

// Bounds of the probe.
const (
	StallMin  = 5 * time.Second // an unanswered reading is reported after this long
	CloseMax  = 2 * time.Second // Close gives a held read this long
	PortsMax  = 64              // per node
	periodMin = 10 * time.Millisecond
)

// Config is what to read.
type Config struct {
	Node   falcon.Node
	Sysfs  string                       // root, normally /sys
	Of     map[falcon.Device]falcon.NIC // what is known of which GPU uses which port; it wins
	Period time.Duration                // between readings; 0 = 1 s
	Down   time.Duration                // that a port must be down to be reported; 0 = DownFor
	// Event takes the fall of a port that was up, once; nil = it is not reported. It is
	// called from the prober's goroutine and must not block.
	Event func(Event)
}

// Prober owns the goroutine that reads sysfs.
type Prober struct {
	cfg   Config
	ports []*port // the goroutine's own

	mu      sync.Mutex
	started time.Time // of the reading in flight, zero when none is
	fresh   []falcon.NICReading
	names   []falcon.NIC
	near    map[int]falcon.NIC // by GPU index, where PCI shows it

	stop chan struct{}
	done sync.WaitGroup
}

// Open begins to read. It does not fail: a sysfs without ports has no readings.
func Open(cfg Config) *Prober {
	if cfg.Period <= 0 {
		cfg.Period = time.Second
	}
	cfg.Period = max(cfg.Period, periodMin)
	p := &Prober{cfg: cfg, stop: make(chan struct{})}
	p.done.Go(p.probeLoop)
	return p
}

// Latest hands over the readings that came since the last call, each once. A
// look that takes StallMin is reported in their place. nil means nothing new.
func (p *Prober) Latest(now time.Time) []falcon.NICReading {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.fresh
	p.fresh = nil
	held := now.Sub(p.started)
	if out == nil && !p.started.IsZero() && held >= StallMin {
		for _, n := range p.names {
			out = append(out, falcon.NICReading{
				NIC:  n,
				AtNs: now.UnixNano(),
				Err:  fmt.Sprintf("sysfs has not answered for %.0f s", held.Seconds()),
			})
		}
	}
	return out
}

// Of is the port that a device's traffic leaves by: the configured one, else
// the nearest on the PCI tree, else the node's only one; "" while unknown.
func (p *Prober) Of(d falcon.Device) falcon.NIC {
	if n, ok := p.cfg.Of[d]; ok {
		return n
	}
	if d.Node() != p.cfg.Node {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.near[d.Index()]; ok {
		return n
	}
	if len(p.names) == 1 {
		return p.names[0]
	}
	return ""
}

// Close ends the readings.
func (p *Prober) Close() {
	close(p.stop)
	ended := make(chan struct{})
	go func() {
		p.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(CloseMax): // a read that the driver holds ends with the process
	}
}

func (p *Prober) probeLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		p.readPorts()
		timer.Reset(p.cfg.Period)
	}
}

// readPorts reads every port once.
func (p *Prober) readPorts() {
	p.mu.Lock()
	p.started = clock.Now()
	p.mu.Unlock()

	found := scanPorts(p.cfg.Sysfs)
	grown := p.namePorts(found)
	_, err := os.Stat(filepath.Join(p.cfg.Sysfs, "emulated"))
	readings := make([]falcon.NICReading, 0, len(p.ports))
	for _, o := range p.ports {
		r := o.readPort(p.cfg.Sysfs)
		r.AtNs = clock.Now().UnixNano()
		r.Emulated = err == nil
		readings = append(readings, r)
		p.watchFall(o, r)
	}
	var near map[int]falcon.NIC
	if grown {
		near = nearestPorts(p.cfg.Sysfs, p.ports)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = time.Time{}
	p.fresh = readings
	if !grown {
		return
	}
	p.near, p.names = near, nil
	for _, o := range p.ports {
		p.names = append(p.names, o.name)
	}
}

// namePorts gives new ports a name. Those that are gone keep theirs.
func (p *Prober) namePorts(found []place) (grown bool) {
	known := map[place]bool{}
	for _, o := range p.ports {
		known[o.place] = true
	}
	for _, f := range found {
		if !known[f] && len(p.ports) < PortsMax {
			name := falcon.NIC(string(p.cfg.Node) + ".nic" + strconv.Itoa(len(p.ports)))
			p.ports = append(p.ports, &port{
				place:  f,
				name:   name,
				meters: map[string]*meter{},
			})
			grown = true
		}
	}
	return grown
}
