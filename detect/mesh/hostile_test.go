package mesh_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/mesh"
	"github.com/failslow/falcon/detect/mesh/meshtest"
)

// anyJob draws a job, with the mesh that its configuration means where there is one.
func anyJob(t *rapid.T) (*meshtest.Job, falcon.Mesh) {
	model := rapid.SampledFrom([]meshtest.Model{gpt2, gpt7, gpt70}).Draw(t, "model")
	model.MicroBatches = rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "micro-batches")
	size := func(name string, most int) int {
		return rapid.SampledFrom([]int{1, 1, 2, 4, 8}[:most]).Draw(t, name)
	}
	var dims []falcon.Dim
	dim := func(d falcon.Dimension, n int) {
		dims = append(dims, falcon.Dim{Name: d, Size: n})
	}
	if rapid.Bool().Draw(t, "torchtitan") {
		f := meshtest.FSDP{
			Model:    model,
			TP:       size("tp", 4),
			Shard:    size("shard", 4),
			Replicas: size("replicas", 3),
			PP:       size("pp", 4),
		}
		dim("tp", f.TP)
		dim("fsdp", f.Shard)
		dim("dp", f.Replicas)
		dim("pp", f.PP)
		f.Keep = rapid.Bool().Draw(t, "keep")
		return f.Job(), made(t, dims)
	}
	g := meshtest.Megatron{
		Model:                model,
		TP:                   size("tp", 4),
		CP:                   size("cp", 4),
		DP:                   size("dp", 4),
		PP:                   size("pp", 4),
		EP:                   1,
		SequenceParallel:     rapid.Bool().Draw(t, "sp"),
		DistributedOptimizer: rapid.Bool().Draw(t, "distributed"),
		OverlapReduce:        rapid.Bool().Draw(t, "overlap"),
		AllGatherCP:          rapid.Bool().Draw(t, "all-gather cp"),
		Order: rapid.SampledFrom([]string{
			"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "cp-tp-ep-dp-pp", "dp-tp-cp-ep-pp",
			"tp-dp-cp-ep-pp", "pp-tp-cp-ep-dp",
		}).Draw(t, "order"),
	}
	g.ETP = g.TP
	if g.Order == "tp-cp-ep-dp-pp" && rapid.Bool().Draw(t, "experts") {
		g.ETP = rapid.SampledFrom([]int{1, g.TP}).Draw(t, "etp")
		if n := g.TP * g.CP * g.DP / g.ETP; n > 1 {
			g.EP = rapid.SampledFrom([]int{2, n}).Draw(t, "ep")
		}
		if g.TP*g.CP*g.DP%(g.ETP*g.EP) != 0 {
			g.EP = 1
			g.ETP = g.TP
		}
	}
	for name := range splitOrder(g.Order) {
		// it looks as a shard does, and is one unit as that is
		if name == "cp" && g.AllGatherCP && g.DP == 1 && g.EP == 1 {
			dim(falcon.DimFSDP, g.CP)
			continue
		}
		dim(
			falcon.Dimension(name),
			map[string]int{"tp": g.TP, "cp": g.CP, "ep": g.EP, "dp": g.DP, "pp": g.PP}[name],
		)
		if name == "tp" {
			dim("etp", g.ETP)
		}
	}
	return g.Job(), made(t, dims)
}

func splitOrder(order string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for len(order) > 0 {
			if !yield(order[:2]) {
				return
			}
			order = order[min(3, len(order)):]
		}
	}
}

func made(t *rapid.T, dims []falcon.Dim) falcon.Mesh {
	m, err := falcon.NewMesh(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// checkSafe fails where ranks that wait for each other inside a micro-batch are in
// different replicas of the layout.
func checkSafe(t *rapid.T, j *meshtest.Job, m falcon.Mesh) {
	l := falcon.LayoutOf(m)
	for r, least := range j.Inside {
		if l.Replica(falcon.Rank(r)) != l.Replica(least) {
			t.Fatalf("%v: ranks %d and %d communicate inside a micro-batch, and are in replicas %d and %d",
				l, r, least, l.Replica(falcon.Rank(r)), l.Replica(least))
		}
	}
}

// alike reports whether two meshes divide ranks alike.
func alike(a, b falcon.Mesh) bool {
	x := falcon.LayoutOf(a)
	y := falcon.LayoutOf(b)
	if a.World() != b.World() || x.TP != y.TP || x.DP != y.DP || x.PP != y.PP {
		return false
	}
	for r := range falcon.Rank(a.World()) {
		if x.Coord(r) != y.Coord(r) {
			return false
		}
		for _, d := range []falcon.Dimension{"tp", "cp", "fsdp", "dp", "pp", "ep", "etp", "edp"} {
			if (x.Mesh != falcon.Mesh{}) == (y.Mesh != falcon.Mesh{}) &&
				!slices.Equal(x.Peers(r, d), y.Peers(r, d)) {
				return false
			}
		}
	}
	return true
}

// No job is taken for another one, and what is sure is safe.
func TestAnyLayout(t *testing.T) {
	right, unsure := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		j, want := anyJob(t)
		if j.World == 1 || j.World > 64 {
			return
		}
		got, err := mesh.Infer(j.World, j.Comms, j.Traffic)
		if err != nil {
			if !errors.Is(err, mesh.ErrUnsure) {
				t.Fatal(err)
			}
			unsure++
			return
		}
		checkSafe(t, j, got)
		if !alike(got, want) {
			t.Fatalf("%v is taken for %v", want, got)
		}
		right++
	})
	t.Logf("%d right, %d unsure", right, unsure)
	if 3*right < unsure {
		t.Errorf("%d layouts are right and %d unsure", right, unsure)
	}
}

// Whatever is missing, doubled or added: an answer is right or none.
func TestHostileTraffic(t *testing.T) {
	right, unsure := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		j, want := anyJob(t)
		if j.World < 4 || j.World > 64 {
			return
		}
		ranks := want.World()
		r := falcon.Rank(rapid.IntRange(0, ranks-1).Draw(t, "rank"))
		renumbered := false
		switch what := rapid.SampledFrom([]string{
			"missing", "silent", "counted twice", "more calls", "permuted", "checkpoint",
			"evaluation", "all ranks", "unlisted",
		}).Draw(t, "what"); what {
		case "missing":
			delete(j.Comms, r)
			delete(j.Traffic, r)
		case "silent":
			delete(j.Traffic, r)
		case "counted twice", "more calls":
			j.Traffic[r] = slices.Clone(j.Traffic[r])
			for i := range j.Traffic[r] {
				if what == "counted twice" || rapid.Bool().Draw(t, "this") {
					j.Traffic[r][i].Calls *= 2
				}
			}
		case "permuted":
			permute(j, rapid.Uint64().Draw(t, "seed"))
			renumbered = true
		case "checkpoint": // one rank of each four writes, and gathers before
			extra(j, []falcon.Rank{0, falcon.Rank(ranks / 2)}, falcon.OpAllGather)
		case "evaluation": // a group that is idle now
			extra(j, []falcon.Rank{0, 1, r}, falcon.OpNone)
		case "unlisted": // a rank has more communicators than its table holds
			j.Comms[r] = slices.Clone(j.Comms[r])[:len(j.Comms[r])/2]
		case "all ranks": // a reduction of metrics, as large as tensors
			extra(j, j.All(), falcon.OpAllReduce)
		}
		got, err := mesh.Infer(j.World, j.Comms, j.Traffic)
		if err != nil {
			unsure++
			return
		}
		checkSafe(t, j, got)
		if !renumbered && !alike(got, want) {
			t.Fatalf("%v is taken for %v", want, got)
		}
		right++
	})
	t.Logf("%d right, %d unsure", right, unsure)
}

// permute gives the ranks other numbers.
func permute(j *meshtest.Job, seed uint64) {
	to := rand.New(rand.NewPCG(seed, 1)).Perm(j.World) //#nosec G404 -- a test's seed
	comms := map[falcon.Rank][]falcon.Comm{}
	traffic := map[falcon.Rank][]falcon.Traffic{}
	inside := make([]falcon.Rank, j.World)
	for r := range falcon.Rank(j.World) {
		comms[falcon.Rank(to[r])], traffic[falcon.Rank(to[r])] = j.Comms[r], j.Traffic[r]
		inside[to[r]] = falcon.Rank(to[j.Inside[r]])
	}
	j.Comms = comms
	j.Traffic = traffic
	j.Inside = inside
}

// extra adds a communicator of ranks, which calls once on it.
func extra(j *meshtest.Job, ranks []falcon.Rank, op falcon.Op) {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	j.Comms = maps.Clone(j.Comms)
	j.Traffic = maps.Clone(j.Traffic)
	for i, r := range ranks {
		j.Comms[r] = append(slices.Clone(j.Comms[r]), falcon.Comm{
			ID:         7,
			Size:       len(ranks),
			RankInComm: i,
		})
		if op != falcon.OpNone {
			j.Traffic[r] = append(slices.Clone(j.Traffic[r]), falcon.Traffic{
				Comm:   7,
				Op:     op,
				Calls:  1,
				Bytes:  1 << 20,
				Alike:  1,
				Single: 1,
			})
		}
	}
}
