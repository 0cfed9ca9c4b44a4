package replica

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// ErrTooLarge is returned where replicas are interwoven over too many nodes for an
// exact chance; Sampled has no such limit.
var ErrTooLarge = errors.New("replica: no exact chance")

// workMost bounds the work of Exact: nodes of sets that it looks at.
const workMost = 1 << 20

// TrialsMost bounds what Sampled plays.
const TrialsMost = 100_000_000

// Exact is the chance that some shard loses all its replicas when every node
// fails by itself with probability p, at once. For shards with n replicas on
// nodes of their own it is 1 − (1 − pⁿ)^shards, the paper's p⁴ of §III-G's kind;
// shards that share nodes are distinguished case by case. An error wraps ErrQuery
// or ErrTooLarge.
func Exact(q Query, p float64) (float64, error) {
	sets, err := q.nodeSets(p, 0)
	if err != nil {
		return 0, err
	}
	budget := workMost
	loss := lossProbability(sets, p, &budget)
	if budget < 0 {
		return 0, fmt.Errorf("%w: replicas of different shards share too many nodes; sample instead", ErrTooLarge)
	}
	return loss, nil
}

// nodeSets are the nodes of every shard's survivors, each set once, as indexes.
func (q Query) nodeSets(node, domain float64) ([][]int, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if !(node >= 0 && node < 1) || !(domain >= 0 && domain < 1) {
		return nil, fmt.Errorf("%w: a chance of failure must be at least 0 and below 1, not %v", ErrQuery, max(node, domain))
	}
	if len(q.Placement) == 0 {
		return nil, fmt.Errorf("%w: without a placement it is unknown what is on a node", ErrQuery)
	}
	index := q.nodeIndex()
	seen := map[string]bool{}
	var out [][]int
	for _, ranks := range q.Shards() {
		var set []int
		for _, r := range ranks {
			if q.survives(r) {
				set = append(set, index[q.nodeOf(r)])
			}
		}
		slices.Sort(set)
		set = slices.Compact(set)
		key := strings.Trim(fmt.Sprint(set), "[]")
		if len(set) > 0 && !seen[key] {
			seen[key], out = true, append(out, set)
		}
	}
	return out, nil
}

// nodeIndex numbers the nodes in the order of their first rank.
func (q Query) nodeIndex() map[falcon.Node]int {
	index := map[falcon.Node]int{}
	for _, d := range q.Placement {
		if _, ok := index[d.Node()]; !ok {
			index[d.Node()] = len(index)
		}
	}
	return index
}

// lossProbability is the chance that all nodes of some set fail: parts that share no node are
// independent, and within a part each node either fails or does not.
func lossProbability(sets [][]int, p float64, budget *int) float64 {
	logSafe := 0.0
	for _, part := range connectedParts(sets) {
		loss := 0.0
		switch {
		case len(part) == 1:
			loss = math.Pow(p, float64(len(part[0])))
		default:
			if *budget -= countMembers(part); *budget < 0 {
				return 0
			}
			v := busiest(part)
			loss = (1 - p) * lossProbability(setsWithout(part, v), p, budget)
			if failed, gone := setsAfterFailure(part, v); gone {
				loss += p
			} else {
				loss += p * lossProbability(failed, p, budget)
			}
		}
		logSafe += math.Log1p(-loss)
	}
	return -math.Expm1(logSafe)
}

func countMembers(sets [][]int) int {
	n := 0
	for _, set := range sets {
		n += len(set)
	}
	return n
}

// connectedParts splits sets into those that are connected by nodes.
func connectedParts(sets [][]int) [][][]int {
	root := make([]int, len(sets))
	find := func(i int) int {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	first := map[int]int{}
	for i, set := range sets {
		root[i] = i
		for _, v := range set {
			if j, ok := first[v]; ok {
				root[find(j)] = find(i)
			} else {
				first[v] = i
			}
		}
	}
	at := map[int]int{}
	var out [][][]int
	for i, set := range sets {
		k, ok := at[find(i)]
		if !ok {
			k = len(out)
			at[find(i)], out = k, append(out, nil)
		}
		out[k] = append(out[k], set)
	}
	return out
}

// busiest is the node that most sets have, the lowest of several.
func busiest(sets [][]int) int {
	count := map[int]int{}
	best := sets[0][0]
	for _, set := range sets {
		for _, v := range set {
			count[v]++
			if count[v] > count[best] || count[v] == count[best] && v < best {
				best = v
			}
		}
	}
	return best
}

// setsWithout leaves the sets that can still be lost when node v does not fail.
func setsWithout(sets [][]int, v int) [][]int {
	var out [][]int
	for _, set := range sets {
		if !slices.Contains(set, v) {
			out = append(out, set)
		}
	}
	return out
}

// setsAfterFailure takes v from all sets; gone reports whether one of them is lost with it.
func setsAfterFailure(sets [][]int, v int) (out [][]int, gone bool) {
	for _, set := range sets {
		rest := slices.DeleteFunc(slices.Clone(set), func(n int) bool { return n == v })
		if len(rest) == 0 {
			return nil, true
		}
		out = append(out, rest)
	}
	return out, false
}

// Hazard is the chance that things fail at once.
type Hazard struct {
	Node   float64 // of a node by itself
	Domain float64 // of a rack or another domain, with all its nodes
}

// Estimate is a sampled chance.
type Estimate struct {
	Chance float64 `json:"chance"`
	StdErr float64 `json:"std_err"`
	AtMost float64 `json:"at_most"` // upper end of the 95 % interval (Wilson), also where nothing was lost
	Trials int     `json:"trials"`
	Losses int     `json:"losses"`
}

// Sampled plays trials failures of nodes and, by Domains, of racks and more, seeded, and counts
// those in which some shard loses all replicas. An error wraps ErrQuery.
func Sampled(q Query, h Hazard, trials int, seed uint64, more ...Domain) (Estimate, error) {
	sets, err := q.nodeSets(h.Node, h.Domain)
	if err != nil {
		return Estimate{}, err
	}
	if trials < 1 || trials > TrialsMost {
		return Estimate{}, fmt.Errorf("%w: %d trials; give 1 to %d", ErrQuery, trials, TrialsMost)
	}
	d := newDraw(q, sets, more, rand.New(rand.NewPCG(seed, 0)))
	losses := 0
	for range trials {
		if d.losesShard(h) {
			losses++
		}
	}
	return estimate(losses, trials), nil
}

func estimate(losses, trials int) Estimate {
	const z = 1.96
	n := float64(trials)
	p := float64(losses) / n
	wilson := (p + z*z/(2*n) + z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))) / (1 + z*z/n)
	return Estimate{Chance: p, StdErr: math.Sqrt(p * (1 - p) / n), AtMost: wilson, Trials: trials, Losses: losses}
}
