package mitigate

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// stepwise is the deliberately simple second implementation: it plays the run
// step by step, standing still where the job does, and counts samples. A phase
// ends at a time; a step that it cuts counts by the share that was done.
type phase struct {
	untilS float64 // by the clock; +Inf = to the end
	stepMs float64 // 0 = the job stands still
	share  float64 // of the healthy batch in one step
}

// lost is the healthy training lost in runS, counted in steps.
func stepwise(phases []phase, stepMs, runS float64) float64 {
	now, batches := 0.0, 0.0
	for _, p := range phases {
		end := min(p.untilS, runS)
		if p.stepMs == 0 {
			now = max(now, end)
			continue
		}
		for now < end {
			step := min(p.stepMs/1000, end-now)
			batches += p.share * step / (p.stepMs / 1000)
			now += step
			if step < 1e-9 {
				break
			}
		}
	}
	return runS - batches*stepMs/1000
}

// slowestMs is one rebalanced step by brute force over what the slow rank
// keeps: pieces are dealt one at a time to whoever has the fewest.
func slowestMs(ranks, pieces int, stepMs, ratio float64) float64 {
	best := math.Inf(1)
	for keep := 1; keep <= pieces; keep++ {
		others := make([]int, ranks-1)
		for i := range ranks*pieces - keep {
			others[i%len(others)]++
		}
		worst := float64(keep) * ratio
		for _, o := range others {
			worst = max(worst, float64(o))
		}
		best = min(best, worst*stepMs/float64(pieces))
	}
	return best
}

func remedy(t *rapid.T, p ReplacementPrice, n RemedyName) Remedy {
	for _, r := range p.Remedies {
		if r.Name == n {
			return r
		}
	}
	t.Fatalf("no %s", n)
	return Remedy{}
}

func TestReplacementAgainstStepwise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Replacement{
			Ranks:        rapid.IntRange(2, 40).Draw(t, "ranks"),
			StepMs:       rapid.Float64Range(50, 1000).Draw(t, "step"),
			SlowRatio:    rapid.Float64Range(1, 4).Draw(t, "ratio"),
			RemainingS:   rapid.Float64Range(0, 300).Draw(t, "remaining"),
			ReplaceS:     rapid.Float64Range(0, 90).Draw(t, "replace"),
			DropS:        rapid.SampledFrom([]float64{0, 0, 5, 120}).Draw(t, "drop"),
			Spares:       rapid.IntRange(0, 1).Draw(t, "spares"),
			SpareWaitS:   rapid.SampledFrom([]float64{0, 40, 200}).Draw(t, "wait"),
			MicroBatches: rapid.IntRange(0, 12).Draw(t, "micro"),
		}
		p.ReplicaRanks = rapid.IntRange(1, p.Ranks-1).Draw(t, "replica")
		got, err := p.Price()
		if err != nil {
			t.Fatal(err)
		}
		inf, drop := math.Inf(1), float64(p.Ranks-p.ReplicaRanks)/float64(p.Ranks)
		balanced := remedy(t, got, RemedyRebalance).StepMs
		if p.MicroBatches > 0 {
			if want := slowestMs(p.Ranks, p.MicroBatches, p.StepMs, p.SlowRatio); math.Abs(balanced-want) > 1e-9*want {
				t.Fatalf("rebalanced step %v, brute force %v", balanced, want)
			}
		}
		for name, phases := range map[RemedyName][]phase{
			RemedyIgnore:    {{inf, p.StepMs * p.SlowRatio, 1}},
			RemedyRebalance: {{inf, balanced, 1}},
			RemedyDrop:      {{p.DropS, 0, 0}, {inf, p.StepMs, drop}},
		} {
			near(t, string(name), remedy(t, got, name).LostS, stepwise(phases, p.StepMs, p.RemainingS))
		}
		if r := remedy(t, got, RemedyReplace); r.Available {
			near(t, "replace", r.LostS, p.bestWaiting(balanced, drop, p.RemainingS))
		}
		p.checkBreakEven(t, got, balanced, drop)
	})
}

// bestWaiting plays the replacement behind each remedy that can hold meanwhile,
// and takes the one that has lost least when the node comes.
func (p Replacement) bestWaiting(balanced, drop, runS float64) float64 {
	inf := math.Inf(1)
	if p.Spares > 0 {
		return stepwise([]phase{{p.ReplaceS, 0, 0}, {inf, p.StepMs, 1}}, p.StepMs, runS)
	}
	at, best, out := p.SpareWaitS, inf, 0.0
	for _, m := range [][]phase{{{at, p.StepMs * p.SlowRatio, 1}}, {{at, balanced, 1}}, {{min(at, p.DropS), 0, 0}, {at, p.StepMs, drop}}} {
		if lost := stepwise(m, p.StepMs, at); lost < best-1e-9 {
			best = lost
			out = stepwise(append(m, phase{at + p.ReplaceS, 0, 0}, phase{inf, p.StepMs, 1}), p.StepMs, runS)
		}
	}
	return out
}

// A run a little longer than the break-even loses less by replacing, one a
// little shorter does not, unless both stand still or no node is there yet.
func (p Replacement) checkBreakEven(t *rapid.T, got ReplacementPrice, balanced, drop float64) {
	at := got.OverDropS
	if math.IsInf(at, 1) || at > 5000 {
		return
	}
	replaced := func(runS float64) float64 { return p.bestWaiting(balanced, drop, runS) }
	dropped := func(runS float64) float64 {
		return stepwise([]phase{{p.DropS, 0, 0}, {math.Inf(1), p.StepMs, drop}}, p.StepMs, runS)
	}
	if long := at*1.02 + 1; replaced(long) > dropped(long)+1e-6*long+1e-6 {
		t.Fatalf("a run of %v s, beyond the break-even %v: replacing loses %v, dropping %v", long, at, replaced(long), dropped(long))
	}
	if short := at*0.98 - 1; short > p.SpareWaitS+p.ReplaceS && replaced(short) < dropped(short)-1e-6*short {
		t.Fatalf("a run of %v s, short of the break-even %v: replacing loses %v, dropping %v", short, at, replaced(short), dropped(short))
	}
}

func near(t *rapid.T, what string, got, want float64) {
	if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
		t.Fatalf("%s: %v s lost, stepwise %v s", what, got, want)
	}
}

// The exercise of straggler-chapter §3: 1,000 GPUs, one at 1.4 times the step,
// ten days; 90 s of downtime against 999 ranks.
func TestReplacementExercise(t *testing.T) {
	const days = 10 * 86400.0
	p := Replacement{Ranks: 1000, StepMs: 200, SlowRatio: 1.4, RemainingS: days, ReplaceS: 90, Spares: 1}
	got, err := p.Price()
	if err != nil {
		t.Fatal(err)
	}
	ignore, replace := got.Remedies[0], got.Remedies[3]
	if math.Abs(ignore.LostGPUHours-240_000*(1-1/1.4)) > 1e-6 || math.Abs(1-ignore.Throughput-0.285714) > 1e-6 || ignore.StepMs != 280 {
		t.Errorf("ignore: %+v", ignore)
	}
	if math.Abs(got.OverDropS-90_000) > 1e-6 || got.Best != RemedyReplace || replace.LostS != 90 || replace.LostGPUHours != 25 {
		t.Errorf("replace: %+v, break-even %v s, best %s", replace, got.OverDropS, got.Best)
	}
	p.Spares = 0
	if got, err = p.Price(); err != nil || got.Best != RemedyRebalance && got.Best != RemedyDrop || !math.IsInf(got.OverDropS, 1) {
		t.Errorf("without a spare: %+v, %v", got, err)
	}
	p.SpareWaitS = 3600
	if got, err = p.Price(); err != nil || got.OverDropS <= 90_000 || got.Best != RemedyReplace {
		t.Errorf("a spare in an hour: %+v, %v", got, err)
	}
	p.SlowRatio = 0.9
	if _, err = p.Price(); !errors.Is(err, ErrReplacement) {
		t.Errorf("a ratio below 1: %v", err)
	}
}
