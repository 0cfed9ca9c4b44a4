package engine

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/detect"
)

// What waited, for the disk or for something else to end, is not over as it goes
// out: its life begins then.
func TestACommandLivesFromWhenItIsSent(t *testing.T) {
	e := jobOfSix()
	now := time.Unix(1_700_000_000, 0)
	c := e.recoveries.putCommand(&nodeCommand{
		sentRecord: sentRecord{First: 1, Nodes: []falcon.Node{"n1"}},
		deadline:   now.Add(-time.Minute),
		body:       func(falcon.Node) *falconv1.Command { return &falconv1.Command{} },
	})
	c.SendAll(now)
	if !c.Deadline.Equal(now.Add(commandLife)) {
		t.Errorf("a recovery's command lives until %v from now", c.Deadline.Sub(now))
	}
	o := e.orders.addOrder(orderRecord{DeadlineNs: now.Add(-time.Minute).UnixNano()})
	o.item.Send(now, nil)
	if life := o.item.Deadline.Sub(now); life != OrderLife {
		t.Errorf("an order lives until %v from now", life)
	}
	if o.item.Send(now.Add(time.Hour), nil); !o.item.Deadline.Equal(now.Add(OrderLife)) {
		t.Error("an order that was sent again lives longer")
	}
}

// An order that was given up on before the engine was started again is still one
// that the ranks may have agreed on.
func TestLostOrdersOutliveAStart(t *testing.T) {
	m := newJournalState()
	m.addOrder(orderRecord{
		Order: falcon.Order{
			Epoch: 1,
			ID:    4,
			Kind:  falcon.OrderCheckpoint,
			Leave: true,
		},
		Command: 9,
	})
	m.endOrder(outcomeRecord{Order: 4, Failed: "no rank took it"})
	b := newOrderBook(&outbox.Box{}, m.orders, m.lostOrders)
	if len(b.open()) != 0 || len(b.lost) != 1 {
		t.Fatalf("%d open, %d lost", len(b.open()), len(b.lost))
	}
	now := time.Unix(1_700_000_000, 0)
	for r := range falcon.Rank(2) {
		p := &process{
			rank: r,
			state: &falconv1.RankState{Committed: &falconv1.Commitment{
				Order:           4,
				Iteration:       60,
				ResumeIteration: 60,
			}},
		}
		for _, o := range b.votable() {
			o.announce(now, p)
		}
	}
	if o, _ := b.revived(2, 1, true); o != nil {
		t.Error("a restart begins although a recovery has the job")
	}
	if o, out := b.revived(2, 1, false); o == nil || out.Resume != 60 || out.Failed != "" {
		t.Errorf("outcome %+v", out)
	}
}

// What waits for something else to end goes to all nodes at once when it does. A node
// that connects again meanwhile is not sent it alone.
func TestWhatWaitsIsNotSentAgain(t *testing.T) {
	e := jobOfSix()
	now := time.Unix(1_700_000_000, 0)
	o := e.orders.addOrder(orderRecord{
		Order:      falcon.Order{Epoch: 3, ID: 4},
		Command:    9,
		DeadlineNs: now.UnixNano(),
	})
	e.delivery.addWindow(now, 10, detect.ProfileRequest{Window: 1, Iterations: 2})
	for _, it := range []*outbox.Item{o.item, e.outbox.Find("n0", 10)} {
		if e.delivery.wantedBy(now, "n0", it) {
			t.Errorf("command %d waits, and is sent to one node", it.ID)
		}
		it.Send(now, nil)
		if !e.delivery.wantedBy(now, "n0", it) {
			t.Errorf("command %d has gone out, and is not sent again", it.ID)
		}
	}
	if e.delivery.wantedBy(now, "n9", o.item) {
		t.Error("a node without ranks is sent an order")
	}
	if e.delivery.wantedBy(now.Add(WindowLife), "n0", e.outbox.Find("n0", 10)) {
		t.Error("a window that is over is sent again")
	}
}
