package read_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/autopsy/read"
)

func judged(b *testing.B, name, text string) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var set read.Set
		set.Add(name, func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		})
		if a := autopsy.Judge(set.Facts()); a.Kind == autopsy.KindUnknown {
			b.Fatal(a.Summary)
		}
	}
}

// A log of Megatron, to the answer.
func BenchmarkLog(b *testing.B) {
	v := noisy(1)
	judged(b, "train.log", lines(50_000, func(i int) string {
		return megatron(i, v(4400)) +
			" throughput per GPU (TFLOP/s/GPU): 430.0 | learning rate: 2.6E-05 | global batch size:  1024 | loss scale: 1.0 | grad norm: 0.3 |"
	}))
}

// A table of a million iterations, to the answer.
func BenchmarkMillion(b *testing.B) {
	v := noisy(2)
	judged(b, "run.csv", "iteration,iter_time_ms\n"+lines(1_000_000, func(i int) string {
		return fmt.Sprintf("%d,%.2f", i, v(1000))
	}))
}
