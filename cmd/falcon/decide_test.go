package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/tui/report"
)

// engineWith is an engine that was stopped while an action waited for a word.
func engineWith(t *testing.T, a falcon.Action, rungs map[falcon.Rung]rungConfig) *engineHandle {
	t.Helper()
	cfg := engineConfig{
		trustJournal: true,
		StateDir:     shortDir(t),
		Listen:       "none",
		Policy:       policyConfig{Rungs: rungs},
	}
	cfg.fillDefaults()
	j, err := journal.Open(filepath.Join(cfg.StateDir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]journal.Record{{AtNs: 1, Kind: "action", Body: body}}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := startEngine(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestDecideWantsAReasonForARestart(t *testing.T) {
	h := engineWith(t, falcon.Action{
		ID:       "INC-0001/S4/1",
		Incident: "INC-0001",
		Rung:     falcon.RungS4,
		State:    falcon.ActionProposed,
		Plan:     falcon.Plan{Variant: falcon.VariantReplace, PlanHash: "51d7aa02"},
	}, nil)
	args := []string{
		"decide", "INC-0001", "--approve", "--action", "INC-0001/S4/1", "--plan", "51d7aa02",
		"--connect", h.Socket,
	}
	if code, _, errs := command(t, args...); code != 2 ||
		!strings.Contains(errs,
			"S4 ends every process of the job, so the record must hold why; approve it again with a reason") {
		t.Errorf("without a reason: exit %d %q", code, errs)
	}
	if code, out, errs := command(t, append(args, "--reason", "worn out")...); code != 0 ||
		!strings.Contains(out, "INC-0001/S4/1 is ") {
		t.Errorf("with one: exit %d %q %q", code, out, errs)
	}
}

// An approval that waits for another person says so, and exits well; the same
// person again is refused.
func TestDecideTellsWhatAnApprovalWaitsFor(t *testing.T) {
	h := engineWith(
		t,
		falcon.Action{
			ID:       "INC-0001/S3/1",
			Incident: "INC-0001",
			Rung:     falcon.RungS3,
			State:    falcon.ActionProposed,
			Plan:     falcon.Plan{PlanHash: "77e1b0c3"},
		},
		map[falcon.Rung]rungConfig{"S3": {RungPolicy: falcon.RungPolicy{Second: true}}},
	)
	args := []string{
		"decide", "INC-0001", "--action", "INC-0001/S3/1", "--plan", "77e1b0c3", "--connect",
		h.Socket,
	}
	if code, out, errs := command(t, append(args, "--approve")...); code != 0 ||
		!strings.Contains(out, "and waits for a second approver: a second person must run this command too") {
		t.Errorf("the first: exit %d %q %q", code, out, errs)
	}
	if code, _, errs := command(t, append(args, "--approve")...); code != 1 ||
		!strings.Contains(errs, "S3 takes two people; somebody else has to approve it, too") {
		t.Errorf("the same again: exit %d %q", code, errs)
	}
	if code, out, errs := command(t, append(args, "--veto")...); code != 0 ||
		!strings.Contains(out, "INC-0001/S3/1 is vetoed") {
		t.Errorf("the veto: exit %d %q %q", code, out, errs)
	}
}

func TestStandingOfAnApproval(t *testing.T) {
	a := report.Action{Action: falcon.Action{
		Incident: "INC-0001",
		State:    falcon.ActionApproved,
		Decision: falcon.Decision{DecidedBy: "maria", DeadlineUnixNs: 10e9},
	}}
	if got := approvalWaitsFor(
		a,
	); got != "approved by maria and goes out at 00:00:10 UTC; falcon decide INC-0001 --veto withdraws it until then" {
		t.Error(got)
	}
	if a.State = falcon.ActionDispatched; approvalWaitsFor(a) != "" {
		t.Error(approvalWaitsFor(a))
	}
}
