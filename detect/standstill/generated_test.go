package standstill

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var (
	firstSeed = flag.Uint64("first", 1, "first seed of the generated hangs")
	seedCount = flag.Uint64("seeds", 1000, "generated hangs")
)

// asked is one call of a generated program.
type asked struct {
	group int
	what  falcon.Op
	count uint64
	peer  falcon.Rank // of a send or receive
}

func (c asked) pair() bool { return c.what >= falcon.OpSend }

// actor is one rank: its host asks for calls in order, up to a window ahead of its
// device, which does them in their order.
type actor struct {
	program     []asked
	asked, done int
	window      int
	stopAt      int // its host stays away from here on; -1 = never
	frozen      bool
}

// world plays a job until nothing moves.
type world struct {
	rng    *rand.Rand
	places [][]falcon.Rank
	ranks  []*actor
	eager  bool // sends end alone
	tail   int  // calls recorded
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 3))}
	w.eager, w.tail = w.rng.IntN(2) == 0, []int{6, 20, 256}[w.rng.IntN(3)]
	shape := [][2]int{{2, 2}, {2, 4}, {4, 2}, {1, 4}, {4, 4}, {2, 3}}[w.rng.IntN(6)]
	tp, pp := shape[0], shape[1]
	world := w.group(tp*pp, func(i int) int { return i })
	var rows, columns []int
	for p := range pp {
		rows = append(rows, w.group(tp, func(i int) int { return p*tp + i }))
	}
	for t := range tp {
		columns = append(columns, w.group(pp, func(i int) int { return i*tp + t }))
	}
	var body []int
	for range 3 + w.rng.IntN(6) {
		body = append(body, w.rng.IntN(5))
	}
	window := 1 + w.rng.IntN(8)
	for r := range tp * pp {
		a := &actor{window: window, stopAt: -1}
		for range 5 {
			for _, b := range append(body, 0) {
				a.program = append(a.program, step(b, r, tp, pp, world, rows[r/tp], columns[r%tp])...)
			}
		}
		w.ranks = append(w.ranks, a)
	}
	return w
}

func (w *world) group(size int, of func(int) int) int {
	var places []falcon.Rank
	for i := range size {
		places = append(places, falcon.Rank(of(i)))
	}
	w.places = append(w.places, places)
	return len(w.places) - 1
}

// step is one step of the body on one rank.
func step(kind, r, tp, pp, world, row, column int) []asked {
	at := r / tp
	switch kind {
	case 0:
		return []asked{{group: world, what: falcon.OpAllReduce, count: 1}}
	case 1, 2:
		if tp > 1 {
			return []asked{{group: row, what: falcon.OpAllGather, count: uint64(kind)}}
		}
	case 3:
		var out []asked // forward along the pipeline
		if at > 0 {
			out = append(out, asked{
				group: column,
				what:  falcon.OpRecv,
				count: 9,
				peer:  falcon.Rank(r - tp),
			})
		}
		if at < pp-1 {
			out = append(out, asked{
				group: column,
				what:  falcon.OpSend,
				count: 9,
				peer:  falcon.Rank(r + tp),
			})
		}
		return out
	case 4:
		return []asked{{group: column, what: falcon.OpAllReduce, count: 64}}
	}
	return nil
}

// numbers are the places of a program's calls among those that count together.
func (a *actor) numbers() []uint64 {
	count := map[string]uint64{}
	out := make([]uint64, len(a.program))
	for i, c := range a.program {
		key := fmt.Sprint(c.group)
		if c.pair() {
			key = fmt.Sprint(c.group, c.what, c.peer)
		}
		count[key]++
		out[i] = count[key]
	}
	return out
}

func (w *world) play() {
	numbers := make([][]uint64, len(w.ranks))
	for r, a := range w.ranks {
		numbers[r] = a.numbers()
	}
	for moved := true; moved; {
		moved = false
		for _, r := range w.rng.Perm(len(w.ranks)) {
			a := w.ranks[r]
			if a.asked < len(a.program) &&
				a.asked < a.done+a.window &&
				a.asked != a.stopAt {
				a.asked++
				moved = true
			}
			if a.done < a.asked && w.completes(r, numbers) {
				a.done++
				moved = true
			}
		}
	}
}

// completes reports whether the device's next call has all it needs.
func (w *world) completes(r int, numbers [][]uint64) bool {
	a := w.ranks[r]
	c, n := a.program[a.done], numbers[r][a.done]
	reached := func(peer falcon.Rank, like func(asked) bool) bool {
		b := w.ranks[peer]
		for at := 0; at <= b.done && at < b.asked; at++ {
			if numbers[peer][at] == n && like(b.program[at]) {
				return true
			}
		}
		return false
	}
	if c.pair() {
		return c.what == falcon.OpSend && w.eager || reached(c.peer, func(p asked) bool {
			return p.pair() &&
				p.group == c.group &&
				p.what != c.what &&
				p.peer == falcon.Rank(r)
		})
	}
	for _, m := range w.places[c.group] {
		if int(m) != r && !reached(m, func(p asked) bool {
			return !p.pair() && p == c
		}) {
			return false
		}
	}
	return true
}

// scene is what the agents answer.
func (w *world) scene() *scene {
	s := &scene{nodes: map[falcon.Node]*Answer{}, silent: map[falcon.Node]bool{}}
	for g, places := range w.places {
		s.job.Groups = append(s.job.Groups, Group{
			ID:   uint64(g) + 1,
			Name: fmt.Sprint(len(places), "@", g),
			Kind: fmt.Sprint(
				places[min(1, len(places)-1)]-places[0],
				"/",
				len(places),
			),
			Places: places,
		})
	}
	for r, a := range w.ranks {
		node := falcon.Node(fmt.Sprint("n", r/2))
		s.job.Seats = append(s.job.Seats, Seat{
			Node:   node,
			Device: falcon.NewDevice(node, r%2),
			Pid:    100 + r,
			Alive:  true,
		})
		if s.nodes[node] == nil {
			s.nodes[node] = &Answer{Node: node}
		}
		s.nodes[node].Ranks = append(s.nodes[node].Ranks, w.calls(falcon.Rank(r), a))
	}
	return s
}

func (w *world) calls(r falcon.Rank, a *actor) Calls {
	c := Calls{Sign: Sign{
		Rank:         r,
		Pid:          100 + int(r),
		Calls:        uint64(a.asked),
		WaitingKnown: true,
	}}
	if a.done < a.asked {
		c.WaitingMs = 4000
	}
	if a.frozen {
		c.HookAgeMs = 9000
	}
	at := map[int]int{}
	for g, places := range w.places {
		if slices.Contains(places, r) {
			at[g] = len(c.Comms)
			c.Comms = append(c.Comms, CommCalls{Comm: uint64(g) + 1, Known: true})
		}
	}
	numbers := a.numbers()
	for i, k := range a.program[:a.asked] {
		peer := -1
		if k.pair() {
			c.Comms[at[k.group]].Pairs = true
			peer = slices.Index(w.places[k.group], k.peer)
		} else {
			c.Comms[at[k.group]].Collectives++
		}
		if i >= a.asked-w.tail {
			c.Calls = append(c.Calls, Call{
				Comm:   at[k.group],
				Number: numbers[i],
				Op:     k.what,
				Count:  k.count,
				Dtype:  7,
				Peer:   peer,
				Stream: 1,
			})
		}
	}
	return c
}

var faults = []string{"stays away", "frozen", "missed call", "another size", "wrong order"}

// hurt brings a fault to one rank; false where it can't be.
func (w *world) hurt(kind string, a *actor) bool {
	i := 1 + w.rng.IntN(len(a.program)-2)
	c := a.program[i]
	switch a.program = slices.Clone(a.program); kind {
	case "stays away", "frozen":
		a.stopAt = i
		a.frozen = kind == "frozen"
	case "missed call":
		a.program = slices.Delete(a.program, i, i+1)
		return !c.pair()
	case "another size":
		a.program[i].count = 77
		return !c.pair()
	case "wrong order":
		a.program[i], a.program[i+1] = a.program[i+1], a.program[i]
		return !c.pair() && !a.program[i].pair() && c != a.program[i]
	}
	return true
}

// No generated hang has a bystander named, and most culprits are, from what was asked
// for alone.
func TestGeneratedHangs(t *testing.T) {
	right := map[string]int{}
	all := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+*seedCount; seed++ {
		w := newWorld(seed)
		kind, r := faults[w.rng.IntN(len(faults))], w.rng.IntN(len(w.ranks))
		if !w.hurt(kind, w.ranks[r]) {
			continue
		}
		w.play()
		a := w.ranks[r]
		over := !slices.ContainsFunc(w.ranks, func(a *actor) bool {
			return a.done < len(a.program)
		})
		if over || a.stopAt >= 0 && a.asked < a.stopAt {
			continue
		}
		s := w.scene()
		h, _ := s.judged(standing(s))
		all[kind]++
		got := h.Named()
		if slices.Equal(got, []falcon.Rank{falcon.Rank(r)}) {
			right[kind]++
		} else if len(got) > 0 {
			t.Errorf("seed %d, %s of %d: %v is named\n%+v", seed, kind, r, got, h)
		}
	}
	for _, k := range faults {
		t.Logf("%-12s %d of %d right", k, right[k], all[k])
		least := map[string]float64{
			"stays away": 0.97, "frozen": 0.97, "missed call": 0.4, "another size": 0.85,
			"wrong order": 0.1,
		}[k]
		if float64(right[k]) < least*float64(all[k]) || all[k] == 0 {
			t.Errorf("%s: %d of %d right", k, right[k], all[k])
		}
	}
}

// Ten thousand ranks are judged within a moment.
func TestManyRanks(t *testing.T) {
	w := &world{rng: rand.New(rand.NewPCG(1, 1)), tail: 26}
	const n = 10000
	w.group(n, func(i int) int { return i })
	for r := range n / 2 {
		w.group(2, func(i int) int { return 2*r + i })
	}
	for r := range n {
		a := &actor{
			window: 8,
			stopAt: -1,
			asked:  40,
			done:   30,
		}
		for range 20 {
			a.program = append(a.program,
				asked{group: 1 + r/2, what: falcon.OpAllGather, count: 3},
				asked{what: falcon.OpAllReduce, count: 1},
			)
		}
		if r == 77 {
			a.asked, a.done = 31, 31
		}
		w.ranks = append(w.ranks, a)
	}
	s := w.scene()
	m := standing(s)
	begin := time.Now()
	h, _ := s.judged(m)
	t.Logf("judged in %v", time.Since(begin))
	if got := fmt.Sprint(h.Named()); got != "[77]" {
		t.Errorf("%s is named: %+v", got, h)
	}
}
