package door

import (
	"slices"
	"sync"

	"github.com/failslow/falcon/backend/auth"
)

// peers are the proven connections, by whose they are.
type peers struct {
	limits Limits

	mu   sync.Mutex
	all  int
	open map[whose][]*Peer // oldest first
}

// whose tells identities apart: a person's connections come from anywhere.
type whose struct {
	role auth.Role
	name string
}

func (g *Peer) whose() whose {
	return whose{g.Identity.Role, g.Identity.Name}
}

func newPeers(l Limits) *peers {
	return &peers{limits: l, open: map[whose][]*Peer{}}
}

// enter counts a peer and returns those that must go for it: the oldest of
// the same identity, as a peer that lost its connection opens another before
// the loss of the first is seen here.
func (s *peers) enter(g *Peer) (old []*Peer, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.limits.PerPerson
	if g.Identity.Role == auth.RoleAgent {
		most = s.limits.PerAgent
	}
	mine := s.open[g.whose()]
	if s.all >= s.limits.Connections && len(mine) == 0 {
		return nil, false
	}
	for len(mine) >= most || s.all >= s.limits.Connections {
		old, mine = append(old, mine[0]), mine[1:]
		s.all--
	}
	s.open[g.whose()] = append(slices.Clone(mine), g)
	s.all++
	return old, true
}

// leave forgets a peer; one that was replaced is forgotten already.
func (s *peers) leave(g *Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.open[g.whose()]
	i := slices.Index(mine, g)
	if i < 0 {
		return
	}
	s.all--
	if mine = slices.Delete(mine, i, i+1); len(mine) == 0 {
		delete(s.open, g.whose())
		return
	}
	s.open[g.whose()] = mine
}

func (s *peers) list() []*Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Peer, 0, s.all)
	for _, mine := range s.open {
		out = append(out, mine...)
	}
	return out
}

func (s *peers) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}
