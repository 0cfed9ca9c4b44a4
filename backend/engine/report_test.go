package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

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
		if err != nil || len(r.GetEvents()) < 3 || r.GetJob() == nil || r.GetEngineId() == "" {
			t.Fatalf("%v: %d lines, job %v", err, len(r.GetEvents()), r.GetJob())
		}
		last, seen := uint64(0), map[string]bool{}
		for _, e := range r.GetEvents() {
			if e.GetRecord() <= last || len(e.GetHash()) != 64 || seen[e.GetHash()] || !strings.Contains(e.GetText()+e.GetAudit().GetAbout(), id) {
				t.Errorf("line %v after record %d", e, last)
			}
			last, seen[e.GetHash()] = e.GetRecord(), true
		}
		s, err := b.engine.Latest(context.Background())
		if err != nil || s.Reply.GetEvents()[0].GetHash() != "" {
			t.Errorf("a snapshot carries hashes (%v)", err)
		}
	})
}
