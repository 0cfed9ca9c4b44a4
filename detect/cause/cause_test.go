package cause

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
	"github.com/failslow/falcon/detect/peer"
)

// scene is a DP 4 × PP 2 job on four nodes, judged with counters that a test
// makes up.
func scene(t *testing.T, spoil func(*jobtest.Job)) Case {
	t.Helper()
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 11)
	h := &peer.Healthy{}
	look := func() peer.Result {
		_, profiles := j.Iteration(4, 1)
		return peer.Judge(peer.Window{
			Layout:    j.Layout,
			Placement: j.Placement,
			Comms:     j.Comms,
			Profiles:  profiles,
			Healthy:   h,
		})
	}
	h.Learn(look())
	spoil(j)
	c := Case{
		Layout:    j.Layout,
		Placement: j.Placement,
		Timing:    look(),
		HealthyMs: 140,
		SlowMs:    250,
	}
	c.Counters = Counters{
		GPUs:  map[falcon.Device]GPU{},
		Hosts: map[falcon.Node]Host{},
	}
	for _, d := range j.Placement {
		c.Counters.GPUs[d] = GPU{
			Known:   true,
			Clock:   1,
			Before:  1,
			ProbeUs: 100,
		}
		c.Counters.Hosts[d.Node()] = Host{Known: true, StealShare: 0.01}
	}
	return c
}

func slowGPU(j *jobtest.Job) {
	j.Clock["n1.g0"] = 0.5
}

func slowHost(j *jobtest.Job) {
	j.Share["n1"] = 0.06
}

func TestCauses(t *testing.T) {
	tests := []struct {
		name    string
		spoil   func(*jobtest.Job)
		tell    func(*Case)
		cause   falcon.Cause
		devices []falcon.Device
		least   float64 // confidence
		most    float64
	}{
		{"thermal throttle", slowGPU, func(c *Case) {
			c.Counters.GPUs["n1.g0"] = GPU{
				Known:         true,
				Clock:         0.5,
				Before:        1,
				ThrottleShare: 0.9,
			}
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.9, 1},
		{"clock gap without a throttle counter", slowGPU, func(c *Case) {
			c.Counters.GPUs["n1.g0"] = GPU{
				Known:    true,
				Clock:    0.5,
				Before:   1,
				CapShare: 0.9,
			}
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.7, 0.95},
		{"power cap alone is no cause", slowGPU, func(c *Case) {
			c.Counters.GPUs["n1.g0"] = GPU{
				Known:    true,
				Clock:    1,
				Before:   1,
				CapShare: 1,
				Reasons:  falcon.ReasonSwPowerCap,
			}
		}, falcon.CauseUnknown, []falcon.Device{"n1.g0"}, 0.2, 0.75},
		{"xid", slowGPU, func(c *Case) {
			c.Counters.GPUs["n1.g0"] = GPU{
				Known:   true,
				Clock:   1,
				Before:  1,
				Xids:    1,
				LastXid: 63,
			}
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.8, 1},
		{"stalled probe", slowGPU, func(c *Case) {
			c.Counters.GPUs["n1.g0"] = GPU{
				Known:   true,
				Clock:   1,
				Before:  1,
				ProbeUs: 40e6,
			}
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.7, 0.95},
		{
			"no counters at all", slowGPU, func(c *Case) { c.Counters = Counters{} },
			falcon.CauseGPU,
			[]falcon.Device{"n1.g0"},
			0.4, 0.7,
		},
		{"counters alone make no culprit", func(*jobtest.Job) {}, func(c *Case) {
			c.Counters.GPUs["n2.g1"] = GPU{
				Known:         true,
				Clock:         0.5,
				Before:        1,
				ThrottleShare: 1,
			}
		}, falcon.CauseUnknown, nil, 0, 0.1},
		{"starved host", slowHost, func(c *Case) {
			c.Counters.Hosts["n1"] = Host{Known: true, StealShare: 0.9}
		}, falcon.CauseCPU, []falcon.Device{"n1.g0", "n1.g1"}, 0.9, 1},
		{"starved host by pressure", slowHost, func(c *Case) {
			c.Counters.Hosts["n1"] = Host{Known: true, PressureShare: 0.9}
		}, falcon.CauseCPU, []falcon.Device{"n1.g0", "n1.g1"}, 0.8, 1},
		{
			"starved host without host counters", slowHost, func(c *Case) { clear(c.Counters.Hosts) },
			falcon.CauseCPU,
			[]falcon.Device{"n1.g0", "n1.g1"},
			0.4, 0.8,
		},
		{
			"launches late, host counters normal", slowHost, func(*Case) {},
			falcon.CauseUnknown,
			[]falcon.Device{"n1.g0", "n1.g1"},
			0, 0.7,
		},
		{
			"own work", func(j *jobtest.Job) {
				j.Load = []float64{2, 2}
			}, func(*Case) {},
			falcon.CauseNotHardware, nil, 0.9, 1,
		},
		{
			"own work without counters", func(j *jobtest.Job) {
				j.Load = []float64{2, 2}
			}, func(c *Case) { c.Counters = Counters{} },
			falcon.CauseUnknown, nil, 0, 0.7,
		},
		{
			"dp link", func(j *jobtest.Job) {
				j.Link[falcon.NewLink("n2", "n3")] = 0.1
			}, func(*Case) {},
			falcon.CauseNetwork, nil, 0.6, 0.9,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := scene(t, tt.spoil)
			tt.tell(&c)
			v := Judge(c)
			if v.Cause != tt.cause ||
				!slices.Equal(v.Devices, tt.devices) ||
				v.Confidence < tt.least ||
				v.Confidence > tt.most {
				t.Errorf("%s %v with %.2f, want %s %v with %.2f to %.2f: %+v",
					v.Cause, v.Devices, v.Confidence, tt.cause, tt.devices, tt.least, tt.most,
					v.Evidence)
			}
			for _, e := range v.Evidence {
				if strings.Contains(e.Text, "%!") || e.Text == "" {
					t.Errorf("bad sentence %q", e.Text)
				}
			}
		})
	}
}

func TestFacilityNeedsAllClocksDown(t *testing.T) {
	c := scene(t, func(j *jobtest.Job) { j.Load = []float64{1.5, 1.5} })
	for d := range c.Counters.GPUs {
		c.Counters.GPUs[d] = GPU{
			Known:         true,
			Clock:         0.66,
			Before:        1,
			ThrottleShare: 1,
		}
	}
	if v := Judge(c); v.Cause != falcon.CauseFacility || len(v.Devices) != 8 {
		t.Errorf("%s %v, want facility and all devices", v.Cause, v.Devices)
	}
}

// Fewer measured ranks and a thin margin lower the confidence, nothing else.
func TestDoubtLowersConfidence(t *testing.T) {
	c := scene(t, slowGPU)
	c.Counters.GPUs["n1.g0"] = GPU{
		Known:         true,
		Clock:         0.5,
		Before:        1,
		ThrottleShare: 0.9,
	}
	sure := Judge(c).Confidence
	thin := c
	thin.Timing.Clear = false
	missing := c
	missing.Timing.Missing = 2
	for name, d := range map[string]Case{"thin margin": thin, "missing ranks": missing} {
		if v := Judge(d); v.Confidence >= sure || v.Cause != falcon.CauseGPU {
			t.Errorf("%s: %s with %.2f, sure %.2f", name, v.Cause, v.Confidence, sure)
		}
	}
}

func TestTwoCausesAtOnce(t *testing.T) {
	c := scene(t, func(j *jobtest.Job) {
		j.Clock["n3.g1"] = 0.5
		slowHost(j)
	})
	c.Counters.GPUs["n3.g1"] = GPU{
		Known:         true,
		Clock:         0.5,
		Before:        1,
		ThrottleShare: 0.9,
	}
	c.Counters.Hosts["n1"] = Host{Known: true, StealShare: 0.9}
	v := Judge(c)
	all := append([]falcon.Cause{v.Cause}, v.Also...)
	slices.Sort(all)
	if !slices.Equal(all, []falcon.Cause{falcon.CauseCPU, falcon.CauseGPU}) ||
		!slices.Equal(v.Devices, []falcon.Device{"n1.g0", "n1.g1", "n3.g1"}) {
		t.Errorf("causes %v, devices %v", all, v.Devices)
	}
}

// The grades of the table: the worst column counts.
func TestSeverity(t *testing.T) {
	tests := []struct {
		delay    float64
		links    int
		allLinks bool
		gpus     int
		want     int
	}{
		{0.10, 1, false, 0, 1},
		{0.15, 0, false, 0, 2},
		{0.10, 0, false, 1, 2},
		{0.10, 3, false, 0, 2},
		{0.30, 0, false, 1, 3},
		{0.10, 4, false, 0, 3},
		{0.10, 0, false, 3, 3},
		{0.60, 0, false, 0, 3}, // "above 60 %"
		{0.601, 0, false, 0, 4},
		{0.10, 0, false, 4, 4},
		{0.10, 6, true, 0, 4},
		{0, 0, false, 0, 1},
		{math.Inf(1), 0, false, 0, 4},
	}
	for _, tt := range tests {
		if got := Severity(tt.delay, tt.links, tt.allLinks, tt.gpus); got != tt.want {
			t.Errorf("%+v: severity %d", tt, got)
		}
	}
}
