package peer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

func layoutOf(t interface{ Fatal(args ...any) }, text string) falcon.Layout {
	m, err := falcon.ParseMesh(text)
	if err != nil {
		t.Fatal(err)
	}
	return falcon.LayoutOf(m)
}

var meshes = []string{
	"fsdp=8", "fsdp=4,dp=2", "tp=2,cp=2,dp=4", "cp=4,dp=2,pp=2", "tp=2,pp=4,dp=4", "dp=4,tp=2,pp=2",
	"tp=2,ep=2,dp=4,pp=2", "tp=2,etp=1,ep=4,dp=8,pp=2", "tp=4,fsdp=4,dp=2,pp=2",
}

// Whatever the mesh, ranks are compared with those of their own stage and experts alone,
// and each with the same others as they with it.
func TestAlikeIsAPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layoutOf(t, rapid.SampledFrom(meshes).Draw(t, "mesh"))
		seen := map[falcon.Rank]bool{}
		eachColumn(l, func(column []falcon.Rank) {
			for _, r := range column {
				if seen[r] || l.Coord(r).PP != l.Coord(column[0]).PP {
					t.Fatalf("%v: %v holds ranks of two stages, or twice", l, column)
				}
				seen[r] = true
				others := l.Peers(r, falcon.DimEP)
				if len(others) > 1 &&
					slices.ContainsFunc(others, func(q falcon.Rank) bool {
						return q != r && slices.Contains(column, q)
					}) {
					t.Fatalf("%v: %v holds two with different experts", l, column)
				}
			}
		})
		if len(seen) != l.World() {
			t.Fatalf("%v: %d ranks are compared", l, len(seen))
		}
	})
}

// A stage of more work is no fault, and a slow rank is found, in every mesh: also where
// all ranks of a stage are one replica, and where stages vary faster than replicas.
func TestSlowRankOfMesh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layoutOf(t, rapid.SampledFrom(meshes).Draw(t, "mesh"))
		slow := falcon.Rank(rapid.IntRange(-1, l.World()-1).Draw(t, "slow"))
		w := Window{Layout: l}
		for r := range falcon.Rank(l.World()) {
			self := 10 + 3*float64(l.Coord(r).PP) + rapid.Float64Range(0, 0.2).Draw(t, "noise")
			if r == slow {
				self *= 1.5
			}
			w.Profiles = append(w.Profiles, falcon.RankProfile{
				Rank:         r,
				Iterations:   4,
				MicroBatches: 4,
				SelfMs:       self,
			})
		}
		res := Judge(w)
		want := []falcon.Rank{slow}
		if slow < 0 {
			want = nil
		}
		if res.Ranks[max(slow, 0)].Peers < 3 {
			return // too few others do its work
		}
		if !slices.Equal(res.Slow, want) {
			t.Fatalf("%v: %v are slow, want %v", l, res.Slow, want)
		}
	})
}
