package replica

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// twin says, from the definition, whether two ranks hold the same shard.
func twin(q Query, a, b falcon.Rank) bool {
	x := q.Layout.Coord(a)
	y := q.Layout.Coord(b)
	same := x.TP == y.TP && x.PP == y.PP
	if q.ZeRO.Stage == 0 {
		return same
	}
	return same && (x.DP-y.DP)%(q.Layout.DP/q.ZeRO.Instances) == 0
}

// usable says by counting whether r may send step s.
func usable(q Query, r falcon.Rank, s int64) bool {
	h, ok := q.Holds[r]
	sum, has := h.At(s)
	if !ok || !has {
		return false
	}
	same, all := 0, 0
	for p, other := range q.Holds {
		if theirs, has := other.At(s); has && twin(q, r, p) {
			all++
			if theirs == sum {
				same++
			}
		}
	}
	return 2*same > all
}

// brute is the definition, rank by rank and step by step.
func brute(q Query) (resume int64, moves map[falcon.Rank]falcon.Rank) {
	newest := int64(-1)
	oldest := int64(1 << 62)
	for _, h := range q.Holds {
		if s := max(h.Steps[0], h.Steps[1]); s >= 0 {
			newest = max(newest, s)
			oldest = min(oldest, s)
		}
	}
	if newest < 0 || newest-oldest > 1 {
		return falcon.NoIteration, nil
	}
	for _, s := range []int64{newest, newest - 1} {
		if moves, ok := bruteAt(q, s); ok && s >= 0 {
			return s, moves
		}
	}
	return falcon.NoIteration, nil
}

func bruteAt(q Query, s int64) (map[falcon.Rank]falcon.Rank, bool) {
	moves := map[falcon.Rank]falcon.Rank{}
	sends := map[falcon.Rank]int{}
	bytes := map[falcon.Node]uint64{}
	for r := range falcon.Rank(q.Layout.World()) {
		if usable(q, r, s) {
			continue
		}
		best := falcon.Rank(-1)
		for p := range falcon.Rank(q.Layout.World()) {
			if twin(q, r, p) &&
				usable(q, p, s) &&
				(best < 0 || better(q, r, p, best, sends, bytes)) {
				best = p
			}
		}
		if best < 0 {
			return nil, false
		}
		moves[r] = best
		sends[best]++
		if n := q.Bytes[r]; n > 0 {
			bytes[q.nodeOf(best)] += n
		} else {
			bytes[q.nodeOf(best)]++
		}
	}
	return moves, true
}

// better compares a with b as sources of r: domain, node, sends, bytes.
func better(q Query, r, a, b falcon.Rank, sends map[falcon.Rank]int, bytes map[falcon.Node]uint64) bool {
	far := func(p falcon.Rank) (n int) {
		x := q.nodeOf(r)
		y := q.nodeOf(p)
		rx, ry := q.Domains[x], q.Domains[y]
		if x == y {
			return 2
		}
		if rx != "" && rx == ry {
			return 1
		}
		return 0
	}
	if far(a) != far(b) {
		return far(a) < far(b)
	}
	if sends[a] != sends[b] {
		return sends[a] < sends[b]
	}
	return bytes[q.nodeOf(a)] < bytes[q.nodeOf(b)]
}

// random is a small job after a fault: mostly sound, sometimes not.
func random(rng *rand.Rand) Query {
	q := Query{
		Layout: falcon.Layout{
			TP: 1 + rng.IntN(2),
			DP: 1 + rng.IntN(6),
			PP: 1 + rng.IntN(3),
		},
		Holds: map[falcon.Rank]falcon.RankHold{},
	}
	if rng.IntN(2) == 0 {
		n := 1 + rng.IntN(q.Layout.DP)
		for q.Layout.DP%n != 0 {
			n--
		}
		q.ZeRO = falcon.ZeRO{Stage: 1, Instances: n}
	}
	per := 1 + rng.IntN(4)
	q.Domains = map[falcon.Node]string{}
	for r := range q.Layout.World() {
		n := falcon.Node("n" + string(rune('a'+r/per)))
		q.Placement = append(q.Placement, falcon.NewDevice(n, r%per))
		if rng.IntN(4) > 0 {
			q.Domains[n] = "r" + string(rune('a'+r/per/2))
		}
	}
	if rng.IntN(2) == 0 {
		q.Bytes = map[falcon.Rank]uint64{0: 3, 1: uint64(rng.IntN(5))}
	}
	i := int64(rng.IntN(3))
	for r := range falcon.Rank(q.Layout.World()) {
		if rng.IntN(5) > 0 {
			q.Holds[r] = held(rng, q, r, i)
		}
	}
	return q
}

// held is what a rank may hold when the job was in iteration i.
func held(rng *rand.Rand, q Query, r falcon.Rank, i int64) falcon.RankHold {
	steps := [][2]int64{
		{i, i + 1},
		{i + 1, i},
		{i, i - 1},
		{i - 1, i},
		{i, -1},
		{-1, i + 1},
		{-1, -1},
	}[rng.IntN(7)]
	if rng.IntN(40) == 0 {
		steps[0] += 3
	}
	h := falcon.RankHold{Steps: steps}
	for k, s := range steps {
		h.Sums[k] = uint64(q.shardOf(r))<<8 + uint64(s)
		if rng.IntN(15) == 0 {
			h.Sums[k] += 1 << 40
		}
	}
	return h
}

func TestChooseAgainstDefinition(t *testing.T) {
	const runs = 8000
	resumed := 0
	for seed := uint64(0); seed < runs; seed++ {
		q := random(rand.New(rand.NewPCG(seed, 1)))
		got, err := Choose(q)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		resume, moves := brute(q)
		gotMoves := map[falcon.Rank]falcon.Rank{}
		for _, m := range got.Moves {
			gotMoves[m.Rank] = m.From
		}
		if got.Resume != resume ||
			got.Checkpoint != (resume < 0) ||
			len(gotMoves)+len(moves) > 0 && !reflect.DeepEqual(gotMoves, moves) ||
			got.Why == "" {
			t.Fatalf("seed %d: %+v\n%+v\nwant step %d, moves %v", seed, q, got, resume, moves)
		}
		if !got.Checkpoint {
			resumed++
		}
	}
	if resumed < runs/10 || resumed > runs*9/10 {
		t.Errorf("%d of %d queries resume: the cases are one-sided", resumed, runs)
	}
}

// Sound jobs, whatever is lost: with two held versions and a survivor of every
// shard nothing goes back to storage, and no more than one step is redone.
func TestSoundJobsResume(t *testing.T) {
	for seed := uint64(0); seed < 5000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 2))
		q := random(rng)
		const i = 7
		q.Holds = map[falcon.Rank]falcon.RankHold{}
		for _, ranks := range q.Shards() {
			keep := ranks[rng.IntN(len(ranks))]
			for _, r := range ranks {
				if r != keep && rng.IntN(2) == 0 {
					continue
				}
				step := i + int64(rng.IntN(2))
				q.Holds[r] = falcon.RankHold{
					Steps: [2]int64{step - 1, step},
					Sums:  [2]uint64{uint64(step - 1), uint64(step)},
				}
			}
		}
		got, err := Choose(q)
		if err != nil ||
			got.Checkpoint ||
			got.Resume < i ||
			got.Resume > i+1 ||
			len(got.Outvoted) > 0 {
			t.Fatalf("seed %d: %+v, %v", seed, got, err)
		}
		for r := range falcon.Rank(q.Layout.World()) {
			_, holds := q.Holds[r].At(got.Resume)
			_, survived := q.Holds[r]
			moved := slices.ContainsFunc(got.Moves, func(m falcon.ShardMove) bool { return m.Rank == r })
			if moved == (survived && holds) {
				t.Fatalf("seed %d: rank %d moved %v, holds %v", seed, r, moved, holds)
			}
		}
	}
}

func hold(sum uint64, steps ...int64) falcon.RankHold {
	h := falcon.RankHold{Steps: [2]int64{falcon.NoIteration, falcon.NoIteration}}
	for i, s := range steps {
		h.Steps[i] = s
		h.Sums[i] = sum + uint64(s)
	}
	return h
}

// dp is a job of plain or sharded data parallelism on nodes of one GPU.
func dp(n, instances int, holds map[falcon.Rank]falcon.RankHold) Query {
	q := Query{Layout: falcon.Layout{TP: 1, DP: n, PP: 1}, Holds: holds}
	if instances > 0 {
		q.ZeRO = falcon.ZeRO{Stage: 1, Instances: instances}
	}
	return q
}

func TestWhyCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"one instance": {
			dp(4, 1, map[falcon.Rank]falcon.RankHold{
				0: hold(1, 5),
				1: hold(2, 5),
				3: hold(4, 5),
			}),
			"single copy of every shard, and the one of rank 2",
		},
		"no replica": {dp(1, 0, map[falcon.Rank]falcon.RankHold{}), "no survivor holds a step"},
		"all replicas": {
			dp(4, 2, map[falcon.Rank]falcon.RankHold{0: hold(1, 5), 2: hold(1, 5)}),
			"the shard is lost with ranks 1, 3",
		},
		"tie": {
			dp(2, 0, map[falcon.Rank]falcon.RankHold{0: hold(1, 5), 1: hold(2, 5)}),
			"ranks 0, 1 disagree about step 5",
		},
		"far apart": {
			dp(2, 0, map[falcon.Rank]falcon.RankHold{0: hold(1, 5), 1: hold(1, 7)}),
			"rank 0 is at step 5 and rank 1 at step 7",
		},
		"one version": {
			dp(4, 2, map[falcon.Rank]falcon.RankHold{
				0: hold(1, 6),
				1: hold(2, 5),
				2: hold(1, 6),
				3: hold(2, 5),
			}),
			"shard of ranks 1, 3 holds step 6; no survivor of the shard of ranks 0, 2 holds step 5",
		},
	} {
		got, err := Choose(c.q)
		if err != nil ||
			!got.Checkpoint ||
			got.Resume != falcon.NoIteration ||
			len(got.Moves) != 0 ||
			!strings.Contains(got.Why, c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestMinorityIsNotUsed(t *testing.T) {
	got, err := Choose(dp(4, 0, map[falcon.Rank]falcon.RankHold{
		0: hold(9, 5),
		1: hold(1, 5),
		2: hold(1, 5),
	}))
	want := []falcon.ShardMove{
		{Rank: 0, From: 1, Why: "its checksum of step 5 is not the one of its replicas"},
		{Rank: 3, From: 2, Why: "it held nothing"},
	}
	if err != nil ||
		got.Resume != 5 ||
		!reflect.DeepEqual(got.Moves, want) ||
		!slices.Equal(got.Outvoted, []falcon.Rank{0}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Replicas that differ at the newest step but agree one before: that one.
func TestTieGoesBackOneStep(t *testing.T) {
	got, err := Choose(dp(2, 0, map[falcon.Rank]falcon.RankHold{
		0: {Steps: [2]int64{4, 5}, Sums: [2]uint64{1, 2}},
		1: {Steps: [2]int64{4, 5}, Sums: [2]uint64{1, 3}},
	}))
	if err != nil ||
		got.Resume != 4 ||
		len(got.Moves) != 0 ||
		!strings.Contains(got.Why, "disagree about step 5") {
		t.Errorf("%+v, %v", got, err)
	}
}

// Two ranks of one node are lost: their sources are elsewhere, and no source
// sends twice while another sends nothing.
func TestSourcesInOtherDomains(t *testing.T) {
	q := dp(6, 0, map[falcon.Rank]falcon.RankHold{
		1: hold(1, 5),
		2: hold(1, 5),
		3: hold(1, 5),
		5: hold(1, 5),
	})
	q.Placement = falcon.Placement{"a.g0", "b.g0", "c.g0", "c.g1", "a.g1", "d.g0"}
	q.Domains = map[falcon.Node]string{
		"a": "r0",
		"b": "r0",
		"c": "r1",
		"d": "r1",
	}
	got, err := Choose(q)
	if err != nil ||
		len(got.Moves) != 2 ||
		got.Moves[0].From != 2 ||
		got.Moves[1].From != 5 ||
		!strings.Contains(got.Moves[1].Why, "another failure domain") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBadQueries(t *testing.T) {
	for want, q := range map[string]Query{
		"at least 1":    {},
		"do not divide": dp(4, 3, nil),
		"no ZeRO stage 4": {
			Layout: falcon.Layout{TP: 1, DP: 1, PP: 1},
			ZeRO:   falcon.ZeRO{Stage: 4, Instances: 1},
		},
		"1 devices for 2 ranks": {
			Layout:    falcon.Layout{TP: 1, DP: 2, PP: 1},
			Placement: falcon.Placement{"a.g0"},
		},
		"no rank 2 among 2":  dp(2, 0, map[falcon.Rank]falcon.RankHold{2: hold(1, 1)}),
		"no rank -1 among 2": dp(2, 0, map[falcon.Rank]falcon.RankHold{-1: hold(1, 1)}),
		"0 optimizer instances d": {
			Layout: falcon.Layout{TP: 1, DP: 1, PP: 1},
			ZeRO:   falcon.ZeRO{Stage: 1},
		},
	} {
		_, err := Choose(q)
		if !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
