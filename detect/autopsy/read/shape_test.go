package read

import (
	"strings"
	"testing"
)

// Lines that differ in numbers alone have one shape, and none of them has a needle that the other lacks.
func TestShapesOfLines(t *testing.T) {
	a := " iteration 12/ 500 | elapsed time per iteration (ms): 4400.1 |"
	b := " iteration 7013/ 500 | elapsed time per iteration (ms): 39.12 |"
	if shapeOf(a) != shapeOf(b) {
		t.Error("two lines of progress have different shapes")
	}
	for _, k := range faultLines {
		for i := range len(k.needle) {
			if isDigit(k.needle[i]) &&
				(i == 0 || !isWord(k.needle[i-1]) && !isDigit(k.needle[i-1])) {
				t.Errorf("the needle %q has a number, which a shape leaves out", k.needle)
			}
		}
		with := "12: " + k.needle + " 7"
		if shapeOf(with) == shapeOf(strings.Replace(with, k.needle, k.needle[1:], 1)) {
			t.Errorf("%q is not distinguished from what lacks it", with)
		}
	}
}
