package convert

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// briefBytes is what one brief picture may take: 100 engines looked at every two seconds are
// then a tenth of a megabyte a second at most.
const briefBytes = 4 << 10

// crowded is a picture with as much as the engine ever lists.
func crowded() *falconv1.SnapshotReply {
	r := &falconv1.SnapshotReply{
		Version:  7,
		EngineId: "e",
		AtUnixNs: 11,
		Role:     "viewer",
		Actor:    "maria",
		Job: &falconv1.Job{
			Name:         "llama",
			World:        100_000,
			State:        "slow",
			Slowdown:     0.4,
			MicroBatches: make([]int32, 4096),
			Mesh:         strings.Repeat("x", 4096),
		},
		Policy: &falconv1.Policy{
			Mode:  "approve",
			Cap:   "S4",
			Rungs: map[string]*falconv1.RungPolicy{"S2": {}},
		},
		Recovery: &falconv1.Recovery{
			Id:        "REC-0001",
			State:     "proposed",
			Ranks:     make([]*falconv1.RankRecovery, 10_000),
			Survivors: make([]int32, 10_000),
			Faults: []*falconv1.Fault{
				{
					Kind:     "node",
					Node:     "n1",
					Ranks:    make([]int32, 5000),
					Evidence: []string{strings.Repeat("e", 9000)},
				},
				{},
				{},
				{},
				{},
			},
		},
		Hang: &falconv1.Hang{
			SinceUnixNs: 3,
			Culprits: []*falconv1.HangPart{{
				Kind:    "behind",
				Ranks:   make([]int32, 9000),
				Members: make([]int32, 9000),
			}},
		},
	}
	for i := range 64 {
		id := fmt.Sprintf("INC-%04d", i+1)
		r.Incidents = append(r.Incidents, &falconv1.Incident{
			Id:        id,
			State:     "located",
			HealthyMs: 100,
			SlowMs:    140,
			Verdict: &falconv1.Verdict{
				Cause:    "gpu",
				Devices:  strings.Fields(strings.Repeat("n1.g0 ", 500)),
				Ranks:    make([]int32, 9000),
				Evidence: []*falconv1.Evidence{{Text: strings.Repeat("evidence ", 500)}},
			},
		})
		l := &falconv1.Ladder{
			Incident:              id,
			LostGpuHours:          2,
			LossPerMinuteGpuHours: 0.5,
			Rungs:                 make([]*falconv1.RungView, 9),
		}
		if i == 10 || i == 11 {
			l.Proposal = &falconv1.Action{
				Id:        id + "/S2/1",
				Incident:  id,
				State:     "proposed",
				Placement: make([]string, 20_000),
			}
			l.Actions = []*falconv1.Action{l.Proposal}
		}
		if i == 11 {
			l.Proposal.DeadlineUnixNs = 99
		}
		if i == 0 {
			r.Ladder = l
		} else if i < 17 {
			r.Others = append(r.Others, l)
		}
		r.Triage = append(r.Triage, &falconv1.Triage{
			Incident: id,
			Owner:    "lee",
			Notes:    []*falconv1.TriageNote{{Text: strings.Repeat("n", 4000)}},
		})
	}
	r.Incidents = append(r.Incidents, &falconv1.Incident{Id: "INC-0099", State: "closed"})
	return r
}

func TestBriefIsBounded(t *testing.T) {
	r := crowded()
	b := Brief(r)
	if n := proto.Size(b); n > briefBytes {
		t.Errorf("%d bytes, want at most %d", n, briefBytes)
	}
	if b.GetBrief().GetOpen() != 64 ||
		b.GetBrief().GetLostGpuHours() != 34 ||
		b.GetBrief().GetLossPerMinuteGpuHours() != 8.5 ||
		b.GetBrief().GetRevision() != falconv1.ConsoleRevision {
		t.Errorf("sums: %v", b.GetBrief())
	}
	if b.GetBrief().GetWaiting() != 2 { // one rung without a countdown, one recovery
		t.Errorf("%d wait for a person", b.GetBrief().GetWaiting())
	}
	if len(b.GetIncidents()) != BriefIncidents ||
		b.GetIncidents()[0].GetId() != "INC-0011" ||
		b.GetIncidents()[1].GetId() != "INC-0012" {
		t.Errorf("incidents that wait come first: %v", b.GetIncidents())
	}
	if b.GetLadder().GetProposal().GetId() != "INC-0011/S2/1" ||
		len(b.GetOthers()) != BriefIncidents-1 ||
		len(b.GetTriage()) != BriefIncidents ||
		b.GetTriage()[0].GetOwner() != "lee" {
		t.Errorf("ladders %v %v, triage %v", b.GetLadder(), b.GetOthers(), b.GetTriage())
	}
	if b.GetRole() != "" ||
		b.GetActor() != "" ||
		b.GetJob().GetName() != "llama" ||
		b.GetRecovery().GetId() != "REC-0001" ||
		b.GetHang().GetSinceUnixNs() != 3 {
		t.Errorf("%v", b)
	}
}

// A frozen policy lets no countdown act: what has one waits for a person too.
func TestBriefCountsFrozenCountdowns(t *testing.T) {
	r := crowded()
	r.Policy.Frozen = true
	if n := Brief(r).GetBrief().GetWaiting(); n != 3 {
		t.Errorf("%d wait, want 3", n)
	}
}

// Made again of a brief picture it is the same but for what was left out of the counts: a
// console bounds what it was sent in the same way.
func TestBriefOfABriefIsTheSame(t *testing.T) {
	once := Brief(crowded())
	twice := Brief(once)
	twice.Brief = once.Brief
	if !proto.Equal(once, twice) {
		t.Errorf("\n%v\n%v", once, twice)
	}
}

func TestBriefOfNothing(t *testing.T) {
	b := Brief(&falconv1.SnapshotReply{})
	if b.GetBrief() == nil ||
		b.GetJob() == nil ||
		b.GetLadder() != nil ||
		b.GetRecovery() != nil ||
		b.GetHang() != nil {
		t.Errorf("%v", b)
	}
}
