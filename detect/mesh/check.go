package mesh

import (
	"errors"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// ErrContradiction is wrapped by the answer of Check where a layout is refuted.
var ErrContradiction = errors.New("the communicators contradict the declared layout")

// Check reports whether ranks of different replicas of a declared layout communicate
// inside a micro-batch: all-to-all, around a ring, or as a shard. Such ranks wait for
// each other, so that work must not be moved between them. Other traffic may be the
// gradient's, and refutes nothing; nor does what is not reported.
func Check(
	l falcon.Layout,
	comms map[falcon.Rank][]falcon.Comm,
	traffic map[falcon.Rank][]falcon.Traffic,
) error {
	in := reader{world: l.World(), comms: comms, traffic: traffic}
	if in.readMembers() != nil {
		return nil
	}
	groups, err := in.readGroups()
	if err != nil {
		return nil //nolint:nilerr // what is not understood refutes nothing
	}
	for _, f := range familiesOf(groups) {
		how := f.insideAs()
		if how == "" {
			continue
		}
		for _, g := range f.groups {
			of := func(r falcon.Rank) bool {
				return l.Replica(r) != l.Replica(g.ranks[0])
			}
			if i := slices.IndexFunc(g.ranks, of); i >= 0 {
				return fmt.Errorf(
					"%w: ranks %d and %d communicate %s inside micro-batches, and %s has them in two replicas",
					ErrContradiction, g.ranks[0], g.ranks[i], how, l,
				)
			}
		}
	}
	return nil
}

// insideAs is what shows that a family communicates inside micro-batches; empty where
// that is not shown.
func (f *family) insideAs() string {
	switch {
	case f.allToAll > 0:
		return "all-to-all"
	case f.ring:
		return "around a ring"
	case f.scatter > gradientCalls && float64(f.gather) >= shardRatio*float64(f.scatter):
		return "as a shard does"
	}
	return ""
}
