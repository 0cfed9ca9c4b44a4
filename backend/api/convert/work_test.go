package convert

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What a sample says of the job's own work costs nothing in a usual iteration, 9 bytes and its
// head where a host waits, and at most 200.
func TestBytesOfWork(t *testing.T) {
	most := &falcon.Work{
		WaitMs:     1e3,
		PauseMs:    1e3,
		TailMs:     1e3,
		Calls:      1 << 14,
		UsualCalls: 1 << 14,
		Bytes:      1 << 50,
		UsualBytes: 1 << 50,
		Kept:       512,
	}
	for range falcon.ChangesMost {
		most.Changed = append(most.Changed, falcon.CallChange{
			Op:    falcon.OpWaitSignal,
			Calls: 1 << 14,
			Usual: 1 << 14,
		})
	}
	plain := falcon.Sample{
		Rank:      7,
		Iteration: 1 << 20,
		EndNs:     1 << 60,
		Ms:        200,
		Exact:     true,
	}
	for _, tt := range []struct {
		work *falcon.Work
		most int
	}{{nil, 0}, {&falcon.Work{WaitMs: 5}, 11}, {most, 200}} {
		s := plain
		s.Work = tt.work
		n := proto.Size(SampleToProto(s)) - proto.Size(SampleToProto(plain))
		if n > tt.most {
			t.Errorf("%+v: %d bytes, at most %d", tt.work, n, tt.most)
		}
	}
}

// Times that are none, and more changes than an agent sends, are not taken over.
func TestWorkIsBounded(t *testing.T) {
	p := &falconv1.Work{
		WaitMs:  math.NaN(),
		PauseMs: math.Inf(1),
		TailMs:  -3,
		Calls:   -1,
		Bytes:   -1,
		Kept:    -2,
	}
	for range 1000 {
		p.Changed = append(p.Changed, &falconv1.CallChange{
			Op:    1e6,
			Calls: -5,
			Usual: -5,
		})
	}
	w := workFromProto(p)
	if len(w.Changed) != falcon.ChangesMost ||
		w.WaitMs+w.PauseMs+w.TailMs != 0 ||
		w.Calls+w.Kept != 0 ||
		w.Bytes != 0 ||
		w.Changed[0].Calls != 0 {
		t.Errorf("%+v", w)
	}
}
