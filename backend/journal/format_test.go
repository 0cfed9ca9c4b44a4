package journal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// unzip writes a stored journal to a folder of its own.
func unzip(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A journal that a falcon of format 1 wrote is read as it is, converted when it
// is opened, and holds the same records after that.
func TestJournalOfFormat1IsConverted(t *testing.T) {
	path := unzip(t, "v1.db.gz")
	var old []Record
	before, err := Read(path, func(r Record) error {
		old = append(old, r)
		return nil
	})
	if err != nil || before.Version != 1 || before.Anchored || len(old) != 53 {
		t.Fatalf("before: %+v with %d records, %v", before, len(old), err)
	}
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Append([]Record{{Kind: "event"}}), j.Close()); err != nil {
		t.Fatal(err)
	}
	var now []Record
	after, err := Read(path, func(r Record) error {
		now = append(now, r)
		return nil
	})
	if err != nil ||
		after.Version != Version ||
		!after.Anchored ||
		len(now) != len(old)+1 {
		t.Fatalf("after: %+v with %d records, %v", after, len(now), err)
	}
	for i, r := range old {
		if r.Hash != now[i].Hash || !bytes.Equal(r.Body, now[i].Body) {
			t.Fatalf("record %d has changed", r.Seq)
		}
	}
}

// What a falcon of format 1 read of a journal's head has another length now: it
// refuses the file where it would misread it.
func TestFormat1RefusesTheHead(t *testing.T) {
	if n := len(Head{Seq: 3}.encode()); n == headLen {
		t.Errorf("a head has %d bytes still", n)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	head := fill(t, path, 1, 3)
	tamper(t, path, func(_, meta *bbolt.Bucket) error {
		return meta.Put([]byte(formatKey), []byte(`{"version":99,"written_by":"falcon v9.9.9"}`))
	})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() error{
		"open": func() error {
			_, err := Open(path)
			return err
		},
		"verify": func() error {
			_, err := Verify(path)
			return err
		},
		"repair": func() error {
			_, err := Repair(path, true)
			return err
		},
	} {
		err := open()
		if !errors.Is(err, ErrNewer) ||
			errors.Is(err, ErrCorrupt) ||
			!strings.Contains(err.Error(), `"falcon v9.9.9"`) ||
			!strings.Contains(err.Error(), "use that falcon or a newer one") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(whole, now) {
		t.Error("a refused journal was changed")
	}
	if head.Seq != 3 {
		t.Error(head)
	}
}

func FuzzDecodeFormat(f *testing.F) {
	f.Add(ownFormat().encode())
	f.Add([]byte(`{"version":99}`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeFormat(b)
		if err != nil && !errors.Is(err, ErrRecord) && !errors.Is(err, ErrNewer) {
			t.Fatalf("untyped error %v", err)
		}
		if err == nil && (v.Version < 1 || v.Version > Version) {
			t.Fatalf("format %d was taken", v.Version)
		}
	})
}

func FuzzDecodeAnchor(f *testing.F) {
	f.Add(append(encodeSlot(0, Head{Seq: 4}), encodeSlot(1, Head{Seq: 5})...))
	f.Add(slotOfFormat(Version-1, 7, Head{Seq: 6}))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		counter, head, err := decodeAnchor(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for version := range uint32(Version + 1) {
			if bytes.Contains(b, slotOfFormat(version, counter, head)[:slotUsed+sha256.Size]) {
				return
			}
		}
		t.Fatal("a head that is in no slot")
	})
}

// slotOfFormat is a slot as a falcon of another journal format writes it.
func slotOfFormat(version uint32, counter uint64, h Head) []byte {
	b := encodeSlot(counter, h)
	binary.BigEndian.PutUint32(b[len(anchorMagic)+8:], version)
	sum := sha256.Sum256(b[:slotUsed])
	copy(b[slotUsed:], sum[:])
	return b
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add(uint64(5), []byte(`{"replaces":4,"replaces_hash":"`+strings.Repeat("ab", 32)+`","parts":1}`))
	f.Add(uint64(0), []byte(`{"replaces":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, seq uint64, body []byte) {
		b, head, err := decodeSnapshot(Record{Seq: seq, Kind: KindSnapshot, Body: body})
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if head.Seq+1 != seq || b.Parts < 0 {
			t.Fatalf("%+v at %d", b, seq)
		}
	})
}
