package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
)

// flaky is a disk that does not take what is written while broken is set.
// The engine asks it from its own goroutine.
type flaky struct {
	point  string
	mu     sync.Mutex
	broken error
	struck int
}

func (d *flaky) fault(point string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if point != d.point || d.broken == nil {
		return nil
	}
	d.struck++
	return d.broken
}

// set breaks the disk from now on, nil mends it.
func (d *flaky) set(broken error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = broken
}

// count is how often the disk has failed since it was counted before.
func (d *flaky) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.struck
	d.struck = 0
	return n
}

// broken is a disk's error as the journal names it.
func broken(errno syscall.Errno) error {
	return errors.Join(
		map[syscall.Errno]error{
			syscall.ENOSPC: journal.ErrFull,
			syscall.EIO:    journal.ErrIO,
			syscall.EROFS:  journal.ErrReadOnly,
		}[errno],
		errno,
	)
}

// The disk fails at every batch of a story in turn, for a minute each: the
// engine ends nothing, loses nothing and does nothing twice.
func TestDiskFailsAtEveryBatch(t *testing.T) {
	for _, point := range []string{PointBeforeWrite, journal.PointBeforeCommit, journal.PointCommitted} {
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EROFS}[:1+len(point)%3] {
			t.Run(fmt.Sprint(point, " ", errno), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					d := &flaky{point: point}
					b.fault = d.fault
					outages := 0
					b.start()
					for turns := 0; b.job.iteration < 130; turns++ {
						if turns > 0 {
							d.set(broken(errno))
						}
						b.turn()
						if d.count() > 0 {
							outages++
							time.Sleep(time.Minute)
							synctest.Wait()
							d.set(nil)
							time.Sleep(retryMost)
							b.turn()
						}
						d.set(nil)
						d.count()
						approveIfProposed(b)
						if b.dead() {
							t.Fatal("the engine has ended")
						}
					}
					if err := b.halt(); err != nil {
						t.Fatal(err)
					}
					checkStory(b)
					if outages < 4 {
						t.Errorf("the disk was needed only %d times while it failed", outages)
					}
				})
			})
		}
	}
}

// While the disk is full operators are answered: what reads gets what is known,
// what decides is refused at once, and the picture says why.
func TestFullDiskIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := &flaky{point: journal.PointBeforeCommit}
		b.fault = d.fault
		b.start()
		b.turn()
		d.set(broken(syscall.ENOSPC))
		ctx := context.Background()
		frozen := &falconv1.Policy{Mode: "approve", Frozen: true, Version: 1}
		began := time.Now()
		_, err := b.engine.SetPolicy(ctx, tester, true, frozen) // what finds the disk full
		if !errors.Is(err, ErrDisk) ||
			!strings.Contains(err.Error(), "not stored yet") ||
			!strings.Contains(err.Error(), "no space left") {
			t.Errorf("the first decision: %v", err)
		}
		if _, err := b.engine.SetPolicy(ctx, tester, true, frozen); !errors.Is(err, ErrDisk) ||
			!strings.Contains(err.Error(), "nothing can be decided") {
			t.Errorf("the second: %v", err)
		}
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("answered after %s", waited)
		}
		w, err := b.engine.Watch(0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		last := ""
		for range b.engine.state.events {
			if line, _, err := w.Next(ctx); err == nil {
				last = line.GetText()
			}
		}
		if !strings.Contains(last, "no space left") {
			t.Errorf("the newest line says %q", last)
		}
		for range 30 {
			b.turn()
		}
		if s, err := b.engine.Latest(ctx); err != nil ||
			!strings.Contains(s.Reply.GetJob().GetAlarm(), "the journal can't be written") {
			t.Errorf("the picture says %q, %v", s.Reply.GetJob().GetAlarm(), err)
		}
		spooled := len(b.job.agents[0].spool)
		d.set(nil)
		time.Sleep(retryMost)
		b.turn()
		if p := b.engine.state.policy; !p.Policy.Frozen || p.Version != 2 {
			t.Errorf("what was asked for was not carried out: %+v", p)
		}
		if now := len(b.job.agents[0].spool); now >= spooled || spooled < 30 {
			t.Errorf("%d frames were not acknowledged while the disk was full, and %d after", spooled, now)
		}
		if s, err := b.engine.Latest(ctx); err != nil || s.Reply.GetJob().GetAlarm() != "" {
			t.Errorf("the picture still says %q, %v", s.Reply.GetJob().GetAlarm(), err)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// The engine on a file system that is really full, and then has room again.
func TestReallyFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.path = filepath.Join(dir, "journal.db")
		b.start()
		full := 0
		for b.job.iteration < 130 {
			if b.job.iteration == 20 && full == 0 {
				full = 1
				fill(t, filepath.Join(dir, "ballast"))
			}
			b.turn()
			if full == 1 && alarmed(b) {
				full = 2
				for range 20 {
					b.turn()
				}
				if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(retryMost)
			}
			approveIfProposed(b)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		checkStory(b)
		if full != 2 {
			t.Error("the disk was never found full")
		}
	})
}

// alarmed reports whether the picture says that the disk does not take what is
// written.
func alarmed(b *bench) bool {
	s, err := b.engine.Latest(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Contains(s.Reply.GetJob().GetAlarm(), "the journal can't be written")
}

// fill leaves no room.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// The journal is compacted all the time, and the engine killed at every point
// of that: the story ends as without.
func TestKilledAtEveryPointOfACompaction(t *testing.T) {
	for _, point := range []string{
		journal.PointBeforeCompact,
		journal.PointCompacted,
		journal.PointReplaced,
	} {
		t.Run(point, func(t *testing.T) {
			struck := true
			for nth := 1; struck; nth++ {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					struck = compactedStory(b, point, nth)
				})
				if nth < 3 && !struck {
					t.Errorf("the point was reached only %d times", nth-1)
				}
			}
		})
	}
}

// compactedStory plays the story with a snapshot as often as there can be one.
func compactedStory(b *bench, point string, nth int) (struck bool) {
	b.retention = Retention{SnapshotBytes: 1}
	seen, dead := 0, false
	b.fault = func(at string) error {
		if dead {
			return errors.New("killed")
		}
		if at == point && !struck {
			if seen++; seen == nth {
				struck, dead = true, true
				return errors.New("killed")
			}
		}
		return nil
	}
	for !b.start() {
		dead = false
	}
	for turns := 0; b.job.iteration < 130 && turns < 2000; turns++ {
		b.turn()
		if !b.dead() {
			approveIfProposed(b)
		}
		if b.dead() {
			_ = b.halt()
			dead = false
			for !b.start() {
				dead = false
			}
		}
	}
	var v journalState
	b.inLoop(func() { v = *b.engine.state })
	if err := b.halt(); err != nil {
		b.t.Fatal(err)
	}
	b.onceEach()
	if len(b.job.commits) != 2 ||
		len(v.incidents) != 1 ||
		v.incidents[0].State != falcon.IncidentClosed ||
		len(v.actions) != 1 ||
		v.actions[0].State != falcon.ActionReverted ||
		len(v.orders) != 0 {
		b.t.Errorf("commits %v, incidents %+v, actions %+v, orders %+v",
			b.job.commits, v.incidents, v.actions, v.orders)
	}
	report, err := journal.Verify(b.path)
	if err != nil || report.From.Seq == 0 || report.Kept < 2 {
		b.t.Errorf("the journal: %+v, %v", report, err)
	}
	return struck
}

// What a launch has started is ordered to end also where the disk did not take the
// launch's failure for some time.
func TestStopsOutliveAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restartBench(t)
		d := &flaky{point: PointBeforeWrite}
		b.fault = d.fault
		launchOn(b)
		n0 := b.job.agents[0]
		s := b.job.rankState("n0", 0)
		s.GetRank().Alive, s.GetRank().Exit = false, "killed by signal 9 (SIGKILL)"
		n0.send(s)
		synctest.Wait() // the rank's end is durable; what follows from it is not
		d.set(broken(syscall.ENOSPC))
		b.turn()
		if d.count() == 0 {
			t.Fatal("the disk was not asked")
		}
		before := n0.stops()
		d.set(nil)
		time.Sleep(2 * time.Second)
		for range 5 {
			b.turn()
		}
		if n0.stops() == before {
			t.Error("no node was ordered to end what the launch has started")
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// stops counts the orders to end processes that an agent got.
func (a *fakeAgent) stops() int { return a.crew.stops }
