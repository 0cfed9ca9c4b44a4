package hang

// component is a strongly connected part of a directed graph. It ends the graph if
// no edge leaves it.
type component struct {
	nodes []int
	ends  bool
}

// findComponents is Tarjan's algorithm with an explicit stack, because graphs are deep.
func findComponents(n int, edges func(int) []int) []component {
	t := tarjan{
		edges: edges,
		index: make([]int, n),
		low:   make([]int, n),
		part:  make([]int, n),
	}
	for v := range n {
		if t.index[v] == 0 {
			t.visit(v)
		}
	}
	for c := range t.parts {
		t.parts[c].ends = true
		for _, v := range t.parts[c].nodes {
			for _, w := range edges(v) {
				if t.part[w] != c+1 {
					t.parts[c].ends = false
				}
			}
		}
	}
	return t.parts
}

type tarjan struct {
	edges      func(int) []int
	index, low []int
	part       []int // 1 + the component's number, 0 while open
	open       []int
	next       int
	parts      []component
}

func (t *tarjan) visit(root int) {
	type step struct{ v, edge int }
	path := []step{{root, 0}}
	t.enter(root)
	for len(path) > 0 {
		s := &path[len(path)-1]
		if out := t.edges(s.v); s.edge < len(out) {
			w := out[s.edge]
			s.edge++
			switch {
			case t.index[w] == 0:
				t.enter(w)
				path = append(path, step{w, 0})
			case t.part[w] == 0:
				t.low[s.v] = min(t.low[s.v], t.index[w])
			}
			continue
		}
		v := s.v
		path = path[:len(path)-1]
		if len(path) > 0 {
			up := path[len(path)-1].v
			t.low[up] = min(t.low[up], t.low[v])
		}
		if t.low[v] == t.index[v] {
			t.closePart(v)
		}
	}
}

func (t *tarjan) enter(v int) {
	t.next++
	t.index[v], t.low[v] = t.next, t.next
	t.open = append(t.open, v)
}

func (t *tarjan) closePart(v int) {
	var c component
	for {
		w := t.open[len(t.open)-1]
		t.open = t.open[:len(t.open)-1]
		t.part[w] = len(t.parts) + 1
		c.nodes = append(c.nodes, w)
		if w == v {
			break
		}
	}
	t.parts = append(t.parts, c)
}
