package validate

import (
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// roster is who takes part in a validation: all ranks of the job and their
// nodes. It does not change while the validation lasts.
type roster struct {
	members []Member                      // by rank
	nodes   []falcon.Node                 // that hold ranks, sorted
	ranksOf map[falcon.Node][]falcon.Rank // ascending
}

func newRoster(members []Member) roster {
	r := roster{members: members, ranksOf: map[falcon.Node][]falcon.Rank{}}
	for i, x := range members {
		n := x.Device.Node()
		r.ranksOf[n] = append(r.ranksOf[n], falcon.Rank(i))
	}
	r.nodes = slices.Sorted(maps.Keys(r.ranksOf))
	return r
}

func (r roster) nodeOf(rank falcon.Rank) falcon.Node {
	return r.members[rank].Device.Node()
}

// nicOf is the port that a rank's traffic takes. An unknown one is taken for the
// node's only port, so that no two tests share it by mistake.
func (r roster) nicOf(rank falcon.Rank) falcon.NIC {
	if n := r.members[rank].NIC; n != "" {
		return n
	}
	return falcon.NIC(r.nodeOf(rank) + ".nic")
}
