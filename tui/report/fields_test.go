package report

import (
	"encoding/json"
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A report says with how many replicas a job went on.
func TestShrunkRecovery(t *testing.T) {
	v := RecoveryOf(&falconv1.Recovery{
		Id:              "REC-0001",
		State:           "resumed",
		Whole:           true,
		ResumeIteration: 9,
		Shrink:          &falconv1.Shrink{Of: 4, Kept: []int32{0, 2, 3}},
	})
	js, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(js), `"shrink":{"of":4,"kept":[0,2,3]}`) {
		t.Errorf("JSON without the shrink: %s", js)
	}
	lines := strings.Join(recoveryLines(v), "\n")
	if want := "goes on with 3 of 4 replicas: 0, 2, 3"; !strings.Contains(lines, want) {
		t.Errorf("lines without %q:\n%s", want, lines)
	}
}

// A report says how often a rung was taken within the hour.
func TestRungsTakenWithinTheHour(t *testing.T) {
	s := Of(&falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{Id: "INC-0001"}},
		Ladders: []*falconv1.Ladder{{Rungs: []*falconv1.RungView{{
			Rung:      "S2",
			TakenHour: 2,
		}}}},
	})[0]
	js, err := s.JSON()
	if err != nil || !strings.Contains(string(js), `"taken_hour": 2`) {
		t.Errorf("JSON without taken_hour (%v): %s", err, js)
	}
}
