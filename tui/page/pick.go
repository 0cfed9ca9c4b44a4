package page

import (
	"maps"
	"slices"
	"strings"

	"github.com/failslow/falcon/tui/roster"
)

// Selection owns the ranks that the operator has marked for a test, and what
// another page was asked to show. They are choices of this screen, shared by
// the live and the held state.
type Selection struct {
	ranks map[int32]bool
	world int // ranks of the job
	look  string
}

// resizeTo forgets marks of ranks that do not exist.
func (p *Selection) resizeTo(world int) {
	p.world = world
	maps.DeleteFunc(p.ranks, func(r int32, _ bool) bool {
		return int(r) >= world
	})
}

// Picked reports whether a rank is marked.
func (p *Selection) Picked(rank int32) bool { return p.ranks[rank] }

// PickCount is how many ranks are marked.
func (p *Selection) PickCount() int { return len(p.ranks) }

// Picks lists the marked ranks, ascending.
func (p *Selection) Picks() []int32 {
	return slices.Sorted(maps.Keys(p.ranks))
}

// Pick marks a rank, or takes its mark away.
func (p *Selection) Pick(rank int32) {
	switch {
	case rank < 0 || int(rank) >= p.world:
	case p.ranks[rank]:
		delete(p.ranks, rank)
	default:
		p.ranks[rank] = true
	}
}

// PickAll marks all of these, or takes their marks away when all have one.
func (p *Selection) PickAll(ranks []int32) {
	all := !slices.ContainsFunc(ranks, func(r int32) bool {
		return !p.ranks[r]
	})
	for _, r := range ranks {
		if p.ranks[r] == all {
			p.Pick(r)
		}
	}
}

// Unpick takes every mark away.
func (p *Selection) Unpick() {
	clear(p.ranks)
}

// LookAt asks the page that shows things of a kind to show the one of this id.
func (p *Selection) LookAt(id string) {
	p.look = id
}

// Looked takes what is to be looked at when it is of a kind ("REC-"), once.
func (p *Selection) Looked(kind string) (id string, ok bool) {
	if kind == "" || !strings.HasPrefix(p.look, kind) {
		return "", false
	}
	id = p.look
	p.look = ""
	return id, true
}

// Suspects are the ranks named by open incidents or slow against their peers.
func (s *State) Suspects() []int32 {
	var out []int32
	for _, r := range s.Anomalies() {
		st := s.Roster.Standing(r)
		if st == roster.Culprit || st == roster.LinkEnd || st == roster.Slow {
			out = append(out, r)
		}
	}
	return out
}
