package recovery

import (
	"fmt"
	"time"
)

// testimony is what the nodes that are heard report of a job that stalls. A node
// that is not heard is implicated where all others wait: ranks exchange in
// lockstep, so that the cause is with those of which nothing is known. A rank that
// is heard and does not wait explains the stall by itself.
type testimony struct {
	nodes   int       // heard
	waiting int       // of them those of which a rank waits
	since   time.Time // newest time at which a rank began to wait
	busy    int       // ranks in their own code or storage
	frozen  int       // ranks whose hooks are silent
}

// activity is what one rank does in a stall.
type activity uint8

const (
	unknown activity = iota // no process, no beat, or a hook that does not measure it
	waiting                 // for others
	busy                    // it does not wait
	frozen                  // its hook is silent
)

// allWait reports whether all nodes that are heard wait.
func (t testimony) allWait() bool {
	return t.nodes > 0 && t.waiting == t.nodes && t.busy+t.frozen == 0
}

// addNode adds what the ranks of one node report.
func (t *testimony) addNode(now time.Time, beat time.Duration, ranks []*member) {
	t.nodes++
	waits := false
	for _, x := range ranks {
		switch x.activity(now, beat) {
		case waiting:
			waits = true
			if since := x.waitsSince(); since.After(t.since) {
				t.since = since
			}
		case busy:
			t.busy++
		case frozen:
			t.frozen++
		case unknown:
		}
	}
	if waits {
		t.waiting++
	}
}

// signAgainst is the sign that an unexplained stall is against an unheard node, empty = none. Where
// not every heard node waits, it takes a longer stall.
func (t testimony) signAgainst(stall, unvouched time.Duration) string {
	switch {
	case t.frozen > 0:
		return ""
	case t.allWait():
		return fmt.Sprintf("no rank has begun an iteration for %.1f s, and those that are heard wait",
			stall.Seconds())
	case stall >= unvouched:
		return fmt.Sprintf("no rank has begun an iteration for %.1f s", stall.Seconds())
	}
	return ""
}
