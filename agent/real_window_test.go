package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const (
	wideRanks = 8
	wideCalls = 5000 // per iteration
)

// wideRank calls NCCL from a program of its own as a large model's rank does:
// thousands of calls per iteration, a mark at the begin of each.
const wideRank = `
import ctypes, sys, time
nccl, cuda, job = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcudart.so.12"), ctypes.CDLL(None)
class Id(ctypes.Structure): _fields_ = [("b", ctypes.c_char * 128)]
ident, comm, stream, data = Id(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert nccl.ncclGetUniqueId(ctypes.byref(ident)) == 0
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Id, ctypes.c_int]
assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, ident, 0) == 0
assert cuda.cudaStreamCreate(ctypes.byref(stream)) == 0
assert cuda.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(64)) == 0
reduce = nccl.ncclAllReduce
reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
begin = job.falcon_job_begin_iteration
begin.argtypes = [ctypes.c_int64]
for i in range(10**9):
    begin(i)
    for call in range(int(sys.argv[1])):
        assert reduce(data, data, 4, 7, 0, comm, stream) == 0
        if call % 100 == 0: time.sleep(0.01)
    cuda.cudaStreamSynchronize(stream)
`

// wideJob starts the ranks, each with a communicator of its own.
func wideJob(t *testing.T) *realJob {
	t.Helper()
	lib, err := filepath.Abs("../bin/lib")
	if err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(lib, "libfalcon_hook.so")
	python, err := exec.LookPath("python3")
	if _, missing := os.Stat(hook); missing != nil || err != nil {
		t.Skipf("%s or python3 is not there: run make build first", hook)
	}
	j := &realJob{dir: sharedFolder(t), ship: &fakeShip{}}
	j.follow(t)
	for r := range wideRanks {
		cmd := exec.Command(python, "-c", wideRank, strconv.Itoa(wideCalls))
		cmd.Env = append(os.Environ(),
			"RANK="+strconv.Itoa(r),
			"WORLD_SIZE="+strconv.Itoa(wideRanks),
			"LOCAL_RANK="+strconv.Itoa(r),
			"LD_LIBRARY_PATH="+lib,
			"LD_PRELOAD="+hook,
			"FALCON_JOB=real",
			"FALCON_SHM_DIR="+j.dir,
			fmt.Sprintf("FALCON_DEVICE=n1.g%d", r),
		)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, cmd)
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return j
}

// checkWide wants what a window says to hold: either a rank's every call is there,
// or losses are counted and only whole iterations are left.
func checkWide(t *testing.T, id uint64, p *falconv1.RankProfile) {
	t.Helper()
	got := len(p.Calls)
	least := int(p.Iterations) * wideCalls
	if got < least || p.Dropped > 0 && got != least {
		t.Errorf("window %d, rank %d: %d calls in %d iterations of %d, %d dropped",
			id, p.Rank, got, p.Iterations, wideCalls, p.Dropped)
	}
	ordinals := make([]uint64, len(p.Calls))
	for i, c := range p.Calls {
		ordinals[i] = c.Ordinal
	}
	slices.Sort(ordinals)
	if n := len(slices.Compact(ordinals)); n != len(p.Calls) {
		t.Errorf("window %d, rank %d: %d of %d calls twice",
			id, p.Rank, len(p.Calls)-n, len(p.Calls))
	}
}

// The agent reads eight ranks of thousands of calls per iteration, also where it comes
// too late to read all records: nothing is lost uncounted, and no rate is less than it is.
func TestWindowsOfThousandsOfCalls(t *testing.T) {
	j := wideJob(t)
	j.until(t, "the first iterations", func() bool {
		return len(j.byRank()) == wideRanks
	})
	whole := 0
	late := uint64(0)
	for id := uint64(1); id <= 12 && (whole < 2*wideRanks || late == 0); id++ {
		j.agent.Command(profileCommand(id, 2))
		if id%2 == 0 { // a slow reader: the loop stands still until the rings have overflowed
			j.ship.mu.Lock()
			time.Sleep(3 * time.Second)
			j.ship.mu.Unlock()
		}
		r := j.result(t, id)
		if r.Status != done && r.Detail == "" {
			t.Fatalf("window %d: %v", id, r)
		}
		for _, p := range j.ship.profiles() {
			for _, q := range p.Ranks {
				if p.Window == id {
					checkWide(t, id, q)
					whole += min(1, int(q.Iterations))
					late += q.Dropped
				}
			}
		}
		t.Logf("window %d: %s; %d whole so far, %d dropped", id, r.Detail, whole, late)
	}
	if whole < wideRanks {
		t.Errorf("only %d ranks ever had a whole iteration", whole)
	}
}
