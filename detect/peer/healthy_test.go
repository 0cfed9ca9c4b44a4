package peer

import (
	"testing"

	"github.com/failslow/falcon"
)

// What a group and a pair take is known for one node and for several apart: ranks that
// leave a node and come back are compared with what they took there.
func TestHealthyTransfersFollowTheReach(t *testing.T) {
	l := falcon.Layout{TP: 1, DP: 2, PP: 2}
	home := falcon.Placement{"n0.g0", "n1.g0", "n0.g1", "n1.g1"}
	away := falcon.Placement{"n0.g0", "n0.g1", "n1.g0", "n1.g1"}
	h := &Healthy{}
	learn := func(comm uint64, ms float64, internode bool) {
		h.Learn(Result{
			Groups: []Group{{
				Comm:       comm,
				Dimension:  falcon.DimDP,
				Op:         falcon.OpAllReduce,
				Bytes:      8,
				Ranks:      []falcon.Rank{0, 1},
				Internode:  internode,
				TransferMs: ms,
			}},
			Pairs: []Pair{{
				From:      0,
				To:        1,
				Bytes:     4,
				Internode: internode,
				RecvMs:    ms / 2,
			}},
		})
	}
	want := func(when string, comm uint64, internode bool, group, pair float64) {
		t.Helper()
		if got := h.transferTime(
			class{comm, falcon.OpAllReduce, 8},
			[]falcon.Rank{0, 1},
			internode,
		); got != group {
			t.Errorf("%s: the group takes %v, want %v", when, got, group)
		}
		if got := h.receiveTime(way{0, 1, 4}, internode); got != pair {
			t.Errorf("%s: the pair takes %v, want %v", when, got, pair)
		}
	}
	learn(1, 10, true)
	h.Move(l, home, away)
	want("on one node, not measured yet", 2, false, 0, 0)
	learn(2, 1, false)
	want("on one node", 2, false, 1, 0.5)
	h.Move(l, away, home)
	want("back, under another communicator", 3, true, 10, 5)
}
