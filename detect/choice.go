package detect

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/nccl"
	"github.com/failslow/falcon/detect/peer"
)

// choiceOf is what NCCL has chosen for a group's operation, as far as its members agree on it.
// Only all-reduces have trees. What nothing shows is assumed to be rings.
func (j *jobState) choiceOf(g *peer.Group) falcon.Choice {
	if c, ok := j.shownChoice(g); ok {
		return c
	}
	if j.trees && g.Op == falcon.OpAllReduce {
		return falcon.Choice{Algorithm: falcon.AlgorithmTree, Source: falcon.ChoiceDeclared}
	}
	return falcon.Choice{Algorithm: falcon.AlgorithmRing, Source: falcon.ChoiceAssumed}
}

// shownChoice is what members show, by the best source that any of them has. NCCL chooses alike on all
// ranks: what members of that source disagree about is not known.
func (j *jobState) shownChoice(g *peer.Group) (out falcon.Choice, ok bool) {
	for _, r := range g.Ranks {
		c := j.chosenBy(r, g)
		switch {
		case !c.Known() || ok && c.Source < out.Source:
		case !out.Known() || c.Source > out.Source:
			out, ok = c, true
		case c.Algorithm != out.Algorithm:
			ok = false
		default:
			out = agreed(out, c)
		}
	}
	return out, ok
}

// agreed is what two members show alike of one algorithm.
func agreed(a, b falcon.Choice) falcon.Choice {
	if a.Protocol != b.Protocol {
		a.Protocol = falcon.ProtocolUnknown
	}
	a.Channels = min(a.Channels, b.Channels)
	return a
}

func (j *jobState) chosenBy(r falcon.Rank, g *peer.Group) falcon.Choice {
	for _, c := range j.desc.Comms[r] {
		if c.ID == g.Comm {
			return c.Choices.Of(g.Op)
		}
	}
	return falcon.Choice{}
}

// graphOf is a group's members by node, in the order of the communicator.
func (j *jobState) graphOf(g *peer.Group) nccl.Graph {
	return nccl.NewGraph(j.ringOrder(*g), func(r falcon.Rank) falcon.Node {
		if r < 0 || int(r) >= len(j.desc.Placement) {
			return ""
		}
		return j.desc.Placement[r].Node()
	})
}

// groupEdges are the pairs of a group's members that send to each other, by NCCL's choice.
func (j *jobState) groupEdges(g *peer.Group) []nccl.Edge {
	return j.graphOf(g).Edges(j.choiceOf(g).Algorithm)
}

// pathsOf is a group's edges with what they are known by.
func (j *jobState) pathsOf(g *peer.Group) cause.Paths {
	c := j.choiceOf(g)
	graph := j.graphOf(g)
	out := cause.Paths{Choice: c, Edges: graph.Edges(c.Algorithm)}
	if c.Source == falcon.ChoiceAssumed && g.Op == falcon.OpAllReduce {
		out.Else = graph.Edges(falcon.AlgorithmTree)
	}
	return out
}

// groupTests are the tests of groups' paths, within the bounds of one validation.
type groupTests struct {
	job   *jobState
	ask   *falcon.ValidationAsk
	list  []groupTest
	links map[falcon.Link]bool
}

// groupTest is the tests of one group's paths, channel by channel.
type groupTest struct {
	members   []falcon.Rank // ascending
	algorithm falcon.Algorithm
	channels  int
	graph     nccl.Graph
}

func (t *testPlanner) newGroupTests(ask *falcon.ValidationAsk) *groupTests {
	return &groupTests{
		job:   t.job,
		ask:   ask,
		links: map[falcon.Link]bool{},
	}
}

// addAll adds groups as long as there is room.
func (t *groupTests) addAll(groups []peer.Group) {
	for i := range groups {
		t.add(&groups[i])
	}
}

// add asks for a group's paths in its first channel. What goes by an algorithm whose paths are not
// known is left out: a test of others would say nothing about it.
func (t *groupTests) add(g *peer.Group) {
	c := t.job.choiceOf(g)
	graph := t.job.graphOf(g)
	x := groupTest{slices.Sorted(slices.Values(g.Ranks)), c.Algorithm, graph.Channels(int(c.Channels)), graph}
	same := func(o groupTest) bool {
		return o.algorithm == x.algorithm && slices.Equal(o.members, x.members)
	}
	if !nccl.Known(c.Algorithm) ||
		slices.ContainsFunc(t.list, same) ||
		!x.addTo(t.ask, 0) {
		return
	}
	t.list = append(t.list, x)
	for _, l := range t.job.ringLinks(*g) {
		t.links[l] = true
	}
}

// addChannels asks for the paths of further channels, which begin at other ranks of a node.
func (t *groupTests) addChannels() {
	for channel := 1; ; channel++ {
		some := false
		for _, x := range t.list {
			some = channel < x.channels && x.addTo(t.ask, channel) || some
		}
		if !some {
			return
		}
	}
}

// chainsTested is how many pairs within nodes are tested of groups whose trees are.
const chainsTested = 16

// addTo adds the paths of one channel to what is asked for; false where there is no room.
func (x groupTest) addTo(ask *falcon.ValidationAsk, channel int) bool {
	if len(ask.Rings)+len(ask.Trees) >= askRings {
		return false
	}
	if x.algorithm == falcon.AlgorithmRing {
		ask.Rings = append(ask.Rings, x.graph.Ring(channel))
		return true
	}
	ask.Trees = append(ask.Trees, x.graph.Trees(channel)...)
	if x.algorithm == falcon.AlgorithmTree {
		for _, p := range x.graph.Chains(channel) {
			if len(ask.Pairs) < chainsTested && !slices.Contains(ask.Pairs, [2]falcon.Rank(p)) {
				ask.Pairs = append(ask.Pairs, p)
			}
		}
	}
	return true
}
