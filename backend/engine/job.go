package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery/epoch"
)

// Bounds of what agents can claim.
const (
	RanksMax     = 1 << 18 // the world size
	RanksPerNode = 128     // processes that one node's agent describes, ended ones included
)

// process is one training process as its agent describes it. Its identity is
// its node, its pid and its launch: the rank is what it holds, and changes with
// a placement.
type process struct {
	name     string
	node     falcon.Node
	rank     falcon.Rank // in the engine's picture, under placement order
	order    uint64      // the placement that rank belongs to, 0 = as launched
	state    *falconv1.RankState
	next     *falconv1.RankState // reported under a placement whose outcome is not known yet
	device   falcon.Device
	lastSeen time.Time // last sample; zero before the first
	endedAt  time.Time // when its end was reported; zero while it lives
	lived    bool      // it was heard of while it lived
}

// processName identifies a process: pids come again, with another launch.
func processName(node falcon.Node, s *falconv1.RankState) string {
	if g := s.GetGeneration(); g != 0 {
		return fmt.Sprintf("%s/%d/g%d", node, s.GetPid(), g)
	}
	return fmt.Sprintf("%s/%d", node, s.GetPid())
}

// settled reports whether the state is of the placement in force: its communicators
// are those that the process uses now.
func (p *process) settled() bool {
	return p.state.GetPlacementOrder() == p.order
}

// job gathers what agents say about the ranks into one description.
type job struct {
	ranks  map[falcon.Rank]*process // who holds a rank
	named  map[string]*process      // the same by name
	known  map[string]falcon.Rank   // of the journal: what agents report again is no change
	placed uint64                   // placement order that known is of
	floor  uint64                   // dead processes of earlier launches count no more
	// nor do those that were never ordered into this generation, as others train in it
	outlived uint64
	emulated bool
	exact    bool // all samples of the newest batch came from step marks
	alive    int  // live ranks of the claimed world, and those that claim none
	claimed  int  // world size that most nodes claim
	claims   map[int]*support
	on       map[falcon.Node]int // processes of each node
	dirty    bool                // something that describe must look at has changed
	// of processes, their ranks and states: what is derived from them holds while it stays
	changes uint64

	dead   int                 // processes that have ended
	living map[falcon.Node]int // live processes of each node
	whole  struct {            // complete, as it was last found
		at uint64
		is bool
	}

	choices int // times that what a rank shows of NCCL's choices became another
	reports int // times that what a rank's communicators carry became known, or unknown
	checked checked
	refuted string // how the layout of checked is refuted
}

func newJob() *job {
	return &job{
		ranks:   map[falcon.Rank]*process{},
		named:   map[string]*process{},
		claims:  map[int]*support{},
		on:      map[falcon.Node]int{},
		living:  map[falcon.Node]int{},
		changes: 1,
	}
}

// remember takes over what the journal says of the processes.
func (j *job) remember(rec jobRecord) {
	j.known = make(map[string]falcon.Rank, len(rec.Processes))
	j.placed = rec.PlacementOrder
	for r, name := range rec.Processes {
		j.known[name] = falcon.Rank(r)
	}
	j.floor = max(j.floor, rec.Generation)
}

// seat is where a state belongs in the picture.
type seat struct {
	p     *process // nil = not heard of
	rank  falcon.Rank
	order uint64 // placement that rank belongs to
	ahead bool   // the state is of a later placement: only held
	stale bool   // of an earlier one: nothing new in it
}

// seatOf finds the rank that a state is about. A process that is known keeps
// the rank of the picture until the outcome of a placement is known.
func (j *job) seatOf(node falcon.Node, s *falconv1.RankState) seat {
	name := processName(node, s)
	at := seat{
		p:     j.named[name],
		rank:  falcon.Rank(s.GetRank()),
		order: s.GetPlacementOrder(),
	}
	var rank falcon.Rank
	switch r, known := j.known[name]; {
	case at.p != nil:
		rank, at.order = at.p.rank, at.p.order
	case known && r == at.rank:
		// It may have been started for this rank after the placement, and carried none out.
		rank = r
		at.order = min(j.placed, at.order)
	case known:
		rank = r
		at.order = j.placed
	default:
		return at
	}
	at.ahead = s.GetPlacementOrder() > at.order
	at.stale = s.GetPlacementOrder() < at.order
	if at.ahead || at.stale || !s.GetAlive() {
		at.rank = rank
	}
	return at
}

// setState takes a rank's state; false when nothing in it can be used.
func (j *job) setState(node falcon.Node, s *falconv1.RankState) bool {
	if s.GetRank() < 0 ||
		int(s.GetRank()) >= RanksMax ||
		s.GetWorld() < 0 ||
		s.GetWorld() > RanksMax {
		return false
	}
	if s.GetWorld() > 0 && s.GetRank() >= s.GetWorld() {
		return false // none of its own world
	}
	if len(s.GetComms()) > commsMost {
		return false
	}
	at := j.seatOf(node, s)
	switch {
	case at.p == nil:
		return j.enter(node, s, at)
	case !at.stale &&
		!at.ahead &&
		at.rank == at.p.rank &&
		j.ranks[at.rank] == at.p &&
		proto.Equal(at.p.state, s):
		// Agents tell all they know on each new stream: thousands at once after a cut,
		// and the job would be described again for each.
	case !s.GetAlive():
		s = keepShape(s, at.p.state) // an exit says little else
		s.PlacementOrder = at.p.state.GetPlacementOrder()
		j.putState(at.p, s)
	case at.stale:
		return false
	case at.ahead:
		at.p.next, j.dirty = s, true
		j.changes++
	default:
		j.leave(at.p)
		at.p.rank = at.rank
		at.p.device = deviceOn(node, s.GetDevice())
		j.displace(at.p)
		j.putState(at.p, s)
	}
	return true
}

// generationOf is the highest generation that a process is of, or was ordered into.
func generationOf(s *falconv1.RankState) uint64 {
	return max(
		s.GetGeneration(),
		s.GetRejoinedGeneration(),
		s.GetPark().GetGeneration(),
	)
}

// enter takes a process that was not heard of.
func (j *job) enter(node falcon.Node, s *falconv1.RankState, at seat) bool {
	old := j.ranks[at.rank]
	if !s.GetAlive() &&
		(old != nil || s.GetGeneration() < j.floor || generationOf(s) < j.outlived) {
		return false // the end of an earlier process of a rank that lives again
	}
	if j.on[node] >= RanksPerNode {
		return false
	}
	p := &process{
		name:   processName(node, s),
		node:   node,
		rank:   at.rank,
		order:  at.order,
		device: deviceOn(node, s.GetDevice()),
	}
	if at.ahead {
		p.next = s
	}
	j.displace(p)
	j.putState(p, s)
	return true
}

// displace has another process that holds p's rank leave.
func (j *job) displace(p *process) {
	if old := j.ranks[p.rank]; old != nil && old != p {
		j.leave(old)
	}
}

// leave takes a process out of the picture.
func (j *job) leave(p *process) {
	if j.ranks[p.rank] != p {
		return
	}
	j.count(p, -1)
	j.changes++
	delete(j.ranks, p.rank)
	delete(j.named, p.name)
	if j.on[p.node]--; j.on[p.node] <= 0 {
		delete(j.on, p.node)
	}
}

// putState sets a process's state, at its rank.
func (j *job) putState(p *process, s *falconv1.RankState) {
	if j.ranks[p.rank] == p {
		j.count(p, -1)
	} else {
		j.on[p.node]++
	}
	if len(p.state.GetTraffic()) != len(s.GetTraffic()) {
		j.reports++
	}
	if !sameChoices(p.state, s) {
		j.choices++
	}
	p.state = s
	p.lived = p.lived || s.GetAlive()
	j.count(p, 1)
	j.changes++
	j.ranks[p.rank] = p
	j.named[p.name] = p
	j.dirty = true
}

// forgetEnded drops the processes that have ended before a launch.
func (j *job) forgetEnded() {
	for _, r := range sortedKeys(j.ranks) {
		if p := j.ranks[r]; !p.state.GetAlive() {
			j.leave(p)
		}
	}
}

func keepShape(s, old *falconv1.RankState) *falconv1.RankState {
	s.Tp = cmp.Or(s.Tp, old.Tp)
	s.Dp = cmp.Or(s.Dp, old.Dp)
	s.Pp = cmp.Or(s.Pp, old.Pp)
	s.Mesh = cmp.Or(s.Mesh, old.Mesh)
	if len(s.Traffic) == 0 {
		s.Traffic = old.Traffic
	}
	s.World = cmp.Or(s.World, old.World)
	s.MicroBatches = cmp.Or(s.MicroBatches, old.MicroBatches)
	if len(s.Comms) == 0 {
		s.Comms = old.Comms
	}
	if s.Can == nil {
		s.Can = old.Can
	}
	return s
}

// world is the claimed number of ranks, 0 while unknown.
func (j *job) world() int { return j.claimed }

// complete reports whether every rank of the world is known and alive.
func (j *job) complete() bool {
	if j.claimed == 0 || j.alive != j.claimed {
		return false
	}
	if j.whole.at != j.changes {
		j.whole.at, j.whole.is = j.changes, j.holdsAll()
	}
	return j.whole.is
}

func (j *job) holdsAll() bool {
	for r := range j.claimed {
		if p := j.ranks[falcon.Rank(r)]; p == nil || !p.state.GetAlive() {
			return false
		}
	}
	return true
}

// parks reports whether all ranks that are known have declared that they park, or are parked, or have
// rejoined: an engine that takes a recovery over meets processes of the release before, which declare
// nothing.
func (j *job) parks() bool {
	for _, p := range j.ranks {
		s := p.state
		if !s.GetCan().GetPark() &&
			s.GetPark() == nil &&
			s.GetRejoinedGeneration() == 0 {
			return false
		}
	}
	return true
}

// ranksView is every rank of the world as its agent describes it.
func (j *job) ranksView(world int) []epoch.Rank {
	out := make([]epoch.Rank, world)
	for r := range out {
		p := j.ranks[falcon.Rank(r)]
		s := p.state
		out[r] = epoch.Rank{
			Process:      p.name,
			Device:       p.device,
			Layout:       declaredLayout(s),
			MicroBatches: s.GetMicroBatches(),
			Order:        p.order,
			Generation:   s.GetGeneration(),
			Rejoined:     s.GetRejoinedGeneration(),
			Can:          convert.CanFromProto(s.GetCan()),
		}
	}
	return out
}

// declaredLayout is what the rank's adapter declares; one that is not possible is none.
func declaredLayout(s *falconv1.RankState) falcon.Layout {
	if s.GetMesh() == "" {
		return falcon.Layout{
			TP: int(s.GetTp()),
			DP: int(s.GetDp()),
			PP: int(s.GetPp()),
		}
	}
	m, err := falcon.ParseMesh(s.GetMesh())
	if err != nil {
		return falcon.Layout{}
	}
	return falcon.LayoutOf(m)
}

// comms names the dimension of every communicator by the ranks that are in it.
func (j *job) comms(l falcon.Layout) map[falcon.Rank][]falcon.Comm {
	members := map[uint64][]falcon.Rank{}
	for r := range l.World() {
		for _, c := range j.ranks[falcon.Rank(r)].state.GetComms() {
			members[c.GetId()] = append(members[c.GetId()], falcon.Rank(r))
		}
	}
	dimension := make(map[uint64]falcon.Dimension, len(members))
	for id, ranks := range members {
		dimension[id] = dimensionOf(l, ranks)
	}
	out := make(map[falcon.Rank][]falcon.Comm, l.World())
	for r := range l.World() {
		for _, c := range j.ranks[falcon.Rank(r)].state.GetComms() {
			comm := convert.CommFromProto(c)
			comm.Name, comm.Dimension = clean(comm.Name), named(comm.Name, dimension[comm.ID], l)
			comm.Choices = cleanChoices(comm.Choices)
			out[falcon.Rank(r)] = append(out[falcon.Rank(r)], comm)
		}
	}
	return out
}

// dimensionOf finds the dimension along which the ranks, ascending, are a group; "" for a set that
// is none (a split of the framework's own), or that the layout does not have. A gradient's group
// over dp and what is inside it counts as dp.
func dimensionOf(l falcon.Layout, ranks []falcon.Rank) falcon.Dimension {
	if len(ranks) < 2 || int(ranks[len(ranks)-1]) >= l.World() {
		return ""
	}
	for _, d := range []falcon.Dimension{
		falcon.DimTP, falcon.DimDP, falcon.DimPP, falcon.DimCP, falcon.DimFSDP, falcon.DimEP,
		falcon.DimETP, falcon.DimEDP, falcon.DimWorld,
	} {
		if slices.Equal(l.Peers(ranks[0], d), ranks) {
			return d
		}
	}
	first := l.Coord(ranks[0])
	sameStage := !slices.ContainsFunc(ranks, func(r falcon.Rank) bool {
		return l.Coord(r).PP != first.PP
	})
	if sameStage &&
		l.Mesh != (falcon.Mesh{}) &&
		len(ranks) == l.Mesh.Size(falcon.DimDP)*l.Mesh.Size(falcon.DimCP)*l.Mesh.Size(falcon.DimFSDP) {
		return falcon.DimDP
	}
	return ""
}

// named lets a communicator that spans the whole world keep the framework's
// name for it: with one dimension alone, world and that dimension look alike.
func named(name string, found falcon.Dimension, l falcon.Layout) falcon.Dimension {
	if strings.EqualFold(name, string(falcon.DimWorld)) &&
		found != "" &&
		l.World() > 1 {
		return falcon.DimWorld
	}
	return found
}

// ended says how the job is when no rank lives: finished when all that are
// gone ended well, else lost.
func (j *job) ended() bool {
	return len(j.ranks) > 0 && j.alive == 0
}

func (j *job) livesOn(node falcon.Node) bool { return j.living[node] > 0 }

func (j *job) someEnded() bool { return j.dead > 0 }

// someLost reports whether a rank is gone that did not end well: ranks of a job that
// finishes go one by one, and that is no loss.
// An agent can see that a process is gone before it knows how.
func (j *job) someLost(now time.Time) bool {
	if j.dead == 0 {
		return false
	}
	for _, p := range j.ranks {
		if p.state.GetAlive() {
			continue
		}
		unknown := p.state.GetExit() == "" && now.Sub(p.endedAt) < exitWait
		if !falconv1.ExitedWell(p.state.GetExit()) && !unknown {
			return true
		}
	}
	return false
}

// exitWait is how long an agent may take to learn how a process has ended.
const exitWait = 3 * time.Second

// diedUndescribed reports whether all ranks were heard of while they lived and have ended, none with
// success, and none of them is of the description in force: they failed before there was another.
func (j *job) diedUndescribed() bool {
	if !j.ended() || j.claimed == 0 || len(j.ranks) != j.claimed {
		return false
	}
	for r, p := range j.ranks {
		_, described := j.known[p.name]
		if int(r) >= j.claimed ||
			!p.lived ||
			described ||
			falconv1.ExitedWell(p.state.GetExit()) {
			return false
		}
	}
	return true
}

// wasDismissed reports whether the job has ended as a process was ordered to end while it waited for a
// generation that it has not rejoined: it ends with success then, and the job has not come to its end.
func (j *job) wasDismissed() bool {
	if !j.ended() {
		return false
	}
	for _, p := range j.ranks {
		s := p.state
		if falconv1.ExitedWell(s.GetExit()) &&
			s.GetPark().GetGeneration() > s.GetRejoinedGeneration() {
			return true
		}
	}
	return false
}

// knowsAllRanks reports whether the world is known, and of each of its ranks a process, alive or not.
func (j *job) knowsAllRanks() bool {
	for r := range j.claimed {
		if j.ranks[falcon.Rank(r)] == nil {
			return false
		}
	}
	return j.claimed > 0
}

func (j *job) finishedWell() bool {
	if !j.ended() {
		return false
	}
	for _, p := range j.ranks {
		if !falconv1.ExitedWell(p.state.GetExit()) {
			return false
		}
	}
	return true
}
