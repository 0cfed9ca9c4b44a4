package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
	"github.com/failslow/falcon/detect/peer"
)

// show has every rank show NCCL's choice for all-reduces.
func (w *world) show(c falcon.Choice) {
	for _, comms := range w.job.Comms {
		for i := range comms {
			comms[i].Choices[falcon.OpAllReduce] = c
		}
	}
	w.describe()
}

// A link that trees alone use is named where NCCL's choice is known, by whatever source. Where rings
// are assumed it is not, and nothing else is.
func TestTreeLinksAreTested(t *testing.T) {
	tree := falcon.Choice{
		Algorithm: falcon.AlgorithmTree,
		Protocol:  falcon.ProtocolSimple,
		Channels:  4,
	}
	for _, source := range []falcon.ChoiceSource{
		falcon.ChoiceAssumed, falcon.ChoiceDeclared, falcon.ChoiceEnvironment, falcon.ChoiceDebug,
		falcon.ChoiceProfiler,
	} {
		w := newWorld(falcon.Layout{TP: 1, DP: 8, PP: 1}, 8, 8, 5)
		w.job.Trees, w.job.Hiccup = true, 0
		switch tree.Source = source; source {
		case falcon.ChoiceAssumed:
			w.describe()
		case falcon.ChoiceDeclared:
			w.m = New(Config{Validate: ValidateConfig{Trees: true}})
			w.describe()
		default:
			w.show(tree)
		}
		w.run(30)
		l := falcon.NewLink("n0", "n4") // of the first tree
		w.job.Link[l] = 0.02
		w.run(60)
		if len(w.all) != 1 {
			t.Fatalf("%s: %d incidents\n%s", source, len(w.all), w.out.String())
		}
		v := w.all[0].Verdict
		named := slices.Equal(v.Links, []falcon.Link{l})
		want := source != falcon.ChoiceAssumed
		if named != want || !want && len(v.Links) > 0 {
			t.Errorf("%s: named are %v\n%s", source, v.Links, w.out.String())
		}
		if len(v.Paths) != 1 ||
			v.Paths[0].Source != source ||
			!slices.ContainsFunc(v.Evidence, func(e falcon.Evidence) bool {
				return e.Text == v.Paths[0].Text()
			}) {
			t.Errorf("%s: paths %+v of %+v", source, v.Paths, v.Evidence)
		}
	}
}

// A choice is that of the best source among the members, and none where these disagree.
func TestChoiceOfAGroup(t *testing.T) {
	ring := func(s falcon.ChoiceSource, channels uint8) falcon.Choice {
		return falcon.Choice{
			Algorithm: falcon.AlgorithmRing,
			Channels:  channels,
			Source:    s,
		}
	}
	tree := func(s falcon.ChoiceSource) falcon.Choice {
		return falcon.Choice{Algorithm: falcon.AlgorithmTree, Source: s}
	}
	assumed := ring(falcon.ChoiceAssumed, 0)
	for i, c := range []struct {
		of   []falcon.Choice
		want falcon.Choice
	}{
		{nil, assumed},
		{[]falcon.Choice{{}, {}}, assumed},
		{[]falcon.Choice{tree(falcon.ChoiceAssumed)}, assumed},
		{[]falcon.Choice{{}, tree(falcon.ChoiceProfiler)}, tree(falcon.ChoiceProfiler)},
		{
			[]falcon.Choice{
				ring(falcon.ChoiceEnvironment, 2),
				tree(falcon.ChoiceProfiler),
				ring(falcon.ChoiceEnvironment, 2),
			},
			tree(falcon.ChoiceProfiler),
		},
		{
			[]falcon.Choice{
				tree(falcon.ChoiceProfiler),
				ring(falcon.ChoiceProfiler, 2),
				tree(falcon.ChoiceProfiler),
			},
			assumed,
		},
		{
			[]falcon.Choice{
				tree(falcon.ChoiceDebug),
				ring(falcon.ChoiceDebug, 2),
				ring(falcon.ChoiceProfiler, 4),
				ring(falcon.ChoiceProfiler, 2),
			},
			ring(falcon.ChoiceProfiler, 2),
		},
		{
			[]falcon.Choice{{Source: falcon.ChoiceProfiler}, ring(falcon.ChoiceDebug, 2)},
			ring(falcon.ChoiceDebug, 2),
		},
	} {
		j := jobState{desc: Job{Comms: map[falcon.Rank][]falcon.Comm{}}}
		g := peer.Group{Comm: 7, Op: falcon.OpAllReduce}
		for r, choice := range c.of {
			comm := falcon.Comm{ID: 7}
			comm.Choices[falcon.OpAllReduce] = choice
			j.desc.Comms[falcon.Rank(r)] = []falcon.Comm{{ID: 3}, comm}
			g.Ranks = append(g.Ranks, falcon.Rank(r))
		}
		if got := j.choiceOf(&g); got != c.want {
			t.Errorf("case %d: %+v, want %+v", i, got, c.want)
		}
	}
}

// plainUse are the rank pairs and the node pairs that NCCL uses, and how a test's pair would be one of
// them, by a plain walk over nodes and channels.
type plainUse struct {
	pairs map[passes.Pair]bool
	links map[falcon.Link]bool
}

func useOf(groups []falcon.Group, at falcon.Placement, trees bool, channels int) plainUse {
	u := plainUse{map[passes.Pair]bool{}, map[falcon.Link]bool{}}
	add := func(a, b falcon.Rank) {
		if a == b {
			return
		}
		u.pairs[passes.NewPair(a, b)] = true
		if x, y := at[a].Node(), at[b].Node(); x != y {
			u.links[falcon.NewLink(x, y)] = true
		}
	}
	for _, g := range groups {
		var nodes [][]falcon.Rank
		for _, r := range g.Ranks {
			i := slices.IndexFunc(nodes, func(n []falcon.Rank) bool {
				return at[n[0]].Node() == at[r].Node()
			})
			if i < 0 {
				i = len(nodes)
				nodes = append(nodes, nil)
			}
			nodes[i] = append(nodes[i], r)
		}
		for c := range channels {
			order := func(n int) []falcon.Rank {
				var out []falcon.Rank
				for i := range nodes[n] {
					out = append(out, nodes[n][(i+c)%len(nodes[n])])
				}
				return out
			}
			for n := range nodes {
				own := order(n)
				for i := 1; i < len(own); i++ {
					add(own[i-1], own[i])
				}
				if !trees {
					add(own[len(own)-1], order((n + 1) % len(nodes))[0])
				}
			}
			for _, tree := range passes.TreeOrders(firsts(len(nodes))) {
				for _, pass := range passes.Tree(tree) {
					for _, e := range pass.Pairs {
						if trees {
							add(order(int(e[0]))[0], order(int(e[1]))[0])
						}
					}
				}
			}
		}
	}
	return u
}

func firsts(n int) []falcon.Rank {
	out := make([]falcon.Rank, n)
	for i := range out {
		out[i] = falcon.Rank(i)
	}
	return out
}

// 200 topologies of 1 to 8 ranks a node, ranks in any order, with rings or trees, and a slow link
// between any two nodes: no pair is tested that NCCL does not use where its choice is known, and no link
// is blamed but the slow one, and that only where NCCL uses it. That holds for links also where
// nothing shows the choice, and where rings are assumed wrongly.
func TestNCCLTopologies(t *testing.T) {
	topologies := 200
	if testing.Short() {
		topologies = 30
	}
	used, named, asked := 0, 0, 0
	for seed := range uint64(topologies) {
		rng := rand.New(rand.NewPCG(seed, 31))
		per := 1 + rng.IntN(8)
		nodes := 2 + rng.IntN(max(2, 24/per-1))
		tp := 1
		if per%2 == 0 {
			tp += rng.IntN(2)
		}
		w := newWorld(
			falcon.Layout{TP: tp, DP: nodes * per / tp, PP: 1},
			nodes,
			4,
			seed,
		)
		w.job.Noise, w.job.Hiccup = 0.01, 0
		if tp == 1 && rng.IntN(2) == 0 {
			rng.Shuffle(len(w.job.Placement), func(i, k int) {
				w.job.Placement[i], w.job.Placement[k] = w.job.Placement[k], w.job.Placement[i]
			})
		}
		w.job.Trees = rng.IntN(2) == 0
		c := falcon.Choice{
			Algorithm: falcon.AlgorithmRing,
			Channels:  uint8(1 + rng.IntN(8)),
			Source:    falcon.ChoiceSource(rng.IntN(5)),
		}
		if w.job.Trees {
			c.Algorithm = falcon.AlgorithmTree
		}
		if c.Source == falcon.ChoiceDeclared {
			c.Source = falcon.ChoiceProfiler
		}
		w.show(c)
		uses := useOf(
			w.job.Layout.Groups(falcon.DimDP),
			w.job.Placement,
			w.job.Trees,
			int(c.Channels),
		)
		tpUses := useOf(
			w.job.Layout.Groups(falcon.DimTP),
			w.job.Placement,
			w.job.Trees,
			int(c.Channels),
		)
		w.onAsk = func(ask falcon.ValidationAsk) {
			for _, pass := range passes.Plan(ask) {
				for _, p := range pass.Pairs {
					asked++
					if c.Source != falcon.ChoiceAssumed &&
						!uses.pairs[p] &&
						!tpUses.pairs[p] {
						t.Errorf("seed %d, %+v: %v is tested, and NCCL does not use it\n%+v", seed, c, p, ask)
					}
				}
			}
		}
		w.run(30)
		all := w.job.Placement.Nodes()
		i := rng.IntN(len(all))
		k := rng.IntN(len(all) - 1)
		if k >= i {
			k++
		}
		slow := falcon.NewLink(all[i], all[k])
		w.job.Link[slow] = 0.02 + 0.05*rng.Float64()
		w.run(45)
		is := uses.links[slow] || tpUses.links[slow]
		if is {
			used++
		}
		for _, inc := range w.all {
			if slices.Equal(inc.Verdict.Links, []falcon.Link{slow}) && is {
				named++
			} else if len(inc.Verdict.Links)+len(inc.Verdict.Devices) > 0 {
				t.Errorf("seed %d, %d nodes of %d, %+v: %s is slow, used %v; blamed are %v %v\n%s",
					seed, nodes, per, c, slow, is, inc.Verdict.Links, inc.Verdict.Devices,
					w.out.String())
			}
		}
		if !is && len(w.all) > 0 {
			t.Errorf("seed %d: a link that carries nothing led to %s", seed, fmt.Sprint(w.all[0].Verdict))
		}
		if t.Failed() && strings.Count(w.out.String(), "\n") > 0 {
			return
		}
	}
	t.Logf("%d topologies: %d slow links in use, %d named, %d pairs tested", topologies, used, named, asked)
	if named*2 < used {
		t.Errorf("%d of %d slow links in use were named", named, used)
	}
}
