package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// damageMeta flips a byte of the newest of bbolt's two meta pages.
func damageMeta(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	const txid = 16 + 48 // of a page: its header, then the meta's fields up to the transaction
	newest := 0
	if bytes.Compare(flipped(b[page+txid:page+txid+8]), flipped(b[txid:txid+8])) > 0 {
		newest = page
	}
	b[newest+txid] ^= 0xff
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// flipped is a little-endian number with its highest byte first.
func flipped(b []byte) []byte {
	out := bytes.Clone(b)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// A damaged newest meta page takes the file back by one batch without a trace
// in it: the head file knows better.
func TestRolledBackBatchIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	fill(t, path, 3, 4)
	damageMeta(t, path)
	for name, open := range map[string]func() error{
		"open": func() error {
			_, err := Open(path)
			return err
		},
		"verify": func() error {
			_, err := Verify(path)
			return err
		},
	} {
		err := open()
		if !errors.Is(err, ErrLost) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s: %v, want ErrLost", name, err)
		}
		for _, want := range []string{
			"ends at record 8", "12 were stored", "4 lost", "falcon journal restore",
			"repair --accept-loss", "fences",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
	whole, _ := os.ReadFile(path)
	out, err := Repair(path, false)
	if !errors.Is(err, ErrLoss) || out.Lost != 4 || out.Head.Seq != 8 {
		t.Fatalf("repair without leave: %+v, %v", out, err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(whole, now) {
		t.Error("repair changed the file without leave")
	}
	out, err = Repair(path, true)
	if err != nil || out.Head.Seq != 8 || out.Lost != 4 {
		t.Fatalf("repair: %+v, %v", out, err)
	}
	if head := fill(t, path, 1, 1); head.Seq != 9 {
		t.Errorf("it goes on at %d", head.Seq)
	}
}

// The head file may be behind by what was appended when the process ended.
func TestJournalAheadOfItsHeadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	fill(t, path, 1, 2)
	old, err := os.ReadFile(anchorPath(path))
	if err != nil {
		t.Fatal(err)
	}
	head := fill(t, path, 1, 5)
	if err := os.WriteFile(anchorPath(path), old, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(path)
	if err != nil || j.Head() != head {
		t.Fatalf("Open = %v, want head %v", err, head)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if a, err := readAnchor(path); err != nil || a.head != head {
		t.Errorf("the head file says %+v, %v", a, err)
	}
	if info, err := os.Stat(anchorPath(path)); err != nil ||
		info.Mode().Perm() != 0o600 ||
		info.Size() != 2*slotBytes {
		t.Errorf("head file %v, %v", info, err)
	}
}

// Deleting the journal alone is a loss too.
func TestDeletedJournalIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	fill(t, path, 1, 5)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "5 lost") {
		t.Errorf("Open = %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("Open has made an empty journal")
	}
	if out, err := Repair(path, true); err != nil || out.Lost != 5 {
		t.Errorf("Repair = %+v, %v", out, err)
	}
	if head := fill(t, path, 1, 1); head.Seq != 1 {
		t.Errorf("head %v", head)
	}
}

func TestHeadFileOfAnotherJournal(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.db")
	b := filepath.Join(dir, "b.db")
	fill(t, a, 2, 2)
	fill(t, b, 1, 3)
	if err := os.Rename(anchorPath(b), anchorPath(a)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(a); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "another journal") {
		t.Errorf("Open = %v", err)
	}
	if _, err := Repair(a, false); !errors.Is(err, ErrLoss) {
		t.Errorf("Repair without leave = %v", err)
	}
	if _, err := Repair(a, true); err != nil {
		t.Error(err)
	}
	if _, err := Verify(a); err != nil {
		t.Error(err)
	}
}

func TestDamagedHeadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	head := fill(t, path, 3, 1)
	whole, err := os.ReadFile(anchorPath(path))
	if err != nil {
		t.Fatal(err)
	}
	newest := 0
	for slot := range 2 {
		if _, _, h, _ := decodeSlot(whole[slot*slotBytes:]); h == head {
			newest = slot
		}
	}
	one := bytes.Clone(whole)
	one[newest*slotBytes+20] ^= 1
	both := bytes.Clone(one)
	both[(1-newest)*slotBytes+20] ^= 1
	put := func(b []byte) {
		if err := os.WriteFile(anchorPath(path), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(one)
	if _, err := Verify(path); err != nil {
		t.Errorf("one slot torn: %v", err)
	}
	put(both)
	if _, err := Open(path); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "falcon journal repair") {
		t.Errorf("both slots damaged: %v", err)
	}
	if out, err := Repair(path, false); err != nil || out.Why == "" || out.Lost != 0 {
		t.Errorf("Repair = %+v, %v", out, err)
	}
	if _, err := Verify(path); err != nil {
		t.Error(err)
	}
	if out, err := Repair(path, false); err != nil || out.Why != "" {
		t.Errorf("Repair of a good journal = %+v, %v", out, err)
	}
}

// BenchmarkHeadFile is what the head file adds to every Append.
func BenchmarkHeadFile(b *testing.B) {
	a, err := openAnchor(filepath.Join(b.TempDir(), "journal.db"), Head{}, true)
	if err != nil {
		b.Fatal(err)
	}
	defer a.close()
	h := Head{}
	for b.Loop() {
		h.Seq++
		if err := a.write(h); err != nil {
			b.Fatal(err)
		}
	}
}
