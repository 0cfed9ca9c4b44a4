package recovery

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// engine takes the nodes' words in, and ticks.
func (s *storm) engine() {
	if s.now.Before(s.down) || s.lags() {
		return
	}
	if !s.down.IsZero() {
		s.down = time.Time{}
		s.logf("the engine is back")
		s.machine()
	}
	s.newEpoch()
	s.wholeRestart()
	for _, n := range s.nodes {
		for len(n.in) > 0 && !n.in[0].due.After(s.now) && !n.cut {
			in := n.in[0].input
			n.in = n.in[1:]
			if r, ok := in.(reply); ok {
				in = r.in
			}
			s.hear(n, in)
			if s.now.Before(s.down) {
				return
			}
		}
	}
	if s.means() {
		s.m.Step(s.now, s.job)
	}
	s.m.Tick(s.now)
	s.digest()
	s.person()
}

func (s *storm) take(in Input) {
	switch in.(type) {
	case Beat, Node:
	default:
		s.logf("word %T%+v", in, in)
	}
	p, ok := in.(Process)
	if ok && (s.fences.nodes[p.Node] || p.Generation < s.fences.below[p.Rank]) {
		s.saw["late word"] = true
	}
	s.m.Step(s.now, in)
	s.digest()
}

// means describes the nodes again; true = they have changed.
func (s *storm) means() bool {
	s.free = s.free[:0]
	changed := false
	for _, n := range s.nodes {
		busy := len(s.m.ranks.ranksOnNode(n.name)) > 0 ||
			slices.ContainsFunc(s.job.Placement, func(d falcon.Device) bool {
				return d.Node() == n.name
			})
		here := n.attached && !s.fences.nodes[n.name]
		if here && n.up && !n.cut && !busy {
			s.free = append(s.free, n.name)
		}
		changed = changed ||
			s.job.CanLaunch[n.name] != here ||
			s.job.Away[n.name] != (!n.attached && !s.fences.nodes[n.name])
	}
	if !changed && slices.Equal(s.job.Spares, s.free) {
		return false
	}
	s.job.Spares = slices.Clone(s.free)
	s.job.CanLaunch = map[falcon.Node]bool{}
	s.job.Away = map[falcon.Node]bool{}
	for _, n := range s.nodes {
		s.job.CanLaunch[n.name] = n.attached && !s.fences.nodes[n.name]
		s.job.Away[n.name] = !n.attached && !s.fences.nodes[n.name]
	}
	return true
}

// digest makes durable, then carries out; the engine may stop before, between
// and after.
func (s *storm) digest() {
	r := s.m.Ready()
	s.m.Advance()
	if r.Empty() {
		return
	}
	crash := -1
	if s.chaos && len(r.Recoveries) > 0 && s.chance(0.02) {
		crash = s.rng.IntN(2)
	}
	for _, n := range r.Notes {
		s.logf("note %s", n.Text)
	}
	if crash == 0 {
		s.engineStops()
		return
	}
	s.weather.ended = append(s.weather.ended, r.Ended...)
	for _, c := range r.Recoveries {
		s.persist(c)
	}
	if crash == 1 {
		s.saw["lost order"] = true
		s.engineStops()
		return
	}
	whole := slices.ContainsFunc(r.Commands, func(c Command) bool {
		_, is := c.(Restart)
		return is
	})
	for _, c := range r.Commands {
		if f, is := c.(Fence); is && whole {
			f.Ranks = nil // they are waited for
			c = f
		}
		s.order(c)
	}
}

func (s *storm) persist(c falcon.Recovery) {
	s.logf("persist %s %s generation %d faults %d fenced %v pending %v",
		c.ID, c.State, c.Generation, len(c.Faults), c.Fenced, c.Pending)
	i := slices.IndexFunc(s.journal, func(o falcon.Recovery) bool {
		return o.ID == c.ID
	})
	if i < 0 {
		s.journal = append(s.journal, c)
	} else {
		if s.journal[i].State.Over() {
			s.fail("%s changes after its end", c.ID)
		}
		s.journal[i] = c
	}
	for _, f := range c.Faults {
		s.accused(f)
		if !f.Holds() {
			s.saw["taken back"] = true
		}
	}
	s.harmless(c)
	if c.Attempts > 1 && len(c.Faults) > 1 {
		s.saw["second fault"] = true
	}
	if c.State == falcon.RecoveryProposed &&
		c.DeadlineNs == 0 &&
		s.decides.IsZero() &&
		s.chance(0.7) {
		s.decides = s.now.Add(time.Duration(s.rng.IntN(5000)) * time.Millisecond)
	}
	switch {
	case c.State == falcon.RecoveryResumed && !c.Whole:
		s.resumed(c)
	case c.State == falcon.RecoveryResumed:
		s.saw["whole restart"] = true
	}
	switch {
	case c.Shrink == nil &&
		c.State == falcon.RecoveryResumed &&
		s.job.Layout.DP < s.of:
		s.saw["recovered with fewer"] = true
	case c.Whole && c.State == falcon.RecoverySuspend:
		s.saw["agents awaited"] = true
	case c.Shrink != nil && c.State == falcon.RecoveryProposed && c.DeadlineNs == 0:
		s.saw["fewer are asked for"] = true
	}
}

// accused looks whether the processes that a fault names were their ranks'
// owners: late words of those before are no faults.
func (s *storm) accused(f falcon.Fault) {
	for _, e := range f.Evidence {
		var rank, pid int
		n, _ := fmt.Sscanf(e, "rank %d (process %d on", &rank, &pid)
		if n != 2 || s.seen[e] {
			continue
		}
		s.seen[e] = true
		for _, p := range s.procs {
			if p.pid == pid && !s.owner(p) {
				s.fail("a late word is taken for a fault: %s", e)
			}
		}
	}
}

func (s *storm) resumed(c falcon.Recovery) {
	s.epochAt = s.now.Add(time.Duration(1+s.rng.IntN(2000)) * time.Millisecond)
	if len(c.Fenced) > 0 {
		s.saw["spare used"] = true
	} else if len(c.Replaced) > 0 {
		s.saw["in place"] = true
	}
}

// newEpoch describes the job as the recovery left it.
func (s *storm) newEpoch() {
	if s.epochAt.IsZero() || s.now.Before(s.epochAt) {
		return
	}
	s.epochAt = time.Time{}
	last := s.journal[len(s.journal)-1]
	if last.State != falcon.RecoveryResumed || last.JobEpoch != s.job.Epoch {
		return // the next one is on
	}
	s.describe(last.Generation, last.Placement)
}

func (s *storm) describe(generation uint64, placement falcon.Placement) {
	s.job.Epoch++
	s.weather.ended = nil
	s.job.Generation = generation
	s.job.Placement = slices.Clone(placement)
	s.record()
	s.means()
	s.logf("job epoch %d generation %d on %v", s.job.Epoch, generation, placement)
	s.m.Step(s.now, s.job)
	for _, n := range s.nodes {
		if n.up && n.attached && !n.cut {
			for _, p := range s.on(n) {
				if !s.refuses(n, s.process(p)) {
					s.m.Step(s.now, s.process(p))
				}
			}
		}
	}
	s.digest()
}

// order carries a command out, and looks at what must never be.
func (s *storm) order(c Command) {
	s.logf("order %T%+v", c, c)
	switch c := c.(type) {
	case Suspend:
		s.send("suspend", c.Generation, c, c.Nodes, fmt.Sprint(c.WaitMs))
	case Fence:
		s.fence(c)
	case Launch:
		for _, n := range placed(c.Ranks) { // given again, it may leave nodes out
			own := maps.Clone(c.Ranks)
			maps.DeleteFunc(own, func(_ falcon.Rank, d falcon.Device) bool {
				return d.Node() != n
			})
			s.once("launch on "+string(n), c.Generation, fmt.Sprint(own))
		}
		s.send("launch", c.Generation, c, placed(c.Ranks), "")
	case Table:
		s.send("table", c.Generation, c, devices(c.Placement), fmt.Sprint(c))
	case Rejoin:
		s.judge(c)
		s.send("rejoin", c.Generation, c, devices(c.Placement), fmt.Sprint(c))
	case Stop:
		s.send("stop", c.Generation, c, c.Nodes, "")
	case Restart:
		s.once("restart", c.Generation, fmt.Sprint(c.Placement))
		if s.whole == nil || s.whole.Generation < c.Generation {
			s.whole, s.wholeAt = &c, s.now.Add(time.Duration(2000+s.rng.IntN(6000))*time.Millisecond)
		}
	}
}

func placed(ranks map[falcon.Rank]falcon.Device) []falcon.Node {
	var p falcon.Placement
	for _, d := range ranks {
		p = append(p, d)
	}
	return devices(p)
}

func devices(p falcon.Placement) []falcon.Node {
	var out []falcon.Node
	for _, d := range p {
		out = append(out, d.Node())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// once remembers what an order said: given again, it says the same.
func (s *storm) once(kind string, generation uint64, text string) {
	key := fmt.Sprint(kind, generation)
	if was, ok := s.content[key]; ok && was != text {
		s.fail("%s of generation %d has two contents:\n%s\n%s", kind, generation, was, text)
	}
	s.content[key] = text
}

func (s *storm) send(kind string, generation uint64, c Command, nodes []falcon.Node, text string) {
	if kind != "stop" && kind != "launch" {
		s.once(kind, generation, text)
	}
	for _, o := range s.orders {
		if o.generation < generation {
			o.answered = true // nobody asks for it any more
		}
	}
	for _, name := range nodes {
		o := &task{
			node:       name,
			generation: generation,
			kind:       kind,
			cmd:        c,
			until:      s.now.Add(10 * time.Second),
		}
		s.orders = slices.DeleteFunc(s.orders, func(x *task) bool {
			return x.node == name && x.kind == kind && x.generation == generation
		})
		s.orders = append(s.orders, o)
		n := s.simNode(name)
		if !n.up || !n.attached {
			continue
		}
		due := s.now.Add(time.Duration(s.rng.IntN(700)) * time.Millisecond)
		if k := len(n.out); k > 0 && n.out[k-1].due.After(due) {
			due = n.out[k-1].due
		}
		n.out = append(n.out, message{due: due, order: o})
	}
}

// judge looks at an order to rejoin.
func (s *storm) judge(c Rejoin) {
	if _, again := s.content[fmt.Sprint("rejoin", c.Generation)]; again {
		return
	}
	for _, p := range s.procs {
		if p.alive && s.owner(p) && (p.training || p.order != nil) {
			s.fail("rejoin %d is ordered while rank %d (pid %d) is in generation %d",
				c.Generation, p.rank, p.pid, p.comm)
		}
		if p.alive && s.owner(p) && p.obeyed != c.Generation {
			s.fail("rejoin %d is ordered while rank %d (pid %d) has obeyed %d",
				c.Generation, p.rank, p.pid, p.obeyed)
		}
	}
	switch {
	case c.Checkpoint:
		s.saw["checkpoint"] = true
		if c.Resume != s.job.Checkpoint || s.journal[len(s.journal)-1].Reason == "" {
			s.fail("back to the checkpoint of %d without a reason, storage has %d",
				c.Resume, s.job.Checkpoint)
		}
		s.best = c.Resume
	case c.Resume < s.best-1 || c.Resume > s.best:
		s.fail("rejoin at %d, the newest step is %d", c.Resume, s.best)
	case c.Resume == s.best:
		s.saw["nothing lost"] = true
	}
}

// check looks at the cluster itself.
func (s *storm) check() {
	owners := map[falcon.Rank]*proc{}
	trains := uint64(0)
	for _, p := range s.procs {
		if !p.alive || !s.owner(p) {
			continue
		}
		if o := owners[p.rank]; o != nil {
			s.fail("rank %d has two owners: pid %d on %s and pid %d on %s",
				p.rank, o.pid, o.node, p.pid, p.node)
		}
		if owners[p.rank] = p; int(p.rank) >= len(s.job.Placement) {
			s.fail("rank %d (pid %d on %s) is outside of a world of %d",
				p.rank, p.pid, p.node, len(s.job.Placement))
		}
		if !p.training {
			continue
		}
		if g := p.comm + 1; trains != 0 && trains != g {
			s.fail("generations %d and %d train at once", trains-1, p.comm)
		} else {
			trains = g
		}
	}
}

// wholeRestart ends all processes and starts the job again.
func (s *storm) wholeRestart() {
	if s.whole == nil || s.now.Before(s.wholeAt) {
		return
	}
	c := s.whole
	s.whole = nil
	cur, ok := s.m.Current()
	if !ok || cur.Generation != c.Generation {
		return
	}
	for _, d := range c.Placement {
		if n := s.simNode(d.Node()); !n.up || n.cut {
			s.take(Launched{
				Node:       n.name,
				Generation: c.Generation,
				Failed:     "no answer",
			})
			return
		}
	}
	for _, p := range s.procs {
		if p.alive {
			s.kill(p, "ended for the restart")
			p.normal = true
		}
	}
	s.fences.launched(c)
	s.smaller(cur, c.Placement)
	step := max(s.job.Checkpoint, 0)
	s.best = step
	for r, d := range c.Placement {
		s.add(&proc{
			rank:     falcon.Rank(r),
			node:     d.Node(),
			launch:   c.Generation,
			comm:     c.Generation,
			alive:    true,
			training: true,
			tag:      step,
			hold:     s.sums(falcon.Rank(r), step),
		})
	}
	s.describe(c.Generation, c.Placement)
}

// deaf reports whether a job on one node is lost to an engine that was away: silence is
// all that it knows of it, and it has said that.
func (s *storm) deaf() bool {
	return len(s.m.ranks.usedNodes()) == 1 &&
		s.m.nodes.Get(s.m.ranks.usedNodes()[0], s.now).Suspected()
}

// share says who has which shard.
func (s *storm) share() {
	clear(s.shard)
	for i, ranks := range (replica.Query{Layout: s.job.Layout, ZeRO: s.job.ZeRO}).Shards() {
		for _, r := range ranks {
			s.shard[r] = i
		}
	}
}

// smaller describes the world that a whole restart leads to: all replicas, or
// those that stay, in their order, on their devices, with all of the batch.
func (s *storm) smaller(c falcon.Recovery, p falcon.Placement) {
	v := c.Shrink
	if v == nil {
		if len(p) != len(s.job.Placement) {
			s.fail("a restart of %d ranks as %d, without a word about it", len(s.job.Placement), len(p))
		}
		return
	}
	if !s.pol.Recovery.AllowShrink ||
		s.job.ZeRO.Stage > 0 ||
		len(v.Kept) == 0 ||
		len(v.Kept) >= s.job.Layout.DP ||
		v.Of != s.job.Layout.DP {
		s.fail("%v of %d replicas go on under %+v with %+v",
			v.Kept, v.Of, s.pol.Recovery, s.job.ZeRO)
		return
	}
	was, now := 0, 0
	for _, n := range s.job.Splits {
		was += int(n)
	}
	for _, n := range v.Splits {
		now += int(n)
	}
	if was != now ||
		slices.Min(v.Splits) < 1 ||
		len(v.Splits) != len(v.Kept) ||
		len(p) != v.Layout.World() {
		s.fail("%d ranks of %v take %v of the batch %v",
			len(p), v.Layout, v.Splits, s.job.Splits)
	}
	for r, d := range p {
		at := v.Layout.Coord(falcon.Rank(r))
		at.DP = v.Kept[at.DP]
		home := c.Placement[s.job.Layout.RankOf(at)]
		if d != home || s.fences.nodes[d.Node()] {
			s.fail("rank %d of the smaller world is put on %s, it was on %s (fenced: %v)",
				r, d, home, s.fences.nodes[d.Node()])
		}
	}
	if s.saw["fewer replicas"] = true; s.chaos {
		s.left += 120 // for what happens in the smaller world
	}
	s.job.Layout, s.job.Splits = v.Layout, slices.Clone(v.Splits)
	s.share()
}

// person decides, where somebody is there.
func (s *storm) person() {
	if s.decides.IsZero() || s.now.Before(s.decides) {
		return
	}
	s.decides = time.Time{}
	c, ok := s.m.Current()
	if !ok || c.State != falcon.RecoveryProposed {
		return
	}
	if c.Whole && s.chance(0.5) { // just as an agent is between two connections
		if s.agentRestarts(s.nodes[s.rng.IntN(len(s.nodes))], Reset); s.means() {
			s.m.Step(s.now, s.job)
			s.digest()
		}
	}
	verb := []Verb{Approve, Approve, Approve, Deny, Abort}[s.rng.IntN(5)]
	s.logf("decision %s", verb)
	s.m.Step(s.now, Decision{
		Recovery: c.ID,
		PlanHash: c.PlanHash,
		Verb:     verb,
		By:       "kim",
		Reason:   "test",
	})
	s.digest()
}
