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

// A process that ends by itself takes its file back: its status is awaited, for
// an end in order is no death.
func TestAnEndInOrderIsNoDeath(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		if err := os.Remove(n.dir.entry(100).Path); err != nil {
			t.Fatal(err)
		}
		n.dir.exits[100].die("")
		if wait(300 * time.Millisecond); n.exits() != "" || len(n.ship.states()) != 1 {
			t.Fatalf("told already: %v", n.ship.states())
		}
		n.dir.exits[100].die("exited with status 1")
		if wait(300 * time.Millisecond); n.exits() != "exited with status 1" {
			t.Fatalf("exits %q", n.exits())
		}
	})
}

// Where no kernel tells the status, communicators that were given up do.
func TestAnEndThatNobodySaw(t *testing.T) {
	for state, want := range map[ring.CommState]string{ring.CommGone: falconv1.ExitedInOrder, ring.CommLive: "", ring.CommAborted: ""} {
		onNode(t, func(t *testing.T, n *node) {
			s := n.dir.add(100, 0, "n1.g0")
			wait(time.Second)
			s.set(func() { s.comms[0].State, s.comms[1].State = ring.CommGone, state })
			if err := os.Remove(n.dir.entry(100).Path); err != nil {
				t.Fatal(err)
			}
			n.dir.exits[100].die("")
			wait(exitWait + 300*time.Millisecond)
			states := n.ship.states()
			if last := states[len(states)-1]; last.Alive || last.Exit != want {
				t.Errorf("communicator in state %d: %v, want an end %q", state, last, want)
			}
		})
	}
}
