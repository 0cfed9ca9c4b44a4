package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

var ofDecisions = Keep{
	Record: func(r Record) bool { return r.Kind == "decision" },
	Most:   3,
}

// compacted makes a journal of twelve records, five of them decisions, a
// snapshot of two parts that keeps three decisions, and two records after it.
func compacted(t *testing.T) (path string, before Head) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "journal.db")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for n := range 12 {
		kind := Kind("event")
		if n%2 == 0 && n > 0 {
			kind = "decision"
		}
		if err := j.Append([]Record{{AtNs: int64(n), Kind: kind, Body: fmt.Append(nil, n)}}); err != nil {
			t.Fatal(err)
		}
	}
	before = j.Head()
	if err := j.Compact(50, [][]byte{[]byte("a"), []byte("b")}, ofDecisions); err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]Record{{Kind: "decision", Body: []byte("after")}, {Kind: "event"}}); err != nil {
		t.Fatal(err)
	}
	return path, before
}

func texts(t *testing.T, path string) string {
	t.Helper()
	var out []string
	_, err := Read(path, func(r Record) error {
		if r.Kind != KindSnapshot {
			out = append(out, fmt.Sprintf("%d:%s", r.Seq, r.Body))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func TestSnapshotTakesTheOthersPlace(t *testing.T) {
	path, before := compacted(t)
	r, err := Verify(path)
	if err != nil ||
		r.From != before ||
		r.Head.Seq != 17 ||
		r.Records != 5 ||
		r.Kept != 3 ||
		r.Snapshot <= 0 ||
		r.Since <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, want := texts(t, path), "7:6 9:8 11:10 14:a 15:b 16:after 17:"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	at := j.Report()
	if at.Snapshot != r.Snapshot || at.Since != r.Since || at.From != before {
		t.Errorf("opened: %+v", at)
	}
	var seqs []uint64
	if err := j.Each(func(r Record) error {
		seqs = append(seqs, r.Seq)
		return nil
	}); err != nil || fmt.Sprint(seqs) != "[13 14 15 16 17]" {
		t.Errorf("Each: %v, %v", seqs, err)
	}
	if err := errors.Join(j.Compact(60, nil, ofDecisions), j.Close()); err != nil {
		t.Fatal(err)
	}
	if got, want := texts(t, path), "9:8 11:10 16:after"; got != want {
		t.Errorf("after the second: got %s, want %s", got, want)
	}
}

func TestEveryPartOfASnapshotCounts(t *testing.T) {
	change := func(b *bbolt.Bucket, seq uint64) error {
		v := bytes.Clone(b.Get(seqKey(seq)))
		v[len(v)-1] ^= 1
		return b.Put(seqKey(seq), v)
	}
	cases := map[string]func(log, tail *bbolt.Bucket) error{
		"snapshot dropped": func(l, _ *bbolt.Bucket) error {
			return l.Delete(seqKey(13))
		},
		"part dropped": func(l, _ *bbolt.Bucket) error {
			return l.Delete(seqKey(14))
		},
		"snapshot changed":     func(l, _ *bbolt.Bucket) error { return change(l, 13) },
		"audit record changed": func(_, a *bbolt.Bucket) error { return change(a, 9) },
		"audit record dropped": func(_, a *bbolt.Bucket) error {
			return a.Delete(seqKey(9))
		},
		"audit record added": func(l, a *bbolt.Bucket) error {
			return a.Put(seqKey(16), bytes.Clone(l.Get(seqKey(16))))
		},
		"audit record moved": func(_, a *bbolt.Bucket) error {
			return a.Put(seqKey(10), bytes.Clone(a.Get(seqKey(9))))
		},
		"all but the tail": func(l, _ *bbolt.Bucket) error { return drain(l) },
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			path, _ := compacted(t)
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				return f(tx.Bucket([]byte(logBucket)), tx.Bucket([]byte(tailBucket)))
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(path); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Verify = %v", err)
			}
			if _, err := Open(path); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Open = %v", err)
			}
			if _, err := Repair(path, false); !errors.Is(err, ErrLoss) {
				t.Errorf("Repair without leave = %v", err)
			}
			out, err := Repair(path, true)
			if err != nil || out.Aside == "" {
				t.Fatalf("Repair = %+v, %v", out, err)
			}
			r, err := Verify(path)
			if err != nil || r.Head != out.Head || r.TailLost != out.TailLost {
				t.Errorf("after the repair %+v: %+v, %v", out, r, err)
			}
			if strings.HasPrefix(name, "audit") &&
				(r.Head.Seq != 17 || !r.TailLost || r.Kept != 0) {
				t.Errorf("a damaged audit tail took more with it: %+v", r)
			}
		})
	}
}

func drain(b *bbolt.Bucket) error {
	for k, _ := b.Cursor().First(); k != nil; k, _ = b.Cursor().First() {
		if err := b.Delete(bytes.Clone(k)); err != nil {
			return err
		}
	}
	return nil
}

// What compactions free is used again: the file stops growing.
func TestFileStopsGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := OpenWith(path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	var early int64
	for round := range 20 {
		for range 50 {
			if err := j.Append([]Record{{Kind: "event", Body: make([]byte, 4000)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Compact(int64(round), [][]byte{make([]byte, 1000)}, Keep{}); err != nil {
			t.Fatal(err)
		}
		if round == 3 {
			early = size()
		}
	}
	if now := size(); now > 2*early {
		t.Errorf("%d bytes after 4 rounds and %d after 20", early, now)
	}
}

func TestSnapshotOfAnEmptyJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Compact(1, [][]byte{[]byte("a")}, Keep{}), j.Close()); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(path); err != nil || r.Head.Seq != 2 || r.From != (Head{}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func BenchmarkCompact(b *testing.B) {
	j, err := Open(filepath.Join(b.TempDir(), "j.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	part := make([]byte, 8<<20)
	for b.Loop() {
		b.StopTimer()
		for range 64 {
			batch := make([]Record, 256)
			for i := range batch {
				batch[i] = Record{Kind: "event", Body: make([]byte, 4000)}
			}
			if err := j.Append(batch); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if err := j.Compact(1, [][]byte{part, part}, ofDecisions); err != nil {
			b.Fatal(err)
		}
	}
}
