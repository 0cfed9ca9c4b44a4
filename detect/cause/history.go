package cause

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Bounds of a History: readings kept per GPU and per host. At one reading a
// second the span limits; faster probes are thinned by the ring's size.
const (
	keepReadings = 256
	keepSpan     = 2 * time.Minute
)

// GPU is how a device did since a moment, against the time before it.
type GPU struct {
	Known         bool    // a reading since the moment exists, with a clock in it
	Clock         float64 // SM clock over its maximum, median since the moment
	Before        float64 // the same before the moment, 0 when not seen
	ThrottleShare float64 // share of the time slowed for heat or by the power brake
	CapShare      float64 // share of the time at the software power cap
	Fatal         uint64  // uncorrectable ECC errors since
	Xids          uint64  // XID events since
	LastXid       uint32
	ProbeUs       float64 // median time a probe took
	Reasons       uint64  // every clocks-event reason seen since
}

// Host is how a node's CPUs did since a moment.
type Host struct {
	Known          bool
	StealShare     float64 // median since the moment
	PressureShare  float64 // of the time, some rank waited for a CPU
	ThrottledShare float64 // of the time, the ranks' cgroup was throttled
	RunDelayShare  float64 // of the time, the worst rank was runnable and did not run
	LoadPerCPU     float64
	// the lab's knob answered for StealShare; the kernel's figures are of the
	// machine that all nodes share
	Emulated bool
	Before   *Host // the same before the moment, nil when not seen
}

// Counters is the view of all devices, nodes and ports since one moment.
type Counters struct {
	GPUs  map[falcon.Device]GPU
	Hosts map[falcon.Node]Host
	NICs  map[falcon.NIC]NIC
}

type stamped[T any] struct {
	at time.Time
	of T
}

// History keeps the last two minutes of readings, as far as a summary reads them. The zero
// value is empty.
type History struct {
	begun time.Time // arrivals are counted from here
	room  []uint64  // of the look that is taken in
	gpus  map[falcon.Device]*track
	hosts map[falcon.Node]*track
	nics  map[falcon.NIC]*track
}

// AddGPU takes in a look at a GPU that arrived at the given time.
func (h *History) AddGPU(at time.Time, r falcon.GPUReading) {
	h.room = addLook(&h.gpus, r.Device, gpuLook(h.room[:0], h.stamp(at), &r))
}

// AddHost takes in a look at a node's CPU side that arrived at the given time.
func (h *History) AddHost(at time.Time, r falcon.HostReading) {
	h.room = addLook(&h.hosts, r.Node, hostLook(h.room[:0], h.stamp(at), &r))
}

// AddNIC takes in a look at a network port that arrived at the given time.
func (h *History) AddNIC(at time.Time, r falcon.NICReading) {
	h.room = addLook(&h.nics, r.NIC, nicLook(h.room[:0], h.stamp(at), &r))
}

// stamp is an arrival as a number.
func (h *History) stamp(at time.Time) uint64 {
	if h.begun.IsZero() {
		h.begun = at
	}
	return uint64(at.Sub(h.begun))
}

// addLook returns the room that the look took.
func addLook[K comparable](to *map[K]*track, of K, l look) []uint64 {
	if *to == nil {
		*to = map[K]*track{}
	}
	t := (*to)[of]
	if t == nil {
		t = &track{}
		(*to)[of] = t
	}
	t.add(l)
	return l.values
}

// readAll are a track's looks, oldest first, as readings: in room that the next call uses again.
func readAll[T any](h *History, t *track, as func(look) T, room *[]stamped[T]) []stamped[T] {
	out := (*room)[:0]
	for l := range t.looks {
		out = append(out, stamped[T]{h.arrival(l), as(l)})
	}
	*room = out
	return out
}

func (h *History) arrival(l look) time.Time {
	return h.begun.Add(time.Duration(l.values[0]))
}

// Since sums up all devices, nodes and ports since a moment.
func (h *History) Since(moment time.Time) Counters {
	c := Counters{
		GPUs:  map[falcon.Device]GPU{},
		Hosts: map[falcon.Node]Host{},
		NICs:  map[falcon.NIC]NIC{},
	}
	var gpus []stamped[falcon.GPUReading]
	for d, t := range h.gpus {
		c.GPUs[d] = summarizeGPU(splitAt(readAll(h, t, gpuOf, &gpus), moment))
	}
	var hosts []stamped[falcon.HostReading]
	for n, t := range h.hosts {
		c.Hosts[n] = summarizeHost(splitAt(readAll(h, t, hostOf, &hosts), moment))
	}
	var nics []stamped[falcon.NICReading]
	for n, t := range h.nics {
		c.NICs[n] = summarizeNIC(splitAt(readAll(h, t, nicOf, &nics), moment))
	}
	return c
}

// endReadings are the two readings that counters are compared between: the newest that
// brought anything, and the newest before the moment that lacks the same fields
// as it, else the oldest since. A field that a look could not read is zero: a
// difference to it would take the counter's whole past for its growth.
func endReadings[T any](
	before, since []stamped[T],
	brought func(T) bool,
	lacks func(T) string,
) (first, last T, ok bool) {
	i := len(since) - 1
	for i >= 0 && !brought(since[i].of) {
		i--
	}
	if i < 0 {
		return first, last, false
	}
	last = since[i].of
	like := func(s stamped[T]) bool {
		return brought(s.of) && lacks(s.of) == lacks(last)
	}
	for k := len(before) - 1; k >= 0; k-- {
		if like(before[k]) {
			return before[k].of, last, true
		}
	}
	return since[slices.IndexFunc(since, like)].of, last, true
}

// splitAt parts readings at a moment; the last one before it opens the deltas.
func splitAt[T any](v []stamped[T], moment time.Time) (before, since []stamped[T]) {
	i := slices.IndexFunc(v, func(s stamped[T]) bool {
		return !s.at.Before(moment)
	})
	if i < 0 {
		return v, nil
	}
	return v[:i], v[i:]
}

// clockOf is a reading's SM clock as a share of its maximum. The clock of a GPU
// that nothing runs on says nothing: it drops by itself, as while the job is
// held, saves a checkpoint, or launches late.
func clockOf(r falcon.GPUReading) (float64, bool) {
	return float64(r.SMClockMHz) / float64(r.MaxSMClockMHz),
		r.MaxSMClockMHz > 0 && r.SMClockMHz > 0 && r.Reasons&reasonIdle == 0
}

// reasonIdle is NVML's clocks-event reason of a GPU that nothing runs on.
const reasonIdle = 0x1

func summarizeGPU(before, since []stamped[falcon.GPUReading]) GPU {
	var g GPU
	if g.Clock, g.Known = medianOf(since, clockOf); !g.Known {
		return GPU{}
	}
	g.Before, _ = medianOf(before, clockOf)
	g.ProbeUs, _ = medianOf(since, func(r falcon.GPUReading) (float64, bool) {
		return float64(r.ProbeUs), true
	})
	for _, s := range since {
		g.Reasons |= s.of.Reasons
	}
	read := func(r falcon.GPUReading) bool { return r.SMClockMHz > 0 }
	first, last, _ := endReadings(before, since, read, func(r falcon.GPUReading) string { return r.Err })
	span := float64(last.AtNs - first.AtNs)
	g.ThrottleShare = shareOf(
		counterGrowth(first.ThermalNs, last.ThermalNs)+counterGrowth(first.PowerBrakeNs, last.PowerBrakeNs),
		span,
	)
	g.CapShare = shareOf(counterGrowth(first.PowerCapNs, last.PowerCapNs), span)
	g.Fatal = counterGrowth(first.EccFatal, last.EccFatal)
	g.Xids = counterGrowth(first.XidCount, last.XidCount)
	g.LastXid = last.LastXid
	return g
}

// summarizeHost sums up the looks since a moment; Before is those before it.
func summarizeHost(before, since []stamped[falcon.HostReading]) Host {
	h := hostShares(before, since)
	if past := hostShares(nil, before); h.Known && past.Known {
		h.Before = &past
	}
	return h
}

func hostShares(before, since []stamped[falcon.HostReading]) Host {
	var h Host
	h.StealShare, h.Known = medianOf(since, func(r falcon.HostReading) (float64, bool) {
		return r.StealShare, hasReading(r)
	})
	if !h.Known {
		return Host{}
	}
	h.LoadPerCPU, _ = medianOf(since, func(r falcon.HostReading) (float64, bool) {
		return r.LoadPerCPU, hasReading(r)
	})
	first, last, _ := endReadings(before, since, hasReading, func(r falcon.HostReading) string {
		return r.Err
	})
	spanUs := float64(last.AtNs-first.AtNs) / 1e3
	h.PressureShare = shareOf(counterGrowth(first.PressureUs, last.PressureUs), spanUs)
	h.ThrottledShare = shareOf(counterGrowth(first.ThrottledUs, last.ThrottledUs), spanUs)
	for rank, delay := range last.RunDelayNs {
		if start, ok := first.RunDelayNs[rank]; ok {
			h.RunDelayShare = max(
				h.RunDelayShare,
				shareOf(counterGrowth(start, delay), float64(last.AtNs-first.AtNs)),
			)
		}
	}
	h.Emulated = last.Emulated
	return h
}

// hasReading reports whether a look brought anything: Err may name files that this
// kernel lacks beside figures that are there.
func hasReading(r falcon.HostReading) bool {
	return r.Err == "" ||
		r.Emulated ||
		r.PressureUs > 0 ||
		r.ThrottledUs > 0 ||
		len(r.RunDelayNs) > 0
}

// counterGrowth is a counter's growth; one that went back was reset and says nothing.
func counterGrowth(first, last uint64) uint64 {
	if last < first {
		return 0
	}
	return last - first
}

func shareOf(part uint64, span float64) float64 {
	if span <= 0 {
		return 0
	}
	return min(1, float64(part)/span)
}

func medianOf[T any](v []stamped[T], value func(T) (float64, bool)) (float64, bool) {
	var out []float64
	for _, s := range v {
		if x, ok := value(s.of); ok {
			out = append(out, x)
		}
	}
	return falcon.Median(out), len(out) > 0
}

// Moment is when a reading arrived, and when it was taken.
type Moment struct {
	At time.Time // by the engine's clock
	Ns int64     // Unix ns by the node's, 0 = unknown
}

func momentOf(s stamped[falcon.GPUReading]) Moment {
	return Moment{s.at, s.of.AtNs}
}

// Normal is the first of the newest readings in which the device's clock reads as
// its peers' do, and the last one before them (zero if none is remembered); ok is
// false while the newest reading is lower.
func (h *History) Normal(d falcon.Device) (since, until Moment, ok bool) {
	t := h.gpus[d]
	if t == nil {
		return since, until, false
	}
	var room []stamped[falcon.GPUReading]
	v := readAll(h, t, gpuOf, &room)
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
func (h *History) typicalClock() float64 {
	var out []float64
	var room []stamped[falcon.GPUReading]
	for _, t := range h.gpus {
		if x, ok := clockOf(gpuOf(t.last)); ok {
			out = append(out, x)
			continue
		}
		v := readAll(h, t, gpuOf, &room)
		for i := len(v) - 1; i >= 0; i-- {
			if x, ok := clockOf(v[i].of); ok {
				out = append(out, x)
				break
			}
		}
	}
	return falcon.Median(out)
}
