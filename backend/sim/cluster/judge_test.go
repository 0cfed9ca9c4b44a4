package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery"
)

// judge holds the engine's injections against what is true.
type judge struct {
	c      *Cluster
	launch map[[2]uint64]int // processes started, by generation and rank
	sick   time.Duration     // when it was last seen to be broken
	short  time.Duration     // when the devices last did not suffice
	// When an engine last reported that the job stands: a person knows it, whichever engine comes next.
	reported time.Duration

	begins  int
	resumed int
	fences  int
	gaveUp  int // runs that have ended with a sentence
}

// belief is what one engine has decided, as far as the judge has seen it.
type belief struct {
	*judge
	h       *host
	fenced  map[fence]bool
	state   map[string]falcon.RecoveryState
	stands  bool // a restart was given up, and the engine has said so
	unknown bool // ranks that nobody describes, and the engine has said so
	waits   bool // a recovery waits for a spare
	// whom a recovery waits for, while most of the nodes do not do what they should
	awaits []falcon.Node
	asks   string                 // the recovery that waits for a person
	doubts string                 // the one that asks a person whether the job has finished, which it has
	barred map[falcon.Node]string // fenced, and not lifted: by which recovery
}

func (j *judge) of(h *host) *belief {
	return &belief{
		judge:  j,
		h:      h,
		fenced: map[fence]bool{},
		state:  map[string]falcon.RecoveryState{},
		barred: map[falcon.Node]string{},
	}
}

// fence is one node that a recovery has given up.
type fence struct {
	recovery string
	node     falcon.Node
}

func newJudge(c *Cluster) *judge {
	return &judge{
		c:      c,
		launch: map[[2]uint64]int{},
		sick:   -time.Hour,
		short:  -time.Hour,
	}
}

// spy is the recovery machine with the judge looking at what it decides.
type spy struct {
	*recovery.Machine
	j     *belief
	knows bool // the judge knows what the journal kept
}

func (s *spy) Step(now time.Time, in recovery.Input) {
	if r, is := in.(recovery.Restored); is {
		s.restored(r.Recoveries)
	}
	s.Machine.Step(now, in)
}

func (s *spy) restored(kept []falcon.Recovery) {
	if !s.knows {
		s.knows = true
		s.j.restored(kept)
	}
}

func (s *spy) Ready() recovery.Ready {
	r := s.Machine.Ready()
	if len(r.Recoveries) > 0 {
		s.restored(nil) // an empty journal is not given back; another is once the engine has heard its nodes
	}
	for _, v := range r.Recoveries {
		s.j.recovery(v)
	}
	return r
}

// sickFor is how long after a fault was mended it still explains a recovery: a
// process that was frozen, say, and went on.
const sickFor = 15 * time.Second

// look follows the truth.
func (j *judge) look() {
	if j.c.fit() < j.c.setup.layout.World() {
		j.short = j.c.now
	}
	if j.c.job.broken() != "" {
		j.sick = j.c.now
	}
}

// restored forgets what an engine decided that was killed before the journal kept it: none of
// that came into force, and what the next one decides is judged by itself.
func (j *belief) restored(kept []falcon.Recovery) {
	state := map[string]falcon.RecoveryState{}
	fenced := map[fence]bool{}
	for i, v := range kept {
		j.stands = j.stands || i == len(kept)-1 && v.State == falcon.RecoveryFailed
		state[v.ID] = v.State
		for _, n := range v.Fenced {
			fenced[fence{v.ID, n}] = true
			if !v.State.Over() {
				j.barred[n] = v.ID
			}
		}
	}
	j.state, j.fenced = state, fenced
	maps.DeleteFunc(j.barred, func(n falcon.Node, id string) bool {
		return !fenced[fence{id, n}]
	})
}

func (j *belief) recovery(v falcon.Recovery) {
	was := j.state[v.ID]
	if was != v.State {
		j.h.log("%s is %s (generation %d, fenced %v, pending %v, resume %d): %s",
			v.ID, v.State, v.Generation, v.Fenced, v.Pending, v.Resume, v.Reason)
	}
	if was != v.State {
		j.c.reach(v.State)
	}
	j.state[v.ID] = v.State
	j.asks = ""
	if v.State == falcon.RecoveryProposed && v.Reason != "" {
		j.asks = v.ID
	}
	j.awaits = nil
	if w := v.Wait; w != nil && !w.Spare && !v.State.Over() {
		j.awaits = w.Nodes
	}
	j.waits = !v.State.Over() && strings.Contains(v.Reason, "no spare is left")
	if v.State == falcon.RecoveryFailed && was != v.State {
		j.stands, j.reported = true, j.c.now // it says why, and what to do
		j.ruin(v)
	}
	if v.State == falcon.RecoveryResumed && was != v.State {
		j.resumed++
	}
	out, of := j.unreached(v.Placement) // before this decision: whom it gives up together is judged together
	for _, n := range v.Fenced {
		if key := (fence{v.ID, n}); !j.fenced[key] {
			j.fenced[key] = true
			j.fences++
			j.fence(v, n, out, of)
			j.barred[n] = v.ID
		}
	}
	if v.State == falcon.RecoverySuspend && was != v.State {
		j.begins++
		blamed := slices.ContainsFunc(v.Placement, func(d falcon.Device) bool {
			n := j.c.nodes[d.Node()]
			return n != nil && (n.suspect() || byAction(v, n.name) && n.slowOfLate())
		})
		why := j.c.job.broken()
		if why == "" && j.c.now-j.sick > sickFor && !blamed {
			j.c.violate("%s holds a healthy job: %v", v.ID, faults(v))
		}
	}
	asked := j.doubts == v.ID
	j.doubts = ""
	switch {
	case !j.c.job.finished || v.State.Over():
	case v.State == falcon.RecoveryProposed && strings.Contains(v.Reason, "the job may have finished"):
		j.doubts = v.ID // it asks a person
	case was == "" || asked && v.DecidedBy == "policy":
		j.c.violate("%s is opened for a finished job: %v", v.ID, faults(v))
	}
}

// shortFor is how long after the devices were too few a recovery may still fail for it.
const shortFor = 3 * time.Minute

// ruin judges the failure of a recovery, which is the job's end: it is right where the devices
// did not suffice.
func (j *belief) ruin(v falcon.Recovery) {
	if strings.Contains(v.Reason, "storage holds no checkpoint") {
		return // all copies of a shard were lost before the first checkpoint: there is no state to go on with
	}
	if j.c.now-j.short > shortFor {
		j.c.violate("%s ends a job whose devices were there: %s", v.ID, v.Reason)
	}
}

// fit is how many devices can run a rank, and are not given up for a reason that holds.
func (c *Cluster) fit() (devices int) {
	for _, n := range c.order {
		if n.power &&
			!n.demanded &&
			!c.broken(n) &&
			n.ends() < 3 &&
			(!n.lost && !n.faulty && !n.suspect() || !c.host.belief.isFenced(n.name)) {
			devices += c.setup.perNode
		}
	}
	return devices
}

func faults(v falcon.Recovery) []string {
	var out []string
	for _, f := range v.Faults {
		out = append(out, f.Evidence...)
	}
	return out
}

// reachFor is how long a node must have been out of reach before a recovery that
// waits for it may give it up.
const reachFor = 3500 * time.Millisecond

// knownFor is how long a node must have been out of reach before the engine can
// be sure to know: two missed beats, and the one that was under way.
const knownFor = 6500 * time.Millisecond

// backFor is how long a node's return may take to be known, beyond its latency.
const backFor = 1500 * time.Millisecond

// fence judges one fence: the node must be at fault, or out of reach for a while
// in a recovery that has another cause, as are out of its nodes.
func (j *belief) fence(v falcon.Recovery, name falcon.Node, out, of int) {
	n := j.c.nodes[name]
	if n != nil && n.suspect() {
		n.faulty = true // its devices are not there, however long that takes
	}
	if n == nil || n.guilty() || n.demanded || byAction(v, name) && n.slowOfLate() {
		return
	}
	late := max(n.path.up.slow, n.path.down.slow) // what comes now was sent that long before
	at := n.reach(j.h)
	away, broken := j.c.now-at.reached+late, j.c.job.broken()
	if j.c.now-at.back < backFor+late {
		away = max(away, at.outage) // the engine has not heard of its return so far
	}
	if (broken != "" || j.c.now-j.sick <= sickFor) &&
		(away > reachFor && 2*out <= max(of, 2) || away > keepalive) {
		return
	}
	j.c.violate("healthy node %s is fenced by %s: out of reach for %v, %d of %d nodes are; the job: %q; %v",
		name, v.ID, away, out, of, broken, faults(v))
}

// byAction reports whether an action on a slowdown has the node replaced.
func byAction(v falcon.Recovery, name falcon.Node) bool {
	return slices.ContainsFunc(v.Faults, func(f falcon.Fault) bool {
		return f.Action != "" && f.Node == name
	})
}

// relievedFor is how long after a device's relief the engine may still act on what it was.
const relievedFor = 30 * time.Second

// slowOfLate reports whether a device of the node is slow, or was until just now.
func (n *node) slowOfLate() bool {
	for d := range n.c.job.slow {
		if d.Node() == n.name {
			return true
		}
	}
	for d, at := range n.c.job.relieved {
		if d.Node() == n.name && n.c.now-at < relievedFor {
			return true
		}
	}
	return false
}

// guiltyFor is how long a process's end speaks against its node.
const guiltyFor = 10 * time.Minute

// guilty reports whether something on the node is, or was just now, at fault.
func (n *node) guilty() bool {
	if !n.power {
		return true
	}
	for _, p := range n.procs {
		if p.alive && p.team == nil && n.c.job.broken() == "" {
			return true // a process that is left over takes the place of others
		}
		if p.frozen && p.alive ||
			!p.alive && !p.normal && n.c.now-p.endedAt < guiltyFor ||
			n.c.now-n.thawed < sickFor {
			return true
		}
	}
	return n.ends() >= 3 || n.suspect()
}

// suspect reports whether a device of the node has reported a fatal fault of late:
// with a stall, whatever its cause, that is a sign against it.
func (n *node) suspect() bool {
	return n.blamed > 0 && n.c.now-n.blamed < guiltyFor+heardFor
}

// heardFor is how much later than a device's report the engine may hear of it.
const heardFor = 3 * time.Minute

// ends counts the processes of the node that ended by themselves within an hour:
// where that happens often, nothing is started there any more.
func (n *node) ends() (times int) {
	for _, p := range n.procs {
		if !p.alive && !p.normal && n.c.now-p.endedAt < time.Hour {
			times++
		}
	}
	return times
}

// started judges a start of a process.
func (j *judge) started(p *proc) {
	if j.c.job.finished {
		j.c.violate("%s is started although the job is finished", p)
	}
	key := [2]uint64{p.gen, uint64(p.rank)}
	if j.launch[key]++; j.launch[key] > 1 {
		j.c.violate("rank %d of generation %d is started twice", p.rank, p.gen)
	}
}

func (j *belief) isFenced(n falcon.Node) bool { return j.barred[n] != "" }

// settleMost is how long a job may stand once everything is whole again.
const settleMost = 3 * time.Minute

// settleLeast is how long each run goes on then; one that has settled ends with it,
// but for every eighth.
const settleLeast = 45 * time.Second

// settled reports whether the job trains, or has finished, and no recovery is open.
func (j *judge) settled() bool {
	b := j.c.host.belief
	return !b.open() && (j.c.job.finished || !b.stands && j.trains())
}

// open reports whether a recovery is.
func (j *belief) open() bool {
	for _, state := range j.state {
		if !state.Over() {
			return true
		}
	}
	return false
}

// trains reports whether iterations begin.
func (j *judge) trains() bool {
	return j.c.now-j.c.job.begun < 10*time.Second+3*j.c.setup.iteration
}

// awaitsMost reports whether a recovery waits for half of the nodes or more, all of which are broken:
// so many at once are believed of none before the wait is over.
func (j *belief) awaitsMost() bool {
	broken := func(n falcon.Node) bool { return j.c.broken(j.c.nodes[n]) }
	return len(j.awaits) > 1 &&
		!slices.ContainsFunc(j.awaits, func(n falcon.Node) bool { return !broken(n) })
}

// end judges a run that is over: the job trains, or is finished.
func (j *judge) end() {
	c := j.c
	if len(c.bad) > 0 || c.job.over || j.trains() {
		return
	}
	b := c.host.belief
	if b.stands ||
		b.unknown ||
		j.reported > c.job.begun ||
		b.awaitsMost() ||
		c.now-j.short <= shortFor {
		j.gaveUp++
		return
	}
	c.violate("the job stands for ever: no iteration since %.1f s; %s", c.job.begun.Seconds(), c.job.broken())
}

// unreached counts the nodes of a placement that the engine can't hear for a
// while, and all of them, without those that are fenced.
func (j *belief) unreached(on falcon.Placement) (out, of int) {
	seen := map[falcon.Node]bool{}
	for _, d := range on {
		n := j.c.nodes[d.Node()]
		if n == nil || seen[n.name] || j.isFenced(n.name) {
			continue
		}
		seen[n.name] = true
		if of++; j.c.now-n.reach(j.h).audible > knownFor {
			out++
		}
	}
	return out, of
}
