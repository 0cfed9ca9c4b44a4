package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// exits are what the node's agent has said of ends so far.
func (n *node) exits() string {
	var how []string
	for _, st := range n.ship.states() {
		if !st.Alive {
			how = append(how, st.Exit)
		}
	}
	return strings.Join(how, "|")
}

// takeBack is what a hook does with the file of a process that ends in order.
func (n *node) takeBack(t *testing.T, pid int) {
	t.Helper()
	if err := os.Remove(n.dir.entry(pid).Path); err != nil {
		t.Fatal(err)
	}
}

// A process that ends by itself takes its file back: its status is awaited, for
// an end in order is no death.
func TestAnEndInOrderIsNoDeath(t *testing.T) {
	for _, end := range []ring.End{{}, {AtNs: 1, Status: -1}} { // of an older hook; of falcon_job_finish
		onNode(t, func(t *testing.T, n *node) {
			s := n.dir.add(100, 0, "n1.g0")
			wait(time.Second)
			s.set(func() { s.control.Ended = end })
			n.takeBack(t, 100)
			n.dir.exits[100].die("")
			if wait(300 * time.Millisecond); n.exits() != "" || len(n.ship.states()) != 1 {
				t.Fatalf("reported already: %v", n.ship.states())
			}
			n.dir.exits[100].die("exited with status 1")
			if wait(300 * time.Millisecond); n.exits() != "exited with status 1" {
				t.Fatalf("exits %q", n.exits())
			}
		})
	}
}

// A mark with a status needs no kernel, nor any wait, and the file of the last
// word goes with the process.
func TestAMarkSaysHowItEnded(t *testing.T) {
	for status, want := range map[int]string{0: falconv1.ExitedNormally, 7: "exited with status 7"} {
		onNode(t, func(t *testing.T, n *node) {
			s := n.dir.add(100, 0, "n1.g0")
			wait(time.Second)
			s.set(func() {
				s.control.Ended = ring.End{AtNs: 1, Status: status}
			})
			n.takeBack(t, 100)
			word := n.dir.leave(t, 100, s.control.Ended)
			n.dir.exits[100].die("killed by signal 11 (SIGSEGV)") // in a destructor behind ours
			if wait(300 * time.Millisecond); n.exits() != want {
				t.Fatalf("status %d: exits %q", status, n.exits())
			}
			if _, err := os.Stat(word); err == nil {
				t.Error("the end record is still there")
			}
		})
	}
}

// Who is killed marks nothing: that is said at once, whatever it gave up before.
func TestADeathIsReportedAtOnce(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		s.set(func() {
			s.comms[0].State, s.comms[1].State = ring.CommGone, ring.CommGone
		})
		n.dir.exits[100].die("")
		wait(0)
		states := n.ship.states()
		if last := states[len(states)-1]; last.Alive || last.Exit != "" {
			t.Fatalf("%v", states)
		}
	})
}

// Where no kernel tells the status and the hook marks nothing, communicators
// that were given up do. After a recovery those that the suspension has aborted
// are not in use.
func TestAnEndThatNobodySaw(t *testing.T) {
	for name, c := range map[string]struct {
		states    [2]ring.CommState
		suspended uint64
		parked    bool
		want      string
	}{
		"given up": {
			states: [2]ring.CommState{ring.CommGone, ring.CommGone},
			want:   falconv1.ExitedInOrder,
		},
		"in use":                {states: [2]ring.CommState{ring.CommGone, ring.CommLive}},
		"aborted for a failure": {states: [2]ring.CommState{ring.CommGone, ring.CommAborted}},
		"recovered, then in order": {
			states:    [2]ring.CommState{ring.CommAborted, ring.CommGone},
			suspended: 2,
			want:      falconv1.ExitedInOrder,
		},
		"recovered, then in use": {
			states:    [2]ring.CommState{ring.CommAborted, ring.CommLive},
			suspended: 2,
		},
		"suspended, and never parked": {
			states:    [2]ring.CommState{ring.CommAborted, ring.CommAborted},
			suspended: 2,
		},
		"stopped where it was parked": {
			states:    [2]ring.CommState{ring.CommAborted, ring.CommAborted},
			suspended: 2,
			parked:    true,
			want:      falconv1.ExitedInOrder,
		},
	} {
		onNode(t, func(t *testing.T, n *node) {
			s := n.dir.add(100, 0, "n1.g0")
			wait(time.Second)
			s.set(func() {
				s.comms[0].State, s.comms[1].State = c.states[0], c.states[1]
				s.control.Suspended = c.suspended
				s.control.SuspendWanted = c.suspended
				s.recovery.park = ring.Park{
					On:         c.parked,
					Generation: c.suspended,
					Hold:       s.recovery.park.Hold,
				}
			})
			n.takeBack(t, 100)
			n.dir.exits[100].die("")
			wait(exitWait + 300*time.Millisecond)
			states := n.ship.states()
			if last := states[len(states)-1]; last.Alive || last.Exit != c.want {
				t.Errorf("%s: %v, want an end %q", name, last, c.want)
			}
		})
	}
}
