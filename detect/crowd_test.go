package detect

import (
	"fmt"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

func gpus(d ...falcon.Device) string {
	slices.Sort(d)
	return fmt.Sprint(falcon.CauseGPU, d, []falcon.Link(nil))
}

// FALCON figure 14: one to four of four replicas get slow at once. Up to three
// are named as they are; all four of a stage too, by their clocks. Where there
// is one stage only, all together are a matter of the facility.
func TestSlowReplicasByTheirNumber(t *testing.T) {
	for _, sh := range []shape{
		{falcon.Layout{TP: 1, DP: 4, PP: 1}, 4},
		{falcon.Layout{TP: 1, DP: 4, PP: 2}, 8},
		{falcon.Layout{TP: 2, DP: 4, PP: 1}, 4},
	} {
		for n := 1; n <= 4; n++ {
			for _, counters := range []bool{true, false} {
				w := newWorld(sh.layout, sh.nodes, 8, uint64(n))
				w.job.Noise, w.counters = 0.02, counters
				w.run(35)
				var slow []falcon.Device
				for replica := range n {
					d := w.job.Placement[sh.layout.RankOf(falcon.Coord{DP: replica})]
					slow = append(slow, d)
					w.job.Clock[d] = 0.53
				}
				w.run(40)
				name := fmt.Sprintf("%v, %d slow, counters %v", sh.layout, n, counters)
				inc := w.m.Open()
				if len(inc) != 1 {
					t.Errorf("%s: %d incidents\n%s", name, len(inc), w.out.String())
					continue
				}
				v := inc[0].Verdict
				switch {
				case n < 4 || sh.layout.TP > 1 || counters && sh.layout.World() > 4:
					if got := fmt.Sprint(v.Cause, v.Devices, v.Links); got != gpus(slow...) {
						t.Errorf("%s: %s\n%s", name, got, w.out.String())
					}
				case counters:
					if v.Cause != falcon.CauseFacility || len(v.Devices) != 4 {
						t.Errorf("%s: %s %v", name, v.Cause, v.Devices)
					}
				case v.Cause != falcon.CauseUnknown:
					t.Errorf("%s: %s %v", name, v.Cause, v.Devices)
				}
				w.clearFaults()
				w.run(40)
				if len(w.m.Open()) > 0 || len(w.all) != 1 {
					t.Errorf("%s: %d incidents, open %v\n%s",
						name, len(w.all), w.m.Open(), w.out.String())
				}
			}
		}
	}
}

// Replicas that get slow one after the other, S2 holding meanwhile, are an
// incident each, the fourth too.
func TestReplicasGetSlowOneAfterTheOther(t *testing.T) {
	for _, l := range []falcon.Layout{{TP: 1, DP: 4, PP: 1}, {TP: 1, DP: 4, PP: 2}} {
		w := newWorld(l, 4, 8, 5)
		w.job.Noise = 0.02
		w.run(35)
		splits := [][]int{{5, 9, 9, 9}, {6, 6, 10, 10}, {7, 7, 7, 11}, {8, 8, 8, 8}}
		var want []string
		for replica := range 4 {
			d := w.job.Placement[l.RankOf(falcon.Coord{DP: replica})]
			w.job.Clock[d] = 0.53
			want = append(want, gpu(d))
			w.run(30)
			wantOpen(t, w, want...)
			w.act(w.all[replica].ID, false, splits[replica])
			w.run(40)
			wantOpen(t, w, want...)
		}
		w.run(100)
		wantOpen(t, w, want...) // all four alike: none is healthy for that
		delete(w.job.Clock, w.job.Placement[0])
		w.run(80)
		wantOpen(t, w, want[1:]...)
	}
}

// Work that grew for three of four replicas by about as much as for the fourth
// accuses no rank.
func TestACrowdIsNotWorkThatGrew(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, seed)
		w.counters = false
		w.run(35)
		for replica := range 4 { // the same work on clocks that differ a little
			w.job.Clock[w.job.Placement[replica]] = 0.87 + 0.01*float64(replica)
		}
		w.job.Load = []float64{1.2, 1}
		w.run(60)
		for _, inc := range w.all {
			if len(inc.Verdict.Devices) > 0 {
				t.Errorf("seed %d: %s %v\n%s",
					seed, inc.Verdict.Cause, inc.Verdict.Devices, w.out.String())
			}
		}
	}
}
