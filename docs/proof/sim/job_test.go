package sim

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/failslow/falcon"
)

// slowly is the deliberately simple second implementation of one healthy or
// disturbed iteration without noise: the end of every op follows from those of
// the ops that it needs, asked for one by one, however often.
type slowly struct {
	j    *Job
	d    int
	ends map[[3]int]float64 // stage, micro-batch, direction
}

// order lists a stage's ops: micro-batch, and 1 for backward.
func (q *slowly) order(s int) [][2]int {
	n, m := q.j.Layout.PP, int(q.j.Split[q.d])
	var out [][2]int
	f := min(n-1-s, m)
	for k := range f {
		out = append(out, [2]int{k, 0})
	}
	for b := range m {
		if f < m {
			out = append(out, [2]int{f, 0})
			f++
		}
		out = append(out, [2]int{b, 1})
	}
	return out
}

func (q *slowly) end(s, k, backward int) float64 {
	key := [3]int{s, k, backward}
	if v, ok := q.ends[key]; ok {
		return v
	}
	at, l := 0.0, q.j.Layout
	for i, o := range q.order(s) {
		if o == [2]int{k, backward} && i > 0 {
			before := q.order(s)[i-1]
			at = q.end(s, before[0], before[1])
		}
	}
	from := s - 1 + 2*backward
	if from >= 0 && from < l.PP {
		a := l.RankOf(falcon.Coord{DP: q.d, PP: from})
		b := l.RankOf(falcon.Coord{
			DP: q.d,
			PP: s,
		})
		at = max(at, q.end(from, k, backward)) + q.j.edgeMs(a, b, q.j.ActivationMB)
	}
	worst := 0.0
	for t := range l.TP {
		worst = max(worst, q.j.slow[l.RankOf(falcon.Coord{TP: t, DP: q.d, PP: s})])
	}
	ms := q.j.StageMs * worst * float64(1+backward) / 3
	if s == 0 || s == l.PP-1 {
		ms *= 1 + q.j.EndsExtra
	}
	q.ends[key] = at + ms
	return at + ms
}

// reduced is a ring all-reduce told chunk by chunk: chunk c starts at member c
// and goes round twice but for two steps; a member sends one chunk at a time.
func (q *slowly) reduced(stage int, ready []float64) float64 {
	l, k := q.j.Layout, len(ready)
	if k == 1 {
		return ready[0]
	}
	var got func(member, step int) float64
	memo := map[[2]int]float64{}
	got = func(member, step int) float64 {
		if step == 0 {
			return ready[member]
		}
		if v, ok := memo[[2]int{member, step}]; ok {
			return v
		}
		from := (member - 1 + k) % k
		a := l.RankOf(falcon.Coord{DP: from, PP: stage})
		b := l.RankOf(falcon.Coord{
			DP: member,
			PP: stage,
		})
		v := max(got(member, step-1), got(from, step-1)) + q.j.edgeMs(a, b, q.j.GradientMB/float64(k))
		memo[[2]int{member, step}] = v
		return v
	}
	last := 0.0
	for i := range k {
		last = max(last, got(i, 2*(k-1)))
	}
	return last
}

func slowIteration(j *Job) float64 {
	worst := 0.0
	for s := range j.Layout.PP {
		ready := make([]float64, j.Layout.DP)
		for d := range ready {
			q := &slowly{j, d, map[[3]int]float64{}}
			ready[d] = q.end(s, int(j.Split[d])-1, 1)
		}
		worst = max(worst, (&slowly{j: j}).reduced(s, ready)+j.StepMs)
	}
	return worst
}

func TestIterationAgainstSlow(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		s := Shape{
			Layout: falcon.Layout{
				TP: 1 + rng.IntN(2),
				DP: 1 + rng.IntN(4),
				PP: 1 + rng.IntN(4),
			},
			GPUsPerNode:  1,
			Micro:        1 + rng.IntN(6),
			StageMs:      3 + rng.Float64(),
			EndsExtra:    rng.Float64(),
			GradientMB:   10 * rng.Float64(),
			ActivationMB: rng.Float64(),
			NICMBs:       1000,
			NVLinkMBs:    4000,
			LatencyMs:    0.1,
			StepMs:       2,
		}
		s.GPUsPerNode = s.Layout.TP
		j := NewJob(s, nil)
		for d := range j.Split {
			j.Split[d] = int32(1 + rng.IntN(7))
		}
		var faults []Fault
		for range rng.IntN(3) {
			faults = append(faults, Fault{
				Device: j.Placement[rng.IntN(len(j.Placement))],
				Times:  1 + rng.Float64(),
			})
		}
		if n := s.Nodes(); n > 1 {
			a := rng.IntN(n)
			faults = append(faults, Fault{
				Link:  falcon.NewLink(nodeName(a), nodeName((a+1+rng.IntN(n-1))%n)),
				Times: 1 + 9*rng.Float64(),
			})
		}
		j.Disturb(faults)
		if got, want := j.Play(false).ms, slowIteration(j); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("%v, split %v, %v: %v ms, slow %v ms", s.Layout, j.Split, faults, got, want)
		}
	}
}

// One slow edge sets the pace of all steps of a ring.
func TestSlowEdgeInRing(t *testing.T) {
	s := Shape{
		Layout:      falcon.Layout{TP: 1, DP: 4, PP: 1},
		GPUsPerNode: 1,
		Micro:       1,
		StageMs:     10,
		GradientMB:  40,
		NICMBs:      1000,
	}
	j := NewJob(s, nil)
	healthy := 10 + 2*3*10.0 // six steps of 10 MB at 1 MB/ms
	if got := j.Play(false).ms; math.Abs(got-healthy) > 1e-9 {
		t.Errorf("healthy %v ms, want %v", got, healthy)
	}
	j.Disturb([]Fault{{Link: falcon.NewLink("n1", "n2"), Times: 5}})
	if got, want := j.Play(false).ms, 10+2*3*50.0; math.Abs(got-want) > 1e-9 {
		t.Errorf("one edge 5 times as slow: %v ms, want %v", got, want)
	}
	j.Disturb([]Fault{{Link: falcon.NewLink("n0", "n2"), Times: 5}})
	if got := j.Play(false).ms; math.Abs(got-healthy) > 1e-9 {
		t.Errorf("a pair that is no edge: %v ms, want %v", got, healthy)
	}
}

func TestScaledToPace(t *testing.T) {
	s := Figure20(Brief()).Shape
	if got := s.MeanMs(nil, calibrationPlays); math.Abs(got-60_000/paperHealthy) > 1 {
		t.Errorf("a healthy iteration takes %v ms, the paper's %v ms", got, 60_000/paperHealthy)
	}
}

func TestTraceMeetsThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("an hour of a job, twice")
	}
	sc := Figure20(Brief())
	for seed := range uint64(2) {
		tr := sc.Mix.Draw(sc.Shape, seed)
		if !reflect.DeepEqual(tr, sc.Mix.Draw(sc.Shape, seed)) {
			t.Fatal("a seed draws two traces")
		}
		slow := Run(sc.Shape, tr, sc.Costs, seed, sc.Mix.RunS, false).PerMinute()
		if math.Abs(slow-paperSlow) > 0.15 {
			t.Errorf("seed %d: unmitigated %.2f iterations a minute, the paper's %.1f", seed, slow, paperSlow)
		}
		if len(tr) != 10 {
			t.Errorf("%d faults", len(tr))
		}
	}
}
