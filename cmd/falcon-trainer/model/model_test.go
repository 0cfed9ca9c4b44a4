package model

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// whole is the full model's weights as one unsplit shard, indexed by
// [layer][unit][hidden] for W1 and W2 alike.
func whole(s Shape, seed uint64) (Shard, []float32) {
	sh := NewShard(s, falcon.Layout{TP: 1, DP: 1, PP: 1}, 0)
	w := make([]float32, sh.Params())
	sh.Fill(w, seed)
	return sh, w
}

func TestShardsAreSlicesOfTheSameModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := falcon.Layout{
			TP: rapid.IntRange(1, 3).Draw(t, "tp"),
			DP: rapid.IntRange(1, 3).Draw(t, "dp"),
			PP: rapid.IntRange(1, 3).Draw(t, "pp"),
		}
		s := Shape{Hidden: 5, FFN: 4 * l.TP, Batch: 1}
		if l.PP > 1 {
			s.Chunks = rapid.IntRange(1, 3).Draw(t, "chunks")
		}
		s.Layers = 2 * l.PP * s.VirtualStages()
		seed := rapid.Uint64().Draw(t, "seed")
		full, want := whole(s, seed)
		for r := range l.World() {
			sh := NewShard(s, l, falcon.Rank(r))
			got := make([]float32, sh.Params())
			sh.Fill(got, seed)
			for i := range sh.Count {
				a := sh.Layer(i)
				b := full.Layer(sh.Global(i))
				for w := range sh.Width {
					for h := range s.Hidden {
						unit := sh.Slice*sh.Width + w
						if got[a.W1+h*sh.Width+w] != want[b.W1+h*s.FFN+unit] ||
							got[a.W2+w*s.Hidden+h] != want[b.W2+unit*s.Hidden+h] {
							t.Fatalf("rank %d layer %d unit %d differs", r, i, unit)
						}
					}
				}
			}
		}
	})
}

// Each layer of the model is on exactly one stage, and in the order in which
// a micro-batch passes the virtual stages.
func TestVirtualStagesCoverTheModelOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := falcon.Layout{
			TP: 1,
			DP: 1,
			PP: rapid.IntRange(2, 4).Draw(t, "pp"),
		}
		s := Shape{
			Hidden: 4,
			FFN:    4,
			Batch:  1,
			Chunks: rapid.IntRange(1, 4).Draw(t, "chunks"),
		}
		s.Layers = l.PP * s.Chunks * rapid.IntRange(1, 3).Draw(t, "run")
		next := 0
		for c := range s.Chunks {
			for r := range l.PP {
				sh := NewShard(s, l, falcon.Rank(r))
				for i := range sh.PerChunk() {
					if got := sh.Global(c*sh.PerChunk() + i); got != next {
						t.Fatalf("stage %d, run %d, layer %d is %d of the model, want %d", r, c, i, got, next)
					}
					next++
				}
			}
		}
		if next != s.Layers {
			t.Fatalf("%d of %d layers", next, s.Layers)
		}
	})
}

func TestSeedsDiffer(t *testing.T) {
	s := Shape{Hidden: 8, FFN: 8, Layers: 1, Batch: 1}
	_, a := whole(s, 1)
	_, b := whole(s, 2)
	if slices.Equal(a, b) {
		t.Error("two seeds gave the same weights")
	}
}

func TestInputsAreStandardNormal(t *testing.T) {
	const n = 200
	var sum, squares float64
	x := make([]float32, 50)
	for i := range uint64(n) {
		Input(7, i, x)
		for _, v := range x {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
	}
	mean := sum / (n * 50)
	variance := squares / (n * 50)
	if math.Abs(mean) > 0.05 || math.Abs(variance-1) > 0.05 {
		t.Errorf("mean %v, variance %v", mean, variance)
	}
}

func TestTargetFollowsInput(t *testing.T) {
	x := make([]float32, 6)
	y := make([]float32, 6)
	Input(3, 11, x)
	Target(3, 11, y)
	for j := range y {
		want := x[j] + 0.75*max(x[(j+1)%6], 0) - 0.5*x[(j+3)%6]
		if y[j] != want {
			t.Errorf("y[%d] = %v, want %v", j, y[j], want)
		}
	}
}

func TestSplitsCoverTheGlobalBatchOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Split(rapid.SliceOfN(rapid.Int32Range(1, 9), 1, 6).Draw(t, "split"))
		next := 0
		for i, m := range s {
			if s.First(i) != next {
				t.Fatalf("replica %d starts at %d, want %d", i, s.First(i), next)
			}
			next += int(m)
		}
		if next != s.Total() {
			t.Fatalf("covered %d of %d", next, s.Total())
		}
	})
}

func TestSplitCheck(t *testing.T) {
	base := Even(3, 4)
	if err := base.Check(Split{6, 5, 1}, 1); err != nil {
		t.Errorf("a good split was refused: %v", err)
	}
	for _, bad := range []Split{{6, 6}, {12, 0, 0}, {5, 5, 3}, {-1, 12, 1}, nil} {
		if err := base.Check(bad, 1); !errors.Is(err, ErrSplit) {
			t.Errorf("%v was not refused: %v", bad, err)
		}
	}
}

func TestSplitCheckInterleaved(t *testing.T) {
	base := Even(3, 4)
	if err := base.Check(Split{6, 4, 2}, 2); err != nil {
		t.Errorf("a good split was refused: %v", err)
	}
	if err := base.Check(Split{5, 5, 2}, 2); !errors.Is(err, ErrSplit) {
		t.Errorf("an odd count was not refused: %v", err)
	}
}

func TestShapeValidate(t *testing.T) {
	l := falcon.Layout{TP: 2, DP: 1, PP: 3}
	good := Shape{Hidden: 8, FFN: 16, Layers: 6, Batch: 2}
	if err := good.Validate(l); err != nil {
		t.Fatalf("a good shape was refused: %v", err)
	}
	for _, bad := range []Shape{
		{Hidden: 2, FFN: 16, Layers: 6, Batch: 2},
		{Hidden: 8, FFN: 15, Layers: 6, Batch: 2},
		{Hidden: 8, FFN: 16, Layers: 5, Batch: 2},
		{Hidden: 8, FFN: 16, Layers: 6},
		{Hidden: 8, FFN: 16, Layers: 9, Batch: 2, Chunks: 2},
		{Hidden: 8, FFN: 16, Layers: 6, Batch: 2, Chunks: -1},
	} {
		if err := bad.Validate(l); !errors.Is(err, ErrShape) {
			t.Errorf("%+v was not refused: %v", bad, err)
		}
	}
}
