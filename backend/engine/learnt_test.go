package engine

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// A journal that is older than its nodes does not know how long ago a GPU reported: the report is
// forgotten. Where it is only a higher number that was learnt, the report stays.
func TestAnOldJournalForgetsReportsOfDevices(t *testing.T) {
	for _, void := range []bool{false, true} {
		m := newJournalState()
		now := time.Unix(1000, 0)
		reported := deviceRecord{Node: "n1", Device: falcon.Device("n1.g0"), Code: 79, Text: "x"}
		for _, r := range []any{
			reported,
			epochRecord{Epoch: 3, Learnt: &learntRecord{Generation: 2, Void: void}},
		} {
			kind := kindEpoch
			if _, is := r.(deviceRecord); is {
				kind = kindDevice
			}
			if err := m.apply(record(now, kind, r)); err != nil {
				t.Fatal(err)
			}
		}
		if forgotten := len(m.devices) == 0; forgotten != void {
			t.Errorf("older journal %v: %v", void, m.devices)
		}
	}
}
