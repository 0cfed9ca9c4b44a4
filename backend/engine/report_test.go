package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ladders is a planner that knows a ladder for every incident.
type ladders struct{ Planner }

func (ladders) Ladder(incident string) (falcon.Ladder, bool) {
	return falcon.Ladder{
		Incident: incident,
		Proposal: &falcon.Action{
			ID:       incident + "/S2/1",
			Incident: incident,
			State:    falcon.ActionProposed,
		},
	}, true
}

// The picture holds a ladder of every open incident, the front one's apart:
// each can be decided on.
func TestEveryOpenIncidentHasItsLadder(t *testing.T) {
	e := bareEngine(newJournalState())
	e.views.plan = ladders{}
	for i, state := range []falcon.IncidentState{
		falcon.IncidentLocated,
		falcon.IncidentClosed,
		falcon.IncidentVerified,
		falcon.IncidentLocated,
	} {
		e.state.incidents = append(e.state.incidents, falcon.Incident{
			ID:    fmt.Sprintf("INC-%04d", i+1),
			State: state,
		})
	}
	var got []string
	out := &falconv1.SnapshotReply{}
	e.views.addIncidents(out)
	for _, l := range append([]*falconv1.Ladder{out.Ladder}, out.Others...) {
		got = append(got, l.GetProposal().GetIncident())
	}
	if want := []string{"INC-0004", "INC-0003", "INC-0001"}; !slices.Equal(got, want) {
		t.Errorf("ladders of %q, want %q", got, want)
	}
	for range 100 {
		e.state.incidents = append(e.state.incidents, falcon.Incident{
			ID:    "INC-0100",
			State: falcon.IncidentLocated,
		})
	}
	out = &falconv1.SnapshotReply{}
	if e.views.addIncidents(out); len(out.Others) != laddersMax {
		t.Errorf("%d ladders beside the front one", len(out.Others))
	}
}

// A recovery belongs to an incident by its iteration or by its node.
func TestRecoveriesOfAnIncident(t *testing.T) {
	e := bareEngine(newJournalState())
	e.state.events = []*falconv1.EventLine{{
		Iteration: 70,
		About:     "REC-0009",
		Text:      "a fault",
	}}
	at := func(id string, before int64, node falcon.Node) falcon.Recovery {
		return falcon.Recovery{
			ID:           id,
			State:        falcon.RecoveryDenied,
			Faults:       []falcon.Fault{{Node: node}},
			RecoveryPlan: falcon.RecoveryPlan{Before: before},
		}
	}
	all := []falcon.Recovery{
		at("before", 39, "n5"),
		at("onset", 40, "n5"),
		at("while", 100, "n5"),
		at("after", 120+chartMargin, "n5"),
		at("long after", 121+chartMargin, "n5"),
		at("its node, later", 9000, "n1"),
		at("REC-0009", falcon.NoIteration, "n5"),
		at("no line", falcon.NoIteration, "n5"),
	}
	v := falcon.Incident{
		State:             falcon.IncidentClosed,
		OnsetIteration:    40,
		RelievedIteration: 120,
		Verdict:           falcon.Verdict{Devices: []falcon.Device{"n1.g0"}},
	}
	var got []string
	for _, r := range all {
		if e.cluster.belongsTo(r, v) {
			got = append(got, r.ID)
		}
	}
	if want := []string{"onset", "while", "after", "its node, later", "REC-0009"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	going := at("goes on", falcon.NoIteration, "n5")
	going.State = falcon.RecoveryReplace
	v.State = falcon.IncidentLocated
	if !e.cluster.belongsTo(going, v) {
		t.Error("a recovery that goes on while the incident does is left out")
	}
}

// An answer about one incident carries what its report needs: each line with
// its own place in the journal. A snapshot does not.
func TestReportNamesPlacesInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.job.iteration < 110 {
			b.turn()
			approveIfProposed(b)
		}
		id := b.incidents().GetIncidents()[0].GetId()
		r, err := b.engine.Incidents(context.Background(), id)
		if err != nil ||
			len(r.GetEvents()) < 3 ||
			r.GetJob() == nil ||
			r.GetEngineId() == "" {
			t.Fatalf("%v: %d lines, job %v", err, len(r.GetEvents()), r.GetJob())
		}
		last := uint64(0)
		seen := map[string]bool{}
		for _, e := range r.GetEvents() {
			if e.GetRecord() <= last ||
				len(e.GetHash()) != 64 ||
				seen[e.GetHash()] ||
				!strings.HasPrefix(e.GetAbout()+e.GetAudit().GetAbout(), id) {
				t.Errorf("line %v after record %d", e, last)
			}
			last = e.GetRecord()
			seen[e.GetHash()] = true
		}
		s, err := b.engine.Latest(context.Background())
		if err != nil || s.Reply.GetEvents()[0].GetHash() != "" {
			t.Errorf("a snapshot carries hashes (%v)", err)
		}
	})
}
