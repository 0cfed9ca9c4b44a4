package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// agent takes orders in, and answers those that are done.
func (s *storm) agent(n *simNode) {
	if !n.up || n.cut || n.paused(s.now) {
		return
	}
	if !n.attached && !s.now.Before(n.attach) && !s.now.Before(s.down) {
		s.attach(n)
	}
	for len(n.out) > 0 && !n.out[0].due.After(s.now) {
		o := n.out[0].order
		n.out = n.out[1:]
		s.obey(n, o)
	}
	n.tasks = slices.DeleteFunc(n.tasks, func(o *task) bool {
		return s.answers(n, o)
	})
}

// attach is a new stream: the node tells of all its processes, and is sent what
// it has not answered.
func (s *storm) attach(n *simNode) {
	s.logf("agent of %s is back", n.name)
	n.attached, n.silent = true, false
	s.word(n, Node{Node: n.name, Alive: true})
	for _, p := range s.procs {
		if p.node == n.name && s.visible(p) {
			s.word(n, s.process(p))
		}
	}
	for _, o := range s.orders {
		if o.node == n.name && !o.answered {
			n.out = append(n.out, message{due: s.now, order: o})
		}
	}
}

func (s *storm) visible(p *proc) bool {
	return !s.now.Before(p.ready) || !p.alive
}

func (s *storm) process(p *proc) Process {
	w := Process{
		Rank:       p.rank,
		Node:       p.node,
		Pid:        p.pid,
		Generation: p.launch,
		Alive:      p.alive,
		Normal:     p.normal,
		Finished:   p.over,
		Exit:       "killed",
	}
	if p.unseen {
		w.Exit = ""
		w.Normal = false
		w.Finished = false
	}
	if p.parked {
		w.Park = &Park{
			Generation: p.obeyed,
			Joining:    p.joining,
			Tag:        p.tag,
			Hold:       p.hold,
		}
	}
	return w
}

// on lists the node's processes that its agent sees alive.
func (s *storm) on(n *simNode) []*proc {
	var out []*proc
	for _, p := range s.procs {
		if p.node == n.name && p.alive && s.visible(p) {
			out = append(out, p)
		}
	}
	return out
}

func (s *storm) obey(n *simNode, o *task) {
	switch c := o.cmd.(type) {
	case Suspend:
		if !s.job.Parks && len(s.on(n)) > 0 {
			s.reply(n, o, Suspended{
				Node:       n.name,
				Generation: c.Generation,
				Refused:    "it has no adapter",
			})
			return
		}
		for _, p := range s.on(n) {
			s.suspend(p, c)
		}
	case Launch:
		if !s.launch(n, o, c) {
			return
		}
	case Table:
		failed := ""
		if c.Generation < n.table || s.chaos && s.chance(0.02) {
			failed = "disk full"
		}
		n.table = max(n.table, c.Generation)
		s.reply(n, o, Tabled{
			Node:       n.name,
			Generation: c.Generation,
			Failed:     failed,
		})
		return
	case Rejoin:
		if !s.seats(n, o, c) {
			return
		}
	case Stop:
		for _, p := range s.on(n) {
			if (len(c.Ranks) == 0 || slices.Contains(c.Ranks, p.rank)) &&
				(p.comm < c.Generation || p.parked) {
				p.stop = true
				s.suspend(p, Suspend{Generation: c.Generation})
			}
		}
		o.answered = true
		return
	}
	n.tasks = append(n.tasks, o)
}

func (s *storm) suspend(p *proc, c Suspend) {
	if p.announced < c.Generation && p.comm < c.Generation {
		p.announced, p.wait = c.Generation, s.now.Add(time.Duration(c.WaitMs)*time.Millisecond)
	}
}

// launch starts processes; what starts already for one of the ranks is ended.
func (s *storm) launch(n *simNode, o *task, c Launch) bool {
	if n.launched[c.Generation] {
		return true // again: they run, or have run
	}
	n.launched[c.Generation] = true
	for _, p := range s.on(n) {
		if d, ok := c.Ranks[p.rank]; ok && d.Node() == n.name {
			s.reply(n, o, Launched{
				Node:       n.name,
				Generation: c.Generation,
				Failed:     fmt.Sprintf("rank %d still runs", p.rank),
			})
			return false
		}
	}
	if s.chaos && s.chance(0.05) {
		s.reply(n, o, Launched{
			Node:       n.name,
			Generation: c.Generation,
			Failed:     "no container",
		})
		return false
	}
	for r := range falcon.Rank(c.World) {
		if d, ok := c.Ranks[r]; ok && d.Node() == n.name {
			for _, p := range s.procs {
				if p.node == n.name && p.rank == r && p.alive {
					s.kill(p, "ended for a newer launch")
				}
			}
			s.add(&proc{
				rank:      r,
				node:      n.name,
				launch:    c.Generation,
				alive:     true,
				ready:     s.now.Add(time.Duration(s.rng.IntN(6000)) * time.Millisecond),
				parked:    true,
				joining:   true,
				obeyed:    c.Generation,
				announced: c.Generation,
				tag:       -1,
				hold:      falcon.RankHold{Steps: [2]int64{-1, -1}},
			})
			s.logf("rank %d starts on %s as pid %d for %d", r, n.name, s.pids, c.Generation)
		}
	}
	return true
}

// seats lets the node's processes go on, all or none.
func (s *storm) seats(n *simNode, o *task, c Rejoin) bool {
	var seats []*proc
	for r, d := range c.Placement {
		if d.Node() != n.name {
			continue
		}
		ok := false
		for _, p := range s.on(n) {
			again := p.ack != nil && p.ack.Generation == c.Generation ||
				p.order != nil && p.order.Generation == c.Generation
			if p.rank == falcon.Rank(r) &&
				p.announced <= c.Generation &&
				(again || p.parked && p.obeyed == c.Generation) {
				seats = append(seats, p)
				ok = true
			}
		}
		if !ok {
			s.logf("%s refuses to rejoin %d: rank %d is not parked in it", n.name, c.Generation, r)
			for q, e := range c.Placement {
				if e.Node() == n.name {
					s.reply(n, o, Rejoined{
						Rank:       falcon.Rank(q),
						Generation: c.Generation,
						Status:     -1,
						Iteration:  -1,
					})
				}
			}
			return false
		}
	}
	for _, p := range seats {
		if p.ack == nil || p.ack.Generation < c.Generation {
			if p.order == nil {
				p.order = &c
				p.parked = false
				p.broken = 0
			}
		}
	}
	return true
}

// answers replies to a task that is done; true = it is off the list.
func (s *storm) answers(n *simNode, o *task) bool {
	done := true
	switch c := o.cmd.(type) {
	case Suspend:
		for _, p := range s.on(n) {
			if p.comm < c.Generation && p.announced < c.Generation {
				s.suspend(p, c)
			}
			done = done && (p.parked && p.obeyed >= c.Generation || p.comm >= c.Generation)
		}
		if !done && s.now.Before(o.until) {
			return false
		}
		a := Suspended{Node: n.name, Generation: c.Generation}
		if !done {
			a.Refused, a.Late = "a process did not park in time", true
		}
		s.reply(n, o, a)
	case Launch:
		for r, d := range c.Ranks {
			if d.Node() == n.name &&
				!slices.ContainsFunc(s.on(n), func(p *proc) bool { return p.rank == r }) {
				done = false
			}
		}
		if !done {
			return s.now.After(o.until)
		}
		s.reply(n, o, Launched{Node: n.name, Generation: c.Generation})
	case Rejoin:
		for _, p := range s.procs {
			if p.node == n.name &&
				p.order != nil &&
				p.order.Generation == c.Generation {
				return false
			}
		}
		for _, p := range s.procs {
			if p.node == n.name &&
				p.ack != nil &&
				p.ack.Generation == c.Generation {
				s.reply(n, o, *p.ack)
			}
		}
	}
	return done || !s.now.Before(o.until)
}

// reply answers, some answers twice.
func (s *storm) reply(n *simNode, o *task, in Input) {
	o.answered = true
	s.word(n, reply{o, in})
	if s.chance(0.05) {
		s.word(n, reply{o, in})
	}
}

// reply is an answer to an task; it is lost with the stream.
type reply struct {
	o  *task
	in Input
}

func (reply) input() {}

// report tells of what has changed, and every two seconds that all are alive.
func (s *storm) report(n *simNode) {
	if !n.up || !n.attached || n.paused(s.now) {
		return
	}
	for _, p := range s.procs {
		if p.node != n.name || !s.visible(p) {
			continue
		}
		word := said{alive: p.alive, parked: p.parked, announced: true}
		if p.parked {
			word.obeyed, word.joining = p.obeyed, p.joining
		}
		if word != p.said {
			p.said = word
			s.word(n, s.process(p))
		}
	}
	if s.now.Sub(s.start)%(2*time.Second) != 0 {
		return
	}
	s.word(n, Node{Node: n.name, Alive: true})
	for _, p := range s.on(n) {
		b := Beat{
			Rank:      p.rank,
			Pid:       p.pid,
			Iteration: s.begun(p),
			Tag:       p.tag,
			HookAgeMs: 1,
		}
		if p.frozen {
			b.HookAgeMs = 6000
		}
		if b.WaitingKnown = s.weather.measured; b.WaitingKnown && !p.idle.IsZero() {
			b.WaitingMs = float64(s.now.Sub(p.idle).Milliseconds())
		}
		s.word(n, b)
	}
}

// said is what a process's last word was about.
type said struct {
	announced, alive, parked, joining bool
	obeyed                            uint64
}

// begun is the iteration that a process has begun.
func (s *storm) begun(p *proc) int64 {
	return max(p.hold.Steps[0], p.hold.Steps[1])
}

// evolve is what a process does by itself.
func (s *storm) evolve(p *proc) {
	if !p.alive || p.frozen || !s.visible(p) {
		return
	}
	switch {
	case p.parked && p.stop:
		s.kill(p, "stopped")
		p.normal = true
	case p.parked:
		p.obeyed = max(p.obeyed, p.announced)
	case p.announced > max(p.obeyed, p.comm) && (p.training || p.order != nil):
		if p.training && p.tag == -1 && s.now.Before(p.wait) || s.chance(0.2) {
			return
		}
		if p.tag == -1 {
			s.saw["parked in the optimizer"] = true
			p.hold.Sums = [2]uint64{7, 7} // half written
		}
		p.parked = true
		p.training = false
		p.order = nil
		p.obeyed = p.announced
		p.joining = false
	case p.order != nil:
		s.restore(p)
	}
}

// restore builds the groups and gets the shard, once all are there; without
// them it fails.
func (s *storm) restore(p *proc) {
	o := p.order
	p.obeyed = max(p.obeyed, o.Generation)
	p.joining = false
	var from *proc
	for r := range o.Placement {
		q := s.peer(falcon.Rank(r), o.Generation)
		if q == nil || q.frozen {
			if p.broken++; p.broken > 3 {
				s.ends(p, 3)
			}
			return
		}
		for _, v := range o.Moves {
			if v.Rank == p.rank && v.From == falcon.Rank(r) {
				from = q
			}
		}
	}
	if s.chance(0.4) {
		return
	}
	if s.chaos && s.chance(0.03) {
		s.ends(p, 2)
		return
	}
	switch {
	case o.Checkpoint:
		p.hold = falcon.RankHold{
			Steps: [2]int64{o.Resume, -1},
			Sums:  [2]uint64{s.sum(p.rank, o.Resume), 0},
		}
	case from != nil:
		sum, ok := from.hold.At(o.Resume)
		if !ok || s.shard[from.rank] != s.shard[p.rank] {
			s.fail("rank %d is to restore step %d from rank %d, which holds %v of shard %d",
				p.rank, o.Resume, from.rank, from.hold, s.shard[from.rank])
		}
		p.hold = falcon.RankHold{
			Steps: [2]int64{o.Resume, -1},
			Sums:  [2]uint64{sum, 0},
		}
	}
	if sum, ok := p.hold.At(o.Resume); !ok || sum != s.sum(p.rank, o.Resume) {
		s.fail("rank %d goes on at step %d with %v", p.rank, o.Resume, p.hold)
	}
	p.training, p.comm, p.tag = true, o.Generation, o.Resume
	s.ends(p, 0)
}

// peer is the process that takes part for a rank in a generation.
func (s *storm) peer(r falcon.Rank, generation uint64) *proc {
	for _, q := range s.procs {
		if q.alive &&
			q.rank == r &&
			(q.order != nil && q.order.Generation == generation || q.training && q.comm == generation) {
			return q
		}
	}
	return nil
}

func (s *storm) ends(p *proc, status int32) {
	g, at := p.order.Generation, p.order.Resume
	p.ack = &Rejoined{
		Rank:       p.rank,
		Generation: g,
		Status:     status,
		Iteration:  at,
		GroupsMs:   5,
		RestoreMs:  5,
	}
	p.order = nil
	if status != 0 {
		p.parked = true
	}
}

// train lets the job's iterations pass: the optimizer begins for all at once,
// and ends for each by itself.
func (s *storm) train() {
	var all []*proc
	generation := uint64(0)
	for _, p := range s.procs {
		if p.alive && p.training && s.owner(p) {
			generation = max(generation, p.comm)
		}
	}
	together := true
	for r := range s.job.Placement {
		p := s.inGroup(falcon.Rank(r), generation)
		if p == nil {
			together = false
			continue
		}
		all = append(all, p)
		together = together &&
			!p.frozen &&
			p.announced <= p.comm &&
			p.tag == all[0].tag &&
			p.tag >= 0
	}
	if s.now.Before(s.weather.pause) {
		for _, p := range s.procs {
			p.idle = time.Time{}
		}
		return
	}
	s.idle(together)
	for _, p := range all {
		if p.tag != -1 {
			p.updates = 0
		}
		// else who waits for it is right to
		if p.updates++; p.tag == -1 && !p.frozen && !p.stuck && (s.chance(0.6) || p.updates > 3) {
			next := max(p.hold.Steps[0], p.hold.Steps[1]) + 1
			p.hold = s.sums(p.rank, next)
			p.tag = next
			s.best = max(s.best, next)
		}
	}
	if together && s.chance(0.6) {
		s.weather.advanced = s.now
		for _, p := range all {
			p.tag, p.stuck = -1, s.chaos && s.chance(0.01)
		}
	}
}

// inGroup is the process that trains a rank in the generation of the launch or
// rejoin in force.
func (s *storm) inGroup(r falcon.Rank, generation uint64) *proc {
	for _, p := range s.procs {
		if p.alive &&
			p.training &&
			p.rank == r &&
			p.comm == generation &&
			s.owner(p) {
			return p
		}
	}
	return nil
}
