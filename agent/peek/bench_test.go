package peek

import (
	"strings"
	"testing"
)

// BenchmarkLine is what a line of an ordinary log costs, and one of the longest with words that
// have to be looked at.
func BenchmarkLine(b *testing.B) {
	for name, line := range map[string]string{
		"ordinary": "iteration 400 | loss 2.1300 | grad norm 0.41 | 812 samples/s/GPU",
		"longest":  strings.Repeat("token key secret access bearer :// ", 60),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cleanLine([]byte(line))
			}
		})
	}
}
