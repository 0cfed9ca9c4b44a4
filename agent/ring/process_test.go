package ring

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	falcon "github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/internal/procstat"
)

// peer is a process under the real hook, driven over its standard input.
type peer struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	answer *bufio.Reader
	dir    string
}

// startPeer builds the hook, its fake NCCL and CUDA, and a program on strings.
func startPeer(t *testing.T, env ...string) *peer {
	t.Helper()
	return startWatched(
		t,
		"hook",
		buildPeer,
		append([]string{"LD_PRELOAD=../../bin/lib/libfalcon_hook.so"}, env...),
	)
}

// startWatched starts a peer that is watched as the variables of env say: a path in
// them is one from here.
func startWatched(t *testing.T, folder string, build func() (string, error), env []string) *peer {
	t.Helper()
	for _, tool := range []string{"gcc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: the reader was not run against the real hook", tool)
		}
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(bin, folder, "peer"))
	cmd.Env = append([]string{
		"LD_LIBRARY_PATH=" + filepath.Join(bin, folder),
		"FALCON_SHM_DIR=" + dir,
		"FALCON_JOB=my job",
		"FALCON_DEVICE=n1.g0",
		"RANK=3",
		"WORLD_SIZE=8",
		"LOCAL_RANK=1",
	}, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &peer{
		t:      t,
		cmd:    cmd,
		in:     in,
		answer: bufio.NewReader(out),
		dir:    dir,
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return p
}

// buildPeer makes the peer where `make build` has the hook: what is up to date is
// not compiled again.
var buildPeer = sync.OnceValues(func() (bin string, err error) { return makePeer("../../native/hook") })

var buildPluginPeer = sync.OnceValues(func() (bin string, err error) {
	return makePeer("../../native/profiler")
})

func makePeer(dir string) (bin string, err error) {
	if out, err := exec.Command("make", "-s", "-C", dir, "peer").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", dir, err, out)
	}
	return filepath.Abs("../../bin")
}

func (p *peer) do(verb string, arg int64) int64 {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, "%s %d\n", verb, arg); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.answer.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s %d: %v", verb, arg, err)
	}
	v, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *peer) open() *Process {
	p.t.Helper()
	live, stale, err := Discover(p.dir, "my job")
	if err != nil ||
		len(live) != 1 ||
		len(stale) != 0 ||
		live[0].PID != p.cmd.Process.Pid {
		p.t.Fatalf("Discover = %v, %v, %v", live, stale, err)
	}
	r, err := Open(live[0].Path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestAgainstTheHook(t *testing.T) {
	for _, clock := range []string{"FALCON_CLOCK=", "FALCON_CLOCK=mono"} {
		t.Run(clock, func(t *testing.T) {
			before := time.Now().UnixNano()
			p := startPeer(t, clock)
			p.do("init", 5)
			r := p.open()
			h := r.Header()
			if h.Rank != 3 ||
				h.World != 8 ||
				h.LocalRank != 1 ||
				h.Job != "my_job" ||
				h.Device != "n1.g0" ||
				h.PID != p.cmd.Process.Pid {
				t.Errorf("header %+v", h)
			}
			if h.StartUnixNs < before-1e9 || h.StartUnixNs > time.Now().UnixNano() {
				t.Errorf("start %d, now %d", h.StartUnixNs, before)
			}
			checkCalls(t, p, r)
			checkMarks(t, p, r)
			checkOrders(t, p, r)
		})
	}
}

// What the profiler plug-in writes reads as what the hook writes.
func TestAgainstThePlugin(t *testing.T) {
	p := startWatched(
		t,
		"profiler",
		buildPluginPeer,
		[]string{"NCCL_PROFILER_PLUGIN=../../bin/lib/libnccl-profiler-falcon.so"},
	)
	p.do("init", 5)
	r := p.open()
	checkCalls(t, p, r)
	c := r.Control()
	if c.Iteration != -1 ||
		c.Coverage != CoverInit|CoverColl|CoverProfiler ||
		c.Bound != (Binding{How: BoundProfiler, NCCL: 22809}) {
		t.Errorf("Control = %+v", c)
	}
}

func checkCalls(t *testing.T, p *peer, r *Process) {
	t.Helper()
	from := MonoNs()
	p.do("calls", 100)
	to := MonoNs()
	buf := make([]Record, 200)
	n, lost := r.Drain(buf)
	if n != 100 || lost != 0 {
		t.Fatalf("Drain = %d, %d", n, lost)
	}
	for i, c := range buf[:n] {
		if c.Ordinal != uint64(i) ||
			c.Op != falcon.OpAllReduce ||
			c.Count != 256 ||
			c.Stream != 16 ||
			c.Comm != 0 {
			t.Fatalf("record %d: %+v", i, c)
		}
		// The conversion from ticks is good to well under 0.1 ms.
		if c.EnterNs < from-100_000 ||
			c.ExitNs > to+100_000 ||
			c.ExitNs < c.EnterNs {
			t.Fatalf("record %d: entered %d, left %d, not within %d..%d", i, c.EnterNs, c.ExitNs, from, to)
		}
	}
	comms := r.Comms(nil)
	if len(comms) != 1 ||
		comms[0].Size != 4 ||
		comms[0].Rank != 1 ||
		comms[0].Calls != 100 ||
		comms[0].State != CommLive ||
		comms[0].ID == 0 {
		t.Errorf("Comms = %+v", comms)
	}
}

func checkMarks(t *testing.T, p *peer, r *Process) {
	t.Helper()
	c := r.Control()
	if c.Iteration != -1 ||
		c.Coverage&^CoverWaiting != CoverInit|CoverColl ||
		c.Bound != (Binding{How: BoundNeeded, NCCL: 22700}) {
		t.Errorf("Control = %+v", c)
	}
	for i := range int64(3) {
		p.do("iteration", i)
	}
	p.do("calls", 1)
	marks, next, lost := r.Marks(0, nil)
	if len(marks) != 3 ||
		next != 3 ||
		lost != 0 ||
		marks[2].Iteration != 2 ||
		marks[2].StartNs < marks[1].StartNs {
		t.Errorf("Marks = %+v, %d, %d", marks, next, lost)
	}
	var buf [2]Record
	if n, _ := r.Drain(buf[:]); n != 1 || buf[0].Step != 2 {
		t.Errorf("step of the call: %+v", buf[0])
	}
}

func checkOrders(t *testing.T, p *peer, r *Process) {
	t.Helper()
	order := falcon.Order{
		ID:           1,
		Epoch:        4,
		Kind:         falcon.OrderMicroBatches,
		MicroBatches: []int32{9, 9, 5, 7},
	}
	if err := r.PutOrder(order); err != nil {
		t.Fatal(err)
	}
	if id, last := p.do("poll", 3), p.do("fetch", 1); id != 1 || last != 7 {
		t.Errorf("the rank polled %d and fetched %d", id, last)
	}
	p.do("ack", 12)
	c := r.Control()
	if c.CommittedOrder != 1 || c.CommittedIteration != 12 || c.CommittedStatus != 0 {
		t.Errorf("acknowledged %+v", c)
	}
	for _, bad := range []falcon.Order{
		order,
		{ID: 2, Kind: "dance"},
		{ID: 2, Kind: falcon.OrderMicroBatches, MicroBatches: make([]int32, 1025)},
	} {
		if err := r.PutOrder(bad); !errors.Is(err, ErrOrder) {
			t.Errorf("order %d %q was taken: %v", bad.ID, bad.Kind, err)
		}
	}
}

// TestProfileAgainstTheHook opens a window on the real hook with events of a
// fake CUDA runtime, where each call takes 3 ms.
func TestProfileAgainstTheHook(t *testing.T) {
	p := startPeer(t)
	p.do("init", 5)
	p.do("calls", 1)
	r := p.open()
	var mask CommMask
	mask.Add(0)
	r.StartProfile(9, MonoNs()+int64(time.Minute), mask)
	buf := make([]Record, 100)
	timed := 0
	for timed < 5 {
		p.do("calls", 1)
		n, _ := r.Drain(buf)
		for _, c := range buf[:n] {
			if c.Flags&FlagTimed != 0 {
				timed++
			}
		}
	}
	r.StopProfile()
	for r.Control().ProfileDone != 9 {
		time.Sleep(time.Millisecond)
	}
	got := r.Timings(9, nil)
	if len(got) != timed || r.Control().TimingsLost != 0 {
		t.Fatalf("%d timings of %d timed calls, %d lost", len(got), timed, r.Control().TimingsLost)
	}
	for _, x := range got {
		// longer when this machine is busy
		if x.Bytes != 1024 || x.DurationNs < 2_990_000 || x.Op != falcon.OpAllReduce {
			t.Errorf("timing %+v", x)
		}
	}
}

func TestStaleAndGoneFiles(t *testing.T) {
	p := startPeer(t)
	p.do("init", 1)
	r := p.open()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	live, stale, err := Discover(p.dir, "")
	if err != nil || len(live) != 0 || len(stale) != 1 {
		t.Fatalf("after a crash: live %v, stale %v, %v", live, stale, err)
	}
	if err := errors.Join(stale[0].Remove(), stale[0].Remove()); err != nil {
		t.Error(err)
	}
	if n, _ := r.Drain(make([]Record, 8)); n != 0 || r.Err() != nil {
		t.Errorf("the mapping of a removed file: %d records, %v", n, r.Err())
	}
}

func TestNormalExitRemovesTheFile(t *testing.T) {
	p := startPeer(t)
	p.do("init", 1)
	p.open()
	_, _ = io.WriteString(p.in, "quit 0\n")
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if live, stale, _ := Discover(p.dir, ""); len(live)+len(stale) != 0 {
		t.Errorf("left behind: %v %v", live, stale)
	}
}

// ownHead is what the hook would write of this process.
func ownHead(t *testing.T) image {
	t.Helper()
	m := blank()
	var pids, times unix.Stat_t
	st, err := procstat.Read("/proc", os.Getpid())
	boot, err2 := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err = errors.Join(
		err,
		err2,
		unix.Stat("/proc/self/ns/pid", &pids),
		unix.Stat("/proc/self/ns/time", &times),
	); err != nil {
		t.Fatal(err)
	}
	m.writeUint32(hdrPID, uint32(os.Getpid()))
	m.writeUint64(hdrProcStart, st.Start)
	m.writeUint64(hdrPIDNs, pids.Ino)
	m.writeUint64(hdrTimeNs, times.Ino)
	copy(m[hdrBoot:], strings.TrimSpace(string(boot)))
	// says nothing: the wall clock may have been set
	m.writeUint64(hdrStartUnixNs, uint64(time.Now().AddDate(-1, 0, 0).UnixNano()))
	return m
}

// A number alone proves nothing: the start, the boot and the mapping have to be the
// process's own.
func TestFilesOfThisProcessAreProven(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m image)
		mapped bool
		live   int
	}{
		"its own":             {func(image) {}, true, 1},
		"not mapped":          {func(image) {}, false, 0},
		"of an older process": {func(m image) { m.writeUint64(hdrProcStart, 7) }, true, 0},
		"of an earlier boot": {func(m image) {
			copy(m[hdrBoot:], "0a0a0a0a")
		}, true, 0},
		"of an older hook":          {forgetProof, true, 1},
		"of an older hook, old":     {forgetProof, false, 0},
		"in a namespace that is no": {func(m image) { m.writeUint64(hdrPIDNs, 12) }, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := ownHead(t)
			c.change(m)
			path := filepath.Join(dir, fmt.Sprintf("falcon.a.b.%d", os.Getpid()))
			if err := os.WriteFile(path, m, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.mapped {
				p, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = p.Close() }()
			}
			live, stale, err := Discover(dir, "a.b")
			if err != nil || len(live) != c.live || len(stale) != 1-c.live {
				t.Errorf("live %v, stale %v, %v", live, stale, err)
			}
			for _, e := range append(live, stale...) {
				if e.Job != "a.b" || e.PID != os.Getpid() {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

func forgetProof(m image) {
	m.writeUint32(hdrVersion, oldestVersion)
	m.writeUint32(hdrHeaderBytes, headerBytesOlder)
	clear(m[headerBytesOlder:headerBytes])
}

// TestShrinkingFile: a file that is cut under the mapping is an error, not a
// crash of the agent.
func TestShrinkingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "falcon.j.77")
	if err := os.WriteFile(path, blank(), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	n, _ := p.Drain(make([]Record, 8))
	if n != 0 || !errors.Is(p.Err(), ErrCorrupt) {
		t.Errorf("drained %d, err %v", n, p.Err())
	}
	exercise(p)
	if err := p.PutOrder(falcon.Order{ID: 1, Kind: falcon.OrderStop}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("PutOrder: %v", err)
	}
}

// Where the kernel refuses the hook its memory, it says so, and the job trains on.
func TestARefusedHookIsNamed(t *testing.T) {
	dir := t.TempDir()
	m := ownHead(t)
	m.writeUint32(hdrRefused, refusedMap)
	m.writeUint32(hdrRefusedErrno, uint32(unix.EPERM))
	if err := os.WriteFile(
		filepath.Join(dir, fmt.Sprintf("falcon.j.%d", os.Getpid())),
		m[:headerBytes],
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	all, err := NewScanner(dir, "j").Discover(time.Now())
	if err != nil || len(all.Live)+len(all.Stale) > 0 || len(all.Unproven) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	u := all.Unproven[0].Unproven
	if u.Reason != falcon.UnprovenRefused ||
		u.RefusedCall != "mmap" ||
		u.RefusedBy != "EPERM" ||
		u.PID != os.Getpid() {
		t.Errorf("%+v", u)
	}
}

// A hook of another release is said with both numbers; the job's file is left alone.
func TestAFileOfAnotherVersionIsNamed(t *testing.T) {
	dir := t.TempDir()
	m := ownHead(t)
	m.writeUint32(hdrVersion, shmVersion+1)
	path := filepath.Join(dir, fmt.Sprintf("falcon.j.%d", os.Getpid()))
	if err := os.WriteFile(path, m, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	mem, err := unix.Mmap(
		int(f.Fd()),
		0,
		pageBytes,
		unix.PROT_READ,
		unix.MAP_SHARED,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	all, err := NewScanner(dir, "j").Discover(time.Now())
	if err != nil || len(all.Live)+len(all.Stale) > 0 || len(all.Unproven) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	u := all.Unproven[0].Unproven
	if u.Reason != falcon.UnprovenVersion ||
		u.HookFormat != shmVersion+1 ||
		u.AgentFormat != shmVersion ||
		u.Rank != 2 {
		t.Errorf("%+v", u)
	}
}
