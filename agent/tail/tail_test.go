package tail

import (
	"fmt"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

func live(calls uint64) []ring.Comm {
	return []ring.Comm{{
		Slot:  3,
		ID:    7,
		Calls: calls,
		State: ring.CommLive,
		Size:  4,
	}}
}

func record(ordinal uint64, op falcon.Op, peer int32) *ring.Record {
	return &ring.Record{
		Comm:    3,
		Ordinal: ordinal,
		Op:      op,
		Peer:    peer,
		EnterNs: int64(ordinal+1) * 1e6,
	}
}

// text is a report in short: what was asked for, then the calls.
func text(t *Tail, calls uint64) string {
	r := t.Report(live(calls), 100e6, 0)
	c := r.Comms[0]
	out := fmt.Sprintf("%d %t inside %d:", c.Collectives, c.Known, c.Inside)
	for _, k := range r.Calls {
		out += fmt.Sprintf(" %s%d", falcon.Op(k.Op), k.Number)
		if k.Open {
			out += "?"
		}
	}
	return out
}

func TestNumbersAreThoseOfAllMembers(t *testing.T) {
	for name, c := range map[string]struct {
		records []*ring.Record
		calls   uint64 // let through
		want    string
	}{
		"collectives": {
			[]*ring.Record{record(0, falcon.OpAllReduce, -1), record(1, falcon.OpAllGather, -1)},
			2,
			"2 true inside 0: allreduce1 allgather2",
		},
		"came late": {
			[]*ring.Record{record(40, falcon.OpAllReduce, -1)},
			41,
			"41 true inside 0: allreduce41",
		},
		"one within NCCL": {
			[]*ring.Record{record(0, falcon.OpAllReduce, -1)},
			2,
			"1 true inside 1: allreduce1",
		},
		"pairs do not count": {
			[]*ring.Record{
				record(0, falcon.OpSend, 1),
				record(1, falcon.OpAllReduce, -1),
				record(2, falcon.OpSend, 1),
				record(3, falcon.OpRecv, 1),
			},
			4,
			"1 true inside 0: send1 allreduce1 send2 recv1",
		},
		"pairs, came late": {
			[]*ring.Record{record(40, falcon.OpSend, 1), record(41, falcon.OpAllReduce, -1)},
			42,
			"0 false inside 0: send0 allreduce0",
		},
		"out of order": {
			[]*ring.Record{record(1, falcon.OpAllReduce, -1), record(0, falcon.OpAllReduce, -1)},
			2,
			"2 true inside 0: allreduce2 allreduce1",
		},
		"nothing asked so far": {nil, 0, "0 true inside 0:"},
		"nothing seen":         {nil, 9, "0 false inside 0:"},
	} {
		var x Tail
		for _, r := range c.records {
			x.Add(r, 7)
		}
		if got := text(&x, c.calls); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A group is launched with its outermost end.
func TestGroupsAreOpenUntilTheyEnd(t *testing.T) {
	var x Tail
	for i, op := range []falcon.Op{falcon.OpSend, falcon.OpRecv} {
		r := record(uint64(i), op, 1)
		r.Flags = ring.FlagGrouped
		x.Add(r, 7)
	}
	if got := text(&x, 2); got != "0 true inside 0: send1? recv1?" {
		t.Error(got)
	}
	x.Add(&ring.Record{Comm: ring.CommNone, Op: falcon.OpGroupEnd, Depth: 1}, 0)
	x.Add(&ring.Record{Comm: ring.CommNone, Op: falcon.OpGroupEnd}, 0)
	if got := text(&x, 2); got != "0 true inside 0: send1 recv1" {
		t.Error(got)
	}
	if r := x.Report(live(2), 100e6, 0); r.Calls[0].Group != r.Calls[1].Group || r.IdleMs != 98 {
		t.Errorf("%v", r)
	}
}

// Another communicator in a slot starts from zero; the newest calls are kept.
func TestBounds(t *testing.T) {
	var x Tail
	x.Add(record(0, falcon.OpAllReduce, -1), 6)
	for i := range uint64(1000) {
		x.Add(record(i, falcon.OpAllReduce, -1), 7)
	}
	r := x.Report(live(1000), 0, 0)
	if n := len(r.Calls); n != callsMax ||
		r.Calls[0].Number != 1000-callsMax+1 ||
		r.Comms[0].Collectives != 1000 {
		t.Errorf("%d calls, the first %v, %v", n, r.Calls[0], r.Comms[0])
	}
	if n := len(x.Report(live(1000), 0, 5).Calls); n != 5 {
		t.Errorf("%d calls, 5 are wanted", n)
	}
	for peer := range int32(2000) {
		x.Add(record(uint64(1000+peer), falcon.OpSend, peer), 7)
	}
	if n := len(x.comms[3].pairs); n > peersMax {
		t.Errorf("%d peers", n)
	}
	again := record(0, falcon.OpAllReduce, -1)
	if n := testing.AllocsPerRun(100, func() { x.Add(again, 7) }); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	var x Tail
	r := record(0, falcon.OpAllReduce, -1)
	for i := range b.N {
		r.Ordinal = uint64(i)
		x.Add(r, 7)
	}
}
