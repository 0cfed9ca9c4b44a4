package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func place(t *testing.T) string {
	return filepath.Join(t.TempDir(), "hccl.json")
}

func put(t *testing.T, s *Store, generation uint64, table string) {
	t.Helper()
	if err := s.Put(generation, []byte(table)); err != nil {
		t.Fatal(err)
	}
}

func kept(t *testing.T, path, want string, generation uint64) {
	t.Helper()
	text, err := os.ReadFile(path)
	side, err2 := os.ReadFile(path + sidecarEnd)
	var s Sidecar
	if err := errors.Join(err, err2, json.Unmarshal(side, &s)); err != nil {
		t.Fatal(err)
	}
	if string(text) != want || s.Generation != generation || !s.describes(text) {
		t.Fatalf("%q with %+v, want %q of generation %d", text, s, want, generation)
	}
	for _, p := range []string{path, path + sidecarEnd} {
		if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", p, st.Mode(), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Dir(path) + "/*.new"); len(left) > 0 {
		t.Fatalf("left %v", left)
	}
}

func change(from string, g uint64, to string, h uint64, edits ...edit) []byte {
	text, err := json.Marshal(delta{
		Base:   newSidecar([]byte(from), g),
		Result: newSidecar([]byte(to), h),
		Edits:  edits,
	})
	if err != nil {
		panic(err)
	}
	return text
}

func TestTablesReplaceOlderOnes(t *testing.T) {
	path := place(t)
	s := New(path)
	put(t, s, 2, "two")
	put(t, s, 2, "two")
	kept(t, path, "two", 2)
	later := New(path) // another life of the agent
	for name, err := range map[string]error{
		"older":   later.Put(1, []byte("one")),
		"another": later.Put(2, []byte("zwei")),
		"empty":   later.Put(3, nil),
		"zero":    later.Put(0, []byte("x")),
	} {
		if !errors.Is(err, ErrTable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	kept(t, path, "two", 2)
	put(t, later, 5, "five")
	kept(t, path, "five", 5)
}

// A job that has not been recovered yet has a table too.
func TestGenerationZero(t *testing.T) {
	path := place(t)
	s := New(path)
	if err := s.Apply(1, 0, change("", 0, "one", 1, edit{Put: []byte("one")})); !errors.Is(err, ErrBase) {
		t.Fatalf("a delta to nothing: %v", err)
	}
	put(t, s, 0, "zero")
	kept(t, path, "zero", 0)
	later := New(path)
	if err := later.Apply(1, 0, change("zero", 0, "one", 1, edit{Cut: 4, Put: []byte("one")})); err != nil {
		t.Fatal(err)
	}
	kept(t, path, "one", 1)
}

func TestDeltas(t *testing.T) {
	path := place(t)
	s := New(path)
	put(t, s, 2, "alpha\nbeta\ngamma\n")
	c := change(
		"alpha\nbeta\ngamma\n",
		2,
		"alpha\nB\ngamma\ndelta\n",
		3,
		edit{At: 6, Cut: 4, Put: []byte("B")},
		edit{At: 17, Put: []byte("delta\n")},
	)
	for range 2 { // the second time from memory
		if err := s.Apply(3, 2, c); err != nil {
			t.Fatal(err)
		}
	}
	kept(t, path, "alpha\nB\ngamma\ndelta\n", 3)
	again := New(path)
	if err := again.Apply(3, 2, c); err != nil {
		t.Fatalf("again after a restart: %v", err)
	}
	if err := again.Apply(4, 2, change("x", 2, "y", 4)); !errors.Is(err, ErrBase) ||
		!strings.Contains(err.Error(), "here is generation 3") {
		t.Fatalf("another base: %v", err)
	}
	if err := again.Apply(2, 1, change("x", 1, "y", 2)); !errors.Is(err, ErrTable) ||
		errors.Is(err, ErrBase) {
		t.Fatalf("an old generation: %v", err)
	}
	kept(t, path, "alpha\nB\ngamma\ndelta\n", 3)
}

func TestDeltasThatDoNotFit(t *testing.T) {
	const base = "0123456789"
	for name, c := range map[string][]byte{
		"overlap":  change(base, 2, base, 3, edit{At: 4, Cut: 3}, edit{At: 5}),
		"outside":  change(base, 2, base, 3, edit{At: 11}),
		"negative": change(base, 2, base, 3, edit{At: 2, Cut: -1}),
		"too long": change(base, 2, base, 3, edit{At: 2, Cut: 9}),
		"overflow": change(base, 2, base, 3, edit{At: 2, Cut: 1<<63 - 1}),
		"too much": change(base, 2, "x", 3, edit{Put: bytes.Repeat([]byte("x"), 99)}),
		"not so": change(base, 2, "0123x56789", 3, edit{
			At:  4,
			Cut: 1,
			Put: []byte("y"),
		}),
		"generation": change(base, 2, base, 4),
		"no JSON":    []byte("{"),
		"more":       append(change(base, 2, base, 3), '1'),
		"unknown":    []byte(`{"base":{},"result":{},"edits":[],"x":1}`),
	} {
		path := place(t)
		s := New(path)
		put(t, s, 2, base)
		if err := s.Apply(3, 2, c); !errors.Is(err, ErrTable) {
			t.Errorf("%s: %v", name, err)
		}
		kept(t, path, base, 2)
	}
}

// A crash between the two files leaves no table that anybody trusts, and older
// ones are still refused.
func TestCrashBetweenTheFiles(t *testing.T) {
	path := place(t)
	put(t, New(path), 2, "two")
	if err := os.WriteFile(path, []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(path)
	if err := s.Apply(3, 2, change("two", 2, "three", 3)); !errors.Is(err, ErrBase) {
		t.Fatalf("a delta on it: %v", err)
	}
	if err := s.Put(1, []byte("one")); !errors.Is(err, ErrTable) {
		t.Fatalf("an older one: %v", err)
	}
	put(t, s, 2, "two") // the same generation is brought again
	kept(t, path, "two", 2)
}

func TestFilesThatAreNotTrusted(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"open to others": func(p string) error { return os.Chmod(p+sidecarEnd, 0o644) },
		"a link": func(p string) error {
			return errors.Join(os.Rename(p, p+"x"), os.Symlink(p+"x", p))
		},
		"not JSON": func(p string) error {
			return os.WriteFile(p+sidecarEnd, []byte("{"), 0o600)
		},
	} {
		path := place(t)
		put(t, New(path), 2, "two")
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if err := New(path).Put(3, []byte("three")); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := New(filepath.Join(t.TempDir(), "absent", "x")).Put(1, []byte("one")); !errors.Is(err, ErrFile) {
		t.Errorf("without a directory: %v", err)
	}
}

func TestInMemory(t *testing.T) {
	s := New("")
	put(t, s, 1, "one")
	if err := s.Apply(2, 1, change("one", 1, "two", 2, edit{Cut: 3, Put: []byte("two")})); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(1, []byte("one")); !errors.Is(err, ErrTable) {
		t.Fatal(err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add([]byte("0123"), change("0123", 2, "01x3", 3, edit{
		At:  2,
		Cut: 1,
		Put: []byte("x"),
	}))
	f.Add([]byte("0123"), []byte(`{"base":{"generation":2},"result":{"generation":3},"edits":[{"at":-1}]}`))
	f.Fuzz(func(t *testing.T, base, text []byte) {
		d, err := decodeDelta(text)
		if err != nil {
			return
		}
		out, err := d.applyTo(base)
		if err == nil && !d.Result.describes(out) {
			t.Fatalf("accepted %q", out)
		}
	})
}
