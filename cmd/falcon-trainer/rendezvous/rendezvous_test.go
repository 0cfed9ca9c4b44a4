package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestAwaitSeesWhatIsPublishedLater(t *testing.T) {
	f := Folder(t.TempDir())
	got := make(chan []byte, 1)
	go func() {
		data, err := f.Await(t.Context(), "world", 3)
		if err != nil {
			t.Error(err)
		}
		got <- data
	}()
	if err := f.Publish("world", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if data := <-got; !bytes.Equal(data, []byte("abc")) {
		t.Errorf("got %q", data)
	}
}

func TestEntriesArePrivateAndLeaveNoTrash(t *testing.T) {
	f := Folder(t.TempDir())
	if err := f.Publish("world", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(string(f))
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestPublishRefusesAUsedFolder(t *testing.T) {
	f := Folder(t.TempDir())
	if err := f.Publish("world", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if err := f.Publish("world", []byte("xyz")); !errors.Is(err, ErrUsed) {
		t.Errorf("got %v", err)
	}
}

func TestWithdrawnEntriesCanBePublishedAgain(t *testing.T) {
	f := Folder(t.TempDir())
	for range 2 {
		if err := f.Publish("world", []byte("abc")); err != nil {
			t.Fatal(err)
		}
		if err := f.Withdraw("world"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Withdraw("world"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestPublishMakesTheFolderButNotItsParents(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "absent"))
	if err := f.Publish("world", nil); err != nil {
		t.Errorf("got %v", err)
	}
	f = Folder(filepath.Join(t.TempDir(), "absent", "too"))
	if err := f.Publish("world", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestAwaitEndsAtTheDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := Folder(t.TempDir()).Await(ctx, "world", 1)
	if !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v", err)
	}
}

func TestAwaitRefusesAWrongSize(t *testing.T) {
	f := Folder(t.TempDir())
	if err := f.Publish("world", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Await(t.Context(), "world", 128); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// However many ask at once for different decisions, one stands for all.
func TestOneDecisionStands(t *testing.T) {
	const asking, rounds = 16, 20
	f := Folder(t.TempDir())
	for round := range rounds {
		name := "swap-" + strconv.Itoa(round)
		got := make(chan string, asking)
		for i := range asking {
			go func() {
				word, err := f.Decide(name, []string{"committed", "undone"}[i%2])
				if err != nil {
					t.Error(err)
				}
				got <- word
			}()
		}
		first := <-got
		for range asking - 1 {
			if word := <-got; word != first {
				t.Fatalf("round %d: %q and %q both stand", round, first, word)
			}
		}
	}
}
