package report

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// byTwo is a placement that two people approved, and that one of them took back.
func byTwo(state, decided string) *falconv1.IncidentsReply {
	line := func(n uint64, who, verb string) *falconv1.EventLine {
		return &falconv1.EventLine{
			Record: n,
			Hash:   strings.Repeat("ab", 30) + who[:1] + verb[:1] + "00",
			Kind:   "audit",
			Text:   who + " " + verb,
			Audit: &falconv1.Audit{
				Actor:    who,
				Role:     "approver",
				From:     "10.0.0." + who[:1],
				Verb:     verb,
				About:    "INC-0001/S3/1",
				PlanHash: "77e1b0c3",
			},
		}
	}
	r := &falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{Id: "INC-0001"}},
		Ladders: []*falconv1.Ladder{{Actions: []*falconv1.Action{{
			Id:            "INC-0001/S3/1",
			Rung:          "S3",
			State:         state,
			PlanHash:      "77e1b0c3",
			DecidedBy:     decided,
			DecidedUnixNs: 3e9,
			Reason:        "the word that counted",
			Approvals: []*falconv1.Approval{{By: "maria", From: "host-a", UnixNs: 1e9, Reason: "plain"}, {
				By:     "li",
				From:   "host-b",
				UnixNs: 2e9,
				Reason: "agreed",
			}},
		}}}},
		Events: []*falconv1.EventLine{
			line(4, "maria", "approve (1 of 2)"),
			line(5, "li", "approve (2 of 2)"),
		},
	}
	if state == "vetoed" {
		r.Events = append(r.Events, line(6, decided, "withdraw"))
	}
	return r
}

// A report names everybody whose word there was, each with the journal's line.
func TestBothApproversAreNamed(t *testing.T) {
	for _, c := range []struct {
		state, by string
		verbs     []string
	}{
		{"kept", "li", []string{"maria approve (1 of 2) plain", "li approve (2 of 2) agreed"}},
		{
			"vetoed",
			"maria",
			[]string{
				"maria approve (1 of 2) plain",
				"li approve (2 of 2) agreed",
				"maria withdraw the word that counted",
			},
		},
	} {
		s := Of(byTwo(c.state, c.by))[0]
		var got []string
		for _, d := range s.Decisions {
			got = append(got, d.By+" "+d.Verb+" "+d.Reason)
			if d.Hash == "" || d.Role != "approver" || d.At == "" {
				t.Errorf("%s: %+v lacks its line", c.state, d)
			}
		}
		if strings.Join(got, "; ") != strings.Join(c.verbs, "; ") {
			t.Errorf("%s: decisions %q", c.state, got)
		}
		md := s.Markdown()
		for _, want := range []string{
			"approved by maria from host-a at 1970-01-01 00:00:01 UTC: plain",
			"approved by li from host-b at 1970-01-01 00:00:02 UTC: agreed",
		} {
			if !strings.Contains(md, want) {
				t.Errorf("%s: the Markdown lacks %q:\n%s", c.state, want, md)
			}
		}
	}
}
