package flow

// GPU is a device by node and index, both counted from 0.
type GPU struct{ Node, Index int }

// Fabric is what joins the GPUs of a cluster. Rates are in MB/ms, one way.
type Fabric struct {
	Nodes, GPUs int     // GPUs of a node
	Ports       int     // network ports of a node, shared evenly by its GPUs; 0 = one for each
	NVLink      float64 // of a GPU
	Port        float64
	LatencyMs   float64 // of a message between nodes
	LocalMs     float64 // of a message inside a node

	LeafNodes int     // nodes under one leaf switch; 0 = all of them, and there is no spine
	Oversub   float64 // what a leaf's ports can carry over what its way to the spine can; 0 = 1
}

// Network is a fabric's links, and what is slow of them. One goroutine owns it.
type Network struct {
	Fabric
	Capacity []float64
	pairs    map[[2]int]float64 // by nodes, ascending: paths are so many times as slow
	ports    map[[2]int]float64 // by node and port
	paths    map[[4]int]int     // by port and port: the link of a slow path
}

// Kinds of links, in the order of their numbers.
const (
	localOut = iota // of a GPU
	localIn
	portOut
	portIn
	leafUp
	leafDown
)

// Build makes a fabric's network, in which nothing is slow.
func (f Fabric) Build() *Network {
	if f.Ports == 0 {
		f.Ports = f.GPUs
	}
	if f.LeafNodes == 0 {
		f.LeafNodes = f.Nodes
	}
	if f.Oversub == 0 {
		f.Oversub = 1
	}
	n := &Network{
		Fabric: f,
		pairs:  map[[2]int]float64{},
		ports:  map[[2]int]float64{},
	}
	n.resetLinks()
	return n
}

// Disturb makes exactly these node pairs' paths and ports so many times as slow
// as they are when all is well. On a slow pair every path between two ports has
// a limit of its own, as where a switch carries foreign traffic beside it.
// Graphs made before must be made again.
func (n *Network) Disturb(pairs, ports map[[2]int]float64) {
	n.pairs, n.ports = pairs, ports
	n.resetLinks()
}

func (n *Network) resetLinks() {
	n.Capacity, n.paths = n.Capacity[:0], map[[4]int]int{}
	for kind := range leafDown + 1 {
		for i := range n.countOf(kind) {
			n.Capacity = append(n.Capacity, n.capacityOf(kind, i))
		}
	}
}

func (n *Network) leaves() int {
	return (n.Nodes + n.LeafNodes - 1) / n.LeafNodes
}

func (n *Network) countOf(kind int) int {
	switch kind {
	case localOut, localIn:
		return n.Nodes * n.GPUs
	case portOut, portIn:
		return n.Nodes * n.Ports
	}
	return n.leaves()
}

func (n *Network) capacityOf(kind, i int) float64 {
	switch kind {
	case localOut, localIn:
		return n.NVLink
	case portOut, portIn:
		return n.Port / orOne(n.ports[[2]int{i / n.Ports, i % n.Ports}])
	}
	return n.Port * float64(n.Ports*n.LeafNodes) / n.Oversub
}

// orOne is a factor that 0 stands for 1 in.
func orOne(v float64) float64 {
	if v == 0 {
		return 1
	}
	return v
}

// linkOf is the number of a link.
func (n *Network) linkOf(kind, i int) int {
	at := i
	for k := range kind {
		at += n.countOf(k)
	}
	return at
}

// portOf is the port that a GPU uses on a channel: its own, and the next ones
// for further channels.
func (n *Network) portOf(g GPU, channel int) int {
	return (g.Index*n.Ports/n.GPUs + channel) % n.Ports
}

// Route is the links from one GPU to another on a channel.
func (n *Network) Route(a, b GPU, channel int) []int {
	if a == b {
		return nil
	}
	if a.Node == b.Node {
		return []int{n.linkOf(localOut, a.Node*n.GPUs+a.Index), n.linkOf(localIn, b.Node*n.GPUs+b.Index)}
	}
	from, to := n.portOf(a, channel), n.portOf(b, channel)
	out := []int{n.linkOf(portOut, a.Node*n.Ports+from), n.linkOf(portIn, b.Node*n.Ports+to)}
	if x, y := a.Node/n.LeafNodes, b.Node/n.LeafNodes; x != y {
		out = append(out, n.linkOf(leafUp, x), n.linkOf(leafDown, y))
	}
	pair := [2]int{min(a.Node, b.Node), max(a.Node, b.Node)}
	if times := n.pairs[pair]; times > 1 {
		out = append(out, n.slowPath([4]int{a.Node, from, b.Node, to}, times))
	}
	return out
}

func (n *Network) slowPath(key [4]int, times float64) int {
	l, known := n.paths[key]
	if !known {
		l = len(n.Capacity)
		n.Capacity = append(n.Capacity, n.Port/times)
		n.paths[key] = l
	}
	return l
}

// LatencyOf is a message's delay between two GPUs.
func (n *Network) LatencyOf(a, b GPU) float64 {
	switch {
	case a == b:
		return 0
	case a.Node == b.Node:
		return n.LocalMs
	}
	return n.LatencyMs
}
