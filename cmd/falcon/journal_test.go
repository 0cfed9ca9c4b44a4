package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/backend/journal"
)

func TestJournalIsShownByKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]journal.Record{
		{AtNs: 1, Kind: "decision", Body: []byte(`{"by":"maria","plan_hash":"p1"}`)},
		{AtNs: 2, Kind: "event", Body: []byte("{\"text\":\"\u009b31m\"}")},
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, _ := command(t, "journal", "show", path, "--kind", "decision")
	if code != 0 || out != "1 1970-01-01T00:00:00.000000001Z decision {\"by\":\"maria\",\"plan_hash\":\"p1\"}\n" {
		t.Errorf("%d, %q", code, out)
	}
	code, out, _ = command(t, "journal", "show", path, "--json")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code != 0 || len(lines) != 2 || !json.Valid([]byte(lines[1])) || strings.Contains(out, "\u009b") {
		t.Errorf("%d, %q", code, out)
	}
	if code, _, why := command(t, "journal", "show", path, path); code != 2 || !strings.Contains(why, "at most one FILE") {
		t.Errorf("%d, %q", code, why)
	}
}
