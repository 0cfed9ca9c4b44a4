package main

import "slices"

// rank orders the files so that few arrows run upward, from a later file to an earlier
// one. The fewest of all orders is hard to find: this is a local search, which moves one
// file at a time to its best place until no move helps. It is an upper bound.
func (g *graph) rank() []string {
	var best []string
	fewest := -1
	for _, start := range g.starts() {
		order := g.improve(start)
		if n := len(g.upward(order)); fewest < 0 || n < fewest {
			fewest = n
			best = order
		}
	}
	return best
}

// starts returns orders to begin with: by how much more a file uses than it is used,
// by name, and that backwards.
func (g *graph) starts() [][]string {
	used := map[string]int{}
	for _, tos := range g.uses {
		for to := range tos {
			used[to]++
		}
	}
	byUse := slices.Clone(g.files)
	slices.SortStableFunc(byUse, func(a, b string) int {
		return (used[a] - len(g.uses[a])) - (used[b] - len(g.uses[b]))
	})
	back := slices.Clone(g.files)
	slices.Reverse(back)
	return [][]string{byUse, slices.Clone(g.files), back}
}

func (g *graph) improve(order []string) []string {
	for better := true; better; {
		better = false
		for _, f := range g.files {
			i := slices.Index(order, f)
			rest := slices.Delete(slices.Clone(order), i, i+1)
			if k, gain := g.place(rest, f, i); gain > 0 {
				order = slices.Insert(rest, k, f)
				better = true
			}
		}
	}
	return order
}

// place returns where a file has the fewest upward arrows, and how many fewer than at
// its present place.
func (g *graph) place(rest []string, f string, present int) (at, gain int) {
	upward := 0
	for _, other := range rest {
		if g.uses[other][f] != nil {
			upward++ // f would be first
		}
	}
	costs := []int{upward}
	for _, other := range rest {
		if g.uses[f][other] != nil {
			upward++
		}
		if g.uses[other][f] != nil {
			upward--
		}
		costs = append(costs, upward)
	}
	fewest := slices.Min(costs)
	return slices.Index(costs, fewest), costs[present] - fewest
}

// upward returns the arrows that run from a later file of an order to an earlier one.
func (g *graph) upward(order []string) [][2]string {
	at := map[string]int{}
	for i, f := range order {
		at[f] = i
	}
	var up [][2]string
	for _, from := range order {
		for _, to := range order {
			if g.uses[from][to] != nil && at[from] > at[to] {
				up = append(up, [2]string{from, to})
			}
		}
	}
	return up
}
