package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	if code != 0 ||
		out != "1 1970-01-01T00:00:00.000000001Z decision {\"by\":\"maria\",\"plan_hash\":\"p1\"}\n" {
		t.Errorf("%d, %q", code, out)
	}
	code, out, _ = command(t, "journal", "show", path, "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 ||
		len(lines) != 2 ||
		!json.Valid([]byte(lines[1])) ||
		strings.Contains(out, "\u009b") {
		t.Errorf("%d, %q", code, out)
	}
	if code, _, why := command(t, "journal", "show", path, path); code != 2 ||
		!strings.Contains(why, "at most one FILE") {
		t.Errorf("%d, %q", code, why)
	}
}

// kept makes a journal of three records and returns its path.
func kept(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	err = j.Append([]journal.Record{
		{Kind: "epoch", Body: []byte(`{"epoch":5}`)},
		{Kind: "reserve", Body: []byte(`{"below":1025}`)},
		{Kind: "fence", Body: []byte(`{"nodes":["n3"]}`)},
	})
	if err := errors.Join(err, j.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestJournalBackupAndRestore(t *testing.T) {
	path := kept(t)
	copied := filepath.Join(t.TempDir(), "copy.db")
	if code, out, why := command(t, "journal", "backup", copied, "--journal", path); code != 0 ||
		!strings.Contains(out, "3 records, unbroken") {
		t.Fatalf("backup: %d, %q, %q", code, out, why)
	}
	if code, _, why := command(t, "journal", "restore", copied, "--journal", path); code != 1 ||
		!strings.Contains(why, "--force") {
		t.Errorf("restore over a journal: %d, %q", code, why)
	}
	code, out, why := command(t, "journal", "restore", copied, "--journal", path, "--force")
	if code != 0 ||
		!strings.Contains(out, "is now "+path+".replaced-1") ||
		!strings.Contains(out, "which nodes must stay out") {
		t.Errorf("restore: %d, %q, %q", code, out, why)
	}
	// No id is given out again, and who reads the journal sees why.
	_, out, _ = command(t, "journal", "show", path, "--kind", "reserve", "--kind", "event")
	if !strings.Contains(out, `{"below":1099511628801}`) ||
		!strings.Contains(out, "restored from a backup that ends at record 3") {
		t.Errorf("the restored journal says %q", out)
	}
	if code, _, why := command(t, "journal", "backup"); code != 2 || !strings.Contains(why, "one FILE") {
		t.Errorf("backup to nowhere: %d, %q", code, why)
	}
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if code, _, why := command(t, "journal", "backup", copied, "--journal", path); code != 1 ||
		!strings.Contains(why, "journal.backup_dir of falcon.yaml") {
		t.Errorf("beside an engine: %d, %q", code, why)
	}
}

func TestJournalRepair(t *testing.T) {
	path := kept(t)
	if code, out, _ := command(t, "journal", "repair", path); code != 0 ||
		!strings.Contains(out, "nothing to repair") {
		t.Errorf("of a good one: %d, %q", code, out)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(path), "journal.head")); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := command(t, "journal", "verify", path); !strings.Contains(out, "no head file") {
		t.Errorf("verify: %q", out)
	}
	if code, out, _ := command(t, "journal", "repair", path); code != 0 ||
		!strings.Contains(out, "nothing is lost") {
		t.Errorf("of a missing head file: %d, %q", code, out)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 40000), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, why := command(t, "journal", "repair", path); code != 1 ||
		!strings.Contains(why, "--accept-loss") ||
		!strings.Contains(why, "fences") {
		t.Errorf("without leave: %d, %q", code, why)
	}
	if code, out, why := command(t, "journal", "repair", path, "--accept-loss"); code != 0 ||
		!strings.Contains(out, "3 records that followed are given up") ||
		!strings.Contains(out, path+".damaged-1") {
		t.Errorf("with leave: %d, %q, %q", code, out, why)
	}
	if code, out, why := command(t, "journal", "verify", path); code != 0 ||
		!strings.Contains(out, "2 records, unbroken") {
		t.Errorf("verify: %d, %q, %q", code, out, why)
	}
}

// A running engine writes copies that can be checked and brought back, and
// keeps the newest.
func TestRunningEngineKeepsCopies(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	c := journalConfig{BackupDir: filepath.Join(dir, "copies"), Backups: 2}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	other := filepath.Join(c.BackupDir, "journal-monday.db")
	for n := range 4 {
		if err := errors.Join(
			j.Append([]journal.Record{{Kind: "event", Body: []byte("{}")}}),
			c.copyOnce(j, at.Add(time.Duration(n)*time.Hour)),
			os.WriteFile(other, nil, 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(filepath.Join(c.BackupDir, "journal-2*"))
	if err != nil || len(names) != 2 || filepath.Base(names[1]) != "journal-20300102T060405Z.db" {
		t.Fatalf("%v, %v", names, err)
	}
	if r, err := journal.Verify(names[1]); err != nil || r.Head.Seq != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("a file of somebody else is gone")
	}
	c.BackupEvery = time.Millisecond
	if err := c.validate(); err == nil || !strings.Contains(err.Error(), "journal.backup_every") {
		t.Error(err)
	}
}

// A record that no engine can read is named by verify, whose exit says so, and passed
// over by repair, with leave.
func TestUnreadableRecordIsNamedAndPassedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]journal.Record{
		{AtNs: 1, Kind: "pace", Body: []byte(`[{"first":-1}]`)},
		{AtNs: 2, Kind: "fence", Body: []byte(`{"generation":"x"}`)},
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, why := command(t, "journal", "verify", path)
	if code != 1 ||
		!strings.Contains(out, "record 1 (pace) can't be read") ||
		!strings.Contains(out, "record 2 (fence)") ||
		!strings.Contains(why, "1 records of "+path) {
		t.Errorf("verify: %d, %q, %q", code, out, why)
	}
	if code, _, why := command(t, "journal", "repair", path); code != 1 ||
		!strings.Contains(why, "--accept-loss") {
		t.Errorf("repair without leave: %d, %q", code, why)
	}
	if code, out, why := command(t, "journal", "repair", "--accept-loss", path); code != 0 ||
		!strings.Contains(out, "2 records that can't be read are passed over") {
		t.Errorf("repair: %d, %q, %q", code, out, why)
	}
	if code, out, why := command(t, "journal", "verify", path); code != 0 ||
		strings.Contains(out, "can't be read") {
		t.Errorf("verify after the repair: %d, %q, %q", code, out, why)
	}
}
