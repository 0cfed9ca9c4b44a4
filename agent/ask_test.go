package agent

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What the engine asks is answered once, of every process, with what was written until then.
func TestAskIsAnswered(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.dir.add(100, 0, "n1.g0"), n.dir.add(101, 1, "n1.g1")
		comm := []ring.Comm{{
			Slot:  0,
			ID:    77,
			State: ring.CommLive,
			Size:  2,
			Calls: 3,
		}}
		wait(time.Second)
		mono := time.Now().UnixNano()
		a.set(func() {
			a.comms = comm
			a.control.HeartbeatNs = mono
			a.control.Coverage = ring.CoverWaiting
			a.control.WaitingSinceNs = mono - 2e9
			for i := range uint64(3) {
				a.records = append(a.records, ring.Record{
					Ordinal: i,
					Op:      falcon.OpAllReduce,
					Count:   8,
					Dtype:   7,
					Peer:    -1,
					EnterNs: mono - 1e9,
				})
			}
		})
		b.set(func() { b.comms, b.control.HeartbeatNs = comm, mono })
		n.Ask(&falconv1.Ask{Id: 4})
		n.Ask(&falconv1.Ask{Id: 5})
		wait(10 * time.Millisecond)
		got := sent(n.ship, (*falconv1.AgentFrame).GetCalls, func(c *falconv1.Calls) bool { return c != nil })
		last := got[len(got)-1]
		if len(got) > 2 || last.Ask != 5 || len(last.Ranks) != 2 {
			t.Fatalf("%v", got)
		}
		r := last.Ranks[0]
		if r.Rank != 0 ||
			r.Pid != 100 ||
			r.Total != 3 ||
			!r.WaitingKnown ||
			r.WaitingMs < 2000 ||
			len(r.Calls) != 3 ||
			r.Calls[2].Number != 3 ||
			r.Comms[0].Collectives != 3 {
			t.Errorf("%v", r)
		}
		r = last.Ranks[1]
		if r.WaitingKnown || len(r.Calls) != 0 || r.Comms[0].Known {
			t.Errorf("%v", r)
		}
	})
}
