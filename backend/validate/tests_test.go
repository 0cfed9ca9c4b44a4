package validate

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

func every(passes.Pair) bool { return true }

func all(schedule []passes.Pass) []int {
	out := make([]int, len(schedule))
	for i := range out {
		out[i] = i
	}
	return out
}

// Every pair has its ids from one of its own ends, once, and no rank mints
// twice in a round.
func TestEveryPairIsMintedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rank := rapid.Custom(func(t *rapid.T) falcon.Rank {
			return falcon.Rank(rapid.IntRange(0, 40).Draw(t, "rank"))
		})
		ask := falcon.ValidationAsk{
			Rings: rapid.SliceOfN(rapid.SliceOfN(rank, 0, 12), 0, 3).Draw(t, "rings"),
			Trees: rapid.SliceOfN(rapid.SliceOfN(rank, 0, 12), 0, 2).Draw(t, "trees"),
		}
		schedule := passes.Split(passes.Plan(ask), func(r falcon.Rank) string {
			return []string{"n0.nic0", "n1.nic0", "n2.nic0", ""}[r%4]
		})
		rounds := mintRounds(schedule, all(schedule), every)
		if len(rounds) > len(schedule) {
			t.Fatalf("%d rounds for %d passes", len(rounds), len(schedule))
		}
		minted := map[passes.Pair]int{}
		for _, round := range rounds {
			for r, p := range round {
				if p[0] != r && p[1] != r {
					t.Fatalf("rank %d mints for %v", r, p)
				}
				minted[p]++
			}
		}
		pairs := 0
		for _, pass := range schedule {
			for _, p := range pass.Pairs {
				pairs++
				if minted[p] != 1 {
					t.Fatalf("the ids of %v are minted %d times", p, minted[p])
				}
			}
		}
		if pairs != len(minted) {
			t.Fatalf("%d pairs and %d with ids", pairs, len(minted))
		}
	})
}

// A ring's ids take one round whatever its size.
func TestRingsMintAtOnce(t *testing.T) {
	for n := 2; n <= 65; n++ {
		ring := make([]falcon.Rank, n)
		for i := range ring {
			ring[i] = falcon.Rank(i)
		}
		schedule := passes.Ring(ring)
		if rounds := mintRounds(schedule, all(schedule), every); len(rounds) != 1 {
			t.Errorf("a ring of %d takes %d rounds", n, len(rounds))
		}
	}
}
