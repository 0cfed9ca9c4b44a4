package flow

// usage sums up how often a flow crosses each link, in the order of first use.
type usage []Use

func (u usage) cross(links []int) usage {
next:
	for _, l := range links {
		for i := range u {
			if u[i].Link == l {
				u[i].Times++
				continue next
			}
		}
		u = append(u, Use{l, 1})
	}
	return u
}

// Collective is a communication among some GPUs.
type Collective struct {
	Members  []GPU
	MB       float64 // what each of them has
	Channels int     // rings or trees, each with its part of the data; 0 = 1
}

func (c Collective) channels() int { return max(1, c.Channels) }

// byNode is the order of a ring: nodes as their first members come, each node's
// members one after another, so that a ring enters a node once.
func (c Collective) byNode() []GPU {
	var nodes []int
	by := map[int][]GPU{}
	for _, g := range c.Members {
		if by[g.Node] == nil {
			nodes = append(nodes, g.Node)
		}
		by[g.Node] = append(by[g.Node], g)
	}
	var out []GPU
	for _, n := range nodes {
		out = append(out, by[n]...)
	}
	return out
}

// Ring adds an all-reduce by rings, every second one the other way round. Its
// pieces are small: all edges of a ring carry 2(k−1)/k of its part at one rate.
func (g *Graph) Ring(n *Network, c Collective, after ...Op) Op {
	k := len(c.Members)
	if k < 2 || !(c.MB > 0) {
		return g.Join(after...)
	}
	order := c.byNode()
	ends := make([]Op, c.channels())
	for channel := range ends {
		var u usage
		latency := 0.0
		for i, a := range order {
			b := order[(i+1)%k]
			if channel%2 == 1 {
				a, b = b, a
			}
			u = u.cross(n.Route(a, b, channel))
			latency = max(latency, n.LatencyOf(a, b))
		}
		steps := float64(2 * (k - 1))
		ends[channel] = g.Transfer(
			steps*latency,
			steps/float64(k)*c.MB/float64(len(ends)),
			u,
			after...,
		)
	}
	return g.joined(ends)
}

func (g *Graph) joined(ends []Op) Op {
	if len(ends) == 1 {
		return ends[0]
	}
	return g.Join(ends...)
}

// Tree adds an all-reduce by pairs of binary trees (Sanders, Speck and Träff
// 2009), each with half of a channel's part. Sums go up and results go down at
// once; the second tree is the first one's mirror, so that who has children in
// one is mostly a leaf of the other.
func (g *Graph) Tree(n *Network, c Collective, after ...Op) Op {
	k := len(c.Members)
	if k < 2 || !(c.MB > 0) {
		return g.Join(after...)
	}
	order := c.byNode()
	var ends []Op
	for channel := range c.channels() {
		for mirror := range 2 {
			var u usage
			depth, latency := 0, 0.0
			for i := range order {
				up := treeParent(i, k)
				if up < 0 {
					continue
				}
				a, b := order[i], order[up]
				if mirror == 1 {
					a, b = order[mirrored(i, k)], order[mirrored(up, k)]
				}
				u = u.cross(n.Route(a, b, channel)).cross(n.Route(b, a, channel))
				depth, latency = max(depth, treeDepth(i, k)), max(latency, n.LatencyOf(a, b))
			}
			ends = append(ends, g.Transfer(
				float64(2*depth)*latency,
				c.MB/float64(2*c.channels()),
				u,
				after...,
			))
		}
	}
	return g.joined(ends)
}

// treeParent is the parent of i in a binary tree over 0 … k−1 in which odd numbers
// are leaves and 0, the root, has one child; −1 for the root.
func treeParent(i, k int) int {
	if i == 0 {
		return -1
	}
	height := i & -i
	if up := i ^ height | height<<1; up < k {
		return up
	}
	return i ^ height
}

// mirrored is who has i's place in the second tree: a leaf where i has children.
func mirrored(i, k int) int {
	if k%2 == 0 {
		return k - 1 - i
	}
	return (i + 1) % k
}

func treeDepth(i, k int) int {
	d := 0
	for up := treeParent(i, k); up >= 0; up = treeParent(up, k) {
		d++
	}
	return d
}

// Exchange adds an all-to-all: every member sends each other one its part.
func (g *Graph) Exchange(n *Network, c Collective, after ...Op) Op {
	k := len(c.Members)
	if k < 2 || !(c.MB > 0) {
		return g.Join(after...)
	}
	var ends []Op
	for i, a := range c.Members {
		for j, b := range c.Members {
			if i != j {
				ends = append(ends, g.Send(n, a, b, c.MB/float64(k), after...))
			}
		}
	}
	return g.joined(ends)
}

// Send adds one message.
func (g *Graph) Send(n *Network, a, b GPU, mb float64, after ...Op) Op {
	var u usage
	return g.Transfer(n.LatencyOf(a, b), mb, u.cross(n.Route(a, b, 0)), after...)
}
