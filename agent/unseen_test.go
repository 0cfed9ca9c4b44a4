package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// procFS is a kernel's files about processes, up for 1000 s.
type procFS struct {
	t   *testing.T
	dir string
}

func newProcFS(t *testing.T) procFS {
	p := procFS{t, t.TempDir()}
	p.write("uptime", "1000.00 50.00\n")
	p.write("self/stat", "no number")
	return p
}

func (p procFS) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p procFS) process(pid, parent int, born time.Duration, environ, maps string) {
	at := strconv.Itoa(pid) + "/"
	p.write(
		at+
			"stat",
		fmt.Sprintf("%d (python) S %d 2 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 5 0 %d 0 0\n",
			pid, parent, born/(time.Second/clockHz)),
	)
	p.write(at+"environ", strings.ReplaceAll(environ, " ", "\x00")+"\x00")
	p.write(at+"maps", maps)
}

const (
	ncclMap  = "7f0000000000-7f0000001000 r-xp 00000000 00:00 1 /opt/nvidia/nccl/lib/libnccl.so.2\n"
	torchMap = "7f0000002000-7f0000003000 r-xp 00000000 00:00 2 /opt/torch/lib/libtorch_cuda.so\n"
	hookMap  = "7f0000004000-7f0000005000 r-xp 00000000 00:00 3 /opt/falcon/lib/libfalcon_hook.so\n"
)

func (p procFS) look(u *unseenRanks, now time.Time, live ...int) []*falconv1.UnseenRank {
	var files []ring.Entry
	for _, pid := range live {
		files = append(files, ring.Entry{PID: pid})
	}
	u.scanProcesses(now, files)
	for len(u.todo) > 0 {
		u.scanProcesses(now, files)
	}
	return u.report()
}

func (p procFS) ranks() unseenRanks {
	return newUnseenRanks(p.dir, "n1", "my job", "/dev/shm")
}

func TestRanksThatTheHookDoesNotShow(t *testing.T) {
	p := newProcFS(t)
	// without the hook
	p.process(10, 1, 0, "A=b RANK=3", ncclMap)
	p.process(11, 1, 0, "RANK=4 FALCON_JOB=my_job FALCON_SHM_DIR=/dev/shm/", hookMap+torchMap) // past it
	p.process(12, 1, 0, "RANK=5", hookMap+ncclMap)                                             // it is seen
	// reads data for it
	p.process(20, 12, 0, "RANK=5", hookMap+ncclMap)
	p.process(21, 10, 0, "RANK=3", ncclMap) // likewise
	// and in a shell
	p.process(22, 23, 0, "RANK=3", ncclMap)
	p.process(23, 10, 0, "RANK=3", "")                    //
	p.process(30, 1, 900*time.Second, "RANK=6", ncclMap)  // too young
	p.process(31, 1, 0, "RANK=7", "7f0 /lib/libc.so.6\n") // has no NCCL
	p.process(32, 1, 0, "HOME=/ XRANK=1", ncclMap)        // no rank
	p.process(33, 1, 0, "RANK=-1", ncclMap)               // no rank
	// another job's
	p.process(34, 1, 0, "RANK=8 FALCON_JOB=another", ncclMap)
	// another agent's
	p.process(35, 1, 0, "RANK=9 FALCON_SHM_DIR=/dev/shm/other", hookMap+ncclMap)
	// another node's
	p.process(36, 1, 0, "RANK=9 FALCON_JOB=my_job FALCON_DEVICE=n2.g0", hookMap+ncclMap)
	p.process(37, 1, 0, "RANK=nine", ncclMap) // no rank
	// a loop of parents
	p.process(38, 38, 0, "RANK=10", ncclMap)
	u := p.ranks()
	want := []*falconv1.UnseenRank{
		{Rank: 3, Pid: 10, Reason: uint32(falcon.UnprovenNoHook)},
		{Rank: 4, Pid: 11, Hooked: true, Reason: uint32(falcon.UnprovenNoCall)},
	}
	diff := cmp.Diff(want, p.look(&u, time.Unix(1e6, 0), 12), protocmp.Transform())
	if diff != "" {
		t.Error(diff)
	}
}

// A process that was seen once is never reported: after its training it may live on
// without its file. A number that is used again is another process.
func TestProcessesThatWereSeenStaySeen(t *testing.T) {
	p := newProcFS(t)
	p.process(10, 1, 0, "RANK=3", hookMap+ncclMap)
	u := p.ranks()
	now := time.Unix(1e6, 0)
	if got := p.look(&u, now, 10); len(got) != 0 {
		t.Error("followed:", got)
	}
	if got := p.look(&u, now.Add(time.Minute)); len(got) != 0 {
		t.Error("its file is gone:", got)
	}
	p.process(10, 1, time.Second, "RANK=3", hookMap+ncclMap)
	if got := p.look(&u, now.Add(2*time.Minute)); len(got) != 1 {
		t.Error("another process:", got)
	}
	if err := os.RemoveAll(filepath.Join(p.dir, "10")); err != nil {
		t.Fatal(err)
	}
	if got := p.look(&u, now.Add(3*time.Minute)); len(got) != 0 || len(u.others) != 0 {
		t.Error("it is gone:", got, u.others)
	}
}

// However many processes there are, one scan looks at a few.
func TestManyProcessesAreLookedAtInTurn(t *testing.T) {
	p := newProcFS(t)
	for pid := range 3 * unseenStep {
		p.process(100+pid, 1, 0, "RANK="+strconv.Itoa(pid), ncclMap)
	}
	u := p.ranks()
	now := time.Unix(1e6, 0)
	for range 2 {
		if u.scanProcesses(now, nil); len(u.report()) != 0 {
			t.Fatal("reported before all were looked at")
		}
	}
	if u.scanProcesses(now, nil); len(u.report()) != unseenMax {
		t.Errorf("%d are reported, want %d", len(u.report()), unseenMax)
	}
	if u.scanProcesses(now.Add(unseenEvery/2), nil); len(u.todo) != 0 {
		t.Error("looked again too soon")
	}
}
