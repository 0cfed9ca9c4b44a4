package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// needNamespaces skips where no PID namespace can be made.
func needNamespaces(t *testing.T) {
	t.Helper()
	out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput()
	if os.Getuid() != 0 || err != nil {
		t.Skipf("needs root and unshare to make PID namespaces: %v %s", err, out)
	}
}

// bystander is a process of the host that has nothing to do with the job. It notes the
// signals that it is sent.
type bystander struct {
	cmd  *exec.Cmd
	note string
}

func newBystander(t *testing.T) *bystander {
	t.Helper()
	s := &bystander{note: filepath.Join(t.TempDir(), "signals")}
	s.cmd = exec.Command(
		"sh",
		"-c", `trap 'echo TERM >>"$0"' TERM; echo up >"$0"; while :; do sleep 0.05; done`,
		s.note,
	)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	for end := time.Now().Add(realPatience); s.notes() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process did not start")
		}
	}
	return s
}

func (s *bystander) notes() string {
	text, _ := os.ReadFile(s.note)
	return string(text)
}

func (s *bystander) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *bystander) checkUntouched(t *testing.T) {
	t.Helper()
	got := s.notes()
	if got != "up\n" || syscall.Kill(s.cmd.Process.Pid, 0) != nil {
		t.Errorf("process %d, which is a stranger, was signalled: %q", s.cmd.Process.Pid, got)
	}
}

// inNamespace is a command in a PID namespace of its own, where it has number pid.
func inNamespace(pid int, argv ...string) []string {
	const script = `echo $(($0-1)) >/proc/sys/kernel/ns_last_pid; "$@" & wait $!`
	return slices.Concat(
		[]string{
			"unshare",
			"--pid",
			"--fork",
			"--mount-proc",
			"--kill-child", "sh",
			"-c", script,
			strconv.Itoa(pid),
		},
		argv,
	)
}

// innerProcess is the process with a number in another namespace, by the host's number.
func innerProcess(t *testing.T, pid int) int {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(text), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		numbers := strings.Fields(line)
		if len(numbers) > 1 && numbers[len(numbers)-1] == strconv.Itoa(pid) {
			n, _ := strconv.Atoi(numbers[0])
			return n
		}
	}
	t.Fatalf("no process has number %d in a namespace", pid)
	return 0
}

// contained is a job whose ranks have PID namespaces of their own, and share the folder
// with the agent: as containers with --ipc=host. Each has the number that a stranger has
// on the host.
type contained struct {
	*realJob
	strangers []*bystander
}

func startContained(t *testing.T, args ...string) *contained {
	t.Helper()
	needNamespaces(t)
	c := &contained{}
	for range realRanks {
		c.strangers = append(c.strangers, newBystander(t))
	}
	c.realJob = startJobBy(t, func(r int, argv []string) []string {
		return inNamespace(c.strangers[r].cmd.Process.Pid, argv...)
	}, args...)
	return c
}

func (c *contained) endsOf(rank int32) (ends []*falconv1.RankState) {
	for _, st := range c.ship.states() {
		if st.Rank == rank && !st.Alive {
			ends = append(ends, st)
		}
	}
	return ends
}

// A number is a name: in the usual container it is another process's on the host.
func TestRanksInContainersAreTheirOwnProcesses(t *testing.T) {
	c := startContained(t, "--iterations", "100000")
	c.until(t, "the first iterations", c.iterations(5))
	for _, st := range c.ship.states() {
		want := innerProcess(t, c.strangers[st.Rank].cmd.Process.Pid)
		if int(st.Pid) != want {
			t.Fatalf("rank %d is process %d, it is followed as %d", st.Rank, want, st.Pid)
		}
	}
	c.strangers[1].end()
	n := len(c.byRank()[0])
	c.until(t, "a few iterations more", func() bool {
		return len(c.byRank()[0]) > n+20
	})
	if ends := c.endsOf(1); len(ends) > 0 {
		t.Fatalf("a stranger ended, and rank 1 is reported: %v", ends)
	}
	if err := syscall.Kill(innerProcess(t, c.strangers[2].cmd.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.until(t, "the end of rank 2", func() bool {
		return len(c.endsOf(2)) > 0
	})
}

// A restart ends by signals what has no adapter, and nothing else.
func TestARestartSignalsNoStranger(t *testing.T) {
	c := startContained(t, "--iterations", "100000", "--no-adapter")
	c.until(t, "all ranks", func() bool {
		known := map[int32]bool{}
		for _, st := range c.ship.states() {
			known[st.Rank] = true
		}
		return len(known) == realRanks
	})
	var ranks []int
	for _, s := range c.strangers {
		ranks = append(ranks, innerProcess(t, s.cmd.Process.Pid))
	}
	cmd := stopCommand(9)
	cmd.Id = 1
	cmd.DeadlineUnixNs = time.Now().Add(20 * time.Second).UnixNano()
	c.agent.Command(cmd)
	if r := c.result(t, 1); r.Status != done {
		t.Errorf("the stop: %v", r)
	}
	for _, pid := range ranks {
		if _, runs := startTicks(pid); runs {
			t.Errorf("process %d, a rank, still runs", pid)
		}
	}
	for _, s := range c.strangers {
		s.checkUntouched(t)
	}
}

// Where the agent can see neither the ranks nor their namespaces, nothing is followed and
// nothing signalled: the sentence says what is missing. The agent's own namespace has a
// process with each of the ranks' numbers.
func TestRanksThatCantBeSeenAreNamed(t *testing.T) {
	needNamespaces(t)
	if dir := os.Getenv("FALCON_TEST_HIDDEN"); dir != "" {
		for end := time.Now().Add(realPatience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			all, err := ring.NewScanner(dir, "real").Discover(time.Now())
			if err != nil || len(all.Live) > 0 {
				t.Fatalf("%+v, %v", all, err)
			}
			if len(all.Unproven) == realRanks {
				for _, e := range all.Unproven {
					t.Log(e.Unproven)
				}
				return
			}
		}
		t.Fatal("not all are named")
	}
	j := startJob(t, "--iterations", "100000")
	j.until(t, "the first iterations", j.iterations(5))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(
		"unshare",
		"--pid",
		"--fork",
		"--mount-proc", self,
		"-test.run", "^"+t.Name()+"$",
		"-test.v",
	)
	cmd.Env = append(os.Environ(), "FALCON_TEST_HIDDEN="+j.dir)
	out, err := cmd.CombinedOutput()
	if err != nil ||
		strings.Count(string(out), "is in a PID namespace that the agent can't see") != realRanks ||
		!strings.Contains(string(out), "--pid=host") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Containers in a container: the agent in a namespace that holds the ranks' sees them.
func TestNestedNamespacesAreSeen(t *testing.T) {
	needNamespaces(t)
	if os.Getenv("FALCON_TEST_NESTED") == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(
			"unshare",
			"--pid",
			"--fork",
			"--mount-proc",
			"--kill-child", self,
			"-test.run", "^"+t.Name()+"$",
			"-test.v",
		)
		cmd.Env = append(os.Environ(), "FALCON_TEST_NESTED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	c := startContained(t, "--iterations", "100000")
	c.until(t, "the first iterations", c.iterations(5))
	for _, st := range c.ship.states() {
		_, runs := startTicks(int(st.Pid))
		if !runs || int(st.Pid) == c.strangers[st.Rank].cmd.Process.Pid {
			t.Fatalf("rank %d is followed as %d", st.Rank, st.Pid)
		}
	}
	c.strangers[0].end()
	n := len(c.byRank()[0])
	c.until(t, "a few iterations more", func() bool {
		return len(c.byRank()[0]) > n+20
	})
	if ends := c.endsOf(0); len(ends) > 0 {
		t.Fatalf("a stranger ended, and rank 0 is reported: %v", ends)
	}
	for _, s := range c.strangers[1:] {
		s.checkUntouched(t)
	}
}

// Containers that share a folder and have equal numbers have files of their own.
func TestEqualNumbersInTwoNamespaces(t *testing.T) {
	needNamespaces(t)
	j := startJobBy(t, func(_ int, argv []string) []string {
		return inNamespace(77, argv...)
	}, "--iterations", "100000")
	j.until(t, "the first iterations of all ranks", j.iterations(5))
}
