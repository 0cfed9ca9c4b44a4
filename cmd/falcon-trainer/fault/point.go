// Package fault names the moments of a rank's life at which tests and the lab
// have it fail, and reads how they ask for it.
//
// It guarantees that what was read names a moment that exists. It is pure: who
// strikes, and how, is the trainer's.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// Err is wrapped by every complaint about a fault that can't be read.
var Err = errors.New("trainer: bad fault")

// Points of a rank's life at which a fault can be injected.
const (
	Forward  = "forward"        // half of the forward passes are done on the device
	Backward = "backward"       // half of the backward passes
	Barrier  = "before-barrier" // the gradients are summed over the replicas, the world has not met
	Update   = "mid-update"     // half of the rank's part of the weights is updated
	Updated  = "after-update"   // all of it, and the hook knows
	Gather   = "gather"         // the return of the other slices is enqueued
	// before it waits for the agent's order; the iteration is the one that was left
	Park = "park"
	// of a rejoin: the first new communicator is begun; here and below, the one resumed at
	Groups  = "groups"
	Restore = "restore" // of a rejoin: the exchange of shards is enqueued
)

var points = []string{
	Forward, Backward, Barrier, Update, Updated, Gather, Park, Groups, Restore,
}

// Names lists the points of a fault, for people.
func Names() string { return strings.Join(points, ", ") }

// Point is a fault that tests inject: what this process does to itself when it
// holds Rank and comes to Name in Iteration. Generation 0 acts in processes that
// no recovery or restart has started, another one since the rejoin of that
// number.
type Point struct {
	Name       string
	Iteration  int64
	Rank       falcon.Rank
	Freeze     bool // SIGSTOP instead of SIGKILL
	Generation uint64
}

// Parse reads POINT@ITERATION:RANK[:kill|freeze][/GENERATION].
func Parse(s string) (Point, error) {
	bad := fmt.Errorf(
		"%w %q; write POINT@ITERATION:RANK[:kill|freeze][/GENERATION], where POINT is one of %s",
		Err, s, Names(),
	)
	spec, generation, late := strings.Cut(s, "/")
	name, rest, ok := strings.Cut(spec, "@")
	parts := strings.Split(rest, ":")
	if !ok || !slices.Contains(points, name) || len(parts) < 2 || len(parts) > 3 {
		return Point{}, bad
	}
	iteration, err1 := strconv.ParseUint(parts[0], 10, 62)
	rank, err2 := strconv.ParseUint(parts[1], 10, 31)
	p := Point{
		Name:      name,
		Iteration: int64(iteration),
		Rank:      falcon.Rank(rank),
		Freeze:    len(parts) == 3 && parts[2] == "freeze",
	}
	if len(parts) == 3 && !p.Freeze && parts[2] != "kill" ||
		err1 != nil ||
		err2 != nil {
		return Point{}, bad
	}
	if late {
		g, err := strconv.ParseUint(generation, 10, 62)
		if err != nil || g == 0 {
			return Point{}, bad
		}
		p.Generation = g
	}
	return p, nil
}
