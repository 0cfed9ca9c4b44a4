package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var labThrottle = flag.Int("lab-throttle", 0,
	"so many labs in which a CPU quota throttles the ranks of a node in truth")

// A few hundredths of a CPU are the node's: two hogs use them up at the begin of each
// period, and ranks and hogs wait for the next one. The plays take turns between the
// usual period, which the ranks' lead over their GPUs hides for a part, and the longest.
var quotaKinds = []struct{ periodUs, quotaUs int }{{1_000_000, 60_000}, {100_000, 4_000}}

const quotaNode = "n2"

// quotas are real cgroups, one for each node of a lab. On the older hierarchy quotas are in
// one tree and pressure is in another.
type quotas struct {
	roots    []string
	unified  bool // quotas are in the unified hierarchy
	periodUs int
}

const cgroupMount = "/sys/fs/cgroup"

// newQuotas makes them, or skips the test with the reason.
func newQuotas(t *testing.T, nodes int) quotas {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	name := fmt.Sprintf("falcon-test-%d", os.Getpid())
	q := quotas{
		roots: []string{filepath.Join(cgroupMount, "cpu", name), filepath.Join(cgroupMount, "unified", name)},
	}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		q = quotas{roots: []string{filepath.Join(cgroupMount, name)}, unified: true}
		_ = os.WriteFile(filepath.Join(cgroupMount, "cgroup.subtree_control"), []byte("+cpu"), 0o600)
	}
	t.Cleanup(func() { q.remove(nodes) })
	for _, root := range q.roots {
		err := os.Mkdir(root, 0o755)
		if err == nil && q.unified {
			err = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0o600)
		}
		for i := 0; i < nodes && err == nil; i++ {
			err = os.Mkdir(filepath.Join(root, "n"+strconv.Itoa(i)), 0o755)
		}
		if err != nil {
			t.Skipf("no cgroup with a CPU quota can be made here: %v", err)
		}
	}
	return q
}

func (q quotas) remove(nodes int) {
	for _, root := range q.roots {
		for i := range nodes {
			_ = os.Remove(filepath.Join(root, "n"+strconv.Itoa(i)))
		}
		_ = os.Remove(root)
	}
}

// limit gives a node's cgroup a quota, or none.
func (q quotas) limit(node string, us int) error {
	dir := filepath.Join(q.roots[0], node)
	if !q.unified {
		if err := os.WriteFile(
			filepath.Join(dir, "cpu.cfs_period_us"),
			[]byte(strconv.Itoa(q.periodUs)),
			0o600,
		); err != nil {
			return err
		}
		return os.WriteFile(
			filepath.Join(dir, "cpu.cfs_quota_us"),
			[]byte(strconv.Itoa(us)),
			0o600,
		)
	}
	most := "max"
	if us > 0 {
		most = strconv.Itoa(us)
	}
	return os.WriteFile(
		filepath.Join(dir, "cpu.max"),
		[]byte(most+" "+strconv.Itoa(q.periodUs)),
		0o600,
	)
}

// put moves a process into the cgroups of a node. On the older hierarchy its real-time
// threads stay outside: they are the emulated GPUs, which no CPU quota holds.
func (q quotas) put(node string, pid int) error {
	var all []error
	for i, root := range q.roots {
		dir := filepath.Join(root, node)
		if i > 0 || q.unified {
			all = append(all, os.WriteFile(
				filepath.Join(dir, "cgroup.procs"),
				[]byte(strconv.Itoa(pid)),
				0o600,
			))
			continue
		}
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		all = append(all, err)
		for _, tid := range threads {
			err := os.WriteFile(
				filepath.Join(dir, "tasks"),
				[]byte(tid.Name()),
				0o600,
			)
			if !errors.Is(err, syscall.EINVAL) {
				all = append(all, err)
			}
		}
	}
	return errors.Join(all...)
}

// rankProcesses are the training processes below one process, with their nodes.
func rankProcesses(ancestor int) map[int]string {
	out := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !isBelow(pid, ancestor) {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		for v := range strings.SplitSeq(string(env), "\x00") {
			if d, is := strings.CutPrefix(v, "FALCON_DEVICE="); is {
				out[pid] = string(falcon.Device(d).Node())
			}
		}
	}
	return out
}

func isBelow(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			pid, _ = strconv.Atoi(f[1])
			continue
		}
		return false
	}
	return pid == ancestor
}

// throttled is a lab whose ranks a quota throttles.
type throttled struct {
	t       *testing.T
	cmd     *exec.Cmd
	quota   quotas
	quotaUs int
	mu      sync.Mutex // guards hogs
	hogs    []*exec.Cmd
	since   time.Time // of the quota
	named   time.Duration
	lines   []string
}

// A real quota with real hogs beside the ranks: found and explained by what the kernel counts.
func TestQuotaIsNamed(t *testing.T) {
	if *labThrottle == 0 {
		t.Skip("labs with real cgroups, as root: run make throttle")
	}
	for i := range *labThrottle {
		kind := quotaKinds[i%len(quotaKinds)]
		t.Run(fmt.Sprintf("%d-period-%d-us", i+1, kind.periodUs), func(t *testing.T) {
			playQuota(t, kind.periodUs, kind.quotaUs)
		})
	}
}

func playQuota(t *testing.T, periodUs, quotaUs int) {
	sc := scenario("quota", 4, 2, 4, 8, 5, 1000)
	sc.Iterations, sc.RealCPU = 150, true
	w := &throttled{
		t:       t,
		quota:   newQuotas(t, sc.Nodes),
		quotaUs: quotaUs,
	}
	w.quota.periodUs = periodUs
	report := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(context.Background(), labWithin)
	defer cancel()
	w.cmd = exec.CommandContext(
		ctx,
		binFalcon(t),
		"lab",
		"run",
		"--headless",
		"--approve", "never",
		"--report", report,
		"--scenario", scenarioFile(t, sc),
	)
	w.cmd.Cancel = func() error {
		return w.cmd.Process.Signal(syscall.SIGTERM)
	}
	w.cmd.WaitDelay = 20 * time.Second
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.endHogs()
	w.follow(out)
	if err := w.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(w.lines, "\n"))
	}
	r, err := readReport(report)
	if err != nil {
		t.Fatal(err)
	}
	if bad := judgeQuota(r); len(bad) > 0 {
		t.Fatalf("%s\n%s", strings.Join(bad, "; "), strings.Join(w.lines, "\n"))
	}
	t.Logf("named %.1f s after the quota, %d incidents", w.named.Seconds(), len(r.Incidents))
}

// follow puts the ranks into cgroups once they train, and a quota on one once
// a healthy profile is known; it lifts that some time after the verdict.
func (w *throttled) follow(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		w.lines = append(w.lines, line)
		switch {
		case strings.Contains(line, "Healthy profile of") && w.since.IsZero():
			w.begin()
		case strings.Contains(line, "CPU contention") &&
			w.named == 0 &&
			!w.since.IsZero():
			w.named = time.Since(w.since)
			time.AfterFunc(10*time.Second, func() {
				_ = w.quota.limit(quotaNode, -1)
				w.endHogs()
			})
		}
	}
}

func (w *throttled) begin() {
	ranks := rankProcesses(w.cmd.Process.Pid)
	if len(ranks) != 8 {
		w.t.Errorf("%d ranks are found: %v", len(ranks), ranks)
	}
	for pid, node := range ranks {
		if err := w.quota.put(node, pid); err != nil {
			w.t.Error(err)
		}
	}
	time.AfterFunc(3*time.Second, func() { // what the counters say without a quota is known first
		w.mu.Lock()
		defer w.mu.Unlock()
		for range 2 {
			hog := exec.Command("sh", "-c", "while :; do :; done")
			if err := errors.Join(hog.Start(), w.quota.put(quotaNode, hog.Process.Pid)); err != nil {
				w.t.Error(err)
			}
			w.hogs = append(w.hogs, hog)
		}
		if err := w.quota.limit(quotaNode, w.quotaUs); err != nil {
			w.t.Error(err)
		}
	})
	w.since = time.Now().Add(3 * time.Second)
}

func (w *throttled) endHogs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hogs {
		_ = h.Process.Kill()
		_ = h.Wait()
	}
	w.hogs = nil
}

// judgeQuota: an incident has its cause and node by the kernel's own count, and clears once the
// quota is lifted; no other part is ever named. A slowdown that comes and goes with the
// periods may be several incidents.
func judgeQuota(r lab.Report) []string {
	if len(r.Incidents) == 0 {
		return []string{"no incident"}
	}
	var bad []string
	named := false
	for _, in := range r.Incidents {
		v := in.Verdict
		if slices.ContainsFunc(v.Devices, func(d string) bool {
			return string(falcon.Device(d).Node()) != quotaNode
		}) ||
			len(v.Links) > 0 {
			bad = append(bad, fmt.Sprintf("%s: %s on %v %v",
				in.ID, v.Cause, v.Devices, v.Links))
		}
		proof := func(text string) bool {
			return strings.Contains(text, quotaNode+": the ranks' CPU quota throttles them")
		}
		if !(v.Cause == string(falcon.CauseCPU) &&
			len(v.Devices) > 0 &&
			slices.ContainsFunc(v.Evidence, proof)) {
			continue // the machine's own
		}
		if named = true; in.RelievedIteration == nil {
			bad = append(bad, in.ID+" has not cleared although the quota was lifted")
		}
	}
	if !named {
		bad = append(bad, fmt.Sprintf("not named by the quota: %+v", r.Incidents[0].Verdict))
	}
	return bad
}
