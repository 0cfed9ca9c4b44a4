package engine

import "github.com/failslow/falcon"

// support is who claims a world size.
type support struct {
	nodes map[falcon.Node]int // live ranks of each
	ranks int                 // of all
}

// outweighs reports whether a claim is better founded: by more nodes, which
// certificates distinguish, and then by more ranks.
func (s *support) outweighs(o *support) bool {
	if o == nil || len(s.nodes) != len(o.nodes) {
		return o == nil || len(s.nodes) > len(o.nodes)
	}
	return s.ranks > o.ranks
}

func (s *support) count() int {
	if s == nil {
		return 0
	}
	return s.ranks
}

func (j *job) count(p *process, by int) {
	if !p.state.GetAlive() {
		j.dead += by
		return
	}
	j.claim(int(p.state.GetWorld()), p.node, by)
	if j.living[p.node] += by; j.living[p.node] <= 0 {
		delete(j.living, p.node)
	}
}

// claim counts who says how large the world is: one node that is wrong does not
// stop the others' job from being known, however many ranks it claims.
func (j *job) claim(world int, node falcon.Node, by int) {
	c := j.claims[world]
	if c == nil {
		c = &support{nodes: map[falcon.Node]int{}}
		j.claims[world] = c
	}
	c.ranks += by
	if c.nodes[node] += by; c.nodes[node] <= 0 {
		delete(c.nodes, node)
	}
	if c.ranks <= 0 {
		delete(j.claims, world)
	}
	switch best := j.claims[j.claimed]; {
	case best == nil || by < 0 && world == j.claimed:
		j.choose()
	case world != j.claimed && c.outweighs(best):
		j.claimed = world
	}
	j.alive = j.claims[0].count()
	if j.claimed != 0 {
		j.alive += j.claims[j.claimed].count()
	}
}

// choose finds the best founded claim again.
func (j *job) choose() {
	var best *support
	for _, w := range sortedKeys(j.claims) {
		if c := j.claims[w]; c.outweighs(best) {
			j.claimed, best = w, c
		}
	}
}
