package cause

import (
	"math"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

func reading(d falcon.Device, second, clock int, thermalMs uint64) falcon.GPUReading {
	return falcon.GPUReading{
		Device:        d,
		AtNs:          int64(second) * 1e9,
		SMClockMHz:    uint32(clock),
		MaxSMClockMHz: 2000,
		ThermalNs:     thermalMs * 1e6,
	}
}

func TestDeltasRunFromBeforeTheOnset(t *testing.T) {
	var h History
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for s := range 10 {
		h.AddGPU(at(s), reading("n0.g0", s, 2000, 500))
	}
	for s := 10; s < 15; s++ {
		h.AddGPU(at(s), reading("n0.g0", s, 1000, 500+1000*uint64(s-9)))
	}
	g := h.Since(at(10)).GPUs["n0.g0"]
	if !g.Known ||
		g.Clock != 0.5 ||
		g.Before != 1 ||
		math.Abs(g.ThrottleShare-1) > 1e-9 {
		t.Errorf("%+v", g)
	}
	if g := h.Since(at(99)).GPUs["n0.g0"]; g.Known {
		t.Errorf("known without a reading since the moment: %+v", g)
	}
}

func TestACounterThatWentBackSaysNothing(t *testing.T) {
	var h History
	h.AddGPU(time.Unix(1, 0), reading("n0.g0", 1, 2000, 90_000))
	h.AddGPU(time.Unix(2, 0), reading("n0.g0", 2, 2000, 3))
	if g := h.Since(time.Unix(2, 0)).GPUs["n0.g0"]; g.ThrottleShare != 0 {
		t.Errorf("share %v of a counter that was reset", g.ThrottleShare)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range 10_000 {
		at := time.Unix(0, int64(i)*int64(100*time.Millisecond))
		h.AddGPU(at, reading("n0.g0", i, 2000, 0))
		h.AddHost(at, falcon.HostReading{Node: "n0", AtNs: at.UnixNano()})
	}
	if n, m := h.gpus["n0.g0"].n, h.hosts["n0"].n; n > keepReadings || m > keepReadings {
		t.Errorf("%d and %d readings kept", n, m)
	}
	old := time.Unix(10_000, 0)
	h.AddGPU(old, reading("n0.g0", 10_000, 2000, 0))
	if n := h.gpus["n0.g0"].n; n != 1 {
		t.Errorf("%d readings kept that are older than the span", n-1)
	}
}

func TestNormalDatesTheReturnOfTheClock(t *testing.T) {
	var h History
	for s := range 20 {
		clock := 2000
		if s >= 5 && s < 12 {
			clock = 1000
		}
		h.AddGPU(time.Unix(int64(s), 0), reading("n0.g0", s, clock, 0))
		h.AddGPU(time.Unix(int64(s), 0), reading("n0.g1", s, 2000, 0))
		h.AddGPU(time.Unix(int64(s), 0), reading("n1.g0", s, 2000, 0))
		_, _, ok := h.Normal("n0.g0")
		if ok != (clock == 2000) {
			t.Errorf("second %d: normal %v at %d MHz", s, ok, clock)
		}
	}
	at, bad, _ := h.Normal("n0.g0")
	if at.At.Unix() != 12 || bad.At.Unix() != 11 {
		t.Errorf("normal since %v, not at %v, want seconds 12 and 11", at.At.Unix(), bad.At.Unix())
	}
}

func TestRunDelayOfTheWorstRank(t *testing.T) {
	var h History
	for s := range 5 {
		h.AddHost(time.Unix(int64(s), 0), falcon.HostReading{
			Node: "n0",
			AtNs: int64(s) * 1e9,
			Err:  "no cgroup",
			RunDelayNs: map[falcon.Rank]uint64{
				0: uint64(s) * 1e7,
				1: uint64(s) * 5e8,
			},
		})
	}
	got := h.Since(time.Unix(2, 0)).Hosts["n0"]
	if !got.Known || math.Abs(got.RunDelayShare-0.5) > 1e-9 {
		t.Errorf("%+v, want known and a run delay of half the time", got)
	}
}

func TestHostReadingsWithErrorsDoNotCount(t *testing.T) {
	var h History
	h.AddHost(time.Unix(1, 0), falcon.HostReading{Node: "n0", Err: "no cgroup"})
	if h.Since(time.Unix(0, 0)).Hosts["n0"].Known {
		t.Error("a host without counters counts as known")
	}
}
