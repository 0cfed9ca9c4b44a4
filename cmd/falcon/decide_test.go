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
)

// engineWith is an engine that was stopped while an action waited for a word.
func engineWith(t *testing.T, a falcon.Action) *engineHandle {
	t.Helper()
	cfg := engineConfig{StateDir: shortDir(t), Listen: "none"}
	cfg.fill()
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
		ID: "INC-0001/S4/1", Incident: "INC-0001", Rung: falcon.RungS4, Variant: falcon.VariantReplace, State: falcon.ActionProposed, PlanHash: "51d7aa02",
	})
	args := []string{"decide", "INC-0001", "--approve", "--action", "INC-0001/S4/1", "--plan", "51d7aa02", "--connect", h.Socket}
	if code, _, errs := command(t, args...); code != 2 || !strings.Contains(errs, "S4 ends every process of the job, so the record must hold why; approve it again with a reason") {
		t.Errorf("without a reason: exit %d %q", code, errs)
	}
	if code, out, errs := command(t, append(args, "--reason", "worn out")...); code != 0 || !strings.Contains(out, "INC-0001/S4/1 is ") {
		t.Errorf("with one: exit %d %q %q", code, out, errs)
	}
}
