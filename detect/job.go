package detect

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// jobState is the job as it runs now.
type jobState struct {
	desc  Job
	known bool // a job was described
	trees bool // all-reduces are trees where nothing shows NCCL's choice (validate_trees)
}

// namesDeviceOf reports whether an incident names the device of a rank, or knows no devices.
func (j *jobState) namesDeviceOf(s *incidentState, r falcon.Rank) bool {
	return len(s.Verdict.Devices) == 0 ||
		int(r) < len(j.desc.Placement) && slices.Contains(s.Verdict.Devices, j.desc.Placement[r])
}

func (j *jobState) ranksByNode() map[falcon.Node][]falcon.Rank {
	out := map[falcon.Node][]falcon.Rank{}
	for r, d := range j.desc.Placement {
		out[d.Node()] = append(out[d.Node()], falcon.Rank(r))
	}
	return out
}

// rankAcross is a rank on the first device of each of two nodes: those share a rail.
func (j *jobState) rankAcross(at map[falcon.Node][]falcon.Rank, a, b falcon.Node) ([2]falcon.Rank, bool) {
	first := func(n falcon.Node) (out falcon.Rank) {
		out = -1
		for _, r := range at[n] {
			if out < 0 || j.desc.Placement[r].Index() < j.desc.Placement[out].Index() {
				out = r
			}
		}
		return out
	}
	x := first(a)
	y := first(b)
	return [2]falcon.Rank{min(x, y), max(x, y)}, x >= 0 && y >= 0 && x != y
}

// crossesLinkOf reports whether a group's ring goes over one of an incident's links.
func (j *jobState) crossesLinkOf(o *incidentState, g *peer.Group) bool {
	return slices.ContainsFunc(j.ringLinks(*g), func(l falcon.Link) bool {
		return slices.Contains(o.Verdict.Links, l)
	})
}

// throttledReplicas are the replicas whose pipeline goes over a link of an incident:
// the lesser delays of their other pairs follow from it.
func (j *jobState) throttledReplicas(o *incidentState, res *peer.Result) map[int]bool {
	out := map[int]bool{}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		l, ok := j.linkBetween(p.From, p.To)
		if ok && slices.Contains(o.Verdict.Links, l) {
			out[j.desc.Layout.Replica(p.To)] = true
		}
	}
	return out
}

// ringLinks are the links that a group uses by NCCL's choice, each once.
func (j *jobState) ringLinks(g peer.Group) []falcon.Link {
	var out []falcon.Link
	for _, e := range j.groupEdges(&g) {
		l, ok := j.linkBetween(e.Pair[0], e.Pair[1])
		if ok && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// linkBetween is the link between two ranks, false where they share a node.
func (j *jobState) linkBetween(a, b falcon.Rank) (falcon.Link, bool) {
	if a < 0 || b < 0 || int(max(a, b)) >= len(j.desc.Placement) {
		return falcon.Link{}, false
	}
	x := j.desc.Placement[a].Node()
	y := j.desc.Placement[b].Node()
	return falcon.NewLink(x, y), x != y && x != "" && y != ""
}

// ringOrder is a group's members by their rank in the communicator: the order of its ring.
func (j *jobState) ringOrder(g peer.Group) []falcon.Rank {
	place := func(r falcon.Rank) int {
		for _, c := range j.desc.Comms[r] {
			if c.ID == g.Comm {
				return c.RankInComm
			}
		}
		return int(r)
	}
	return slices.SortedStableFunc(slices.Values(g.Ranks), func(a, b falcon.Rank) int {
		return place(a) - place(b)
	})
}

// layoutGroups are the groups of a dimension as the job's all-reduces have them.
func (j *jobState) layoutGroups(d falcon.Dimension) []peer.Group {
	var out []peer.Group
	for _, g := range j.desc.Layout.Groups(d) {
		if len(g.Ranks) < 2 {
			continue
		}
		of := peer.Group{
			Dimension: d,
			Op:        falcon.OpAllReduce,
			Ranks:     g.Ranks,
		}
		for _, c := range j.desc.Comms[g.Ranks[0]] {
			if c.Dimension == d && c.Size == len(g.Ranks) {
				of.Comm = c.ID
			}
		}
		out = append(out, of)
	}
	return out
}

func (j *jobState) describe(r falcon.Rank) string {
	if int(r) < len(j.desc.Placement) {
		return fmt.Sprintf("%s (rank %d)", j.desc.Placement[r], r)
	}
	return fmt.Sprintf("rank %d", r)
}

// perMicroBatch divides the self time of a profile that does not know its
// micro-batches by those that the job has.
func (j *jobState) perMicroBatch(p falcon.RankProfile) falcon.RankProfile {
	replica := j.desc.Layout.Replica(p.Rank)
	if p.MicroBatches == 0 &&
		replica < len(j.desc.MicroBatches) &&
		j.desc.MicroBatches[replica] > 0 {
		p.MicroBatches = int(j.desc.MicroBatches[replica])
		p.SelfMs /= float64(p.MicroBatches)
	}
	return p
}

func sumCounts(v []int32) (total int64) {
	for _, x := range v {
		total += int64(x)
	}
	return total
}

func (j *jobState) replace(desc Job) {
	j.desc, j.known = desc, true
}

func (j *jobState) setPlacement(p falcon.Placement) {
	j.desc.Placement = slices.Clone(p)
}

func (j *jobState) setSplit(counts []int32) {
	j.desc.MicroBatches = slices.Clone(counts)
}
