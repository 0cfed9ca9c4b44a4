package ring

import (
	"errors"
	"slices"
	"testing"
	"time"

	falcon "github.com/failslow/falcon"
)

// place writes what falcon_job_place writes.
func place(m image, order uint64, iteration int64, rank int32, steps [4]uint64, bytes uint64) {
	at := roundUpToPage(headerBytes)
	seq := m.readUint64(at+ctlPlaceSeq) | 1
	m.writeUint64(at+ctlPlaceSeq, seq)
	m.writeUint64(at+ctlPlaceOrder, order)
	m.writeUint64(at+ctlPlaceIteration, uint64(iteration))
	m.writeUint32(at+ctlPlaceRank, uint32(rank))
	m.writeUint64(at+ctlPlaceBytes, bytes)
	for i, ns := range steps {
		m.writeUint64(at+ctlPlaceStepNs+8*uint64(i), ns)
	}
	m.writeUint64(at+ctlPlaceSeq, seq+1)
}

func TestPlaceIsReadWhole(t *testing.T) {
	m := blank()
	p := open(t, m)
	if got, ok := p.Place(); !ok || got != (Place{}) {
		t.Fatalf("before any: %+v, %v", got, ok)
	}
	place(p.mem, 7, 41, 5, [4]uint64{1e6, 2e6, 3e6, 4e6}, 1<<30)
	want := Place{
		Order:     7,
		Iteration: 41,
		Rank:      5,
		StepNs:    [4]int64{1e6, 2e6, 3e6, 4e6},
		Bytes:     1 << 30,
	}
	if got, ok := p.Place(); !ok || got != want || got.Spent() != 10e6 {
		t.Fatalf("got %+v, %v", got, ok)
	}
	at := p.control + ctlPlaceSeq
	p.mem.writeUint64(at, p.mem.readUint64(at)+1)
	if got, ok := p.Place(); ok || got != (Place{}) {
		t.Fatalf("while it is written: %+v, %v", got, ok)
	}
}

func TestPlaceThatCannotBe(t *testing.T) {
	p := open(t, blank())
	for _, rank := range []int32{-1, 1 << 30, ranksMax} {
		place(p.mem, 1, -9, rank, [4]uint64{1, uint64(2 * time.Hour), 3, 4}, 1<<60)
		if got, ok := p.Place(); !ok || got != (Place{Order: 1, Rank: -1}) {
			t.Fatalf("rank %d: %+v, %v", rank, got, ok)
		}
	}
}

func TestGenerationAndResumeAreRead(t *testing.T) {
	p := open(t, blank())
	p.mem.writeUint64(p.control+ctlGeneration, 3)
	p.mem.writeUint64(p.control+ctlResumeIteration, 120)
	if c := p.Control(); c.Generation != 3 || c.ResumeIteration != 120 {
		t.Fatalf("%+v", c)
	}
	p.mem.writeUint64(p.control+ctlResumeIteration, ^uint64(0))
	if c := p.Control(); c.ResumeIteration != 0 {
		t.Fatalf("resume iteration %d", c.ResumeIteration)
	}
}

// What each kind of order puts into the mailbox.
func TestOrdersOfEachKind(t *testing.T) {
	for _, c := range []struct {
		order falcon.Order
		code  uint32
		want  []int32
	}{
		{
			falcon.Order{Kind: falcon.OrderPlacement, Blocks: []int32{2, 0, 1, 3}},
			orderPlacement,
			[]int32{2, 0, 1, 3},
		},
		{falcon.Order{Kind: falcon.OrderCheckpoint, Leave: true}, orderCheckpoint, []int32{1}},
		{falcon.Order{Kind: falcon.OrderCheckpoint}, orderCheckpoint, []int32{0}},
		{falcon.Order{Kind: falcon.OrderStop}, orderStop, nil},
		{
			falcon.Order{Kind: falcon.OrderMicroBatches, MicroBatches: []int32{9, 7}},
			orderMicroBatches,
			[]int32{9, 7},
		},
	} {
		p := open(t, blank())
		c.order.ID = 6
		if err := p.PutOrder(c.order); err != nil {
			t.Fatal(err)
		}
		at := p.control + ctlOrders + 6%orderSlots*orderBytes
		var got []int32
		for i := range uint64(p.mem.readUint32(at + ordN)) {
			got = append(got, p.mem.readInt32(at+ordValues+4*i))
		}
		if !slices.Equal(got, c.want) ||
			p.mem.readUint32(at+ordKind) != c.code ||
			p.NewestOrder() != 6 {
			t.Errorf("%+v became kind %d, values %v", c.order, p.mem.readUint32(at+ordKind), got)
		}
	}
}

func TestOrdersThatDoNotFit(t *testing.T) {
	m := blank()
	m.writeUint32(hdrWorld, 8)
	p := open(t, m)
	for name, o := range map[string]falcon.Order{
		"no blocks":        {Kind: falcon.OrderPlacement},
		"uneven blocks":    {Kind: falcon.OrderPlacement, Blocks: []int32{1, 0, 2}},
		"a place twice":    {Kind: falcon.OrderPlacement, Blocks: []int32{1, 1}},
		"a place too many": {Kind: falcon.OrderPlacement, Blocks: []int32{0, 2}},
		"a place below":    {Kind: falcon.OrderPlacement, Blocks: []int32{0, -1}},
		"two orders in one": {
			Kind:         falcon.OrderPlacement,
			Blocks:       []int32{1, 0},
			MicroBatches: []int32{4},
		},
		"a stop that moves": {Kind: falcon.OrderStop, Blocks: []int32{1, 0}},
		"a stop that saves": {Kind: falcon.OrderStop, Leave: true},
		"too many replicas": {Kind: falcon.OrderMicroBatches, MicroBatches: make([]int32, orderValues+1)},
		"an unknown kind":   {Kind: "dance"},
	} {
		o.ID = 1
		err := p.PutOrder(o)
		if !errors.Is(err, ErrOrder) || p.NewestOrder() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
