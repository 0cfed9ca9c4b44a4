package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// beat is the newest sign of life of a rank, nil before the first.
func (j *realJob) beat(rank int32) *falconv1.RankBeat {
	j.ship.mu.Lock()
	defer j.ship.mu.Unlock()
	for _, b := range j.ship.ranks {
		if b.Rank == rank {
			return b
		}
	}
	return nil
}

func (j *realJob) beats() int {
	j.ship.mu.Lock()
	defer j.ship.mu.Unlock()
	return j.ship.beats
}

// A peer stops in the middle of its work: the others wait, and say since when. As
// it goes on, they make new calls and do not wait any more.
func TestSurvivorsWaitForARealPeer(t *testing.T) {
	j := startJob(t, "--iterations", "1000000")
	j.until(t, "the first iterations", j.iterations(20))
	if err := j.ranks[2].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waits := func(b *falconv1.RankBeat) bool {
		return b.GetWaitingKnown() && b.GetWaitingMs() > 0
	}
	j.until(t, "the others to wait", func() bool {
		return waits(j.beat(0)) && waits(j.beat(1)) && waits(j.beat(3))
	})
	calls, ms := j.beat(0).Calls, j.beat(0).WaitingMs
	seen := j.beats()
	j.until(t, "a later beat", func() bool { return j.beats() > seen })
	if b := j.beat(0); b.Calls != calls || b.WaitingMs <= ms {
		t.Errorf("%d calls and %v ms, then %v", calls, ms, b)
	}
	if err := j.ranks[2].Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	j.until(t, "the job to go on", func() bool {
		b := j.beat(0)
		return b.Calls > calls && b.WaitingMs == 0
	})
}

// All ranks sleep in their own code, as for storage that gives no data: they make
// no call, and none of them waits for a peer.
func TestStalledStorageIsNoWaiting(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FALCON_LAB_DIR", dir)
	j := startJob(t, "--iterations", "1000000")
	j.until(t, "the first iterations", func() bool {
		return j.iterations(20)() && j.beat(0) != nil
	})
	const ahead = 500 // iterations, of a few ms each: all ranks stop before the same one
	text := fmt.Sprintln(time.Now().Add(10*time.Minute).UnixNano(), j.beat(0).GetIteration()+ahead)
	if err := os.WriteFile(filepath.Join(dir, "stall.new"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "stall.new"), filepath.Join(dir, "stall")); err != nil {
		t.Fatal(err)
	}
	var still [realRanks]uint64
	quiet := func() bool { // no rank has made a call since the last time
		all := true
		for r := range int32(realRanks) {
			b := j.beat(r)
			all = all && b != nil && b.Calls == still[r]
			still[r] = b.GetCalls()
		}
		return all
	}
	seen := 0
	next := func() bool { return j.beats() > seen }
	for stood := 0; stood < 3; { // beats in a row, so that the last ones lie well behind the last call
		j.until(t, "the next beat", next)
		seen = j.beats()
		if stood++; !quiet() {
			stood = 0
		}
	}
	for r := range int32(realRanks) {
		b := j.beat(r)
		if !b.WaitingKnown || b.WaitingMs != 0 || b.HookAgeMs > 2000 {
			t.Errorf("rank %d: %v", r, b)
		}
	}
}
