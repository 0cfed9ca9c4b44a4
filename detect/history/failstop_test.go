package history

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

var allKinds = []falcon.FaultKind{
	falcon.FaultDevice, falcon.FaultExit, falcon.FaultFrozen, falcon.FaultHang, falcon.FaultNode,
}

func anyRecovery(t *rapid.T) falcon.Recovery {
	var v falcon.Recovery
	v.State = rapid.SampledFrom([]falcon.RecoveryState{
		falcon.RecoverySuspend,
		falcon.RecoveryResumed,
		falcon.RecoveryFailed,
		falcon.RecoveryDenied,
	}).Draw(t, "state")
	v.EndedNs = rapid.Int64Range(0, 3e9).Draw(t, "ended")
	for range rapid.IntRange(0, 4).Draw(t, "faults") {
		v.Faults = append(v.Faults, falcon.Fault{
			Kind:    rapid.SampledFrom(allKinds).Draw(t, "kind"),
			Node:    rapid.SampledFrom([]falcon.Node{"n0", "n1", "n2"}).Draw(t, "node"),
			Ranks:   make([]falcon.Rank, rapid.IntRange(0, 8).Draw(t, "ranks")),
			FirstNs: rapid.Int64Range(1, 2e9).Draw(t, "first"),
			AskedBy: rapid.SampledFrom([]string{"", "", "", "maria"}).Draw(t, "asked"),
			Action:  rapid.SampledFrom([]string{"", "", "", "INC-0001/S4/1"}).Draw(t, "action"),
		})
	}
	return v
}

// One kind at a time, over and over: the same counts as in one pass.
func TestFailStopsByKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(anyRecovery), 0, 6).Draw(t, "recoveries")
		since := rapid.SampledFrom([]int64{0, 1e9}).Draw(t, "since")
		counts := func(f falcon.Fault) bool {
			return f.AskedBy == "" && f.Action == "" && f.FirstNs >= since
		}
		got := FailStops(list, since)
		all := 0
		for _, k := range allKinds {
			want := FailStop{Kind: k}
			nodes := map[falcon.Node]int{}
			down := []float64{}
			for _, v := range list {
				first := int64(math.MaxInt64)
				has := false
				for _, f := range v.Faults {
					if !counts(f) {
						continue
					}
					first = min(first, f.FirstNs)
					if f.Kind == k {
						has = true
						want.Faults++
						want.Ranks += len(f.Ranks)
						nodes[f.Node]++
					}
				}
				if has && v.State.Over() {
					want.Over++
				}
				if has && v.State == falcon.RecoveryResumed {
					want.Trains++
					down = append(down, max(0, float64(v.EndedNs-first)/1e6))
				}
			}
			all += want.Faults
			i := slices.IndexFunc(got, func(x FailStop) bool { return x.Kind == k })
			if want.Faults == 0 {
				if i >= 0 {
					t.Fatalf("%s: %+v of nothing", k, got[i])
				}
				continue
			}
			if i < 0 {
				t.Fatalf("%s is missing", k)
			}
			want.Nodes = len(nodes)
			for _, n := range []falcon.Node{"n0", "n1", "n2"} {
				if nodes[n] > want.Times {
					want.Most = n
					want.Times = nodes[n]
				}
			}
			for _, ms := range down {
				want.DownMs += ms / float64(len(down))
			}
			x := got[i]
			if math.Abs(x.DownMs-want.DownMs) > 1e-6 {
				t.Fatalf("%s: down %v, want %v", k, x.DownMs, want.DownMs)
			}
			x.DownMs = 0
			x.Share = 0
			want.DownMs = 0
			if x != want {
				t.Fatalf("%s: %+v, want %+v", k, x, want)
			}
		}
		total, share := 0, 0.0
		for i, x := range got {
			total += x.Faults
			share += x.Share
			if i > 0 && got[i-1].Faults < x.Faults {
				t.Fatalf("not by count: %+v", got)
			}
		}
		if total != all || all > 0 && math.Abs(share-1) > 1e-9 {
			t.Fatalf("%d of %d faults, shares %v", total, all, share)
		}
	})
}
