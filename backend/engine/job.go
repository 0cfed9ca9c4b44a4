package engine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// RanksMax bounds the world size that agents can claim.
const RanksMax = 1 << 18

// process is one training process as its agent describes it.
type process struct {
	node     falcon.Node
	state    *falconv1.RankState
	device   falcon.Device
	lastSeen time.Time // last sample; zero before the first
	endedAt  time.Time // when its end was told; zero while it lives
}

func (p *process) name() string { return fmt.Sprintf("%s/%d", p.node, p.state.GetPid()) }

// job gathers what agents say about the ranks into one description.
type job struct {
	ranks    map[falcon.Rank]*process
	emulated bool
	exact    bool // all samples of the newest batch came from step marks
	alive    int  // live ranks
	claimed  int  // world size that most live ranks claim
	claims   map[int]int
	dirty    bool // something that describe must look at has changed
}

func newJob() *job { return &job{ranks: map[falcon.Rank]*process{}, claims: map[int]int{}} }

// set takes a rank's state; false when nothing in it can be used.
func (j *job) set(node falcon.Node, s *falconv1.RankState) bool {
	r := falcon.Rank(s.GetRank())
	if r < 0 || int(r) >= RanksMax || s.GetWorld() < 0 || s.GetWorld() > RanksMax {
		return false
	}
	old := j.ranks[r]
	if old != nil && !s.GetAlive() && old.state.GetPid() != s.GetPid() {
		return false // the end of an earlier process of a rank that lives again
	}
	p := &process{node: node, state: s, device: deviceOn(node, s.GetDevice())}
	if old != nil && old.state.GetPid() == s.GetPid() && old.node == node {
		p.lastSeen = old.lastSeen
		if !s.GetAlive() { // an exit says little else
			s = keepShape(s, old.state)
			p.state = s
		}
	}
	if old != nil && old.state.GetAlive() {
		j.alive--
		j.claim(int(old.state.GetWorld()), -1)
	}
	if s.GetAlive() {
		j.alive++
		j.claim(int(s.GetWorld()), 1)
	}
	j.ranks[r], j.dirty = p, true
	return true
}

// claim counts the ranks that say how large the world is: one that is wrong
// does not stop the others' job from being known.
func (j *job) claim(world, by int) {
	if j.claims[world] += by; j.claims[world] <= 0 {
		delete(j.claims, world)
	}
	if n := j.claims[j.claimed]; n == 0 || j.claims[world] > n {
		most := 0
		for _, w := range sortedKeys(j.claims) {
			if j.claims[w] > most {
				j.claimed, most = w, j.claims[w]
			}
		}
	}
}

func keepShape(s, old *falconv1.RankState) *falconv1.RankState {
	s.Tp, s.Dp, s.Pp = cmp.Or(s.Tp, old.Tp), cmp.Or(s.Dp, old.Dp), cmp.Or(s.Pp, old.Pp)
	s.World, s.MicroBatches = cmp.Or(s.World, old.World), cmp.Or(s.MicroBatches, old.MicroBatches)
	if len(s.Comms) == 0 {
		s.Comms = old.Comms
	}
	return s
}

// world is the claimed number of ranks, 0 while unknown.
func (j *job) world() int { return j.claimed }

// complete says that every rank of the world is known and alive.
func (j *job) complete() bool {
	if j.claimed == 0 || j.alive != j.claimed {
		return false
	}
	for r := range j.claimed {
		if p := j.ranks[falcon.Rank(r)]; p == nil || !p.state.GetAlive() {
			return false
		}
	}
	return true
}

// processes names the process of every rank: what makes one job epoch.
func (j *job) processes() []string {
	out := make([]string, j.world())
	for r := range out {
		out[r] = j.ranks[falcon.Rank(r)].name()
	}
	return out
}

// layout is what the adapters declare; without a consistent word all ranks
// count as replicas, which is how a job without an adapter is watched.
func (j *job) layout() (falcon.Layout, string) {
	world := j.world()
	fallback := falcon.Layout{TP: 1, DP: world, PP: 1}
	first := j.ranks[0].state
	l := falcon.Layout{TP: int(first.GetTp()), DP: int(first.GetDp()), PP: int(first.GetPp())}
	for r := range world {
		s := j.ranks[falcon.Rank(r)].state
		if int(s.GetTp()) != l.TP || int(s.GetDp()) != l.DP || int(s.GetPp()) != l.PP {
			return fallback, "the ranks declare different layouts"
		}
	}
	if l.Validate() != nil || max(l.TP, l.DP, l.PP) > world {
		return fallback, "the job declares no layout: all ranks are taken for replicas"
	}
	if l.World() != world {
		return fallback, fmt.Sprintf("the declared layout %s has %d ranks and the job %d", l, l.World(), world)
	}
	return l, ""
}

func (j *job) placement() falcon.Placement {
	out := make(falcon.Placement, j.world())
	for r := range out {
		out[r] = j.ranks[falcon.Rank(r)].device
	}
	return out
}

// microBatches are per replica; nil while a rank does not say.
func (j *job) microBatches(l falcon.Layout) []int32 {
	out := make([]int32, l.DP)
	for r := range l.World() {
		m := j.ranks[falcon.Rank(r)].state.GetMicroBatches()
		if m <= 0 || m > countMost {
			return nil
		}
		out[l.Replica(falcon.Rank(r))] = m
	}
	return out
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
			out[falcon.Rank(r)] = append(out[falcon.Rank(r)], falcon.Comm{
				ID: c.GetId(), Name: clean(c.GetName()), Dimension: named(c.GetName(), dimension[c.GetId()], l),
				Size: int(c.GetSize()), RankInComm: int(c.GetRank()), Generation: c.GetGeneration(),
			})
		}
	}
	return out
}

// dimensionOf finds the one dimension along which the ranks differ; "" for a
// set that is no group of the layout (a split of the framework's own).
func dimensionOf(l falcon.Layout, ranks []falcon.Rank) falcon.Dimension {
	if len(ranks) < 2 {
		return ""
	}
	for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		if inGroup(l, ranks, d) {
			return d
		}
	}
	if len(ranks) == l.World() {
		return falcon.DimWorld
	}
	return ""
}

// inGroup says whether the (ascending) ranks are exactly a group along d.
func inGroup(l falcon.Layout, ranks []falcon.Rank, d falcon.Dimension) bool {
	size := map[falcon.Dimension]int{falcon.DimTP: l.TP, falcon.DimDP: l.DP, falcon.DimPP: l.PP}[d]
	if len(ranks) != size {
		return false
	}
	first := l.Coord(ranks[0])
	for _, r := range ranks {
		c := l.Coord(r)
		same := map[falcon.Dimension]bool{
			falcon.DimTP: c.DP == first.DP && c.PP == first.PP,
			falcon.DimDP: c.TP == first.TP && c.PP == first.PP,
			falcon.DimPP: c.TP == first.TP && c.DP == first.DP,
		}[d]
		if !same {
			return false
		}
	}
	return true
}

// named lets a communicator that spans the whole world keep the framework's
// name for it: with one dimension alone, world and that dimension look alike.
func named(name string, found falcon.Dimension, l falcon.Layout) falcon.Dimension {
	if strings.EqualFold(name, string(falcon.DimWorld)) && found != "" && l.World() > 1 {
		return falcon.DimWorld
	}
	return found
}

// ended says how the job is when no rank lives: finished when all that are
// gone ended well, else lost.
func (j *job) ended() bool { return len(j.ranks) > 0 && j.alive == 0 }

func (j *job) livesOn(node falcon.Node) bool {
	for _, p := range j.ranks {
		if p.node == node && p.state.GetAlive() {
			return true
		}
	}
	return false
}

func (j *job) someEnded() bool {
	for _, p := range j.ranks {
		if !p.state.GetAlive() {
			return true
		}
	}
	return false
}

// someLost says that a rank is gone that did not end well: ranks of a job that
// finishes go one by one, and that is no loss.
// An agent can see that a process is gone before it knows how.
func (j *job) someLost(now time.Time) bool {
	for _, p := range j.ranks {
		unknown := p.state.GetExit() == "" && now.Sub(p.endedAt) < exitWait
		if !p.state.GetAlive() && !endedWell(p.state.GetExit()) && !unknown {
			return true
		}
	}
	return false
}

// exitWait is how long an agent may take to learn how a process has ended.
const exitWait = 3 * time.Second

func (j *job) finishedWell() bool {
	for _, p := range j.ranks {
		if !endedWell(p.state.GetExit()) {
			return false
		}
	}
	return j.ended()
}

// endedWell reads the agent's word about an exit.
func endedWell(exit string) bool { return exit == falconv1.ExitedNormally }
