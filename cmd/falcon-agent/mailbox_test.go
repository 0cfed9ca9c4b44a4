package main

import (
	"testing"

	"github.com/failslow/falcon/agent"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A report that comes before there is a stream is not lost, and stays in order.
func TestEarlyReportsWait(t *testing.T) {
	var m mailbox
	for code := range 3 * reportsMax {
		m.putFrame(agent.DeviceFrame("n1.g0", 7, true, code, "x"))
	}
	var got []*falconv1.DeviceEvent
	m.openMailbox(func(f *falconv1.AgentFrame) {
		got = append(got, f.GetDevice())
	})
	m.putFrame(agent.DeviceFrame("n1.nic0", 8, true, 0, "down"))
	if len(got) != reportsMax+1 ||
		got[1].Code != 1 ||
		!got[0].Fatal ||
		got[0].AtUnixNs != 7 ||
		got[reportsMax].Device != "n1.nic0" {
		t.Fatalf("%d reports, last %v", len(got), got[len(got)-1])
	}
}
