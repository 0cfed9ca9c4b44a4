package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

func fill(t *testing.T, path string, batches, each int) Head {
	t.Helper()
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for b := range batches {
		var batch []Record
		for i := range each {
			batch = append(batch, Record{
				AtNs: int64(b),
				Kind: "event",
				Body: fmt.Appendf(nil, "%d/%d", b, i),
			})
		}
		if err := j.Append(batch); err != nil {
			t.Fatal(err)
		}
	}
	return j.Head()
}

func TestAppendSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.db")
	head := fill(t, path, 3, 4)
	if got, err := Verify(path); err != nil || got.Head != head || !got.Anchored {
		t.Fatalf("Verify = %+v, %v; want %v", got, err, head)
	}
	head = fill(t, path, 1, 1)
	if head.Seq != 13 {
		t.Fatalf("head %d, want 13", head.Seq)
	}
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var bodies []string
	if err := j.Each(func(r Record) error {
		bodies = append(bodies, string(r.Body))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := "0/0 0/1 0/2 0/3 1/0 1/1 1/2 1/3 2/0 2/1 2/2 2/3 0/0"
	if got := strings.Join(bodies, " "); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestBatchIsAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.db")
	head := fill(t, path, 1, 2)
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	err = j.Append([]Record{{Kind: "good"}, {
		Kind: "bad",
		Body: make([]byte, BodyBytesMax+1),
	}})
	if !errors.Is(err, ErrRecord) || j.Head() != head {
		t.Fatalf("Append = %v with head %v, want ErrRecord and %v", err, j.Head(), head)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := Verify(path); err != nil || got.Head != head {
		t.Fatalf("Verify = %+v, %v", got, err)
	}
}

// tamper runs f on the raw buckets.
func tamper(t *testing.T, path string, f func(log, meta *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		return f(tx.Bucket([]byte(logBucket)), tx.Bucket([]byte(metaBucket)))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryBitOfTheLastRecordCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.db")
	head := fill(t, path, 1, 3)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var good []byte
	set := func(v []byte) {
		err := db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(logBucket))
			if good == nil {
				good = bytes.Clone(b.Get(seqKey(3)))
				v = good
			}
			return b.Put(seqKey(3), v)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(nil)
	for bit := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		set(bad)
		err := walk(db, &walker{})
		if !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), "record 3") {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
	}
	set(good)
	w := &walker{}
	if err := walk(db, w); err != nil || w.Head != head {
		t.Fatalf("restored: %v, %v", w.Head, err)
	}
}

func TestDroppedAndReorderedRecordsAreFound(t *testing.T) {
	cases := map[string]func(log, meta *bbolt.Bucket) error{
		"first dropped": func(l, _ *bbolt.Bucket) error {
			return l.Delete(seqKey(1))
		},
		"middle dropped": func(l, _ *bbolt.Bucket) error {
			return l.Delete(seqKey(2))
		},
		"tail dropped": func(l, _ *bbolt.Bucket) error {
			return l.Delete(seqKey(4))
		},
		"swapped": func(l, _ *bbolt.Bucket) error {
			a := bytes.Clone(l.Get(seqKey(2)))
			b := bytes.Clone(l.Get(seqKey(3)))
			return errors.Join(l.Put(seqKey(2), b), l.Put(seqKey(3), a))
		},
		"added": func(l, _ *bbolt.Bucket) error {
			return l.Put(seqKey(5), []byte("x"))
		},
		"head cut": func(_, m *bbolt.Bucket) error {
			return m.Put([]byte(headKey), []byte{1})
		},
		"odd key": func(l, _ *bbolt.Bucket) error {
			return l.Put([]byte("k"), []byte("x"))
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "j.db")
			fill(t, path, 2, 2)
			tamper(t, path, f)
			if _, err := Verify(path); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("Verify = %v, want ErrCorrupt", err)
			}
			if j, err := Open(path); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("Open = %v, %v, want ErrCorrupt", j, err)
			}
		})
	}
}

func TestTruncatedFileIsOneClearError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "j.db")
	head := fill(t, path, 40, 50)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{1, 100, 4096, 8192, 16384, len(whole) / 4, len(whole) / 2} {
		cut := filepath.Join(dir, fmt.Sprint("cut", keep))
		if err := os.WriteFile(cut, whole[:keep], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Verify(cut); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d: Verify = %v, %v (whole head %v)", keep, got.Head.Seq, err, head.Seq)
		}
		if _, err := Open(cut); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d: Open = %v", keep, err)
		}
	}
}

func TestRubbishAbsentAndLocked(t *testing.T) {
	dir := t.TempDir()
	rubbish := filepath.Join(dir, "rubbish")
	if err := os.WriteFile(rubbish, bytes.Repeat([]byte("falcon"), 8000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(rubbish); !errors.Is(err, ErrCorrupt) {
		t.Errorf("rubbish: %v", err)
	}
	if _, err := Verify(filepath.Join(dir, "none")); !errors.Is(err, ErrAbsent) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a directory opened as a journal")
	}
	path := filepath.Join(dir, "j.db")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := Open(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open = %v, want ErrLocked", err)
	}
}

func FuzzDecode(f *testing.F) {
	r := Record{
		Seq:  7,
		AtNs: 9,
		Kind: "incident",
		Body: []byte("{}"),
	}
	f.Add(r.seal(Hash{1}))
	f.Add([]byte{})
	f.Add(make([]byte, headBytes))
	last := Record{Seq: math.MaxUint64, Kind: "incident"}
	f.Add(last.seal(Hash{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if r.check() != nil {
			t.Fatalf("decoded a record that could not be written: %+v", r)
		}
		again := r.seal(Hash{})
		if !bytes.Equal(again[len(r.Hash):], b[len(r.Hash):]) {
			t.Fatal("decode then seal changed the bytes")
		}
		if _, err := follows(seqKey(r.Seq), again, r.Seq-1, Hash{}); err != nil && r.Seq != 0 {
			t.Fatalf("own seal does not follow: %v", err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, each := range []int{1, 16} {
		b.Run(fmt.Sprint(each), func(b *testing.B) {
			j, err := Open(filepath.Join(b.TempDir(), "j.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			body := binary.BigEndian.AppendUint64(make([]byte, 400), 1)
			for b.Loop() {
				batch := make([]Record, each)
				for i := range batch {
					batch[i] = Record{Kind: "event", Body: body}
				}
				if err := j.Append(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
