package replica

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// bruteLost lists the ranks none of whose twins survives without the nodes.
func bruteLost(q Query, gone []falcon.Node) (out []falcon.Rank) {
	for r := range falcon.Rank(q.Layout.World()) {
		before, after := false, false
		for p := range falcon.Rank(q.Layout.World()) {
			if twin(q, r, p) && q.survives(p) {
				before = true
				after = after || !slices.Contains(gone, q.nodeOf(p))
			}
		}
		if before && !after {
			out = append(out, r)
		}
	}
	return out
}

func TestMapAgainstDefinition(t *testing.T) {
	lossy := 0
	for seed := uint64(0); seed < 1000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		q := random(rng)
		if rng.IntN(2) == 0 {
			q.Holds = nil
		}
		all := Domain{
			Kind:  KindSwitch,
			Name:  "s",
			Nodes: []falcon.Node{"na", "nb", "na", "zz"},
		}
		got, err := Map(q, all)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		last := 1 << 30
		for _, e := range got {
			want := bruteLost(q, e.Nodes)
			if !slices.Equal(e.Lost, want) ||
				(e.Why == "") != (len(want) == 0) ||
				e.Shards > last {
				t.Fatalf("seed %d: %+v\n%+v\nwant %v", seed, q, e, want)
			}
			last = e.Shards
			if len(want) > 0 {
				lossy++
			}
		}
	}
	if lossy == 0 {
		t.Error("nothing was ever lost")
	}
}

// The map agrees with the choice: what is lost by the map can't be resumed.
func TestMapForetellsChoice(t *testing.T) {
	for seed := uint64(0); seed < 800; seed++ {
		q := random(rand.New(rand.NewPCG(seed, 4)))
		q.Holds = nil
		got, err := Map(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got {
			after := q
			after.Holds = map[falcon.Rank]falcon.RankHold{}
			for r := range falcon.Rank(q.Layout.World()) {
				if !slices.Contains(e.Gone, r) {
					after.Holds[r] = hold(uint64(q.shardOf(r)), 3, 4)
				}
			}
			c, err := Choose(after)
			if err != nil || c.Checkpoint != (len(e.Lost) > 0) {
				t.Fatalf("seed %d: %+v but %+v, %v", seed, e, c, err)
			}
		}
	}
}

func TestMapNames(t *testing.T) {
	q := dp(4, 2, nil)
	q.Placement = falcon.Placement{"a.g0", "b.g0", "c.g0", "d.g0"}
	q.Domains = map[falcon.Node]string{"a": "1", "c": "1"}
	got, err := Map(q, Domain{
		Kind:  KindSwitch,
		Name:  "s",
		Nodes: []falcon.Node{"a", "b"},
	})
	if err != nil ||
		len(got) != 6 ||
		got[0].Label() != "rack 1" ||
		got[0].Shards != 1 ||
		got[1].Label() != "a" ||
		got[5].Label() != "switch s" {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := "the shard is lost with ranks 0, 2, which hold all its copies"; got[0].Why != want {
		t.Errorf("%q", got[0].Why)
	}
	if _, err := Map(dp(2, 0, nil)); err == nil {
		t.Error("a map without a placement")
	}
}
