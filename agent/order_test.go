package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// An order that was made for the job as it was does not reach the processes that
// it has become since: the engine has withdrawn it.
func TestOrderForAnEarlierGeneration(t *testing.T) {
	for name, change := range map[string]func(*ring.Control){
		"rejoined":   func(c *ring.Control) { c.GenerationNow = 3 },
		"to rejoin":  func(c *ring.Control) { c.RejoinOrdered = 3 },
		"suspended":  func(c *ring.Control) { c.SuspendWanted = 3 },
		"is of that": func(c *ring.Control) { c.GenerationNow = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				s := n.dir.add(100, 0, "n1.g0")
				s.set(func() { change(&s.control) })
				wait(time.Second)
				c := orderCommand(1, 4, 10*time.Second)
				c.GetOrder().Generation = proto.Uint64(2)
				n.Command(c)
				wait(time.Second)
				want, orders := refused, 0
				if name == "is of that" {
					want, orders = accepted, 1
				}
				got := n.expect(t, want)
				if len(s.orders) != orders ||
					orders == 0 && !strings.Contains(got[0].Detail, "generation 2") {
					t.Fatalf("%d orders, result %v", len(s.orders), got[0])
				}
			})
		})
	}
}

// An agent that goes on with an order whose deadline has passed only watches it:
// a process that has come since does not get it.
func TestOrderPastItsDeadlineIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		old := dir.add(100, 0, "n1.g0")
		first := &fakeShip{}
		second := &fakeShip{}
		succeed(t, dir, first, func(a *Agent) {
			a.Command(orderCommand(1, 4, 5*time.Second))
			wait(time.Second)
		})
		wait(10 * time.Second)
		fresh := dir.add(101, 1, "n1.g1")
		succeed(t, dir, second, func(*Agent) {
			wait(time.Second)
			commit(old, 4, 61, 0)
			wait(time.Second)
		})
		r := newest(second, 1)
		if len(old.orders) != 1 ||
			len(fresh.orders) != 0 ||
			r.GetStatus() != done ||
			len(r.GetRanks()) != 1 {
			t.Fatalf("%d and %d orders, result %v", len(old.orders), len(fresh.orders), r)
		}
	})
}

// What a rank has voted for is part of its state, also of its last one: answers
// can be lost with an agent.
func TestStateHasTheCommitment(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		if c := n.newest(0).Committed; c != nil {
			t.Fatalf("commitment %v", c)
		}
		s.set(func() {
			s.control.ResumeIteration = 61
			s.control.CommittedOrder = 4
			s.control.CommittedIteration = 61
		})
		n.dir.exits[100].die("exited normally")
		wait(time.Second)
		want := &falconv1.Commitment{
			Order:           4,
			Iteration:       61,
			ResumeIteration: 61,
		}
		if st := n.newest(0); st.Alive || !proto.Equal(st.Committed, want) {
			t.Fatalf("state %v", st)
		}
	})
}
