package cause

import (
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
	"github.com/failslow/falcon/detect/peer"
)

// ringScene is a DP 4 job on four nodes whose ring is slow: timing names it,
// not its link.
func ringScene(t *testing.T, spoil func(*jobtest.Job)) Case {
	t.Helper()
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 1}, 4, 8, 13)
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
		HealthyMs: 120,
		SlowMs:    170,
	}
	c.Counters = Counters{NICs: map[falcon.NIC]NIC{}}
	for _, d := range j.Placement {
		c.Counters.NICs[falcon.NIC(string(d.Node())+".nic0")] = NIC{
			Known:       true,
			Marks:       1,
			MarksBefore: 1,
			RateMbps:    400_000,
		}
	}
	return c
}

func slowRing(j *jobtest.Job) {
	j.Link[falcon.NewLink("n1", "n2")] = 0.05
}

// tested runs a validation of the whole ring as the synthetic job would, with more
// trouble than the profile saw.
func tested(c *Case, links map[falcon.Link]float64) {
	j := jobtest.New(c.Layout, 4, 8, 5)
	for l, f := range links {
		j.Link[l] = f
	}
	v := j.Validate(falcon.ValidationAsk{Rings: [][]falcon.Rank{{0, 1, 2, 3}}})
	c.Tests = &Tests{Links: v.Links}
}

func hot(c *Case, nodes ...falcon.Node) {
	for _, n := range nodes {
		c.Counters.NICs[falcon.NIC(string(n)+".nic0")] = NIC{
			Known:       true,
			Marks:       900,
			MarksBefore: 1,
			RateMbps:    400_000,
		}
	}
}

func TestLinksAreNamedByTheMostDirectProof(t *testing.T) {
	l12, l03 := falcon.NewLink("n1", "n2"), falcon.NewLink("n0", "n3")
	tests := []struct {
		name  string
		tell  func(*Case)
		links []falcon.Link
		least float64
		most  float64
	}{
		{"timing alone", func(*Case) {}, nil, 0.4, 0.6},
		{"a test that judged nothing", func(c *Case) {
			tested(c, nil)
			for i := range c.Tests.Links {
				c.Tests.Links[i].Unjudged = falcon.NothingToCompare
			}
		}, nil, 0.4, 0.6},
		{
			"a test",
			func(c *Case) { tested(c, map[falcon.Link]float64{l12: 0.05}) },
			[]falcon.Link{l12},
			0.9,
			0.96,
		},
		{
			"a test that finds two",
			func(c *Case) {
				tested(c, map[falcon.Link]float64{l12: 0.05, l03: 0.06})
			},
			[]falcon.Link{l12, l03},
			0.9,
			0.96,
		},
		{
			"a lesser slowness beside it",
			func(c *Case) {
				tested(c, map[falcon.Link]float64{l12: 0.05, l03: 0.7})
			},
			[]falcon.Link{l12},
			0.9,
			0.96,
		},
		{"a test that finds none", func(c *Case) { tested(c, nil) }, nil, 0.2, 0.6},
		{"ports of both ends", func(c *Case) { hot(c, "n1", "n2") }, []falcon.Link{l12}, 0.8, 0.9},
		{"ports of most nodes name no link", func(c *Case) { hot(c, "n1", "n2", "n3") }, nil, 0.4, 0.6},
		{"one port names no link", func(c *Case) { hot(c, "n1") }, nil, 0.4, 0.6},
		{"ports everywhere name no link", func(c *Case) { hot(c, "n0", "n1", "n2", "n3") }, nil, 0.4, 0.6},
		{"a test against the ports", func(c *Case) {
			hot(c, "n2", "n3")
			tested(c, map[falcon.Link]float64{l12: 0.05})
		}, []falcon.Link{l12}, 0.9, 0.96},
		{"a test and the ports", func(c *Case) {
			hot(c, "n1", "n2")
			tested(c, map[falcon.Link]float64{l12: 0.05})
		}, []falcon.Link{l12}, 0.97, 1},
		{"a port below its peers' rate", func(c *Case) {
			c.Counters.NICs["n1.nic0"] = NIC{
				Known:       true,
				Marks:       1,
				MarksBefore: 1,
				RateMbps:    100_000,
			}
		}, nil, 0.6, 0.8},
		{
			"a refused test",
			func(c *Case) { c.Tests = &Tests{Refused: "rank 2 captures a graph"} },
			nil,
			0.35,
			0.55,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := ringScene(t, slowRing)
			tt.tell(&c)
			sortLinks(tt.links)
			v := Judge(c)
			if v.Cause != falcon.CauseNetwork ||
				!slices.Equal(v.Links, tt.links) ||
				len(v.Devices) > 0 ||
				v.Confidence < tt.least ||
				v.Confidence > tt.most {
				t.Errorf("%s %v %v with %.2f, want %v with %.2f to %.2f: %+v",
					v.Cause, v.Devices, v.Links, v.Confidence, tt.links, tt.least, tt.most,
					v.Evidence)
			}
		})
	}
}

// Ports and tests make no culprit where no transfer is long.
func TestCongestionWithoutASlowTransferNamesNobody(t *testing.T) {
	c := ringScene(t, func(*jobtest.Job) {})
	hot(&c, "n1", "n2")
	tested(&c, map[falcon.Link]float64{falcon.NewLink("n1", "n2"): 0.1})
	if v := Judge(c); v.Cause != falcon.CauseUnknown || len(v.Links) > 0 {
		t.Errorf("%s %v: %+v", v.Cause, v.Links, v.Evidence)
	}
}

// What a matrix multiplication says about a slow rank.
func TestMultiplications(t *testing.T) {
	result := func(d falcon.Device, ratio float64) *Tests {
		return &Tests{GEMM: []falcon.GEMMResult{{
			Device:   d,
			Ms:       4 * ratio,
			MedianMs: 4,
			Ratio:    ratio,
			Slow:     ratio > 1.2,
		}}}
	}
	blind := func(c *Case) { c.Counters = Counters{} }
	tests := []struct {
		name    string
		spoil   func(*jobtest.Job)
		tell    func(*Case)
		cause   falcon.Cause
		devices []falcon.Device
		least   float64
	}{
		{"slow, no counters", slowGPU, func(c *Case) {
			blind(c)
			c.Tests = result("n1.g0", 2)
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.75},
		{
			"slow, counters normal",
			slowGPU,
			func(c *Case) { c.Tests = result("n1.g0", 2) },
			falcon.CauseGPU,
			[]falcon.Device{"n1.g0"},
			0.9,
		},
		{"healthy, the host late, no counters", slowHost, func(c *Case) {
			blind(c)
			c.Tests = result("n1.g0", 1)
		}, falcon.CauseCPU, []falcon.Device{"n1.g0", "n1.g1"}, 0.5},
		{"healthy, the host late, host counters normal", slowHost, func(c *Case) {
			c.Tests = &Tests{
				GEMM: []falcon.GEMMResult{
					{Device: "n1.g0", Ms: 4, Ratio: 1},
					{Device: "n1.g1", Ms: 4, Ratio: 1},
				},
			}
		}, falcon.CauseCPU, []falcon.Device{"n1.g0", "n1.g1"}, 0.5},
		{"healthy against a GPU without counters", slowGPU, func(c *Case) {
			blind(c)
			c.Tests = result("n1.g0", 1)
		}, falcon.CauseUnknown, []falcon.Device{"n1.g0"}, 0},
		{
			"slow where no rank is",
			func(*jobtest.Job) {},
			func(c *Case) { c.Tests = result("n1.g0", 2) },
			falcon.CauseUnknown,
			nil,
			0,
		},
		{
			"right below the profile's rule",
			func(j *jobtest.Job) { j.Clock["n1.g0"] = 0.93 },
			func(c *Case) { c.Tests = result("n1.g0", 1.3) },
			falcon.CauseGPU,
			[]falcon.Device{"n1.g0"},
			0.7,
		},
		{"not judged against a GPU without counters", slowGPU, func(c *Case) {
			blind(c)
			c.Tests = &Tests{GEMM: []falcon.GEMMResult{{
				Device:   "n1.g0",
				Ms:       4,
				MedianMs: 4,
				Ratio:    1,
				Unjudged: falcon.NothingToCompare,
			}}}
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.4},
		{"failed", slowGPU, func(c *Case) {
			blind(c)
			c.Tests = &Tests{GEMM: []falcon.GEMMResult{{
				Device: "n1.g0",
				Err:    "out of memory",
			}}}
		}, falcon.CauseGPU, []falcon.Device{"n1.g0"}, 0.4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := scene(t, tt.spoil)
			tt.tell(&c)
			v := Judge(c)
			if v.Cause != tt.cause ||
				!slices.Equal(v.Devices, tt.devices) ||
				v.Confidence < tt.least {
				t.Errorf("%s %v with %.2f, want %s %v with at least %.2f: %+v",
					v.Cause, v.Devices, v.Confidence, tt.cause, tt.devices, tt.least, v.Evidence)
			}
		})
	}
}

func TestPortRatesComeFromDeltas(t *testing.T) {
	var h History
	for s := range 20 {
		r := falcon.NICReading{
			NIC:        "n0.nic0",
			AtNs:       int64(s) * 1e9,
			RateMbps:   400_000,
			Active:     true,
			CNPHandled: uint64(s),
		}
		if s >= 10 {
			r.CNPHandled = uint64(9 + (s-9)*100)
			r.Retransmits = uint64(2 * (s - 9))
			r.LinkDowned = 1
		}
		h.AddNIC(time.Unix(int64(s), 0), r)
	}
	n := h.Since(time.Unix(10, 0)).NICs["n0.nic0"]
	if !n.Known ||
		n.Marks != 100 ||
		n.MarksBefore != 1 ||
		n.Resent != 2 ||
		n.Downed != 1 ||
		n.Down {
		t.Errorf("%+v", n)
	}
	for i := range 5000 {
		h.AddNIC(time.Unix(int64(i), 0), falcon.NICReading{NIC: "n0.nic0"})
	}
	if got := h.nics["n0.nic0"].n; got > keepReadings {
		t.Errorf("%d readings kept", got)
	}
}

// A receive waits for the work of its sender as well: where work is uneven, long receives accuse
// no link that serves other pairs as ever and is healthy in tests, and they do where one is not.
func TestLongReceivesOfUnevenWorkAreRefutedByTests(t *testing.T) {
	pair := func(from, to falcon.Rank, ms float64) peer.Pair {
		return peer.Pair{
			From:    from,
			To:      to,
			Bytes:   1 << 18,
			RecvMs:  ms,
			BaseMs:  0.2,
			Ratio:   ms / 0.2,
			Basis:   peer.ByPeers,
			Suspect: ms > 1,
		}
	}
	result := func(from, to falcon.Device, ratio float64) falcon.LinkResult {
		return falcon.LinkResult{
			FromDevice: from,
			ToDevice:   to,
			Class:      falcon.LinkSameRail,
			Ms:         ratio,
			BaseMs:     1,
			Basis:      "class",
			Ratio:      ratio,
			Slow:       ratio > 1.2,
		}
	}
	healthy := []falcon.LinkResult{
		result("n1.g0", "n0.g0", 1),
		result("n1.g1", "n0.g1", 1),
		result("n1.g2", "n0.g2", 1.02),
	}
	tests := []struct {
		name   string
		tell   func(*Case)
		cause  falcon.Cause
		tested bool // the evidence says so
	}{
		{"healthy in tests", func(*Case) {}, falcon.CauseNotHardware, true},
		{"even work", func(c *Case) { c.Timing.Uneven = false }, falcon.CauseNetwork, true},
		{"no test", func(c *Case) { c.Tests = nil }, falcon.CauseNetwork, false},
		{
			"one of its rails is slow in a test",
			func(c *Case) {
				c.Tests.Links[0] = result("n1.g0", "n0.g0", 2)
			},
			falcon.CauseNetwork,
			false,
		},
		{
			"no other pair uses it",
			func(c *Case) { c.Timing.Pairs = c.Timing.Pairs[:1] },
			falcon.CauseNetwork,
			false,
		},
		{
			"most pairs are slow: the tests have no reference",
			func(c *Case) { c.Timing.Pairs[1] = pair(4, 1, 1.3) },
			falcon.CauseNetwork,
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Case{
				Layout:    falcon.Layout{TP: 1, DP: 3, PP: 2},
				Placement: falcon.Placement{"n0.g0", "n0.g1", "n0.g2", "n1.g0", "n1.g1", "n1.g2"},
				Timing: peer.Result{
					Uneven:        true,
					Spread:        0.4,
					HealthySpread: 0.02,
					Ranks:         make([]peer.Rank, 6),
					Pairs:         []peer.Pair{pair(3, 0, 1.3), pair(4, 1, 0.2), pair(5, 2, 0.2)},
				},
				Tests: &Tests{Links: slices.Clone(healthy)},
			}
			tt.tell(&c)
			v := Judge(c)
			tested := slices.ContainsFunc(v.Evidence, func(e falcon.Evidence) bool {
				return e.Text == "1 of the 1 links that the slow groups use were tested, and none is slow"
			})
			if v.Cause != tt.cause || tested != tt.tested {
				t.Errorf("%s, tested %v: %+v", v.Cause, tested, v.Evidence)
			}
		})
	}
}
