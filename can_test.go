package falcon

import (
	"math"
	"testing"
)

// A job can do what each of its processes has declared, and no more.
func TestCanIsWhatAllCan(t *testing.T) {
	all := Can{
		Declared:   true,
		Park:       true,
		Split:      true,
		Place:      true,
		Checkpoint: true,
		Versions:   math.MaxInt,
	}
	one := Can{Declared: true, Park: true, Versions: 2}
	if got := all.And(one); got != one {
		t.Errorf("%+v", got)
	}
	if got := one.And(Can{}); got != (Can{}) {
		t.Errorf("with one that has declared nothing: %+v", got)
	}
}
