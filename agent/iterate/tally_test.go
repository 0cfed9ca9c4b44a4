package iterate

import (
	"reflect"
	"testing"

	"github.com/failslow/falcon"
)

// A steady iteration is described once, with what a mesh is inferred from.
func TestTallyDescribesSteadyIteration(t *testing.T) {
	y := NewTally()
	for i := range 8 {
		if got := y.Traffic(); (got != nil) != (i >= 5) { // one is cut, one of other calls, three alike
			t.Fatalf("after %d iterations: %+v", i, got)
		}
		for range 4 {
			y.Add(7, falcon.OpAllReduce, 1<<20, -1)
		}
		y.Add(7, falcon.OpAllReduce, 1<<10, -1)
		y.Add(9, falcon.OpSend, int64(100+i), 3)
		y.Add(9, falcon.OpSend, 50, 1)
		y.Add(9, falcon.OpRecv, 50, 1)
		if i == 1 {
			y.Add(9, falcon.OpBroadcast, 8, 0)
		}
		y.Close()
	}
	want := []falcon.Traffic{
		{Comm: 7, Op: falcon.OpAllReduce, Calls: 5, Bytes: 4<<20 + 1<<10, Alike: 4, Single: 1},
		{Comm: 9, Op: falcon.OpSend, Calls: 2, Bytes: 154, Peers: []int{1, 3}}, // its sizes change
		{Comm: 9, Op: falcon.OpRecv, Calls: 1, Bytes: 50, Alike: 1, Single: 1, Peers: []int{1}},
	}
	if got := y.Traffic(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	y.Reset()
	if y.Traffic() != nil {
		t.Error("it describes communicators that are gone")
	}
}

// Of a job that is never steady, or beyond the bounds, nothing is said.
func TestTallyIsBounded(t *testing.T) {
	restless := NewTally()
	wide := NewTally()
	for i := range 3 * forgottenAll {
		for range i % 2 {
			restless.Add(7, falcon.OpAllReduce, 1<<20, -1)
		}
		restless.Add(8, falcon.OpAllReduce, 1<<20, -1)
		restless.Close()
		wide.Add(uint64(i), falcon.OpAllReduce, 1<<20, -1)
	}
	for range 5 {
		wide.Close()
	}
	if restless.Traffic() != nil ||
		wide.Traffic() != nil ||
		len(wide.now) > usesMost {
		t.Errorf("%+v, %d uses", restless.Traffic(), len(wide.now))
	}
}

func TestTallyAllocatesNothing(t *testing.T) {
	y := NewTally()
	step := func() {
		for i := range 40 {
			y.Add(7, falcon.OpAllReduce, int64(i%3), -1)
		}
		y.Add(7, falcon.OpBroadcast, 1, int32(0))
	}
	step()
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("%.1f allocations", n)
	}
}
