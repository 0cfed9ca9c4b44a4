package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// Interleaved stages train the same model, and give the same weights twice.
func TestInterleavedStagesAgree(t *testing.T) {
	const iterations, total = 12, 8
	want := local(t, nil, job(1, 1, 1, total, iterations)...)
	for _, l := range []struct{ tp, dp, pp, chunks, layers int }{
		{1, 1, 2, 2, 4}, {1, 1, 4, 2, 8}, {2, 2, 2, 2, 4}, {1, 2, 2, 4, 8},
	} {
		name := fmt.Sprintf("tp%d dp%d pp%d virtual %d", l.tp, l.dp, l.pp, l.chunks)
		more := []string{fmt.Sprintf("--virtual-stages=%d", l.chunks), fmt.Sprintf("--layers=%d",
			l.layers)}
		same := want
		if l.layers != 4 {
			same = local(t, nil, job(1, 1, 1, total, iterations, more[1])...)
		}
		args := job(l.tp, l.dp, l.pp, total/l.dp, iterations, more...)
		got := local(t, nil, args...)
		again := local(t, nil, args...)
		agree(t, name, got.losses, same.losses, 1e-4)
		if got.weights == "" || got.weights != again.weights {
			t.Errorf("%s: two runs gave the weights %q and %q", name, got.weights, again.weights)
		}
	}
}

// The split of the global batch also varies over interleaved stages, in groups
// of one micro-batch per stage; what does not fit is refused.
func TestUnevenSplitOfInterleavedStages(t *testing.T) {
	args := job(1, 2, 2, 4, 16, "--virtual-stages=2", "--zero=1")
	even := local(t, nil, args...)
	byRank, _ := ordered(t, "1 1 0 3 2 6 2 ; 2 1 0 9 2 5 3", 4, nil, args...)
	for r, h := range byRank {
		agree(t, fmt.Sprintf("rank %d", r), h.losses, even.losses, 1e-4)
		if want := []int32{6, 2}[r%2]; h.micro[len(h.micro)-1] != want {
			t.Errorf("rank %d ended with %d micro-batches, want %d", r, h.micro[len(h.micro)-1], want)
		}
		if len(h.orders) != 2 ||
			h.orders[0].Status != 0 ||
			h.orders[1].Status != 2 {
			t.Errorf("rank %d: orders %+v", r, h.orders)
		}
	}
}

// Evaluations are those of the plain reference, on samples that training never
// sees, and change nothing in the training.
func TestEvaluationsMatchTheReference(t *testing.T) {
	const iterations, total, every, heldOut = 12, 4, 5, 8
	plain := local(t, nil, job(1, 1, 1, total, iterations)...)
	ref := newReference(
		model.Shape{
			Hidden: 32,
			FFN:    48,
			Layers: 4,
			Batch:  4,
		},
		7,
		0.002,
		4*total,
	)
	var want []float64
	for i := range iterations {
		ref.iterate()
		if (i+1)%every == 0 {
			want = append(want, ref.judge(1<<48, 4*heldOut))
		}
	}
	for _, l := range [][4]int{{1, 1, 1, 1}, {2, 1, 2, 1}, {1, 2, 2, 2}} {
		got := local(
			t,
			nil,
			job(
				l[0],
				l[1],
				l[2],
				total/l[1],
				iterations,
				fmt.Sprintf("--virtual-stages=%d",
					l[3]),
				fmt.Sprintf("--eval-every=%d", every),
				fmt.Sprintf("--eval-micro-batches=%d", heldOut/l[1]),
			)...,
		)
		var losses []float64
		for k, e := range got.judged {
			if *e.Evaluation != int64((k+1)*every-1) {
				t.Errorf("%v: evaluation %d is of iteration %d", l, k, *e.Evaluation)
			}
			losses = append(losses, e.HeldOut)
		}
		agree(t, fmt.Sprintf("%v held out", l), losses, want, 1e-4)
		agree(t, fmt.Sprintf("%v", l), got.losses, plain.losses, 1e-4)
		if l == [4]int{1, 1, 1, 1} && got.weights != plain.weights {
			t.Error("evaluations changed the weights")
		}
	}
}

// judge is the mean loss of samples from first micro-batch first on.
func (r *reference) judge(first uint64, samples int) float64 {
	total := 0.0
	for k := range samples {
		x, y := r.sample(first*4 + uint64(k)) // 4 samples a micro-batch
		xs, units := r.forward(x)
		total += r.loss(xs[len(units)], y)
	}
	return total / float64(samples)
}

// A checkpoint holds the weights and moments at its iteration: a run that ends
// there has written the same.
func TestCheckpoints(t *testing.T) {
	dir := t.TempDir()
	args := func(iterations int, folder string) []string {
		return job(
			1,
			2,
			2,
			2,
			iterations,
			"--zero=1",
			"--checkpoint-every=4",
			"--checkpoint-dir="+filepath.Join(dir, folder),
		)
	}
	long := local(t, nil, args(11, "long")...)
	short := local(t, nil, args(8, "short")...)
	if len(long.saved) != 2 ||
		*long.saved[0].Checkpoint != 3 ||
		*long.saved[1].Checkpoint != 7 {
		t.Fatalf("checkpoints %+v", long.saved)
	}
	if !slices.Equal(long.losses[:8], short.losses) {
		t.Error("checkpoints changed the training")
	}
	for r := range 4 {
		a := readCheckpoint(t, dir, "long", r)
		b := readCheckpoint(t, dir, "short", r)
		if !bytes.Equal(a, b) {
			t.Errorf("rank %d: two runs left different checkpoints", r)
		}
	}
}

func readCheckpoint(t *testing.T, dir, folder string, rank int) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(
		dir,
		folder,
		"step-000000000008-g000000",
		fmt.Sprintf("rank-%05d.ckpt", rank),
	))
	if err != nil {
		t.Fatal(err)
	}
	var head struct{ Iteration, Rank, Weights, Moments int }
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	if err := json.Unmarshal(line, &head); err != nil {
		t.Fatal(err)
	}
	if head.Iteration != 8 ||
		head.Rank != rank ||
		len(rest) != 4*(head.Weights+2*head.Moments) {
		t.Errorf("rank %d: %+v and %d bytes", rank, head, len(rest))
	}
	moved := 0.0
	for _, c := range rest {
		moved = math.Max(moved, float64(c))
	}
	if moved == 0 {
		t.Errorf("rank %d: an empty checkpoint", rank)
	}
	return b
}
