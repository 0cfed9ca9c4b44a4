package plain

import (
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

// Who holds the job up is in the lines of a moment and in the summary.
func TestHangsInLines(t *testing.T) {
	for sure, want := range map[bool][]string{
		true: {
			"stands still for 7 s: held up by rank 2, 7 of 8 ranks wait",
			"Rank 2 (n1.g0, process 4711) has not called collective 31",
			"→ On n1: py-spy dump --pid 4711",
		},
		false: {
			"stands still for 7 s: no rank can be named",
			"its calls are not known",
			"The agents of n1 did not answer",
		},
	} {
		e := enginetest.New(enginetest.Options{})
		e.AdvanceTo(40)
		e.Hang(sure)
		s := picture(t, e)
		text := strings.Join(Present(s.Snap), "\n")
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is missing in\n%s", w, text)
			}
		}
		if sum := Summary(s, s.Received); !strings.Contains(sum, want[0]) {
			t.Error(sum)
		}
	}
}
