package hang

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

var (
	firstSeed = flag.Uint64("first", 1, "first seed of the generated hangs")
	seedCount = flag.Int("seeds", 2000, "generated hangs")
)

var kinds = []string{"stopped", "silent", "killed", "missed call", "wrong order", "wrong size", "blind"}

// hurt injects a fault into a rank at a random call; false if it has no such call.
func (w *world) hurt(kind string, a *actor) bool {
	at := 1 + w.rng.IntN(len(a.program)-1)
	c := a.program[at]
	switch kind {
	case "stopped": // the host is blocked and has a record
		a.stopAt = at
	case "silent", "killed":
		a.stopAt = at
	case "missed call":
		if c.what == "" {
			return false
		}
		a.program = slices.Delete(slices.Clone(a.program), at, at+1)
	case "wrong order":
		if at+1 == len(a.program) ||
			c.what == "" ||
			a.program[at+1].what == "" ||
			c == a.program[at+1] {
			return false
		}
		a.program = slices.Clone(a.program)
		a.program[at], a.program[at+1] = a.program[at+1], a.program[at]
	case "wrong size":
		if c.what == "" {
			return false
		}
		a.program = slices.Clone(a.program)
		a.program[at].what = "allreduce 77"
	case "blind":
		a.blindAt = at
	}
	a.numbers = nil
	return true
}

// generated is a random hang: the job, its record, and the ranks whose fault took
// effect. ok is false if the job ended normally.
func generated(seed uint64) (w *world, kind string, truth []falcon.Rank, ok bool) {
	w = &world{rng: rand.New(rand.NewPCG(seed, 7))}
	w.full, w.eager = w.rng.IntN(2) == 0, w.rng.IntN(2) == 0
	shapes := [][3]int{
		{2, 2, 1},
		{2, 2, 2},
		{4, 2, 1},
		{1, 4, 1},
		{2, 4, 2},
		{4, 2, 2},
		{1, 2, 4},
		{2, 1, 4},
		{8, 1, 1},
	}
	s := shapes[w.rng.IntN(len(shapes))]
	w.mesh(s[0], s[1], s[2])
	kind = kinds[w.rng.IntN(len(kinds))]
	count := 1
	if (kind == "stopped" || kind == "killed" || kind == "silent") && len(w.ranks) >= 8 {
		count += w.rng.IntN(2)
	}
	hurt := w.rng.Perm(len(w.ranks))[:count]
	for _, i := range hurt {
		if !w.hurt(kind, w.ranks[i]) {
			return w, kind, nil, false
		}
	}
	w.play()
	for _, i := range hurt {
		a := w.ranks[i]
		if a.stopAt >= 0 &&
			(a.asked < a.stopAt || kind == "stopped" && a.asked >= a.seen()+a.window) {
			continue // blocked by another fault first, or waiting as well
		}
		truth = append(truth, a.rank)
		a.gone = kind == "killed" || kind == "silent"
	}
	slices.Sort(truth)
	moved := true
	for _, a := range w.ranks {
		moved = moved && (a.asked == len(a.program) && a.seen() == a.asked)
	}
	return w, kind, truth, !moved && len(truth) > 0
}

func culprits(a Answer) []falcon.Rank {
	var out []falcon.Rank
	for _, f := range a.Culprits {
		out = append(out, f.Ranks...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// In generated hangs no innocent rank is named, and most culprits are.
func TestGeneratedHangs(t *testing.T) {
	right := map[string]int{}
	all := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+uint64(*seedCount); seed++ { //nolint:gosec // counts are small
		w, kind, truth, ok := generated(seed)
		if !ok {
			continue
		}
		a := Solve(w.job())
		got := culprits(a)
		all[kind]++
		if slices.Equal(got, truth) {
			right[kind]++
		}
		for _, r := range got {
			if !slices.Contains(truth, r) {
				t.Errorf("seed %d, %s of %v: %v is named\n%+v", seed, kind, truth, got, a)
			}
		}
	}
	for _, k := range kinds {
		t.Logf("%-12s %d of %d right", k, right[k], all[k])
		least := map[string]float64{
			"stopped": 0.9, "killed": 0.97, "silent": 0.97, "missed call": 0.7, "wrong size": 0.75,
			"wrong order": 0.6, "blind": 0.6,
		}[k]
		if float64(right[k]) < least*float64(all[k]) {
			t.Errorf("%s: %d of %d right", k, right[k], all[k])
		}
	}
}

// naiveEnds is the definition for ranks that wait in at most one call: the ranks that
// are reached by following "waits for" and don't wait.
func naiveEnds(j Job) []falcon.Rank {
	n := len(j.Members)
	waits := make([][]bool, n)
	for i := range n {
		waits[i] = make([]bool, n)
		m := j.Members[i]
		if !m.Seen || len(m.Pending) == 0 {
			continue
		}
		c := m.Pending[0]
		for k := range n {
			o := j.Members[k]
			if k == i ||
				!slices.Contains(j.Groups[c.Group].Members, o.Rank) ||
				c.Pair && o.Rank != c.Peer {
				continue
			}
			there := false
			for _, oc := range o.Pending {
				there = there ||
					oc.Group == c.Group &&
						(c.Pair && oc.Pair && oc.Peer == m.Rank && oc.Send != c.Send ||
							!c.Pair && !oc.Pair && oc.Seq == c.Seq)
			}
			waits[i][k] = !there
		}
	}
	for range n { // as many steps as a path can have
		for i := range n {
			for k := range n {
				for l := range n {
					waits[i][k] = waits[i][k] || waits[i][l] && waits[l][k]
				}
			}
		}
	}
	var out []falcon.Rank
	for k := range n {
		ends := !slices.Contains(waits[k], true)
		for i := range n {
			if waits[i][k] && ends {
				out = append(out, j.Members[k].Rank)
				break
			}
		}
	}
	return out
}

func TestSolveAgreesWithTheDefinition(t *testing.T) {
	compared := 0
	for seed := uint64(1); seed < 1500; seed++ {
		w := &world{rng: rand.New(rand.NewPCG(seed, 9)), full: true}
		w.mesh(1+w.rng.IntN(3), 1+w.rng.IntN(3), 1+w.rng.IntN(3))
		if len(w.ranks) < 3 {
			continue
		}
		for _, a := range w.ranks {
			a.window = 1
		}
		for _, i := range w.rng.Perm(len(w.ranks))[:1+w.rng.IntN(2)] {
			w.ranks[i].stopAt = w.rng.IntN(len(w.ranks[i].program))
		}
		w.play()
		j := w.job()
		a := Solve(j)
		for _, f := range a.Candidates { // ends without enough evidence
			if f.Kind == Behind {
				a.Culprits = append(a.Culprits, f)
			}
		}
		if got, want := culprits(a), naiveEnds(j); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, by the definition %v", seed, got, want)
		} else if len(want) > 0 {
			compared++
		}
	}
	if compared < 500 {
		t.Errorf("only %d hangs compared", compared)
	}
}

// largeJob has 8,192 ranks in tensor, data and pipeline groups and one of all.
// Each waits in its first calls; edit changes the record of a rank.
func largeJob(edit func(m *Member)) Job {
	const tp, dp, pp = 8, 64, 16
	w := &world{rng: rand.New(rand.NewPCG(1, 1))}
	parts := map[string][]falcon.Rank{}
	for r := range tp * dp * pp {
		for _, name := range []string{
			"world",
			fmt.Sprint("tp", r/tp),
			fmt.Sprint("dp", r/(tp*dp)*tp+r%tp),
			fmt.Sprint("pp", r%(tp*dp)),
		} {
			parts[name] = append(parts[name], falcon.Rank(r))
		}
	}
	of := make([][]int, tp*dp*pp)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		for _, r := range parts[name] {
			of[r] = append(of[r], len(w.groups))
		}
		w.groups = append(w.groups, Group{
			Name:    name,
			Kind:    strings.TrimRight(name, "0123456789"),
			Members: parts[name],
		})
	}
	j := Job{Groups: w.groups}
	for r := range falcon.Rank(tp * dp * pp) {
		m := Member{
			Rank:  r,
			Seen:  true,
			Asked: map[int]int64{},
			Done:  map[int]int64{},
			Calls: map[Key]Record{},
		}
		for at, g := range of[r] {
			m.Asked[g], m.Done[g] = 9, 8
			m.Pending = append(m.Pending, Call{Group: g, Seq: 9, Name: "allreduce"})
			m.Calls[Key{g, 9}] = Record{"allreduce 1", at}
		}
		edit(&m)
		j.Members = append(j.Members, m)
	}
	return j
}

// largeJobs are hangs of 8,192 ranks, and who is to be named; "" = whoever.
var largeJobs = map[string]struct {
	edit func(m *Member)
	want string
}{
	"one stopped": {func(m *Member) {
		if m.Rank == 7 {
			m.Pending = nil
			for g := range m.Asked {
				m.Asked[g] = 8
			}
		}
	}, "[7]"},
	"half without a record": {func(m *Member) {
		if m.Rank%2 == 0 {
			*m = Member{Rank: m.Rank}
		}
	}, "[]"},
	"all together": {func(*Member) {}, "[]"},
	"each in another call": {func(m *Member) {
		for at := range m.Pending {
			m.Pending[at].Seq += int64(m.Rank) % 7
			m.Asked[m.Pending[at].Group] = m.Pending[at].Seq
		}
	}, ""},
	"every shape differs": {func(m *Member) {
		for k := range m.Calls {
			m.Calls[k] = Record{fmt.Sprint("allreduce ", m.Rank), 0}
		}
	}, "[]"},
	"one group each": {func(m *Member) {
		at := int(m.Rank) % len(m.Pending)
		m.Pending = m.Pending[at : at+1]
		for g := range m.Asked {
			if g != m.Pending[0].Group {
				m.Asked[g] = 8
				delete(m.Calls, Key{g, 9})
			}
		}
	}, "[]"},
}

func TestLargeJobs(t *testing.T) {
	for name, c := range largeJobs {
		got := fmt.Sprint(culprits(Solve(largeJob(c.edit))))
		if c.want != "" && got != c.want {
			t.Errorf("%s: %.100s", name, got)
		}
	}
}

// Linear in the ranks of a group; quadratic would be 2 to 4 seconds.
func BenchmarkLargeJobs(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(largeJobs)) {
		b.Run(name, func(b *testing.B) {
			job := largeJob(largeJobs[name].edit)
			for b.Loop() {
				Solve(job)
			}
		})
	}
}

// A rank dies within a collective that some members complete: those that don't
// wait for it, and none of them is idle.
func TestADeathWithinACollective(t *testing.T) {
	j := Job{Groups: []Group{{
		Name:    "world",
		Members: []falcon.Rank{0, 1, 2, 3, 4, 5, 6, 7},
	}}}
	for r := range falcon.Rank(8) {
		m := Member{
			Rank:  r,
			Seen:  r != 5,
			Asked: map[int]int64{0: 9},
			Done:  map[int]int64{0: 9},
		}
		if r%2 == 0 {
			m.Done[0] = 8
			m.Pending = []Call{{Group: 0, Seq: 9, Name: "allreduce"}}
		}
		j.Members = append(j.Members, m)
	}
	if a := Solve(j); fmt.Sprint(culprits(a)) != "[5]" {
		t.Errorf("%+v", a)
	}
}
