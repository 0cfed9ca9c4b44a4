package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
)

// moveModel is what the ranks of one node do, written down plainly: who holds
// which rank in which iteration.
type moveModel struct {
	rng   *rand.Rand
	segs  []*fakeSegment
	rank  []int            // by process
	want  map[[2]int64]int // process by rank and iteration
	at    float64          // ms
	order uint64
}

// iterate runs one iteration of 100 ms on every process; process p marks it p µs
// late, which tells the samples apart.
func (m *moveModel) iterate(i int64) {
	for p, s := range m.segs {
		s.mark(i, m.at+float64(p)/1000)
		m.want[[2]int64{int64(m.rank[p]), i}] = p
	}
	m.at += 100
}

// shuffle gives the processes other ranks from iteration i on, one after the
// other, with looks of the agent in between.
func (m *moveModel) shuffle(i int64) {
	m.order++
	to := m.rng.Perm(len(m.segs))
	now := make([]int, len(m.segs))
	for p, s := range m.segs {
		now[p] = to[m.rank[p]]
		s.set(func() {
			s.place = ring.Place{
				Order:     m.order,
				Iteration: i,
				Rank:      now[p],
				StepNs:    [4]int64{1e6, 1e6, 1e6, 1e6},
			}
		})
		commit(s, m.order, i, 0)
		if m.rng.IntN(2) == 0 {
			wait(time.Duration(m.rng.IntN(80)) * time.Millisecond)
		}
	}
	m.rank = now
}

// Random placements, looked at at random moments: every sample belongs to the
// process that held its rank in its iteration, and none comes twice.
func TestSamplesFollowRandomMoves(t *testing.T) {
	for seed := range uint64(30) {
		onNode(t, func(t *testing.T, n *node) {
			m := &moveModel{
				rng:  rand.New(rand.NewPCG(seed, 4)),
				rank: []int{0, 1, 2, 3},
				want: map[[2]int64]int{},
			}
			for p := range m.rank {
				m.segs = append(m.segs, n.dir.add(100+p, p, ""))
			}
			wait(time.Second)
			const iterations = 24
			for i := range int64(iterations) {
				if i > 0 && m.rng.IntN(4) == 0 {
					m.shuffle(i)
					m.iterate(i)
					wait(100 * time.Millisecond) // one order at a time: the engine waits for its outcome
					continue
				}
				m.iterate(i)
				if m.rng.IntN(3) == 0 {
					wait(time.Duration(m.rng.IntN(150)) * time.Millisecond)
				}
			}
			m.iterate(iterations)
			wait(time.Second)
			m.check(t, n, iterations)
		})
	}
}

func (m *moveModel) check(t *testing.T, n *node, iterations int) {
	t.Helper()
	seen := map[[2]int64]bool{}
	for _, s := range n.ship.samples() {
		key := [2]int64{int64(s.Rank), s.Iteration}
		process := int(s.EndUnixNs/1000) % 100 // µs behind the iteration's 100 ms
		if p, known := m.want[key]; !known || p != process || seen[key] {
			t.Fatalf("rank %d, iteration %d is process %d's, instead of %d's (known %v, seen %v)",
				s.Rank, s.Iteration, process, p, known, seen[key])
		}
		seen[key] = true
	}
	if want := iterations * len(m.segs); len(seen) != want {
		t.Fatalf("%d samples instead of %d", len(seen), want)
	}
}
