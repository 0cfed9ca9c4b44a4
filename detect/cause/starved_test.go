package cause

import (
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// starvedCase is a window of four ranks on two nodes, in which the median iteration of no rank is
// slow and n1's quota holds its ranks now and then.
func starvedCase() Case {
	usual := []float64{1, 1, 1.02, 0.98}
	ranks := make([]peer.Rank, 4)
	for i := range ranks {
		ranks[i] = peer.Rank{
			Rank:      falcon.Rank(i),
			Measured:  true,
			SelfMs:    10,
			Ratio:     1,
			Peers:     3,
			StepRatio: usual,
		}
	}
	ranks[2].StepRatio, ranks[3].StepRatio = []float64{1, 6.9, 1, 1}, []float64{3.1, 1, 1, 1}
	return Case{
		Timing:    peer.Result{Ranks: ranks},
		Placement: falcon.Placement{"n0.g0", "n0.g1", "n1.g0", "n1.g1"},
		Counters: Counters{Hosts: map[falcon.Node]Host{
			"n0": {Known: true, ThrottledShare: 0, PressureShare: 0.3},
			"n1": {
				Known:          true,
				ThrottledShare: 0.9,
				PressureShare:  0.9,
				Before:         &Host{Known: true},
			},
		}},
		HealthyMs: 140,
		SlowMs:    860,
	}
}

func TestStarvedHost(t *testing.T) {
	v := Judge(starvedCase())
	if v.Cause != falcon.CauseCPU ||
		!slices.Equal(v.Devices, []falcon.Device{"n1.g0", "n1.g1"}) ||
		v.Confidence < 0.5 {
		t.Fatalf("%+v", v)
	}
	for _, say := range []string{
		"self time up to 6.90 x its peers' in 1 of 4 iterations",
		"the ranks' CPU quota throttles them 90 % of the time, usual is 0 %",
	} {
		if !slices.ContainsFunc(v.Evidence, func(e falcon.Evidence) bool {
			return strings.Contains(e.Text, say) && !e.Against
		}) {
			t.Errorf("evidence %+v lacks %q", v.Evidence, say)
		}
	}
}

// Whatever is missing, no host is named.
func TestStarvedHostNeedsAll(t *testing.T) {
	host := func(n falcon.Node, f func(*Host)) func(*Case) {
		return func(c *Case) {
			h := c.Counters.Hosts[n]
			f(&h)
			c.Counters.Hosts[n] = h
		}
	}
	for name, spoil := range map[string]func(*Case){
		"no iteration was held": func(c *Case) {
			c.Timing.Ranks[2].StepRatio, c.Timing.Ranks[3].StepRatio = nil, nil
		},
		"ranks of two nodes were held": func(c *Case) {
			c.Timing.Ranks[0].StepRatio = []float64{1, 4, 1, 1}
		},
		"the quota held them before, too": host("n1", func(h *Host) {
			h.Before = &Host{Known: true, ThrottledShare: 0.8}
		}),
		"it holds those of the other":   host("n0", func(h *Host) { h.ThrottledShare = 0.8 }),
		"it hardly holds them":          host("n1", func(h *Host) { h.ThrottledShare = 0.2 }),
		"the counters are unknown":      host("n1", func(h *Host) { h.Known = false }),
		"they are the lab's":            host("n1", func(h *Host) { h.Emulated = true }),
		"the ranks' places are unknown": func(c *Case) { c.Placement = nil },
	} {
		c := starvedCase()
		spoil(&c)
		if v := Judge(c); v.Cause == falcon.CauseCPU || len(v.Devices) > 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
