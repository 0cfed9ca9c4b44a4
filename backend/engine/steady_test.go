package engine

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/pace"
)

// twoClocks is a machine whose wall clock a test sets, in a bubble of time.
type twoClocks struct {
	mu    sync.Mutex
	began time.Time
	off   time.Duration // of the wall clock
	boot  string
}

func (c *twoClocks) read() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clock.Reading{
		Wall:   time.Now().Add(c.off),
		Since:  time.Since(c.began),
		BootID: c.boot,
	}
}

// set changes the clocks.
func (c *twoClocks) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// The wall clock steps between two iterations of one record of iteration times, over a
// start of the engine and back: the engine goes on, its journal can be read, and one
// line a step says so.
func TestStepsOfTheWallClock(t *testing.T) {
	for _, by := range []time.Duration{
		-87600 * time.Hour,
		-30 * time.Second,
		10 * time.Second,
		87600 * time.Hour,
	} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				c := &twoClocks{began: time.Now(), boot: "a"}
				b.clock = c.read
				b.start()
				for range 20 {
					b.turn()
				}
				c.set(func() { c.off = by })
				for range 20 {
					b.turn()
				}
				time.Sleep(pace.Every + time.Second)
				synctest.Wait()
				c.set(func() { c.off = 0 })
				b.again()
				for range 20 {
					b.turn()
				}
				time.Sleep(pace.Every + time.Second)
				synctest.Wait()
				b.again()
				b.inLoop(func() {
					steps := 0
					newest := int64(0)
					for _, line := range b.engine.state.events {
						if strings.HasPrefix(line.GetText(), "clock stepped by ") {
							steps++
						}
						if at := line.GetAtUnixNs(); at < newest {
							t.Errorf("a line's time goes back by %v: %s",
								time.Duration(newest-at), line.GetText())
						}
						newest = line.GetAtUnixNs()
					}
					age := time.Now().UnixNano() - newest
					if age < 0 || time.Duration(age) > time.Minute {
						t.Errorf("the newest line is %v old", time.Duration(age))
					}
					// the step back came while no engine ran: the next one's time
					// goes on by the boot clock
					if steps != 1 {
						t.Errorf("%d steps were logged", steps)
					}
				})
			})
		})
	}
}

// The times of a machine that was started again go on by its wall clock, never back.
func TestAnotherBoot(t *testing.T) {
	for _, off := range []time.Duration{0, -time.Hour, 87600 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			c := &twoClocks{began: time.Now(), boot: "a"}
			b.clock = c.read
			b.start()
			b.turn()
			before := b.engine.cfg.Now()
			time.Sleep(time.Minute)
			if err := b.halt(); err != nil {
				t.Fatal(err)
			}
			c.set(func() {
				c.boot = "b"
				c.off = off
				c.began = time.Now()
			})
			b.start()
			now := b.engine.cfg.Now()
			if passed := now.Sub(before); passed < 0 || passed > clock.ElapsedMost+time.Hour {
				t.Errorf("offset %v: %v have passed", off, passed)
			}
			b.inLoop(func() {
				said := false
				for _, line := range b.engine.state.events {
					said = said || line.GetKind() == "clock"
				}
				if said != (off != 0) {
					t.Errorf("offset %v: said %v", off, said)
				}
			})
		})
	}
}

// journalWith makes a journal with one record that no fold takes, as an older falcon
// could write it.
func journalWith(t *testing.T, r journal.Record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]journal.Record{record(t0, kindEpoch, epochRecord{Epoch: 7}), r}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func startOn(t *testing.T, path string) (*Engine, error) {
	t.Helper()
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return New(Config{Journal: j, Now: func() time.Time { return t0 }})
}

// A stretch that ends before it begins is what an engine wrote whose clock had stepped
// back: the next one starts, and says what it passed over.
func TestARecordWithoutSafetyIsPassedOver(t *testing.T) {
	stretch := pace.Stretch{
		First:   1,
		N:       1,
		Per:     1,
		BeginNs: 9,
		EndNs:   5,
		Points:  []byte{1, 2},
	}
	path := journalWith(t, record(t0, kindPace, []pace.Stretch{stretch}))
	refused, err := VerifyRecords(path)
	if err != nil ||
		len(refused) != 1 ||
		refused[0].Safety ||
		refused[0].Seq != 2 ||
		refused[0].Kind != kindPace {
		t.Errorf("verify: %+v, %v", refused, err)
	}
	e, err := startOn(t, path)
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, line := range e.state.events {
		if line.GetKind() == "journal" {
			said = line.GetText()
		}
	}
	if !strings.Contains(said, "record 2 (pace) can't be read") || e.state.Epoch != 7 {
		t.Errorf("epoch %d; said %q", e.state.Epoch, said)
	}
}

// A record that carries safety stops the start until a person has it passed over.
func TestARecordWithSafetyStopsTheStart(t *testing.T) {
	path := journalWith(t, journal.Record{
		AtNs: t0.UnixNano(),
		Kind: kindFence,
		Body: []byte(`{"generation":"x"}`),
	})
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Journal: j, Now: func() time.Time { return t0 }})
	if err == nil ||
		!strings.Contains(err.Error(), "record 2 (fence)") ||
		!strings.Contains(err.Error(), "--accept-loss") {
		t.Errorf("started: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	refused, err := VerifyRecords(path)
	if err != nil || len(refused) != 1 || !refused[0].Safety {
		t.Fatalf("verify: %+v, %v", refused, err)
	}
	if err := PassOver(path, t0, refused); err != nil {
		t.Fatal(err)
	}
	if left, err := VerifyRecords(path); err != nil || len(left) != 0 {
		t.Errorf("after the repair: %+v, %v", left, err)
	}
	if _, err := startOn(t, path); err != nil {
		t.Error(err)
	}
}

// What a fold refuses is never written, whatever its kind.
func TestRefusedRecordsAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	e, err := startOn(t, path)
	if err != nil {
		t.Fatal(err)
	}
	before := e.cfg.Journal.Head().Seq
	bad := pace.Stretch{
		First:   1,
		N:       1,
		Per:     1,
		BeginNs: 9,
		EndNs:   5,
		Points:  []byte{1, 2},
	}
	e.batch.addRecords(record(t0, kindPace, []pace.Stretch{bad}))
	if err := e.settleMachines(t0); err != nil {
		t.Fatal(err)
	}
	if got := e.cfg.Journal.Head().Seq - before; got != 1 { // the line about it
		t.Errorf("%d records were written", got)
	}
	before = e.cfg.Journal.Head().Seq
	e.batch.addRecords(journal.Record{
		AtNs: t0.UnixNano(),
		Kind: kindFence,
		Body: []byte(`{"generation":"x"}`),
	})
	if err := e.settleMachines(t0); err == nil || e.cfg.Journal.Head().Seq != before {
		t.Errorf("%d records were written: %v", e.cfg.Journal.Head().Seq-before, err)
	}
}
