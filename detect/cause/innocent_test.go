package cause

import (
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

func second(s int) time.Time {
	return time.Unix(int64(s), 0)
}

// A look that brought nothing, as while the driver hangs, is no counter at zero:
// the next one would show its whole past as growth.
func TestALookThatFailedMakesNoGrowth(t *testing.T) {
	var h History
	for s := range 30 {
		gpu := falcon.GPUReading{
			Device:        "n0.g0",
			AtNs:          int64(s) * 1e9,
			SMClockMHz:    1980,
			MaxSMClockMHz: 1980,
			ThermalNs:     5e12,
			XidCount:      4,
			EccFatal:      2,
		}
		host := falcon.HostReading{
			Node:        "n0",
			AtNs:        int64(s) * 1e9,
			PressureUs:  9e12,
			ThrottledUs: 9e12,
		}
		nic := falcon.NICReading{
			NIC:        "n0.nic0",
			AtNs:       int64(s) * 1e9,
			RateMbps:   400_000,
			Active:     true,
			CNPHandled: 1e9,
			XmitWait:   1e12,
			LinkDowned: 7,
			Err:        "not offered: symbol_error",
		}
		if s%10 == 9 {
			gpu = falcon.GPUReading{
				Device:  "n0.g0",
				AtNs:    int64(s) * 1e9,
				ProbeUs: 100,
				Err:     "not read: nvml hangs at n0.g1",
			}
			host = falcon.HostReading{
				Node: "n0",
				AtNs: int64(s) * 1e9,
				Err:  "can't be read",
			}
			nic = falcon.NICReading{
				NIC:  "n0.nic0",
				AtNs: int64(s) * 1e9,
				Err:  "sysfs has not answered for 5 s",
			}
		}
		h.AddGPU(second(s), gpu)
		h.AddHost(second(s), host)
		h.AddNIC(second(s), nic)
	}
	c := h.Since(second(20))
	g := c.GPUs["n0.g0"]
	if !g.Known || g.Xids+g.Fatal > 0 || g.ThrottleShare > 0 {
		t.Errorf("GPU %+v", g)
	}
	q := c.Hosts["n0"]
	if !q.Known || q.PressureShare+q.ThrottledShare > 0 || q.Before == nil {
		t.Errorf("host %+v", q)
	}
	n := c.NICs["n0.nic0"]
	if !n.Known ||
		n.Down ||
		n.Downed > 0 ||
		n.Marks+n.Wait+n.MarksBefore+n.WaitBefore > 0 ||
		n.RateMbps != 400_000 {
		t.Errorf("port %+v", n)
	}
}

// The clock of a GPU that waits for its host drops by itself.
func TestAnIdleClockIsNoProof(t *testing.T) {
	var h History
	for s := range 20 {
		r := reading("n0.g0", s, 2000, 0)
		if s >= 10 && s%2 == 0 {
			r.SMClockMHz, r.Reasons = 345, reasonIdle
		}
		h.AddGPU(second(s), r)
		h.AddGPU(second(s), reading("n0.g1", s, 2000, 0))
	}
	if g := h.Since(second(10)).GPUs["n0.g0"]; g.Clock != 1 {
		t.Errorf("%+v", g)
	}
	h.AddGPU(second(20), falcon.GPUReading{
		Device:        "n0.g0",
		AtNs:          20e9,
		SMClockMHz:    345,
		MaxSMClockMHz: 2000,
		Reasons:       reasonIdle,
	})
	if _, until, ok := h.Normal("n0.g0"); !ok || !until.At.IsZero() {
		t.Errorf("normal %v, until %v", ok, until)
	}
}

func TestPortsThatLostTheirLink(t *testing.T) {
	up := falcon.NICReading{
		RateMbps:  400_000,
		Active:    true,
		XmitBytes: 5,
	}
	down := falcon.NICReading{XmitBytes: 5}
	partly := falcon.NICReading{
		RateMbps:  400_000,
		Active:    true,
		XmitBytes: 5,
		Err:       "not offered: port_xmit_wait",
	}
	for name, tt := range map[string]struct {
		before, since []falcon.NICReading
		want          bool
	}{
		"up":   {[]falcon.NICReading{up, up}, []falcon.NICReading{up, up}, false},
		"down": {[]falcon.NICReading{up, up}, []falcon.NICReading{down, down}, true},
		"down beside what it lacks": {
			[]falcon.NICReading{partly},
			[]falcon.NICReading{{XmitBytes: 5, Err: partly.Err}, {
				XmitBytes: 5,
				Err:       partly.Err,
			}},
			true,
		},
		"gone": {
			[]falcon.NICReading{up},
			[]falcon.NICReading{
				{XmitBytes: 5, Err: "the port is gone"},
				{XmitBytes: 5, Err: "the port is gone"},
			},
			true,
		},
		"no answer": {
			[]falcon.NICReading{up},
			[]falcon.NICReading{
				up,
				{Err: "sysfs has not answered for 5 s"},
				{Err: "sysfs has not answered for 6 s"},
			},
			false,
		},
		"one look":                    {[]falcon.NICReading{up}, []falcon.NICReading{up, down}, false},
		"back":                        {[]falcon.NICReading{up}, []falcon.NICReading{down, down, up}, false},
		"never had a cable":           {[]falcon.NICReading{{}, {}}, []falcon.NICReading{{}, {}}, false},
		"never had one, and counters": {[]falcon.NICReading{down}, []falcon.NICReading{down, down}, false},
	} {
		var h History
		for i, r := range slices.Concat(tt.before, tt.since) {
			r.NIC = "n0.nic0"
			r.AtNs = int64(i) * 1e9
			h.AddNIC(second(i), r)
		}
		n := h.Since(second(len(tt.before))).NICs["n0.nic0"]
		if n.Down != tt.want {
			t.Errorf("%s: down %v, want %v", name, n.Down, tt.want)
		}
	}
}

// A management port of 25 Gb/s beside eight of 400 is not degraded; one whose
// rate fell, or that is below its rail where no past is known, is.
func TestRatesAreComparedWithTheSamePort(t *testing.T) {
	c := Case{Counters: Counters{NICs: map[falcon.NIC]NIC{}}}
	for _, n := range []string{"n0", "n1", "n2", "n3"} {
		c.Counters.NICs[falcon.NIC(n+".nic0")] = NIC{RateMbps: 25_000}
		c.Counters.NICs[falcon.NIC(n+".nic1")] = NIC{RateMbps: 400_000}
		c.Counters.NICs[falcon.NIC(n+".nic2")] = NIC{
			RateMbps:   400_000,
			RateBefore: 400_000,
		}
	}
	for id := range c.Counters.NICs {
		if said := c.degraded(id); said != "" {
			t.Errorf("%s: %s", id, said)
		}
	}
	c.Counters.NICs["n1.nic1"] = NIC{RateMbps: 100_000}
	c.Counters.NICs["n2.nic2"] = NIC{RateMbps: 200_000, RateBefore: 400_000}
	for _, id := range []falcon.NIC{"n1.nic1", "n2.nic2"} {
		if c.degraded(id) == "" {
			t.Errorf("%s is not told", id)
		}
	}
}

// Hosts of a kind of job that always presses on its CPUs prove nothing on one
// node; a share that rose since the onset does.
func TestASingleHostIsComparedWithItsPast(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before *Host
		want   falcon.Cause
	}{
		{"always so", &Host{Known: true, PressureShare: 0.38}, falcon.CauseUnknown},
		{"nothing known", nil, falcon.CauseUnknown},
		{"rose", &Host{Known: true, PressureShare: 0.05}, falcon.CauseCPU},
	} {
		c := scene(t, slowGPU) // a rank is slow; its counters do not say why
		for i, d := range c.Placement {
			c.Placement[i] = falcon.NewDevice("n0", i)
			g := c.Counters.GPUs[d]
			delete(c.Counters.GPUs, d)
			c.Counters.GPUs[c.Placement[i]] = g
		}
		for i := range c.Timing.Ranks {
			c.Timing.Ranks[i].QueueMs = 0.6 * c.Timing.Ranks[i].LeadMs // says neither
		}
		c.Counters.Hosts = map[falcon.Node]Host{"n0": {
			Known:         true,
			PressureShare: 0.4,
			Before:        tt.before,
		}}
		if v := Judge(c); v.Cause != tt.want {
			t.Errorf("%s: %s, want %s: %+v", tt.name, v.Cause, tt.want, v.Evidence)
		}
	}
}

// A clock that was low all along explains no onset and confirms no rank.
func TestALowClockOfOldConfirmsNobody(t *testing.T) {
	c := scene(t, func(j *jobtest.Job) { j.Clock["n1.g0"] = 0.85 })
	c.Counters.GPUs["n1.g0"] = GPU{Known: true, Clock: 0.9, Before: 0.9}
	if c.Confirmed(2) {
		t.Error("confirmed by a clock that did not change")
	}
	c.Counters.GPUs["n1.g0"] = GPU{Known: true, Clock: 0.9, Before: 0.99}
	if !c.Confirmed(2) {
		t.Error("a clock that fell confirms it")
	}
}
