package cluster

import (
	"strings"
	"testing"
)

// A node that has paused and was replaced meanwhile is a spare again, without a person.
func TestAReplacedNodeThatOnlyPausedIsASpareAgain(t *testing.T) {
	s, err := readStory("testdata/replaced-and-back.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := play(t, s)
	lines := strings.Join(c.lines, "\n")
	if len(c.bad) > 0 || !strings.Contains(lines, "the fence of node n1 is lifted by falcon") {
		t.Errorf("%v", c.bad)
		tell(t, c, *linesShown)
	}
}
