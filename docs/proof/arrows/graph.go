package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// graph says which file uses which names of which other file.
type graph struct {
	files []string
	uses  map[string]map[string]map[string]bool // from, to, names
}

func newGraph() *graph {
	return &graph{uses: map[string]map[string]map[string]bool{}}
}

func (g *graph) add(from, to, name string) {
	if from == to {
		return
	}
	if g.uses[from] == nil {
		g.uses[from] = map[string]map[string]bool{}
	}
	if g.uses[from][to] == nil {
		g.uses[from][to] = map[string]bool{}
	}
	g.uses[from][to][name] = true
}

func (g *graph) arrows() int {
	n := 0
	for _, tos := range g.uses {
		n += len(tos)
	}
	return n
}

// print lists arrows with the names that they stand for, those of the fewest first.
func (g *graph) print(w io.Writer, arrows [][2]string) {
	var lines []string
	for _, a := range arrows {
		names := slices.Sorted(maps.Keys(g.uses[a[0]][a[1]]))
		lines = append(lines, fmt.Sprintf("%3d %s → %s: %s", len(names), a[0], a[1], strings.Join(names, ", ")))
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
}
