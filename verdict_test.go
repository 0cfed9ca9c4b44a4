package falcon_test

import (
	"testing"

	"github.com/failslow/falcon"
)

// A slowdown below 10 % is minor; without a healthy time nothing is.
func TestIsMinor(t *testing.T) {
	for _, tt := range []struct {
		healthyMs, slowMs float64
		want              bool
	}{
		{100, 105, true},
		{100, 109.9, true},
		{100, 110.1, false},
		{100, 111, false},
		{100, 150, false},
		{0, 50, false},
	} {
		if got := falcon.IsMinor(tt.healthyMs, tt.slowMs); got != tt.want {
			t.Errorf("%.1f after %.1f ms: minor is %t", tt.slowMs, tt.healthyMs, got)
		}
	}
}
