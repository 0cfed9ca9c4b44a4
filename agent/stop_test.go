package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func stopCommand(generation uint64, ranks ...int32) *falconv1.Command {
	return &falconv1.Command{
		Body: &falconv1.Command_Stop{Stop: &falconv1.StopCommand{Generation: generation, Ranks: ranks}},
	}
}

func TestStopEndsWhatIsNotWanted(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		c := n.adapted(102, 2, "n1.g2")
		wait(time.Second)
		a.parks(2, 7, 7)
		c.goesOn(2, 7, 0)
		n.order(1, 10*time.Second, stopCommand(2))
		if a.recovery.stop != 2 ||
			a.recovery.suspended != 1 ||
			b.recovery.stop != 2 ||
			b.control.SuspendWanted != 2 ||
			c.recovery.stop != 0 {
			t.Fatalf("stopped %d, %d, %d", a.recovery.stop, b.recovery.stop, c.recovery.stop)
		}
		n.dir.exits[100].die("exited normally")
		n.expect(t, accepted)
		n.dir.exits[101].die("exited normally")
		wait(10 * time.Millisecond)
		n.expect(t, accepted, done)
		if st := n.newest(0); st.Alive || st.Exit != falconv1.ExitedNormally {
			t.Fatalf("state %v", st)
		}
		n.order(2, time.Second, stopCommand(3, 2))
		wait(2 * time.Second)
		got := n.expect(t, accepted, done, accepted, expired)
		if !strings.Contains(got[3].Detail, "rank 2 (pid 102) did not end in time") || c.recovery.stop != 3 {
			t.Fatalf("result %v", got[3])
		}
	})
}

func TestStopWithoutAnAdapter(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.order(1, time.Second, stopCommand(2))
		got := n.expect(t, refused)
		if !strings.Contains(got[0].Detail, "no adapter for recoveries") ||
			s.recovery.stop != 0 ||
			len(n.dir.exits[100].received()) > 0 {
			t.Fatalf("result %v", got[0])
		}
	})
}

// On a node that can start the job again, processes without an adapter are ended:
// those that hang after SIGTERM by SIGKILL, and none that was started since.
func TestStopBySignals(t *testing.T) {
	onNodeWith(
		t,
		launchConfig(),
		Options{Launch: &fakeMachine{how: map[int]string{}}},
		func(t *testing.T, n *node) {
			n.dir.add(100, 0, "n1.g0")
			n.dir.add(101, 1, "n1.g1")
			adapted := n.adapted(102, 2, "n1.g2")
			wait(time.Second)
			n.order(1, 50*time.Second, stopCommand(2))
			for pid, want := range map[int][]unix.Signal{100: {unix.SIGTERM}, 101: {unix.SIGTERM}, 102: nil} {
				if got := n.dir.exits[pid].received(); !slices.Equal(got, want) {
					t.Fatalf("process %d got %v", pid, got)
				}
			}
			if adapted.recovery.stop != 2 {
				t.Fatal("the process with an adapter was not ordered to end")
			}
			n.dir.exits[100].die("killed by signal 15 (SIGTERM)")
			n.dir.exits[102].die("exited normally")
			later := n.dir.add(103, 0, "n1.g0") // started by hand meanwhile
			later.set(func() {
				later.header.StartMonoNs = time.Now().UnixNano()
			})
			wait(16 * time.Second)
			if got := n.dir.exits[101].received(); !slices.Equal(got, []unix.Signal{
				unix.SIGTERM,
				unix.SIGKILL,
			}) {
				t.Fatalf("process 101 got %v", got)
			}
			if got := n.dir.exits[103].received(); len(got) > 0 {
				t.Fatalf("the new process got %v", got)
			}
			n.dir.exits[101].die("killed by signal 9 (SIGKILL)")
			wait(10 * time.Millisecond)
			n.expect(t, accepted, done)
		},
	)
}

// An agent without the right to end a process says so at once.
func TestStopWithoutTheRight(t *testing.T) {
	onNodeWith(
		t,
		launchConfig(),
		Options{Launch: &fakeMachine{how: map[int]string{}}},
		func(t *testing.T, n *node) {
			n.dir.add(100, 0, "n1.g0")
			wait(time.Second)
			n.dir.exits[100].refuses = unix.EPERM
			n.order(1, 50*time.Second, stopCommand(2))
			if got := n.expect(t, refused); !strings.Contains(got[0].Detail, "operation not permitted") {
				t.Fatalf("result %v", got[0])
			}
		},
	)
}

// What storage holds stands for what an adapter does not report.
func TestStoredCheckpoint(t *testing.T) {
	cfg := launchConfig()
	dir := t.TempDir()
	cfg.Launch.Checkpoint = filepath.Join(dir, "iter_{iteration}", "done")
	onNodeWith(t, cfg, Options{Launch: &fakeMachine{how: map[int]string{}}}, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n1.g0")
		reporting := n.adapted(101, 1, "n1.g1")
		silent := n.dir.segs[n.dir.entry(100).Path]
		silent.set(func() { silent.recovery.job.Checkpoint = falcon.NoIteration })
		reporting.set(func() { reporting.recovery.job.Checkpoint = 7 })
		wait(3 * time.Second)
		if got := n.newest(0).CheckpointIteration; got != 0 {
			t.Fatalf("a checkpoint of iteration %d is reported, none is there", got-1)
		}
		if err := os.MkdirAll(filepath.Join(dir, "iter_0040", "done"), 0o700); err != nil {
			t.Fatal(err)
		}
		wait(storedSeldom)
		if got := [2]int64{
			n.newest(0).CheckpointIteration,
			n.newest(1).CheckpointIteration,
		}; got != [2]int64{41, 8} {
			t.Fatalf("checkpoints %v, want the one of iteration 40, and the adapter's of 7, by one more each",
				got)
		}
	})
}
