package peer

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// naiveJoin lays calls side by side by looking each one up at each member.
func naiveJoin(w *Window, profiles []falcon.RankProfile) map[class][]row {
	type key struct {
		class
		ordinal uint64
	}
	durations := map[key]map[falcon.Rank]float64{}
	members := map[uint64]map[falcon.Rank]bool{}
	for _, p := range profiles {
		for _, c := range p.Calls {
			if isMessage(c.Op) || !positive(c.DurationMs) {
				continue
			}
			k := key{classOf(&c), c.Ordinal}
			if durations[k] == nil {
				durations[k] = map[falcon.Rank]float64{}
			}
			if members[c.Comm] == nil {
				members[c.Comm] = map[falcon.Rank]bool{}
			}
			durations[k][p.Rank], members[c.Comm][p.Rank] = c.DurationMs, true
		}
	}
	out := map[class][]row{}
	for k, byRank := range durations {
		whole := len(members[k.comm]) > 1
		var ms []float64
		for _, p := range profiles {
			if !members[k.comm][p.Rank] {
				continue
			}
			for _, c := range w.Comms[p.Rank] {
				whole = whole && (c.ID != k.comm || c.Size == len(members[k.comm]))
			}
			d, has := byRank[p.Rank]
			ms = append(ms, d)
			whole = whole && has
		}
		if whole {
			out[k.class] = append(out[k.class], row{k.ordinal, ms})
		}
	}
	for _, rows := range out {
		slices.SortFunc(rows, func(a, b row) int {
			return cmp.Compare(a.ordinal, b.ordinal)
		})
	}
	return out
}

// randomCalls are the calls of a few ranks on a few communicators, of which some were not
// measured, some are of another size than their peers', and some come twice or out of order.
func randomCalls(rng *rand.Rand) []falcon.RankProfile {
	var out []falcon.RankProfile
	for r := range falcon.Rank(2 + rng.IntN(5)) {
		p := falcon.RankProfile{Rank: r, Iterations: 1 + rng.IntN(3)}
		for comm := range uint64(3) {
			if rng.IntN(4) == 0 {
				continue
			}
			for ordinal := range uint64(rng.IntN(12)) {
				c := falcon.CallTiming{
					Comm:       comm,
					Ordinal:    ordinal,
					Op:         falcon.OpAllReduce,
					Bytes:      int64(8 * (ordinal % 3)),
					DurationMs: 1 + rng.Float64(),
				}
				switch rng.IntN(30) {
				case 0:
					continue
				case 1:
					c.Bytes++
				case 2:
					c.Op = falcon.OpBroadcast
				case 3:
					c.DurationMs = [...]float64{0, -1, math.NaN(), math.Inf(1)}[rng.IntN(4)]
				case 4:
					p.Calls = append(p.Calls, c)
					c.DurationMs = 1 + rng.Float64()
				case 5:
					c.Op = falcon.OpSend
				}
				p.Calls = append(p.Calls, c)
			}
		}
		if rng.IntN(3) == 0 {
			rng.Shuffle(len(p.Calls), func(a, b int) {
				p.Calls[a], p.Calls[b] = p.Calls[b], p.Calls[a]
			})
		}
		out = append(out, p)
	}
	return out
}

func TestJoinEqualsTheNaiveOne(t *testing.T) {
	rows, without := 0, 0
	for seed := range 3000 {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		w := &Window{Comms: map[falcon.Rank][]falcon.Comm{}}
		profiles := randomCalls(rng)
		if rng.IntN(2) == 0 { // the job knows the members of one
			w.Comms[0] = []falcon.Comm{{ID: 1, Size: 2 + rng.IntN(4)}}
		}
		joined := w.joinCalls(profiles)
		want := naiveJoin(w, profiles)
		for _, j := range joined.classes {
			if !reflect.DeepEqual(j.rows, want[j.class]) {
				t.Fatalf("seed %d, class %v: %v, naive %v", seed, j.class, j.rows, want[j.class])
			}
			delete(want, j.class)
			rows += len(j.rows)
		}
		if len(want) > 0 {
			t.Fatalf("seed %d: classes missed: %v", seed, want)
		}
		for i, p := range profiles {
			for k, c := range p.Calls {
				least := joined.least[i][k]
				if least == 0 {
					without++
				} else if !endsTogether(c.Op) || least > c.DurationMs {
					t.Fatalf("seed %d: the least duration of %+v is %v", seed, c, least)
				}
			}
		}
	}
	if rows < 10_000 || without < 10_000 {
		t.Errorf("%d rows, %d calls without a least duration: the cases test little", rows, without)
	}
}
