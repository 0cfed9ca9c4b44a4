package cause

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// plainHistory is History as it was: every reading whole, in a list.
type plainHistory struct {
	gpus  map[falcon.Device][]stamped[falcon.GPUReading]
	hosts map[falcon.Node][]stamped[falcon.HostReading]
	nics  map[falcon.NIC][]stamped[falcon.NICReading]
}

// AddGPU takes in a look at a GPU that arrived at the given time.
func (h *plainHistory) AddGPU(at time.Time, r falcon.GPUReading) {
	addReading(&h.gpus, r.Device, at, r)
}

// AddNIC takes in a look at a port.
func (h *plainHistory) AddNIC(at time.Time, r falcon.NICReading) {
	addReading(&h.nics, r.NIC, at, r)
}

// AddHost takes in a look at a node's CPU side that arrived at the given time.
func (h *plainHistory) AddHost(at time.Time, r falcon.HostReading) {
	addReading(&h.hosts, r.Node, at, r)
}

func addReading[K comparable, T any](to *map[K][]stamped[T], of K, at time.Time, r T) {
	if *to == nil {
		*to = map[K][]stamped[T]{}
	}
	(*to)[of] = trimplainHistory(append((*to)[of], stamped[T]{at, r}), at)
}

func trimplainHistory[T any](v []stamped[T], now time.Time) []stamped[T] {
	old := 0
	for old < len(v)-1 && (len(v)-old > keepReadings || now.Sub(v[old].at) > keepSpan) {
		old++
	}
	return slices.Delete(v, 0, old)
}

// Since sums up all devices, nodes and ports since a moment.
func (h *plainHistory) Since(moment time.Time) Counters {
	c := Counters{
		GPUs:  map[falcon.Device]GPU{},
		Hosts: map[falcon.Node]Host{},
		NICs:  map[falcon.NIC]NIC{},
	}
	for d, v := range h.gpus {
		c.GPUs[d] = summarizeGPU(splitAt(v, moment))
	}
	for n, v := range h.hosts {
		c.Hosts[n] = summarizeHost(splitAt(v, moment))
	}
	for n, v := range h.nics {
		c.NICs[n] = summarizeNIC(splitAt(v, moment))
	}
	return c
}

// Normal is the first of the newest readings in which the device's clock reads as
// its peers' do, and the last one before them (zero if none is remembered); ok is
// false while the newest reading is lower.
func (h *plainHistory) Normal(d falcon.Device) (since, until Moment, ok bool) {
	v := h.gpus[d]
	reference := h.typicalClock()
	for i := len(v) - 1; i >= 0; i-- {
		r := v[i].of
		if r.SMClockMHz > 0 && r.Reasons&reasonIdle != 0 {
			continue
		}
		if r.MaxSMClockMHz == 0 || float64(r.SMClockMHz) < clockGap*reference*float64(r.MaxSMClockMHz) {
			return since, momentOf(v[i]), ok
		}
		since = momentOf(v[i])
		ok = true
	}
	return since, Moment{}, ok
}

// typicalClock is the median of the devices' newest busy clock over its maximum.
func (h *plainHistory) typicalClock() float64 {
	var out []float64
	for _, v := range h.gpus {
		for i := len(v) - 1; i >= 0; i-- {
			if x, ok := clockOf(v[i].of); ok {
				out = append(out, x)
				break
			}
		}
	}
	return falcon.Median(out)
}

func (h *plainHistory) Busy(n falcon.Node, apart []falcon.Node, since time.Time) (busy, known bool) {
	var here, there []NIC
	for id, v := range h.nics {
		nic := summarizeNIC(splitAt(v, since))
		switch {
		case !nic.Known:
		case id.Node() == n:
			here = append(here, nic)
		case !slices.Contains(apart, id.Node()):
			there = append(there, nic)
		}
	}
	far := func(floor float64, of func(NIC) float64) bool {
		all := make([]float64, len(there))
		for i, q := range there {
			all[i] = of(q)
		}
		usual := falcon.Median(all)
		return slices.ContainsFunc(here, func(q NIC) bool {
			return of(q) > nicTimes*usual && of(q) > floor
		})
	}
	busy = far(marksLeast, func(q NIC) float64 { return q.Marks }) ||
		far(resentLeast, func(q NIC) float64 { return q.Resent }) ||
		far(waitLeast, func(q NIC) float64 { return q.Wait })
	return busy, len(here) > 0
}
