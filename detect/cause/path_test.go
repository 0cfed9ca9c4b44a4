package cause

import (
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// twoNodes is a job of two nodes with four GPUs each, whose four gradient rings all cross n0-n1
// and take six times as long as when healthy.
func twoNodes() Case {
	c := Case{
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 4},
		Timing:    peer.Result{Ranks: make([]peer.Rank, 8), IterationMs: 1200},
		HealthyMs: 650,
		SlowMs:    1200,
		Counters:  Counters{NICs: map[falcon.NIC]NIC{}},
	}
	for r := range falcon.Rank(8) {
		c.Placement = append(c.Placement, falcon.NewDevice([]falcon.Node{"n0", "n1"}[r%2], int(r/2)))
		c.Timing.Ranks[r].Rank = r
	}
	for s := range falcon.Rank(4) {
		c.Timing.Groups = append(c.Timing.Groups, peer.Group{
			Comm:       uint64(s),
			Dimension:  falcon.DimDP,
			Op:         falcon.OpAllReduce,
			Bytes:      1 << 20,
			Ranks:      []falcon.Rank{2 * s, 2*s + 1},
			Nodes:      []falcon.Node{"n0", "n1"},
			Internode:  true,
			TransferMs: 60,
			OwnMs:      10,
			BaseMs:     60,
			Ratio:      1,
			Basis:      peer.ByPeers,
			Classmates: 3,
			CallsPerIt: 10,
			Crowded:    true,
		})
	}
	return c
}

// With no other path to compare with, the only one is named, unless something speaks for it.
func TestTheOnlyPathOfAJob(t *testing.T) {
	tests := []struct {
		name string
		tell func(*Case)
		want falcon.Cause
	}{
		{"all rings are slow", func(*Case) {}, falcon.CauseNetwork},
		{"one ring is slower than the others", func(c *Case) {
			c.Timing.Groups[1].Suspect = true
			c.Timing.Groups[1].TransferMs = 70
			c.Timing.Groups[1].Ratio = 1.17
		}, falcon.CauseNetwork},
		{"a ring within a node is as ever", func(c *Case) {
			c.Timing.Groups = append(c.Timing.Groups, peer.Group{
				Dimension:  falcon.DimDP,
				Ranks:      []falcon.Rank{0, 2},
				Nodes:      []falcon.Node{"n0"},
				TransferMs: 1,
				OwnMs:      1,
				CallsPerIt: 1,
			})
		}, falcon.CauseNetwork},
		{
			"one ring is as ever",
			func(c *Case) {
				c.Timing.Groups[2].Crowded, c.Timing.Groups[2].TransferMs = false, 10
			},
			falcon.CauseUnknown,
		},
		{"messages cross it as ever", func(c *Case) {
			c.Timing.Pairs = []peer.Pair{{
				From:      0,
				To:        1,
				Bytes:     1,
				Internode: true,
				RecvMs:    1,
				OwnMs:     1,
				BaseMs:    1,
				Ratio:     1,
				Basis:     peer.ByPeers,
			}}
		}, falcon.CauseUnknown},
		{"there is another path", func(c *Case) { c.Placement[3] = "n2.g0" }, falcon.CauseUnknown},
		{"it explains little", func(c *Case) { c.SlowMs = 5000 }, falcon.CauseUnknown},
		{"the work varies", func(c *Case) { c.Timing.Uneven = true }, falcon.CauseNotHardware},
		{"a test finds it healthy", func(c *Case) {
			l := falcon.LinkResult{
				FromDevice: "n0.g0",
				ToDevice:   "n1.g0",
				Class:      falcon.LinkSameRail,
				Ms:         5,
				BaseMs:     5,
				Basis:      "own",
				Ratio:      1,
			}
			c.Tests = &Tests{Links: []falcon.LinkResult{l}}
		}, falcon.CauseUnknown},
		{"a test finds it slow", func(c *Case) {
			l := falcon.LinkResult{
				FromDevice: "n0.g0",
				ToDevice:   "n1.g0",
				Class:      falcon.LinkSameRail,
				Ms:         15,
				BaseMs:     5,
				Basis:      "own",
				Ratio:      3,
				Slow:       true,
			}
			c.Tests = &Tests{Links: []falcon.LinkResult{l}}
		}, falcon.CauseNetwork},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := twoNodes()
			tt.tell(&c)
			v := Judge(c)
			named := slices.Contains(v.Links, falcon.NewLink("n0", "n1"))
			if v.Cause != tt.want || named != (tt.want == falcon.CauseNetwork) {
				t.Errorf("%s, links %v: %+v", v.Cause, v.Links, v.Evidence)
			}
			if named &&
				c.Tests == nil &&
				!c.Timing.Groups[1].Suspect &&
				!slices.ContainsFunc(v.Evidence, func(e falcon.Evidence) bool {
					return strings.Contains(e.Text, "n0-n1 is the only path")
				}) {
				t.Errorf("%+v", v.Evidence)
			}
		})
	}
}
