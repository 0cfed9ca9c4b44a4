package report

import (
	"encoding/json"
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// An exported incident shows how a placement was foreseen and how it went, and
// nothing in it can reach the terminal but text.
func TestStoryOfAPlacement(t *testing.T) {
	bad := "\x1b[2J\u009b"
	a := &falconv1.Action{
		Id:            "INC-0001/S3/1",
		Rung:          "S3",
		State:         "kept",
		PlanHash:      "p7",
		PredictedMs:   100,
		MeasuredMs:    110,
		ErrorShare:    0.1,
		Placement:     []string{"n1.g0" + bad, "n0.g0"},
		StepMs:        []float64{1, 20, 30, 4},
		MovedMb:       64,
		JobEpoch:      3,
		DecidedBy:     "maria" + bad,
		DecidedFrom:   "unix:1000" + bad,
		DecidedUnixNs: 1,
		Variant:       bad,
		Phase:         bad,
		Preview: &falconv1.Preview{
			Swaps:   []*falconv1.NodeSwap{{A: "n0" + bad, B: "n1"}},
			CopyMs:  50,
			MovedMb: 60,
			Splits:  []int32{9, 7},
			Left: []*falconv1.LinksOf{{
				Dimension: "dp",
				Links:     []string{"n0-n1" + bad, "rubbish"},
			}},
			TrafficMb: map[string]float64{"dp" + bad: 12},
		},
	}
	s := Of(&falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{Id: "INC-0001"}},
		Ladders: []*falconv1.Ladder{{
			Actions: []*falconv1.Action{a},
			Rungs: []*falconv1.RungView{{
				Rung:     "S4",
				Variant:  "replace" + bad,
				IfWrong:  bad,
				Approval: "person",
				ClockMs:  5,
			}},
		}},
	})[0]
	md := s.Markdown()
	js, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"nodes n0 ⇄ n1", "decided by maria from unix:1000 at 1970-01-01 00:00:00 UTC for job epoch 3",
		"pause 1.0 ms, dump 20.0 ms, swap 30.0 ms, restore 4.0 ms",
		"in 55.0 ms", "links that leave dp: n0-n1", "off by 10.0 %", "0 on n1.g0",
	} {
		if got := strings.ReplaceAll(md, "\\[2J", ""); !strings.Contains(got, want) {
			t.Errorf("the Markdown lacks %q: %s", want, got)
		}
	}
	for _, out := range []string{md, string(js)} {
		if strings.ContainsAny(out, "\x1b\u009b") ||
			strings.Contains(out, `\u001b`) ||
			strings.Contains(out, `\u009b`) {
			t.Errorf("a control character in %q", out)
		}
	}
	var back Incident
	if err := json.Unmarshal(js, &back); err != nil {
		t.Errorf("the JSON can't be read again: %v", err)
	}
	if got := back.Ladder.Rungs[0]; got.Approval != "person" || got.ClockMs != 5 {
		t.Errorf("rung %+v", got)
	}
}

// A placement whose ranks stay after the fault was not reverted.
func TestRetainedIsNotReverted(t *testing.T) {
	md := Of(&falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{Id: "INC-0001"}},
		Ladders: []*falconv1.Ladder{{Actions: []*falconv1.Action{{
			Id:                "INC-0001/S3/1",
			Rung:              "S3",
			State:             "retained",
			RevertReason:      "the job trains as fast as before",
			AppliedIteration:  50,
			RevertedIteration: -1,
		}}}},
	})[0].Markdown()
	if !strings.Contains(md, "; retained: the job trains as fast as before") ||
		strings.Contains(md, "reverted") {
		t.Errorf("%s", md)
	}
}
