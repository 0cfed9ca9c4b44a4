package cluster

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// job is the emulated training job: what is true, whatever the engine believes.
type job struct {
	c          *Cluster
	teams      map[uint64]*team // by generation
	checkpoint int64            // newest that storage holds, as the iteration that a restart begins with
	finished   bool
	over       bool          // it has come to its own end, but for those that were killed on the way
	begun      time.Duration // when an iteration last began
	newest     int64
	sets       uint64
	slow       map[falcon.Device]float64       // how much slower than others a GPU is; absent = 1
	relieved   map[falcon.Device]time.Duration // when a slow GPU was healthy again
	orders     map[falcon.OrderKind]int        // carried out, by kind

	stayer int           // a rank that is to stay in its own code
	stays  time.Duration // for so long, in the next iteration; 0 = none is to
}

// team is the processes whose communicators are of one generation.
type team struct {
	j         *job
	gen       uint64
	resume    int64
	fresh     bool // all come from storage
	members   map[int]*proc
	running   bool
	iteration int64
	optAt     time.Duration // when the optimizer of this iteration began, 0 = not yet
	optFor    map[int]time.Duration
	stuck     time.Duration // since when it waits for a member; 0 = it does not
	stall     time.Duration // all ranks are in their own storage until then
	committed uint64        // newest order that it has voted for
}

func newJob(c *Cluster) *job {
	return &job{
		c:          c,
		teams:      map[uint64]*team{},
		slow:       map[falcon.Device]float64{},
		relieved:   map[falcon.Device]time.Duration{},
		orders:     map[falcon.OrderKind]int{},
		checkpoint: falcon.NoIteration,
		newest:     -1,
	}
}

// digest is the checksum of a rank's shard at a step.
func (j *job) digest(rank int, step int64) uint64 {
	if step < 0 {
		return 0
	}
	co := j.c.setup.layout.Coord(falcon.Rank(rank))
	return uint64(step)*31 + uint64(co.TP)*7 + uint64(co.PP)*3 + 1
}

// join takes a process into a generation's team, which begins once it is whole.
func (j *job) join(p *proc, gen uint64, resume int64, fresh bool) {
	t := j.teams[gen]
	if t == nil {
		t = &team{
			j:       j,
			gen:     gen,
			resume:  resume,
			fresh:   fresh,
			members: map[int]*proc{},
		}
		j.teams[gen] = t
	}
	old := t.members[p.rank]
	if old != nil && old != p && old.alive && old.team == t {
		j.c.violate("rank %d has two processes in generation %d: %s and %s", p.rank, gen, old, p)
	}
	t.members[p.rank] = p
	p.team = t
	if !fresh {
		j.c.after(joinMost, func() { t.overdue(p) })
	}
	if len(t.members) == j.c.setup.layout.World() && !t.running {
		j.c.after(j.c.between(groupsLeast, groupsMost), t.begin)
	}
}

// leave takes a process out of its team: its communicators are aborted.
func (j *job) leave(p *proc) {
	if p.team != nil {
		p.settle()
		p.team = nil
	}
}

// overdue fails a rejoin that did not become whole.
func (t *team) overdue(p *proc) {
	if p.n.paused {
		t.j.c.after(awhile, func() { t.overdue(p) })
		return
	}
	if t.running || p.team != t || !p.alive || p.still() {
		return
	}
	p.team = nil
	p.rejoined = ring.Rejoined{
		Generation: t.gen,
		Iteration:  t.resume,
		Status:     -2,
	}
	p.stand(t.gen, -2, p.tag())
}

func (t *team) ranks() []int {
	return slices.Sorted(maps.Keys(t.members))
}

// whole reports whether all members can go on.
func (t *team) whole() bool {
	for _, p := range t.members {
		if !p.able(t) {
			return false
		}
	}
	return len(t.members) == t.j.c.setup.layout.World()
}

// begin has a team train once all its members are there.
func (t *team) begin() {
	if t.running || !t.whole() {
		if !t.running && t.alive() {
			t.j.c.after(200*time.Millisecond, t.begin)
		}
		return
	}
	c := t.j.c
	for _, other := range t.j.teams {
		if other != t && other.running && other.whole() {
			c.violate("generations %d and %d train at the same time", other.gen, t.gen)
		}
	}
	t.restore()
	t.running = true
	t.iteration = t.resume - 1
	c.log("generation %d trains from iteration %d", t.gen, t.resume)
	t.next()
}

// alive reports whether anybody still is in the team.
func (t *team) alive() bool {
	for _, p := range t.members {
		if p.alive && p.team == t {
			return true
		}
	}
	return false
}

// restore gives every member its shard, and checks that who gives it has it.
func (t *team) restore() {
	c := t.j.c
	for _, r := range t.ranks() {
		p := t.members[r]
		from := p
		storage := t.fresh
		if p.rejoin != nil {
			storage = p.rejoin.Checkpoint
			for _, m := range p.rejoin.Moves {
				if int(m.Rank) == r && m.From >= 0 {
					from = t.members[int(m.From)]
				} else if int(m.Rank) == r {
					storage = true
				}
			}
		}
		if storage && t.resume > 0 && t.resume != c.job.checkpoint && !t.fresh {
			c.violate("rank %d restores step %d from storage, which holds %d", r, t.resume, c.job.checkpoint)
		}
		if !storage && from.step != t.resume && from.kept != t.resume {
			c.violate("rank %d restores step %d from %s, which holds %d and %d",
				r, t.resume, from, from.step, from.kept)
		}
	}
	t.j.sets++
	for _, r := range t.ranks() {
		p := t.members[r]
		p.step, p.kept = t.resume, falcon.NoIteration
		p.connect(t.j.sets)
		if !t.fresh {
			p.rejoined = ring.Rejoined{
				Generation: t.gen,
				Iteration:  t.resume,
				GroupsNs:   1e6,
				StateNs:    1e6,
				Bytes:      1,
			}
		}
		p.n.poke()
	}
}

// waits reports whether a member waits for others inside the exchange: the team
// is stuck for another's sake, and not in storage.
func (t *team) waits(p *proc) bool {
	return t.stuck > 0 && t.j.c.now >= t.stall && !p.held()
}

// in reports whether a member is in its optimizer now.
func (t *team) in(p *proc) bool {
	return t.optAt > 0 && t.j.c.now < t.optAt+t.optFor[p.rank]
}

// done reports whether a member has finished the optimizer of this iteration.
func (t *team) done(p *proc) bool {
	return t.optAt > 0 && !t.in(p)
}

// next begins an iteration, or ends the job.
func (t *team) next() {
	c := t.j.c
	if !t.go_(t.next) {
		return
	}
	for _, r := range t.ranks() {
		p := t.members[r]
		p.settle()
		if t.optAt > 0 {
			p.call("world", t.iteration, p.mono(), 1e5, 8)
		}
	}
	if t.optAt > 0 && !t.vote() {
		return
	}
	t.iteration++
	t.optAt = 0
	if t.iteration >= c.setup.iterations {
		t.end()
		return
	}
	if t.trap() { // the pause comes before the iteration
		t.iteration--
		t.wait(t.next)
		return // what was voted for holds
	}
	t.j.begun = c.now
	t.j.newest = max(t.j.newest, t.iteration)
	every := c.setup.checkpointEvery
	if every > 0 && t.iteration > 0 && t.iteration%every == 0 {
		t.j.checkpoint = t.iteration
	}
	for _, r := range t.ranks() {
		p := t.members[r]
		p.ctl.Iteration = t.iteration
		p.marks = append(p.marks, ring.Mark{
			Iteration: t.iteration,
			StartNs:   p.mono(),
			PausedNs:  p.pausedNs,
		})
		p.ctl.MarksWritten = uint64(len(p.marks))
	}
	c.log("generation %d: iteration %d", t.gen, t.iteration)
	t.compute()
}

// compute plays forward and backward: each rank comes to the exchange of the
// gradients in its own time, and all leave it together.
func (t *team) compute() {
	c := t.j.c
	longest := time.Duration(0)
	own := map[int]time.Duration{}
	for _, r := range t.ranks() {
		p := t.members[r]
		own[r] = time.Duration(
			float64(c.setup.iteration) * 0.85 * t.j.slowness(p) * float64(p.ctl.MicroBatches) / 8 *
				(0.995 + 0.01*c.rng.Float64()),
		)
		longest = max(longest, own[r])
	}
	begin := c.now
	transfer := c.setup.iteration / 20
	absent := t.hang(own)
	longest += absent
	c.after(longest+transfer, func() {
		for _, r := range t.ranks() {
			p := t.members[r]
			if p.team == t && p.alive && (absent == 0 || own[r] == longest) {
				enter := p.monoAt(begin + own[r])
				p.call(
					"dp",
					t.iteration,
					enter,
					(longest + transfer - own[r]).Nanoseconds(),
					8<<20,
				)
			}
		}
		t.optimize()
	})
}

// hang has a rank that is to stay in its own code stay there, once, and the others call the exchange in
// their own time; it returns how much longer than all others the rank stays.
func (t *team) hang(own map[int]time.Duration) time.Duration {
	c, d := t.j.c, t.j.stays
	if d == 0 {
		return 0
	}
	c.log("rank %d stays in its own code for %v", t.j.stayer, d)
	t.j.stays, own[t.j.stayer] = 0, slices.Max(slices.Collect(maps.Values(own)))+d
	for _, r := range t.ranks() {
		if r == t.j.stayer {
			continue
		}
		c.after(own[r], func() {
			if p := t.members[r]; p.team == t && p.alive {
				p.call("dp", t.iteration, p.mono(), d.Nanoseconds(), 8<<20)
				p.n.poke()
			}
		})
	}
	return d
}

// slowness is how much longer a process's work takes than on a healthy GPU.
func (j *job) slowness(p *proc) float64 {
	return max(1, j.slow[p.dev])
}

// trap holds the members that a pause has ordered to stop before this iteration.
func (t *team) trap() bool {
	held := false
	for _, r := range t.ranks() {
		p := t.members[r]
		if p.pause.Wanted != 0 &&
			p.pause.State == ring.PauseArmed &&
			p.boundary <= t.iteration {
			p.pause.State, p.pause.TrappedNs, p.pause.QuietNs = ring.PauseQuiet, p.mono(), p.mono()
			p.n.poke()
		}
		held = held || p.held()
	}
	return held
}

// go_ reports whether the team can go on now; if not, f is called when it may.
func (t *team) go_(f func()) bool {
	switch {
	case !t.running || !t.alive():
		t.running = false
		return false
	case !t.whole() || t.j.c.now < t.stall:
		t.wait(f)
		return false
	}
	t.stuck = 0
	return true
}

func (t *team) wait(f func()) {
	if t.stuck == 0 {
		t.stuck = t.j.c.now
	}
	t.j.c.after(100*time.Millisecond, f)
}

// optimize begins the update, once all have exchanged their gradients.
func (t *team) optimize() {
	c := t.j.c
	if !t.go_(t.optimize) {
		return
	}
	t.optAt = c.now
	t.optFor = map[int]time.Duration{}
	for _, r := range t.ranks() {
		t.optFor[r] = c.between(time.Millisecond, max(2*time.Millisecond, c.setup.iteration/20))
	}
	c.after(c.setup.iteration/10, t.next)
}

// refusedGone is the status of an order that a rank does not hold, or no longer.
const refusedGone = 9

// elected is the least of the newest orders of all members, and whether each of
// them holds it: one may have got only a later one.
func (t *team) elected() (o falcon.Order, held bool) {
	least := uint64(math.MaxUint64)
	for _, p := range t.members {
		least = min(least, p.newest)
	}
	held = true
	for _, p := range t.members {
		if x := p.box[least%uint64(len(p.box))]; x.ID == least {
			o = x
		} else {
			held = false
		}
	}
	o.ID = least
	return o, held
}

// vote carries out the order that is elected; false = they leave.
func (t *team) vote() bool {
	newest, held := t.elected()
	if newest.ID <= t.committed {
		return true
	}
	t.committed = newest.ID
	from := t.iteration + 1
	if !held {
		t.j.c.log("generation %d: order %d is not held by all", t.gen, newest.ID)
		for _, p := range t.members {
			p.ctl.CommittedOrder = newest.ID
			p.ctl.CommittedIteration = from
			p.ctl.CommittedStatus = refusedGone
		}
		return true
	}
	t.j.c.log("generation %d: order %d (%s) holds from iteration %d", t.gen, newest.ID, newest.Kind, from)
	t.j.orders[newest.Kind]++
	members := t.ranks()
	for _, r := range members {
		p := t.members[r]
		p.ctl.CommittedOrder = newest.ID
		p.ctl.CommittedIteration = from
		p.ctl.CommittedStatus = 0
		switch newest.Kind {
		case falcon.OrderMicroBatches:
			p.ctl.MicroBatches = int(newest.MicroBatches[t.j.c.setup.layout.Coord(falcon.Rank(r)).DP])
		case falcon.OrderPlacement:
			size := len(members) / len(newest.Blocks)
			p.rank = int(newest.Blocks[r/size])*size + r%size
			p.place = ring.Place{
				Order:     newest.ID,
				Iteration: from,
				Rank:      p.rank,
				StepNs:    [4]int64{1e6, 1e6, 1e6, 1e6},
				Bytes:     1 << 20,
			}
		case falcon.OrderCheckpoint:
			t.j.checkpoint, p.ctl.ResumeIteration = from, from
		}
		p.n.poke()
	}
	if newest.Kind == falcon.OrderPlacement {
		t.replace()
	}
	if newest.Kind == falcon.OrderCheckpoint && newest.Leave {
		t.running = false
		for _, r := range members {
			p := t.members[r]
			p.team, p.leaving = nil, true
			t.j.c.after(t.j.c.between(300*time.Millisecond, time.Second), p.finish)
		}
		return false
	}
	return true
}

// replace renumbers the members after a placement.
func (t *team) replace() {
	all := slices.Collect(maps.Values(t.members))
	clear(t.members)
	for _, p := range all {
		t.members[p.rank] = p
	}
	t.j.sets++
	for _, r := range t.ranks() {
		t.members[r].connect(t.j.sets)
	}
}

// end is the job's own end.
func (t *team) end() {
	c := t.j.c
	c.log("generation %d: the job is done after iteration %d", t.gen, t.iteration-1)
	t.running, t.j.over = false, true
	last := time.Duration(0)
	for _, r := range t.ranks() {
		p := t.members[r]
		p.team, p.leaving = nil, true
		d := c.between(0, c.setup.spread)
		last = max(last, d)
		c.after(d, p.finish)
	}
	c.after(last, func() {
		for _, p := range t.members {
			if !p.normal {
				return // somebody was killed on the way
			}
		}
		c.log("the job is finished")
		t.j.finished = true
	})
}

// broken reports whether the job can't go on by itself, and why.
func (j *job) broken() string {
	for _, t := range j.teams {
		if t.running && t.intact() {
			return ""
		}
	}
	why := "no generation trains"
	for _, g := range slices.Sorted(maps.Keys(j.teams)) {
		t := j.teams[g]
		if !t.running {
			continue
		}
		for _, r := range t.ranks() {
			switch p := t.members[r]; {
			case !p.alive:
				why = p.String() + " has ended: " + p.how
			case p.frozen:
				why = p.String() + " is frozen"
			case p.n.paused:
				why = p.String() + " is on a paused node"
			case p.team != t:
				why = p.String() + " has left"
			}
		}
	}
	return why
}

// intact reports whether every member of the team is still in it and runs.
func (t *team) intact() bool {
	for _, p := range t.members {
		if !p.alive || p.frozen || p.n.pausedLong() || p.team != t {
			return false
		}
	}
	return true
}
