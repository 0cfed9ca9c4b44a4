package detect

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
	"github.com/failslow/falcon/detect/peer"
)

// groupEdges are the pairs of a group's members that send to each other, by their order in the
// communicator: those of NCCL's two trees where the job's all-reduces are trees, else neighbours
// on the ring. All-gathers and reduce-scatters are rings in any case.
func (j *jobState) groupEdges(g *peer.Group) []passes.Pair {
	if j.trees && g.Op == falcon.OpAllReduce {
		return passes.TreeEdges(j.ringOrder(*g))
	}
	return passes.RingEdges(j.ringOrder(*g))
}

// useTrees turns the rings of tests into NCCL's trees over the same members, where the job's
// all-reduces are trees: links that only a ring has would be tested, and those in question not.
func (t *testPlanner) useTrees(ask *falcon.ValidationAsk) {
	if !t.job.trees {
		return
	}
	for _, ring := range ask.Rings {
		ask.Trees = append(ask.Trees, passes.TreeOrders(ring)...)
	}
	ask.Rings = nil
}
