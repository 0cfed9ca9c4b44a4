package hang

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
)

// call is one call of a generated program.
type call struct {
	group int
	what  string // its shape; empty for a send or receive
	peer  falcon.Rank
	send  bool
}

// world simulates a job of random groups. Ranks make calls in order, up to a window
// ahead of the completed ones, until no rank progresses.
type world struct {
	rng    *rand.Rand
	groups []Group
	ranks  []*actor
	full   bool // records include completed calls
	eager  bool // sends complete alone
}

// actor is one rank. Its device runs its calls in order.
type actor struct {
	rank    falcon.Rank
	program []call
	asked   int // calls made
	done    int // calls that its device ended
	window  int
	stopAt  int // makes no call from here on; -1 = never
	gone    bool
	blindAt int // sees no completion from here on; -1 = never
	numbers []int64
}

// mesh creates groups of tensor, data and pipeline neighbours and of all ranks.
func (w *world) mesh(tp, dp, pp int) {
	n := tp * dp * pp
	add := func(kind string, of func(r int) int) {
		parts := map[int][]falcon.Rank{}
		for r := range n {
			parts[of(r)] = append(parts[of(r)], falcon.Rank(r))
		}
		for r := range n {
			if m := parts[of(r)]; int(m[0]) == r && len(m) > 1 {
				w.groups = append(w.groups, Group{
					Name:    fmt.Sprint(kind, r),
					Kind:    kind,
					Members: m,
				})
			}
		}
	}
	add("world", func(int) int { return 0 })
	add("tp", func(r int) int { return r / tp })
	add("dp", func(r int) int { return r/(tp*dp)*tp + r%tp })
	add("pp", func(r int) int { return r % (tp * dp) })
	body := w.randomBody()
	window := 1 + w.rng.IntN(2)*w.rng.IntN(6)
	for r := range n {
		a := &actor{
			rank:    falcon.Rank(r),
			stopAt:  -1,
			blindAt: -1,
			window:  window,
		}
		for range 4 {
			a.program = append(a.program, w.bodyOf(body, a.rank, tp*dp, pp)...)
		}
		w.ranks = append(w.ranks, a)
	}
}

type step struct {
	kind, what string
}

func (w *world) randomBody() []step {
	kinds := []string{"world", "tp", "tp", "dp", "pp", "forward", "backward"}
	body := []step{{"world", "allreduce 1"}}
	for range 3 + w.rng.IntN(8) {
		body = append(body, step{
			kinds[w.rng.IntN(len(kinds))],
			[]string{"allreduce 8", "allreduce 64", "allgather"}[w.rng.IntN(3)],
		})
	}
	return body
}

// bodyOf returns the calls of a rank in an iteration.
func (w *world) bodyOf(body []step, r falcon.Rank, stage, pp int) []call {
	var out []call
	at := int(r) / stage
	for _, s := range body {
		switch s.kind {
		case "forward", "backward":
			next := r + falcon.Rank(stage)
			prev := r - falcon.Rank(stage)
			if s.kind == "backward" {
				next, prev = prev, next
			}
			g := w.groupOf("pp", r)
			first := 0
			last := pp - 1
			if s.kind == "backward" {
				first, last = last, first
			}
			if g >= 0 && at != first {
				out = append(out, call{group: g, peer: prev})
			}
			if g >= 0 && at != last {
				out = append(out, call{group: g, peer: next, send: true})
			}
		default:
			if g := w.groupOf(s.kind, r); g >= 0 {
				out = append(out, call{group: g, what: s.what})
			}
		}
	}
	return out
}

func (w *world) groupOf(kind string, r falcon.Rank) int {
	return slices.IndexFunc(w.groups, func(g Group) bool {
		return g.Kind == kind && slices.Contains(g.Members, r)
	})
}

// number is the position of a call in its group or pair.
func (a *actor) number(at int) int64 {
	if a.numbers == nil {
		count := map[string]int64{}
		for _, c := range a.program {
			key := fmt.Sprint(c.group)
			if c.what == "" {
				key = fmt.Sprint(c.group, c.peer, c.send)
			}
			count[key]++
			a.numbers = append(a.numbers, count[key])
		}
	}
	return a.numbers[at]
}

// play runs all ranks until none progresses.
func (w *world) play() {
	for moved := true; moved; {
		moved = false
		for _, i := range w.rng.Perm(len(w.ranks)) {
			a := w.ranks[i]
			if !a.gone &&
				a.asked < len(a.program) &&
				a.asked < a.seen()+a.window &&
				a.asked != a.stopAt {
				a.asked++
				moved = true
			}
			if a.done < a.asked && w.completes(a) {
				a.done++
				moved = true
			}
		}
	}
}

// seen counts the completed calls that the rank has observed.
func (a *actor) seen() int {
	if a.blindAt >= 0 && a.done > a.blindAt {
		return a.blindAt
	}
	return a.done
}

// completes reports whether the device's next call can complete.
func (w *world) completes(a *actor) bool {
	c, n := a.program[a.done], a.number(a.done)
	if c.what == "" {
		return c.send && w.eager || w.reached(c.peer, n, func(p call) bool {
			return p.group == c.group &&
				p.what == "" &&
				p.peer == a.rank &&
				p.send != c.send
		})
	}
	for _, m := range w.groups[c.group].Members {
		if m != a.rank &&
			!w.reached(m, n, func(p call) bool {
				return p.group == c.group && p.what == c.what
			}) {
			return false
		}
	}
	return true
}

// reached reports whether a rank's device has reached its n-th call of the group, of
// any shape.
func (w *world) reached(r falcon.Rank, n int64, like func(call) bool) bool {
	b := w.ranks[r]
	for at := 0; at <= b.done && at < b.asked; at++ {
		if like(b.program[at]) && b.number(at) == n {
			return true
		}
	}
	return false
}

// job returns the records of all ranks.
func (w *world) job() Job {
	j := Job{Groups: w.groups}
	for _, a := range w.ranks {
		m := Member{Rank: a.rank, Seen: !a.gone}
		if m.Seen {
			w.record(a, &m)
		}
		j.Members = append(j.Members, m)
	}
	return j
}

func (w *world) record(a *actor, m *Member) {
	m.Asked = map[int]int64{}
	m.Done = map[int]int64{}
	m.Calls = map[Key]Record{}
	for g := range w.groups {
		if slices.Contains(w.groups[g].Members, a.rank) {
			m.Asked[g], m.Done[g] = 0, 0
		}
	}
	for at := range a.asked {
		c, n := a.program[at], a.number(at)
		over := at < a.seen()
		if c.what != "" {
			m.Asked[c.group] = n
			if over {
				m.Done[c.group] = n
			}
			if !over || w.full {
				m.Calls[Key{c.group, n}] = Record{c.what, at}
			}
		}
		if !over {
			m.Pending = append(m.Pending, Call{
				Group: c.group,
				Seq:   n,
				Name:  c.what,
				Pair:  c.what == "",
				Send:  c.send,
				Peer:  c.peer,
			})
		}
	}
}
