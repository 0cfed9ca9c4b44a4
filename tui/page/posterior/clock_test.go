package posterior

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// Between two iterations whose time is known the time is in proportion, after the newest it
// goes on by the iterations' own times; before the first nothing is known.
func TestTimeOfAnIteration(t *testing.T) {
	s := &falconv1.Series{
		FirstIteration: 10,
		Ms:             []float32{100, 100, 0, 100, 250, 250},
		Moments: []*falconv1.Moment{
			{Iteration: 11, UnixNs: 1e9}, {Iteration: 13, UnixNs: 3e9},
		},
	}
	v := newSeriesView(widget.Rect{W: 80, H: 20}, s, following)
	for iteration, want := range map[int64]int64{
		10: 0, 11: 1e9, 12: 2e9, 13: 3e9, 14: 3.25e9, 15: 3.5e9, 99: 3.5e9,
	} {
		if got := page.TimeOf(v.s, iteration); got != want {
			t.Errorf("iteration %d at %d, want %d", iteration, got, want)
		}
	}
	if got := page.TimeOf(nil, 3); got != 0 {
		t.Errorf("at %d where nothing is known", got)
	}
}
