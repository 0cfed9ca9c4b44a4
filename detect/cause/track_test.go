package cause

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// story feeds a History and its plain reference with the same readings.
type story struct {
	packed History
	plain  plainHistory
	rng    *rand.Rand
	now    time.Time
	gpus   []falcon.GPUReading
	hosts  []falcon.HostReading
	nics   []falcon.NICReading
}

func newStory(seed uint64) *story {
	s := &story{
		rng: rand.New(rand.NewPCG(seed, 5)),
		now: time.Unix(1_700_000_000, 0),
	}
	for i := range 4 {
		node := fmt.Sprintf("n%d", i/2)
		s.gpus = append(s.gpus, falcon.GPUReading{
			Device:        falcon.Device(fmt.Sprintf("%s.g%d", node, i%2)),
			SMClockMHz:    1980,
			MaxSMClockMHz: 1980,
		})
		s.nics = append(s.nics, falcon.NICReading{
			NIC:      falcon.NIC(fmt.Sprintf("%s.nic%d", node, i%2)),
			RateMbps: 400_000,
			Active:   true,
		})
	}
	for i := range 2 {
		s.hosts = append(s.hosts, falcon.HostReading{Node: falcon.Node(fmt.Sprintf("n%d", i))})
	}
	return s
}

// odd is true at times.
func (s *story) odd(one int) bool {
	return s.rng.IntN(one) == 0
}

func (s *story) counter(v *uint64, by int) {
	switch {
	case s.odd(400):
		*v = 0 // reset
	case s.odd(400):
		*v = ^uint64(0) - uint64(s.rng.IntN(3))
	case s.odd(3):
		*v += uint64(s.rng.IntN(by))
	}
}

func (s *story) errors(err *string) {
	if s.odd(60) {
		*err = []string{"", "no counters", "no cgroup, no pressure"}[s.rng.IntN(3)]
	}
}

func (s *story) ns() int64 {
	if s.odd(200) {
		return 0
	}
	return s.now.UnixNano() - int64(s.rng.IntN(3e6))
}

// second is one look at everything, at times without some, late, or after a gap.
func (s *story) second() {
	s.now = s.now.Add(time.Second + time.Duration(s.rng.IntN(2e6)))
	if s.odd(300) {
		s.now = s.now.Add(time.Duration(s.rng.IntN(3)) * time.Minute)
	}
	for i := range s.gpus {
		r := &s.gpus[i]
		r.AtNs, r.SMClockMHz, r.ProbeUs = s.ns(), 1965+uint32(s.rng.IntN(16)), 700
		if s.odd(50) {
			r.SMClockMHz, r.Reasons = uint32(s.rng.IntN(2)*900), uint64(s.rng.IntN(2))|falcon.ReasonHwThermal
		}
		for _, c := range []*uint64{&r.ThermalNs, &r.PowerBrakeNs, &r.PowerCapNs, &r.EccFatal, &r.XidCount} {
			s.counter(c, 1e6)
		}
		s.errors(&r.Err)
		if !s.odd(20) {
			s.packed.AddGPU(s.now, *r)
			s.plain.AddGPU(s.now, *r)
		}
	}
	for i := range s.nics {
		r := &s.nics[i]
		r.AtNs, r.Active, r.Emulated = s.ns(), !s.odd(80), s.odd(90)
		for _, c := range []*uint64{
			&r.XmitWait,
			&r.CNPSent,
			&r.CNPHandled,
			&r.ECNMarked,
			&r.Retransmits,
			&r.OutOfSequence,
			&r.LinkDowned,
			&r.XmitBytes,
		} {
			s.counter(c, 2000)
		}
		if s.odd(100) {
			r.RateMbps = uint64(s.rng.IntN(3)) * 200_000
		}
		s.errors(&r.Err)
		s.packed.AddNIC(s.now, *r)
		s.plain.AddNIC(s.now, *r)
	}
	for i := range s.hosts {
		s.host(&s.hosts[i])
	}
}

func (s *story) host(r *falcon.HostReading) {
	r.AtNs = s.ns()
	r.LoadPerCPU = s.rng.Float64()
	r.StealShare = s.rng.Float64() * float64(s.rng.IntN(2))
	r.Emulated = s.odd(90)
	s.counter(&r.PressureUs, 1e6)
	s.counter(&r.ThrottledUs, 1e6)
	was := r.RunDelayNs
	r.RunDelayNs = map[falcon.Rank]uint64{}
	for k := range falcon.Rank(3 + s.rng.IntN(2)) {
		v := was[k]
		s.counter(&v, 1e8)
		r.RunDelayNs[k] = v
	}
	s.errors(&r.Err)
	s.packed.AddHost(s.now, *r)
	s.plain.AddHost(s.now, *r)
}

// What is kept of readings leads to the same figures as the readings themselves: for every
// device, node and port, since any moment.
func TestHistoryIsAsThePlainOne(t *testing.T) {
	stories := 1000
	if testing.Short() {
		stories = 60
	}
	for seed := range uint64(stories) {
		s := newStory(seed)
		for range 40 + s.rng.IntN(400) {
			s.second()
		}
		for range 4 {
			since := s.now.Add(-time.Duration(s.rng.IntN(150)) * time.Second)
			got := s.packed.Since(since)
			want := s.plain.Since(since)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d since %s:\n%+v\n%+v", seed, since, got, want)
			}
			busy, known := s.packed.Busy("n0", nil, since)
			if b, k := s.plain.Busy("n0", nil, since); b != busy || k != known {
				t.Fatalf("seed %d: busy %v %v, want %v %v", seed, busy, known, b, k)
			}
		}
		for _, g := range s.gpus {
			a, b, ok := s.packed.Normal(g.Device)
			c, d, is := s.plain.Normal(g.Device)
			if !a.At.Equal(c.At) ||
				a.Ns != c.Ns ||
				!b.At.Equal(d.At) ||
				b.Ns != d.Ns ||
				ok != is {
				t.Fatalf("seed %d %s: normal %v %v %v, want %v %v %v", seed, g.Device, a, b, ok, c, d, is)
			}
		}
	}
}

// FuzzTrack holds a track against a list, whatever values come.
func FuzzTrack(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 200, 100, 3, 9, 9, 9}, uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, wide uint8) {
		var k track
		var want []look
		at := uint64(0)
		for len(b) > 8 {
			at += uint64(binary.LittleEndian.Uint32(b)) % uint64(time.Minute)
			l := look{values: []uint64{at}, text: string(b[4:5])[:int(b[4])%2]}
			for i := range 1 + int(wide+b[5])%80 {
				l.values = append(l.values,
					binary.LittleEndian.Uint64(append(slices.Clone(b[i%8:]), make([]byte, 8)...)),
				)
			}
			k.add(l)
			want = append(want, look{slices.Clone(l.values), l.text})
			for len(want) > 1 &&
				(len(want) > keepReadings || time.Duration(at-want[0].values[0]) > keepSpan) {
				want = want[1:]
			}
			b = b[6:]
		}
		i := 0
		for l := range k.looks {
			if i >= len(want) ||
				!slices.Equal(l.values, want[i].values) ||
				l.text != want[i].text {
				t.Fatalf("look %d of %d is %v", i, len(want), l)
			}
			i++
		}
		if i != len(want) || k.n != i {
			t.Fatalf("%d looks of %d", i, len(want))
		}
	})
}

// bytesPerLook is what a device at rest may take of memory for a look, its share of what is
// kept once included.
const bytesPerLook = 16

// Readings of devices at rest stay small.
func TestHistoryIsSmall(t *testing.T) {
	const devices, seconds = 500, 200
	rng := rand.New(rand.NewPCG(1, 1))
	used := heapOf(func() any {
		var h History
		for s := range seconds {
			now := time.Unix(int64(s), rng.Int64N(2e6))
			for d := range devices {
				h.AddGPU(now, falcon.GPUReading{
					Device:        falcon.NewDevice("n0", d),
					AtNs:          now.UnixNano() - rng.Int64N(1e6),
					SMClockMHz:    1965 + uint32(rng.IntN(16)),
					MaxSMClockMHz: 1980,
					ProbeUs:       700,
				})
			}
		}
		return &h
	})
	if per := used / devices / int(keepSpan/time.Second); per > bytesPerLook {
		t.Errorf("%d bytes a look", per)
	} else {
		t.Logf("%d bytes a look", per)
	}
}

// heapOf is what a value that is made keeps of the heap.
func heapOf(build func() any) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(v)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}
