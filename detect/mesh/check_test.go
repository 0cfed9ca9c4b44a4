package mesh_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/mesh"
	"github.com/failslow/falcon/detect/mesh/meshtest"
)

// A layout that an adapter declares wrong is refuted where the calls show it, above all
// that of one who counts cp and ep into dp.
func TestDeclaredWrong(t *testing.T) {
	for _, c := range []struct {
		what     string
		job      *meshtest.Job
		declared falcon.Layout
		refuted  bool
	}{
		{
			"cp counted into dp",
			meshtest.Megatron{Model: gpt7, TP: 2, CP: 4, DP: 2}.Job(),
			falcon.Layout{TP: 2, DP: 8, PP: 1},
			true,
		},
		{
			"ep unknown",
			meshtest.Megatron{Model: gpt7, EP: 4, DP: 8}.Job(),
			falcon.Layout{TP: 1, DP: 8, PP: 1},
			true,
		},
		{"shard as dp", meshtest.FSDP{Model: gpt7, Shard: 8}.Job(), falcon.Layout{TP: 1, DP: 8, PP: 1}, true},
		{
			"right",
			meshtest.FSDP{Model: gpt7, Shard: 4, Replicas: 2}.Job(),
			falcon.Layout{TP: 4, DP: 2, PP: 1},
			false,
		},
		{
			"plain",
			meshtest.Megatron{Model: gpt7, TP: 2, DP: 4, PP: 2, DistributedOptimizer: true}.Job(),
			falcon.Layout{TP: 2, DP: 4, PP: 2},
			false,
		},
	} {
		err := mesh.Check(c.declared, c.job.Comms, c.job.Traffic)
		if errors.Is(err, mesh.ErrContradiction) != c.refuted {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// What a job is is never refuted.
func TestDeclaredRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, m := anyJob(t)
		if j.World == 1 || j.World > 64 {
			return
		}
		if err := mesh.Check(falcon.LayoutOf(m), j.Comms, j.Traffic); err != nil {
			t.Fatalf("%v: %v", m, err)
		}
	})
}
