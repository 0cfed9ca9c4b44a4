package recovery

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/progress"
)

// rankTable is the placement in force and each rank's process. It knows of no recovery.
type rankTable struct {
	placed  falcon.Placement
	on      map[falcon.Node][]falcon.Rank // ranks by node, ascending
	nodes   []falcon.Node                 // keys of on, ascending
	members []member                      // by rank
	// lowest generation that a device's process may have: the newest launch there
	floor map[falcon.Device]uint64
}

// member is one rank's process.
type member struct {
	known    bool
	proc     Process
	beat     Beat
	beatAt   time.Time // zero = none
	aliveAt  time.Time // newest sign of its life; zero = none
	parkedAt time.Time // since when it parks, if it does
	endedAt  time.Time // when its end was reported, if it was
}

func newRankTable() rankTable {
	return rankTable{floor: map[falcon.Device]uint64{}}
}

// arrange puts a placement in force.
func (t *rankTable) arrange(p falcon.Placement) {
	t.placed = p
	t.on = map[falcon.Node][]falcon.Rank{}
	for r, d := range p {
		t.on[d.Node()] = append(t.on[d.Node()], falcon.Rank(r))
	}
	t.nodes = slices.Sorted(maps.Keys(t.on))
}

// resizeWorld forgets all processes where the number of ranks has changed.
func (t *rankTable) resizeWorld(world int) {
	if len(t.members) != world {
		t.members = make([]member, world)
	}
}

// renumber gives everything that is known of rank r to rank perm[r].
func (t *rankTable) renumber(perm []falcon.Rank) {
	members := make([]member, len(t.members))
	for r, x := range t.members {
		x.proc.Rank, x.beat.Rank = perm[r], perm[r]
		members[perm[r]] = x
	}
	t.members = members
}

func (t *rankTable) placementInForce() falcon.Placement {
	return t.placed
}

func (t *rankTable) deviceOf(r falcon.Rank) falcon.Device {
	return t.placed[r]
}

func (t *rankTable) nodeOf(r falcon.Rank) falcon.Node {
	return t.placed[r].Node()
}

func (t *rankTable) ranksOnNode(n falcon.Node) []falcon.Rank {
	return t.on[n]
}

func (t *rankTable) usedNodes() []falcon.Node {
	return t.nodes
}

func (t *rankTable) worldSize() int {
	return len(t.members)
}

func (t *rankTable) hasRank(r falcon.Rank) bool {
	return r >= 0 && int(r) < len(t.members)
}

func (t *rankTable) memberOf(r falcon.Rank) *member {
	return &t.members[r]
}

func (t *rankTable) generationFloor(d falcon.Device) uint64 {
	return t.floor[d]
}

// everyRank goes through the ranks in order.
func (t *rankTable) everyRank() iter.Seq2[falcon.Rank, *member] {
	return func(yield func(falcon.Rank, *member) bool) {
		for r := range t.members {
			if !yield(falcon.Rank(r), &t.members[r]) {
				return
			}
		}
	}
}

// nodesOf lists the nodes of some ranks, ascending.
func (t *rankTable) nodesOf(ranks []falcon.Rank) []falcon.Node {
	var out []falcon.Node
	for _, r := range ranks {
		out = append(out, t.nodeOf(r))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// replaceProcess forgets the process of a rank that is launched on d.
func (t *rankTable) replaceProcess(r falcon.Rank, d falcon.Device, generation uint64) {
	t.members[r] = member{}
	t.floor[d] = generation
}

// raiseFloors has processes of older generations on the devices of p ignored.
func (t *rankTable) raiseFloors(p falcon.Placement, generation uint64) {
	for _, d := range p {
		t.floor[d] = max(t.floor[d], generation)
	}
}

// restoreFloors raises the floors to the launches of a recovery.
func (t *rankTable) restoreFloors(c *falcon.Recovery, job Job) {
	on := launchedOn(c)
	for r, g := range c.Launched {
		if r >= 0 &&
			int(r) < len(on) &&
			(g <= job.Generation || c.JobEpoch == job.Epoch) {
			t.floor[on[r]] = max(t.floor[on[r]], g)
		}
	}
	if c.Shrink != nil && c.NoReturn && c.JobEpoch == job.Epoch {
		t.raiseFloors(c.Placement, c.Generation)
	}
}

// lowerFloors removes the floors above a generation: a job that was started by
// hand counts its generations from 0 again.
func (t *rankTable) lowerFloors(generation uint64) {
	maps.DeleteFunc(t.floor, func(_ falcon.Device, g uint64) bool { return g > generation })
}

// forgetAll forgets all processes.
func (t *rankTable) forgetAll() {
	clear(t.members)
}

// keepAlive forgets all but the processes that live where p places them.
func (t *rankTable) keepAlive(p falcon.Placement) {
	for r := range t.members {
		if x := &t.members[r]; !x.proc.Alive || x.proc.Node != p[r].Node() {
			*x = member{}
		}
	}
}

// trainAgain forgets beats and parkings from before a rejoin: every rank trains.
func (t *rankTable) trainAgain() {
	for r := range t.members {
		x := &t.members[r]
		x.beatAt = time.Time{}
		x.beat = Beat{}
		x.proc.Park = nil
	}
}

// skipPause takes a pause of the engine itself out of every rank's silence.
func (t *rankTable) skipPause(gap time.Duration, now time.Time) {
	for r := range t.members {
		if x := &t.members[r]; !x.beatAt.IsZero() {
			if x.beatAt = x.beatAt.Add(gap); x.beatAt.After(now) {
				x.beatAt = now
			}
		}
	}
}

// anyProcessEnded reports whether a process of the node has ended by itself.
func (t *rankTable) anyProcessEnded(n falcon.Node) bool {
	return slices.ContainsFunc(t.on[n], func(r falcon.Rank) bool {
		x := t.memberOf(r)
		return x.hasEnded() && !x.proc.Normal
	})
}

func (t *rankTable) anyProcessAlive() bool {
	return slices.ContainsFunc(t.members, func(x member) bool { return x.isAlive() })
}

// anyProcessTrains reports whether a process is alive and has not left training.
func (t *rankTable) anyProcessTrains() bool {
	return slices.ContainsFunc(t.members, func(x member) bool {
		return x.isAlive() && x.proc.Park == nil
	})
}

// anyProcessFailed reports whether a process is known to have ended without success.
func (t *rankTable) anyProcessFailed() bool {
	return slices.ContainsFunc(t.members, func(x member) bool {
		return x.hasEnded() && !x.proc.Normal && x.proc.Exit != ""
	})
}

// describeSlowest describes the ranks that are at the oldest iteration.
func (t *rankTable) describeSlowest() string {
	low := int64(-1)
	first := falcon.Rank(0)
	n := 0
	with := 0
	for r, x := range t.everyRank() {
		if x.beatAt.IsZero() {
			continue
		}
		with++
		switch {
		case n == 0 || x.beat.Iteration < low:
			low = x.beat.Iteration
			first = r
			n = 1
		case x.beat.Iteration == low:
			n++
		}
	}
	if n == 0 || low < 0 {
		return "none was heard of before"
	}
	if n == with {
		return fmt.Sprintf("all ranks are at iteration %d", low)
	}
	return fmt.Sprintf("%d of %d ranks, the first of them rank %d, are at iteration %d, behind the others",
		n, with, first, low)
}

func (x *member) isAlive() bool { return x.known && x.proc.Alive }

func (x *member) hasEnded() bool {
	return x.known && !x.proc.Alive
}

// isUnknown reports whether no process of the rank was ever reported.
func (x *member) isUnknown() bool { return !x.known }

// process is the newest report of the rank's process.
func (x *member) process() Process { return x.proc }

// lastAlive is the newest sign that the rank's process lives, zero = none.
func (x *member) lastAlive() time.Time { return x.aliveAt }

// sameProcess reports whether p is a report of the same process.
func (x *member) sameProcess(p Process) bool {
	return x.proc.Pid == p.Pid && x.proc.Generation == p.Generation
}

// noteWords takes what the ended process says of its end.
func (x *member) noteWords(e falcon.Ending) {
	x.proc.Ending.Raised, x.proc.Ending.Said = e.Raised, e.Said
}

// explainEnd takes a later report of how the process ended.
func (x *member) explainEnd(p Process) {
	x.proc = p
}

// parkedSince reports whether the process parks, and since when.
func (x *member) parkedSince() (since time.Time, parks bool) {
	return x.parkedAt, x.isAlive() && x.proc.Park != nil
}

// parkGeneration is the newest suspension obeyed, false where the process does not park.
func (x *member) parkGeneration() (uint64, bool) {
	if _, parks := x.parkedSince(); !parks {
		return 0, false
	}
	return x.proc.Park.Generation, true
}

// takeBeat takes the newest beat; it returns the one before, and this one.
func (x *member) takeBeat(now time.Time, b Beat) (before, newest progress.Beat) {
	before = x.progressSign()
	x.beat = b
	x.beatAt = now
	x.aliveAt = now
	return before, x.progressSign()
}

// endReported is when the end of the rank's process was reported; zero = it was not.
func (x *member) endReported() time.Time { return x.endedAt }

// wasHeard reports whether the rank's iterations were ever heard of.
func (x *member) wasHeard() bool { return !x.beatAt.IsZero() }

// beatWithin reports whether there was a beat within a time.
func (x *member) beatWithin(now time.Time, most time.Duration) bool {
	return !x.beatAt.IsZero() && now.Sub(x.beatAt) <= most
}

// beatsSince reports whether the process lives, and its newest beat, of after some time, shows its
// hook alive.
func (x *member) beatsSince(since, now time.Time, beat time.Duration) bool {
	return x.isAlive() &&
		x.beatAt.After(since) &&
		x.beatWithin(now, 2*beat) &&
		x.hookAge() <= 2*beat
}

// outdates reports whether a report is older than what is known of the rank.
func (x *member) outdates(p Process) bool {
	return x.known &&
		(p.Generation < x.proc.Generation ||
			(!x.proc.Alive && p.Pid == x.proc.Pid) ||
			(!p.Alive && x.proc.Alive && p.Pid != x.proc.Pid))
}

// takeReport takes the newest report of the rank's process.
func (x *member) takeReport(now time.Time, p Process) {
	if p.Park != nil && (x.proc.Park == nil || x.proc.Pid != p.Pid) {
		x.parkedAt = now
	}
	switch {
	case p.Alive:
		x.aliveAt = now
		x.endedAt = time.Time{}
	case x.endedAt.IsZero() || !x.sameProcess(p):
		x.endedAt = now
	}
	x.known, x.proc = true, p
}

// progressSign is the rank's newest beat as far as it shows progress.
func (x *member) progressSign() progress.Beat {
	return progress.Beat{
		Pid:       x.beat.Pid,
		Iteration: x.beat.Iteration,
		Calls:     x.beat.Calls,
		At:        x.beatAt,
	}
}

// hookAge is for how long the side thread of the rank's hook is silent.
func (x *member) hookAge() time.Duration {
	return time.Duration(x.beat.HookAgeMs * float64(time.Millisecond))
}

// waitsSince is when a rank that waits began to.
func (x *member) waitsSince() time.Time {
	if x.proc.Park != nil {
		return x.parkedAt
	}
	return x.beatAt.Add(-time.Duration(x.beat.WaitingMs * float64(time.Millisecond)))
}

// activity is what the rank's newest beat shows in a stall.
func (x *member) activity(now time.Time, beat time.Duration) activity {
	switch {
	case !x.isAlive():
		return unknown
	case x.proc.Park != nil:
		return waiting // to rejoin
	case !x.beatWithin(now, 2*beat):
		return unknown
	case x.hookAge() > 2*beat:
		return frozen
	case !x.beat.WaitingKnown:
		return unknown
	case x.beat.WaitingMs >= milliseconds(beat):
		return waiting
	}
	return busy
}
