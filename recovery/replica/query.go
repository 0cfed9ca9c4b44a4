package replica

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon"
)

// ErrQuery is wrapped by every error about a job that can't exist.
var ErrQuery = errors.New("replica: bad query")

// Query describes the job and what is left of it.
type Query struct {
	Layout falcon.Layout
	ZeRO   falcon.ZeRO
	// Holds is what survivors have just reported to hold. Every other rank needs its
	// state. In Map nil means all ranks.
	Holds     map[falcon.Rank]falcon.RankHold
	Placement falcon.Placement       // device by rank; empty = unknown, then all domains look alike
	Domains   map[falcon.Node]string // rack of a node; absent = the node's own
	Bytes     map[falcon.Rank]uint64 // of a rank's shard; absent = all alike
}

// Check reports, in one sentence, why the query describes no job.
func (q Query) Check() error {
	if err := q.Layout.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrQuery, err)
	}
	d, n := q.Layout.DP, q.ZeRO.Instances
	switch {
	case q.ZeRO.Stage < 0 || q.ZeRO.Stage > 3:
		return fmt.Errorf("%w: there is no ZeRO stage %d; give 0 to 3", ErrQuery, q.ZeRO.Stage)
	case q.ZeRO.Stage > 0 && (n < 1 || d%n != 0):
		return fmt.Errorf("%w: %d optimizer instances do not divide %d data-parallel ranks", ErrQuery, n, d)
	case len(q.Placement) != 0 && len(q.Placement) != q.Layout.World():
		return fmt.Errorf("%w: the placement has %d devices for %d ranks",
			ErrQuery, len(q.Placement), q.Layout.World())
	}
	for r := range q.Holds {
		if r < 0 || int(r) >= q.Layout.World() {
			return fmt.Errorf("%w: there is no rank %d among %d", ErrQuery, r, q.Layout.World())
		}
	}
	return nil
}

// Shards lists, for every shard, the ranks that hold it, ascending; shards come
// in the order of their first rank. The query must pass Check.
func (q Query) Shards() [][]falcon.Rank {
	at := map[int]int{}
	var out [][]falcon.Rank
	for r := falcon.Rank(0); int(r) < q.Layout.World(); r++ {
		id := q.shardOf(r)
		i, ok := at[id]
		if !ok {
			i = len(out)
			at[id], out = i, append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// sliceCount is the number of pieces that a replica's optimizer state is cut into.
func (q Query) sliceCount() int {
	if q.ZeRO.Stage == 0 {
		return 1
	}
	return q.Layout.DP / q.ZeRO.Instances
}

// shardOf numbers the shard of rank r.
func (q Query) shardOf(r falcon.Rank) int {
	c := q.Layout.Coord(r)
	n := q.sliceCount()
	return c.TP + q.Layout.TP*(c.DP%n+n*c.PP)
}

func (q Query) nodeOf(r falcon.Rank) falcon.Node {
	if len(q.Placement) == 0 {
		return ""
	}
	return q.Placement[r].Node()
}

// place is a failure domain: a rack, or a node that is in none.
type place struct {
	rack string
	node falcon.Node
}

func (q Query) domainOf(n falcon.Node) place {
	if rack := q.Domains[n]; rack != "" {
		return place{rack: rack}
	}
	return place{node: n}
}

// survives reports whether rank r has a process that holds anything.
func (q Query) survives(r falcon.Rank) bool {
	_, ok := q.Holds[r]
	return ok || q.Holds == nil
}
