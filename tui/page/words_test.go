package page

import (
	"testing"

	"github.com/failslow/falcon/tui/roster"
)

func TestTallyCounts(t *testing.T) {
	for _, c := range []struct {
		count [roster.Standings]int
		want  string
	}{
		{[roster.Standings]int{roster.Culprit: 1}, "1 culprit"},
		{[roster.Standings]int{roster.Culprit: 3, roster.Slow: 2}, "3 culprits, 2 slow"},
		{[roster.Standings]int{roster.LinkEnd: 4, roster.Lost: 1}, "4 link ends, 1 lost"},
		{[roster.Standings]int{roster.OK: 8}, ""},
	} {
		if got := TallyOf(c.count); got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
	}
}
