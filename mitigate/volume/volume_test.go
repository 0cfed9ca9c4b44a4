package volume

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The paper's closed forms, and a count call by call, give the same.
func TestVolumesAreThePapers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		j := Job{
			TP: n("tp", 8), DP: n("dp", 64), PP: n("pp", 8), Hidden: 128 * n("hidden", 64), Context: n("context", 4096),
			MicroBatch: n("b", 4), MicroBatches: n("m", 32), Vocabulary: n("vocabulary", 100_000), ActivationBytes: 1, GradientBytes: n("k", 8),
		}
		j.Layers = j.PP * n("layers", 16)
		r, err := Volumes(j)
		if err != nil {
			t.Fatal(err)
		}
		b, m, ctx, h, l, tp, pp := float64(j.MicroBatch), float64(j.MicroBatches), float64(j.Context), float64(j.Hidden), float64(j.Layers), float64(j.TP), float64(j.PP)
		want := map[string]float64{
			"tp": 8 * b * m * ctx * h * l * (tp - 1) / (pp * tp),                            // equation 8
			"dp": float64(j.GradientBytes) * r.PerGPU * 2 * float64(j.DP-1) / float64(j.DP), // equation 9, by a ring
			"pp": 2 * m * b * ctx * h,                                                       // equation 10, both ways
		}
		sent := map[string]float64{}
		for _, f := range r.Flows {
			sent[f.Dimension] = f.Sent
		}
		for d, w := range want {
			if size := map[string]int{"tp": j.TP, "dp": j.DP, "pp": j.PP}[d]; size == 1 {
				w = 0
			}
			if math.Abs(sent[d]-w) > 1e-9*w {
				t.Errorf("%s sends %g, want %g", d, sent[d], w)
			}
		}
		total := 0.0 // word and position embeddings, and layer by layer
		for range j.Layers {
			total += 4*h*float64(j.Hidden/128)*128 + 8*h*h + 5*h
		}
		if total += h * (float64(j.Vocabulary) + ctx); math.Abs(r.Parameters-total) > 1e-9*total {
			t.Errorf("%g parameters, want %g", r.Parameters, total)
		}
	})
}

// GPT-3 has 175 billion parameters.
func TestAKnownModel(t *testing.T) {
	r, err := Volumes(Job{TP: 8, DP: 16, PP: 8, Layers: 96, Hidden: 12288, Heads: 96, HeadSize: 128, Vocabulary: 50257, Context: 2048, MicroBatch: 1, MicroBatches: 96})
	if err != nil || math.Abs(r.Parameters/175e9-1) > 0.01 {
		t.Errorf("%g parameters, %v", r.Parameters, err)
	}
}

func TestBadShapes(t *testing.T) {
	good := Job{Layers: 4, Hidden: 256, Context: 128, MicroBatch: 1, MicroBatches: 8}
	if _, err := Volumes(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Job){
		"no layers": func(j *Job) { j.Layers = 0 }, "negative": func(j *Job) { j.DP = -1 }, "uneven stages": func(j *Job) { j.PP = 3 },
		"too many experts": func(j *Job) { j.MoELayers = 5 }, "huge": func(j *Job) { j.Hidden = 1 << 40 },
	} {
		j := good
		spoil(&j)
		if _, err := Volumes(j); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
