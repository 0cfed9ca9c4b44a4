package nccl

import (
	"testing"

	"github.com/failslow/falcon"
)

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		algo                    string
		allReduce, gather, cast falcon.Algorithm
	}{
		{"", 0, 0, 0},
		// rings stay for the others
		{"Tree", falcon.AlgorithmTree, falcon.AlgorithmRing, falcon.AlgorithmRing},
		{"RING", falcon.AlgorithmRing, falcon.AlgorithmRing, falcon.AlgorithmRing},
		{"ring,tree", 0, falcon.AlgorithmRing, falcon.AlgorithmRing},
		{"^tree", 0, 0, falcon.AlgorithmRing},
		{
			"^tree,collnetdirect,collnetchain,nvls,nvlstree,pat",
			falcon.AlgorithmRing,
			falcon.AlgorithmRing,
			falcon.AlgorithmRing,
		},
		{"allreduce:tree", falcon.AlgorithmTree, 0, 0},
		{"allreduce:tree;allgather:ring", falcon.AlgorithmTree, falcon.AlgorithmRing, 0},
		{"ring;allreduce:nvlstree", falcon.AlgorithmNVLSTree, falcon.AlgorithmRing, falcon.AlgorithmRing},
		{"PAT", 0, 0, falcon.AlgorithmRing}, // gathers have rings left
		{"wheel", 0, 0, 0},
		{"ring,wheel", 0, 0, 0},
		{"^", 0, 0, 0},
	} {
		got := Environment{Algo: c.algo, Proto: "Simple", Channels: 4}.Choices()
		for op, want := range map[falcon.Op]falcon.Algorithm{
			falcon.OpAllReduce: c.allReduce,
			falcon.OpAllGather: c.gather,
			falcon.OpBroadcast: c.cast,
		} {
			x := got.Of(op)
			if x.Algorithm != want ||
				want != 0 &&
					(x.Source != falcon.ChoiceEnvironment ||
						x.Channels != 4 ||
						x.Protocol != falcon.ProtocolSimple) {
				t.Errorf("%q, %s: %+v, want %s", c.algo, op, x, want)
			}
		}
	}
}

// Whatever a process writes, a choice is one that its operation can have.
func FuzzEnvironment(f *testing.F) {
	f.Add("allreduce:tree;^ring", "ll128,simple")
	f.Add("^^:;,", "^")
	f.Fuzz(func(t *testing.T, algo, proto string) {
		for op, c := range (Environment{Algo: algo, Proto: proto}).Choices() {
			if c == (falcon.Choice{}) {
				continue
			}
			fits := false
			for _, a := range served[falcon.Op(op)] {
				fits = fits || a == c.Algorithm
			}
			if !fits || c.Source != falcon.ChoiceEnvironment {
				t.Errorf("%q, %q: %s has %+v", algo, proto, falcon.Op(op), c)
			}
		}
	})
}
