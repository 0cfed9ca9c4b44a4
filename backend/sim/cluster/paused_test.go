package cluster

import (
	"strings"
	"testing"
)

// A node that has paused and was replaced meanwhile is a spare again, by the console's own word.
func TestAReplacedNodeThatOnlyPausedIsASpareAgain(t *testing.T) {
	s, err := readStory("testdata/replaced-and-back.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := play(t, s)
	told := strings.Join(c.lines, "\n")
	if len(c.bad) > 0 || !strings.Contains(told, "the fence of node n1 is lifted by falcon") {
		t.Errorf("%v", c.bad)
		tell(t, c, *linesTold)
	}
}
