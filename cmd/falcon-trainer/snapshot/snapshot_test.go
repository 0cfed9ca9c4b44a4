package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

func sealed(t interface{ Fatal(...any) }, h Head, numbers []byte) Image {
	im := append(make(Image, HeadBytes), numbers...)
	if err := im.Seal(h); err != nil {
		t.Fatal(err)
	}
	return im
}

// What is sealed opens as it was; with any one byte changed it does not, or
// says so by its head.
func TestAnImageIsTheOneThatWasSealed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Head{
			Iteration: rapid.Int64().Draw(t, "iteration"),
			Consumed:  rapid.Int64().Draw(t, "consumed"),
			Rank:      falcon.Rank(rapid.IntRange(0, 1<<20).Draw(t, "rank")),
			Layout:    falcon.Layout{TP: 2, DP: 3, PP: 4},
			Seed:      rapid.Uint64().Draw(t, "seed"),
			Sharded:   rapid.Bool().Draw(t, "sharded"),
		}
		im := sealed(
			t,
			want,
			rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "numbers"),
		)
		if err := im.Expect(want); err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, len(im)-1).Draw(t, "at")
		im[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if err := im.Expect(want); err == nil && at >= HeadBytes {
			t.Fatalf("byte %d was changed unseen", at)
		}
	})
}

func TestAnotherRanksImageIsNotExpected(t *testing.T) {
	h := Head{
		Iteration: 5,
		Rank:      2,
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 2},
	}
	im := sealed(t, h, []byte("numbers"))
	for _, other := range []Head{
		{Iteration: 5, Rank: 3, Layout: h.Layout},
		{Iteration: 6, Rank: 2, Layout: h.Layout},
		{Iteration: 5, Rank: 2},
	} {
		if err := im.Expect(other); !errors.Is(err, ErrImage) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(sealed(f, Head{Iteration: 3, Weights: 2}, []byte("12345678"))))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Image(b).Open()
		if err != nil {
			return
		}
		again := append(Image(nil), b...)
		if again.Seal(h) != nil || again.Expect(h) != nil {
			t.Errorf("%+v opened, and does not once it is sealed again", h)
		}
	})
}

// write leaves a set on disk, with its manifest or without.
func write(t *testing.T, folder string, iteration int64, generation uint64, complete bool) Set {
	t.Helper()
	s := Set{
		Iteration:  iteration,
		Generation: generation,
		Layout:     falcon.Layout{TP: 1, DP: 2, PP: 1},
		FileBytes:  5,
	}.In(
		folder,
	)
	for r := range s.Layout.World() {
		if err := Replace(s.File(falcon.Rank(r)), []byte("state")); err != nil {
			t.Fatal(err)
		}
	}
	if complete {
		if err := s.Complete(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestOnlyWholeSetsAreListed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b") // no pattern
	older := write(t, dir, 9, 7, true)
	newer := write(t, dir, 10, 0, true)
	later := write(t, dir, 10, 1, true)
	write(t, dir, 12, 0, false) // nobody said that all had been written
	lost := write(t, dir, 13, 0, true)
	short := write(t, dir, 14, 0, true)
	for _, err := range []error{
		os.Remove(lost.File(1)), os.WriteFile(short.File(0), []byte("sta"), 0o600),
		os.WriteFile(filepath.Join(dir, "step-1"), nil, 0o600),
		os.WriteFile(filepath.Join(write(t, dir, 15, 0, false).folder, manifest), []byte("{"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := Sets(dir)
	if len(got) != 3 || got[0] != later || got[1] != newer || got[2] != older {
		t.Errorf("listed %+v", got)
	}
	Prune(dir)
	if got := Sets(dir); len(got) != 2 || got[0] != later || got[1] != newer {
		t.Errorf("after pruning %+v", got)
	}
	if len(Sets(filepath.Join(dir, "nowhere"))) != 0 {
		t.Error("sets where there is no folder")
	}
}

// A manifest is read as it comes: it may claim anything.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"iteration":3,"layout":{"tp":1,"dp":1,"pp":1},"file_bytes":5}`))
	f.Add([]byte(`{"iteration":3,"layout":{"tp":4294967296,"dp":4294967296,"pp":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		s := Set{Iteration: 3}.In(dir)
		if err := Replace(s.File(0), []byte("state")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.folder, manifest), b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, got := range Sets(dir) {
			if got.Layout.World() != 1 || got.FileBytes != 5 || got.Iteration < 1 {
				t.Errorf("one file is a set of %+v", got)
			}
		}
	})
}

func TestWhatCannotBeWrittenIsSaid(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "file", "rank-0"), nil); !errors.Is(err, ErrCheckpoint) {
		t.Errorf("a file became a folder: %v", err)
	}
}
