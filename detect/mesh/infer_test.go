package mesh_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/mesh"
	"github.com/failslow/falcon/detect/mesh/meshtest"
)

var (
	gpt2 = meshtest.Model{
		Layers:       12,
		Hidden:       768,
		Sequence:     1024,
		Vocabulary:   50257,
		MicroBatches: 1,
	}
	gpt7 = meshtest.Model{
		Layers:       32,
		Hidden:       4096,
		Sequence:     4096,
		Vocabulary:   32000,
		MicroBatches: 8,
	}
	gpt70 = meshtest.Model{
		Layers:       80,
		Hidden:       8192,
		Sequence:     8192,
		Vocabulary:   128256,
		MicroBatches: 16,
	}
)

func deep(m meshtest.Model, layers, microBatches int) meshtest.Model {
	m.Layers, m.MicroBatches = layers, microBatches
	return m
}

// layouts are jobs as people run them, each with the mesh that its configuration means.
var layouts = []struct {
	want string
	job  func() *meshtest.Job
}{
	{"dp=4", func() *meshtest.Job { return meshtest.DDP(4, gpt2) }},
	{"dp=8", func() *meshtest.Job { return meshtest.DDP(8, deep(gpt2, 24, 1)) }},
	{"dp=64", func() *meshtest.Job { return meshtest.DDP(64, gpt2) }},
	{"fsdp=8", meshtest.FSDP{Model: gpt7, Shard: 8}.Job},
	{"fsdp=64", meshtest.FSDP{Model: deep(gpt7, 32, 1), Shard: 64}.Job},
	{"fsdp=4,dp=2", meshtest.FSDP{Model: gpt7, Shard: 4, Replicas: 2}.Job},
	{"fsdp=8,dp=8", meshtest.FSDP{Model: deep(gpt7, 32, 2), Shard: 8, Replicas: 8}.Job},
	{"tp=2,fsdp=4", meshtest.FSDP{Model: gpt7, TP: 2, Shard: 4}.Job},
	{"tp=4,fsdp=4,dp=2", meshtest.FSDP{Model: gpt7, TP: 4, Shard: 4, Replicas: 2}.Job},
	{"fsdp=4,pp=4", meshtest.FSDP{Model: gpt7, Shard: 4, PP: 4}.Job},
	{"tp=2,fsdp=2,dp=2,pp=4", meshtest.FSDP{Model: gpt7, TP: 2, Shard: 2, Replicas: 2, PP: 4}.Job},
	{"dp=2,pp=2", meshtest.Megatron{Model: gpt7, DP: 2, PP: 2}.Job},
	{"dp=4,pp=4", meshtest.Megatron{Model: gpt7, DP: 4, PP: 4}.Job},
	{
		"dp=4,pp=4",
		meshtest.Megatron{
			Model:                deep(gpt7, 32, 32),
			DP:                   4,
			PP:                   4,
			DistributedOptimizer: true,
			OverlapReduce:        true,
		}.Job,
	},
	{"pp=8", meshtest.Megatron{Model: gpt7, PP: 8}.Job},
	{"tp=8", meshtest.Megatron{Model: gpt7, TP: 8}.Job},
	{"tp=2,dp=2", meshtest.Megatron{Model: gpt7, TP: 2, DP: 2}.Job},
	{"tp=4,dp=8", meshtest.Megatron{Model: gpt7, TP: 4, DP: 8, DistributedOptimizer: true}.Job},
	{
		"tp=8,dp=8",
		meshtest.Megatron{
			Model:                deep(gpt70, 80, 4),
			TP:                   8,
			DP:                   8,
			SequenceParallel:     true,
			DistributedOptimizer: true,
			OverlapReduce:        true,
		}.Job,
	},
	{"tp=2,dp=2,pp=2", meshtest.Megatron{Model: gpt7, TP: 2, DP: 2, PP: 2}.Job},
	{
		"tp=4,dp=4,pp=4",
		meshtest.Megatron{
			Model:                gpt70,
			TP:                   4,
			DP:                   4,
			PP:                   4,
			SequenceParallel:     true,
			DistributedOptimizer: true,
		}.Job,
	},
	{"tp=8,dp=2,pp=4", meshtest.Megatron{Model: gpt70, TP: 8, DP: 2, PP: 4, OverlapReduce: true}.Job},
	{"tp=2,pp=4,dp=4", meshtest.Megatron{Model: gpt7, TP: 2, DP: 4, PP: 4, Order: "tp-cp-ep-pp-dp"}.Job},
	{"dp=4,tp=2,pp=2", meshtest.Megatron{Model: gpt7, TP: 2, DP: 4, PP: 2, Order: "dp-tp-cp-ep-pp"}.Job},
	{"cp=4,dp=2", meshtest.Megatron{Model: gpt7, CP: 4, DP: 2}.Job},
	{"cp=2,dp=4", meshtest.Megatron{Model: gpt7, CP: 2, DP: 4}.Job},
	{"tp=2,cp=2,dp=4", meshtest.Megatron{Model: gpt7, TP: 2, CP: 2, DP: 4, SequenceParallel: true}.Job},
	{
		"tp=2,cp=4,dp=2,pp=2",
		meshtest.Megatron{Model: gpt7, TP: 2, CP: 4, DP: 2, PP: 2, AllGatherCP: true}.Job,
	},
	{
		"tp=2,cp=2,pp=2,dp=4",
		meshtest.Megatron{Model: gpt7, TP: 2, CP: 2, DP: 4, PP: 2, Order: "tp-cp-ep-pp-dp"}.Job,
	},
	{
		"cp=2,tp=4,dp=2,pp=4",
		meshtest.Megatron{
			Model:            gpt70,
			TP:               4,
			CP:               2,
			DP:               2,
			PP:               4,
			Order:            "cp-tp-ep-dp-pp",
			SequenceParallel: true,
		}.Job,
	},
	{"ep=8,dp=8", meshtest.Megatron{Model: gpt7, EP: 8, DP: 8}.Job},
	{"ep=4,dp=8", meshtest.Megatron{Model: gpt7, EP: 4, DP: 8, DistributedOptimizer: true}.Job},
	{"tp=2,ep=4,dp=8", meshtest.Megatron{Model: gpt7, TP: 2, EP: 4, DP: 8}.Job},
	{
		"tp=2,etp=1,ep=4,dp=8,pp=2",
		meshtest.Megatron{
			Model:                gpt7,
			TP:                   2,
			EP:                   4,
			ETP:                  1,
			DP:                   8,
			PP:                   2,
			SequenceParallel:     true,
			DistributedOptimizer: true,
		}.Job,
	},
	{
		"tp=2,ep=2,dp=4,pp=4",
		meshtest.Megatron{Model: gpt70, TP: 2, EP: 2, DP: 4, PP: 4, OverlapReduce: true}.Job,
	},
	{"cp=2,ep=4,dp=4,pp=2", meshtest.Megatron{Model: gpt7, CP: 2, EP: 4, DP: 4, PP: 2}.Job},
}

func TestLayoutsOfFrameworks(t *testing.T) {
	right, sure := 0, 0
	for i, l := range layouts {
		want, err := falcon.ParseMesh(l.want)
		if err != nil {
			t.Fatal(err)
		}
		j := l.job()
		if j.World != want.World() {
			t.Fatalf("%s has %d ranks, the job %d", l.want, want.World(), j.World)
		}
		got, err := mesh.Infer(j.World, j.Comms, j.Traffic)
		switch {
		case errors.Is(err, mesh.ErrUnsure):
			t.Logf("%d %s: %v", i, l.want, err)
			continue
		case err != nil:
			t.Errorf("%d %s: %v", i, l.want, err)
		case got != want:
			t.Errorf("%d %s is taken for %s", i, l.want, got)
		default:
			right++
		}
		sure++
	}
	t.Logf("%d layouts: %d right, %d unsure, %d wrong", len(layouts), right, len(layouts)-sure, sure-right)
	if right < 30 {
		t.Errorf("%d layouts of %d are inferred right", right, len(layouts))
	}
}

// The engine's one goroutine infers: thousands of ranks must cost it little.
func BenchmarkInfer(b *testing.B) {
	for _, dp := range []int{2, 16, 64} {
		j := meshtest.Megatron{Model: gpt7, TP: 8, CP: 2, DP: dp, PP: 4}.Job()
		b.Run(fmt.Sprintf("ranks=%d", j.World), func(b *testing.B) {
			for b.Loop() {
				if _, err := mesh.Infer(j.World, j.Comms, j.Traffic); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
