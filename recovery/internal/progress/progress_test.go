package progress

import (
	"testing"
	"time"
)

// Beats of several agents around one boundary of iterations do not measure how
// long an iteration takes.
func TestUsualSurvivesBeatsInOneBatch(t *testing.T) {
	at := time.Unix(1000, 0)
	p := Tracker{newest: -1}
	for i := range int64(20) {
		p.See(at, 2*i, false)
		p.See(at, 2*i+1, false) // another agent, a moment later in the same batch
		at = at.Add(2 * time.Second)
	}
	if usual, known := p.Usual(); !known || usual < 900*time.Millisecond || usual > 1100*time.Millisecond {
		t.Errorf("an iteration takes %v, known: %v; wants about 1 s", usual, known)
	}
	p.newest, p.moved = 5, at // a recovery goes back, and has just ended
	p.See(at.Add(3*time.Second), 6, false)
	if usual, _ := p.Usual(); usual != 3*time.Second {
		t.Errorf("after going back an iteration takes %v, wants 3 s", usual)
	}
}
