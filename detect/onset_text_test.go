package detect

import "testing"

func TestChangeText(t *testing.T) {
	for x, want := range map[float64]string{
		-0.001: "less than 1 %",
		0:      "less than 1 %",
		0.004:  "less than 1 %",
		0.016:  "+2 %",
		-0.03:  "-3 %",
	} {
		if got := changeText(x); got != want {
			t.Errorf("%v is written %q instead of %q", x, got, want)
		}
	}
}
