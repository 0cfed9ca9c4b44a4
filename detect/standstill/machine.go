package standstill

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/hang"
)

// againMost bounds how seldom a standstill is asked about, in units of Config.Again.
const againMost = 12

// Machine follows one job. Build it with New.
type Machine struct {
	cfg   Config
	signs map[falcon.Rank]Sign
	moved time.Time // newest sign of a call; zero = none so far
	gaps  gaps
	pace  Pace
	job   Job

	ask      uint64    // newest number
	askedAt  time.Time // zero = no answer is awaited
	wanted   bool
	next     time.Time
	wait     time.Duration // until the next ask after this one
	answered map[falcon.Node]bool
	calls    map[falcon.Rank]*Calls

	hang    *falcon.Hang
	changed bool
	lasted  time.Duration
	taken   bool
}

// New makes a machine that knows nothing; first is above all numbers that an earlier
// one asked with.
func New(cfg Config, first uint64) *Machine {
	return &Machine{
		cfg:   cfg.withDefaults(),
		signs: map[falcon.Rank]Sign{},
		ask:   first,
	}
}

// Step takes one input.
func (m *Machine) Step(now time.Time, in Input) {
	switch v := in.(type) {
	case Sign:
		m.takeSign(now, v)
	case Pace:
		m.pace = v
		if v.Held {
			m.move(now)
		}
	case Job:
		m.job = v
	case Answer:
		m.takeAnswer(now, v)
	}
}

// takeSign sees whether the rank has made a call since.
func (m *Machine) takeSign(now time.Time, s Sign) {
	was, known := m.signs[s.Rank]
	m.signs[s.Rank] = s
	if !known ||
		was.Pid != s.Pid ||
		s.Calls > was.Calls ||
		s.Iteration > was.Iteration {
		m.move(now)
	}
}

// move begins a new stretch without a call.
func (m *Machine) move(now time.Time) {
	idle := now.Sub(m.moved)
	if !m.moved.IsZero() && m.hang == nil && m.pace.Known && !m.pace.Held {
		m.gaps.add(now, idle)
	}
	if m.hang != nil {
		m.hang = nil
		m.changed = true
		m.lasted = idle
		m.taken = m.pace.Held
	}
	m.moved = now
	m.askedAt = time.Time{}
	m.wanted = false
	m.next = time.Time{}
	m.wait = 0
}

// limit is the stretch without a call that counts as a standstill.
func (m *Machine) limit() time.Duration {
	if !m.pace.Known {
		return m.cfg.Unknown
	}
	return 2*m.cfg.Beat + max(0, m.gaps.longest()-m.cfg.Beat)
}

// patience is the stretch without a call after which silent agents and hooks are judged:
// by then it shows which are, and a recovery has taken up what is certain.
func (m *Machine) patience() time.Duration {
	return m.limit() + 2*m.cfg.Beat
}

// Tick asks where the job stands still, and judges what was answered.
func (m *Machine) Tick(now time.Time) {
	switch {
	case m.moved.IsZero() || m.pace.Held || m.wanted:
	case !m.askedAt.IsZero():
		if m.allAnswered() ||
			now.Sub(m.askedAt) >= m.cfg.Answer && now.Sub(m.moved) >= m.patience() {
			m.judge(now)
		}
	case now.Sub(m.moved) >= m.limit() && !now.Before(m.next):
		m.ask++
		m.wanted = true
	}
}

// begin awaits the answers to what was asked.
func (m *Machine) begin(now time.Time) {
	m.wanted, m.askedAt = false, now
	m.wait = min(max(2*m.wait, m.cfg.Again), againMost*m.cfg.Again)
	m.next = now.Add(m.wait)
	m.answered = map[falcon.Node]bool{}
	m.calls = map[falcon.Rank]*Calls{}
}

// takeAnswer keeps what a node says of its own ranks.
func (m *Machine) takeAnswer(now time.Time, a Answer) {
	if m.askedAt.IsZero() || a.Ask != m.ask || m.answered[a.Node] {
		return
	}
	m.answered[a.Node] = true
	for i := range a.Ranks {
		c := &a.Ranks[i]
		r := int(c.Rank)
		if r < 0 ||
			r >= len(m.job.Seats) ||
			m.job.Seats[r].Node != a.Node ||
			m.job.Seats[r].Pid != c.Pid {
			continue
		}
		m.calls[c.Rank] = c
		c.Iteration = m.signs[c.Rank].Iteration // an answer does not say it
		if m.takeSign(now, c.Sign); m.askedAt.IsZero() {
			return // it moves
		}
	}
}

func (m *Machine) allAnswered() bool {
	return !slices.ContainsFunc(m.job.Seats, func(s Seat) bool {
		return s.Alive && !m.answered[s.Node]
	})
}

// judge has the graph judged of what was answered.
func (m *Machine) judge(now time.Time) {
	m.askedAt = time.Time{}
	l := layOut(m.job, m.calls)
	v := verdict{layout: l, cfg: m.cfg, answered: m.answered}
	h := v.report(hang.Solve(l.out))
	if h == nil {
		return
	}
	if v.someSilent() && now.Sub(m.moved) < m.patience() {
		m.next = m.moved.Add(m.patience())
		return
	}
	h.SinceNs = m.moved.UnixNano()
	h.JudgedNs = now.UnixNano()
	if m.hang == nil || !sameHang(m.hang, h) {
		m.changed = true
	}
	m.hang = h
}

// sameHang compares what is said, not when.
func sameHang(a, b *falcon.Hang) bool {
	same := func(x, y falcon.HangPart) bool {
		return x.Text == y.Text && x.Advice == y.Advice
	}
	return a.Waiting == b.Waiting &&
		slices.EqualFunc(a.Culprits, b.Culprits, same) &&
		slices.EqualFunc(a.Candidates, b.Candidates, same) &&
		slices.Equal(a.Doubts, b.Doubts)
}

// Ready is what is wanted now.
func (m *Machine) Ready() Ready {
	r := Ready{Changed: m.changed, Hang: m.hang}
	if m.wanted {
		r.Ask = m.ask
	}
	if m.changed && m.hang == nil {
		r.Lasted, r.TakenUp = m.lasted, m.taken
	}
	return r
}

// Advance notes that what Ready wanted has happened.
func (m *Machine) Advance(now time.Time) {
	if m.wanted {
		m.begin(now)
	}
	m.changed = false
}

// Forget drops what is known of ranks that the job does not have any more.
func (m *Machine) Forget(world int) {
	for r := range m.signs {
		if int(r) >= world {
			delete(m.signs, r)
		}
	}
}

// gaps knows the longest stretch between two signs of calls in the last minutes. Longer
// ones than a pause within an iteration do not count: they are what is looked for.
type gaps struct {
	begun     time.Time
	now, past time.Duration
}

const (
	gapSpan = 5 * time.Minute
	gapMost = 20 * time.Second
)

func (g *gaps) add(now time.Time, d time.Duration) {
	if now.Sub(g.begun) >= gapSpan {
		g.begun = now
		g.past = g.now
		g.now = 0
	}
	if d <= gapMost {
		g.now = max(g.now, d)
	}
}

func (g *gaps) longest() time.Duration {
	return max(g.now, g.past)
}
