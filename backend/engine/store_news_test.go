package engine

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/journal"
)

// flakyStore has something to say once.
type flakyStore struct{ news []string }

func (*flakyStore) Fence(uint64) error { return nil }

func (s *flakyStore) News() []string {
	out := s.news
	s.news = nil
	return out
}

// What a store says of itself is an event, once, and safe to print.
func TestNewsOfTheStoreAreTold(t *testing.T) {
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	e, err := New(Config{
		JobName:   "test",
		Journal:   j,
		Detector:  &fakeDetector{newest: -1},
		Recoverer: asleep{},
		Recovery:  Recovery{Store: &flakyStore{news: []string{"the store is \x1b[2Jdown"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	logged := func() (out []string) {
		for _, r := range e.batch.records {
			if r.Kind == kindEvent && strings.Contains(string(r.Body), "the store is") {
				out = append(out, string(r.Body))
			}
		}
		return out
	}
	e.onTick(time.Unix(1, 0))
	e.onTick(time.Unix(2, 0))
	got := logged()
	if len(got) != 1 || !strings.Contains(got[0], "the store is [2Jdown") {
		t.Errorf("%q", got)
	}
}
