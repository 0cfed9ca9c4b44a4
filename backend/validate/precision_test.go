package validate

import (
	"math"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A hook tells the bytes of a matrix; an older one, and one that lies, tells no width.
func TestElementBits(t *testing.T) {
	for _, c := range []struct {
		n     int32
		bytes int64
		want  int
	}{
		{1024, 2 << 20, 16},
		{1024, 4 << 20, 32},
		{1024, 0, 0},
		{0, 4 << 20, 0},
		{1, math.MaxInt64, 0},
		{math.MaxInt32, math.MaxInt64, 0},
		{8, -64, 0},
	} {
		got := elementBits(&falconv1.RankTest{N: c.n}, &falconv1.TestResult{Bytes: c.bytes})
		if got != c.want {
			t.Errorf("%d bytes of side %d: %d, want %d", c.bytes, c.n, got, c.want)
		}
	}
}
