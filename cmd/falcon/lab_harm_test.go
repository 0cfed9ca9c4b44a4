package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/lab"
)

var (
	labHarm = flag.Int(
		"lab-harm",
		0,
		"disturb the agents of a training lab so often, at random, and cut the engine's network half as often; nothing may come of it",
	)
	labHarmSeed = flag.Uint64("lab-harm-seed", 1, "seed of the disturbances")
)

// harmNodes is the size of the disturbed lab; one spare for each node that is
// lost in the end.
const (
	harmNodes  = 4
	harmSpares = 5
	harmMs     = 150 // an iteration, as modelled
)

// liveLab is a lab that runs while the test does things to it.
type liveLab struct {
	t      *testing.T
	rng    *rand.Rand
	netns  string // network namespace that it runs in, "" = this one
	dir    string // of this lab: others may run beside it
	report string
	out    bytes.Buffer
	cmd    *exec.Cmd
	ended  chan error
}

// startLab starts a scenario and waits until it trains.
func startLab(t *testing.T, sc lab.Scenario, netns string, more ...string) *liveLab {
	t.Helper()
	l := openLab(t, sc, netns, more...)
	l.await(30, 3*time.Minute) // eight PyTorch ranks take long to begin on a busy machine
	return l
}

// openLab starts a scenario and waits until its lab answers.
func openLab(t *testing.T, sc lab.Scenario, netns string, more ...string) *liveLab {
	t.Helper()
	l := &liveLab{
		t:      t,
		rng:    rand.New(rand.NewPCG(*labHarmSeed, 7)),
		netns:  netns,
		report: filepath.Join(t.TempDir(), "report.json"),
		ended:  make(chan error, 1),
	}
	args := []string{
		binFalcon(t),
		"lab",
		"run",
		"--headless",
		"--no-reference",
		"--report", l.report,
		"--scenario", scenarioFile(t, sc),
	}
	args = append(args, more...)
	if netns != "" {
		args = append([]string{"ip", "netns", "exec", netns}, args...)
	}
	l.cmd = exec.Command(args[0], args[1:]...)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.out
	temp, err := os.MkdirTemp("", "harm") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	l.cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { l.ended <- l.cmd.Wait() }()
	t.Cleanup(func() { _ = l.cmd.Process.Signal(syscall.SIGTERM) }) // ended already is as good
	l.findDirectory(temp)
	return l
}

// findDirectory waits for the lab's own folder.
func (l *liveLab) findDirectory(temp string) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); l.dir == ""; time.Sleep(100 * time.Millisecond) {
		found, _ := filepath.Glob(filepath.Join(temp, "falcon-lab-*", "run-*", "control.sock"))
		if len(found) == 1 {
			l.dir = filepath.Dir(found[0])
		}
		if time.Now().After(end) {
			l.t.Fatalf("the lab does not start\n%s", l.out.String())
		}
	}
}

// status is where the lab stands; the zero value while it does not answer.
func (l *liveLab) status() lab.Status {
	reply, err := lab.Ask(l.dir, lab.Request{Op: "status"})
	if err != nil || reply.Status == nil {
		return lab.Status{}
	}
	return *reply.Status
}

// await waits until an iteration is done.
func (l *liveLab) await(iteration int64, most time.Duration) {
	l.t.Helper()
	for end := time.Now().Add(most); l.status().Iteration < iteration; time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-l.ended:
			l.t.Fatalf("the lab has ended: %v\n%s", err, l.out.String())
		default:
		}
		if time.Now().After(end) {
			l.t.Fatalf("iteration %d does not come: %+v\n%s", iteration, l.status(), l.out.String())
		}
	}
}

// stop ends the lab and reads its report.
func (l *liveLab) stop() lab.Report {
	l.t.Helper()
	if _, err := lab.Ask(l.dir, lab.Request{Op: "stop"}); err != nil {
		l.t.Fatal(err)
	}
	if err := <-l.ended; err != nil {
		l.t.Fatalf("%v\n%s", err, l.out.String())
	}
	r, err := readReport(l.report)
	if err != nil {
		l.t.Fatalf("%v\n%s", err, l.out.String())
	}
	return r
}

// span draws how long a disturbance lasts, from 1 to 60 s: each length with the
// same chance by its logarithm.
func (l *liveLab) span() time.Duration {
	d := time.Second
	for range 6 {
		if l.rng.Float64() < 0.75 {
			d += time.Duration(l.rng.Int64N(int64(d)))
		}
	}
	return min(d, time.Minute)
}

// some draws who is disturbed: one node, half of them, or all.
func (l *liveLab) some() []string {
	var names []string
	for _, i := range l.rng.Perm(harmNodes) {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	return names[:[]int{1, 1, harmNodes / 2, harmNodes}[l.rng.IntN(4)]]
}

// signal reaches the agents of nodes; one that is between two lives is left.
func (l *liveLab) signal(nodes []string, sig syscall.Signal) {
	pids := l.status().AgentPids
	for _, n := range nodes {
		if pid := pids[n]; pid > 0 {
			_ = unix.Kill(pid, sig) // gone meanwhile is as good
		}
	}
}

// disturb does one thing to some agents and takes it back.
func (l *liveLab) disturb() string {
	nodes := l.some()
	d := l.span()
	kind := []string{"term", "kill", "stop", "upgrade", "reset"}[l.rng.IntN(5)]
	l.apply(kind, nodes, d)
	return fmt.Sprintf("%s of %s for %.1f s", kind, strings.Join(nodes, ", "), d.Seconds())
}

func (l *liveLab) apply(kind string, nodes []string, d time.Duration) {
	switch kind {
	case "term": // and kept down: the lab starts it again after a second
		l.signal(nodes, syscall.SIGTERM)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
			l.signal(nodes, syscall.SIGTERM)
		}
	case "kill":
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
			l.signal(nodes, syscall.SIGKILL)
		}
	case "stop":
		l.signal(nodes, syscall.SIGSTOP)
		time.Sleep(d)
		l.signal(nodes, syscall.SIGCONT)
	case "upgrade": // ended in order, one after the other, and started again at once
		for _, n := range nodes {
			l.signal([]string{n}, syscall.SIGTERM)
			time.Sleep(1500 * time.Millisecond)
		}
	case "reset":
		if l.netns == "" {
			l.signal(nodes, syscall.SIGKILL)
			return
		}
		l.cut(true, 300*time.Millisecond)
	}
}

// cut takes the engine's network away: refused with a reset, or dropped.
func (l *liveLab) cut(reject bool, d time.Duration) {
	port := l.port()
	rules := [][]string{}
	for _, side := range []string{"--dport", "--sport"} {
		rule := []string{"INPUT", "-p", "tcp", side, port, "-j", "DROP"}
		if reject {
			rule = append(rule[:6], "REJECT", "--reject-with", "tcp-reset")
		}
		rules = append(rules, rule)
	}
	for _, r := range rules {
		l.iptables(append([]string{"-I"}, r...))
	}
	time.Sleep(d)
	for _, r := range rules {
		l.iptables(append([]string{"-D"}, r...))
	}
}

func (l *liveLab) iptables(args []string) {
	l.t.Helper()
	if out, err := exec.Command(
		"ip",
		append([]string{"netns", "exec", l.netns, "iptables", "-w"}, args...)...,
	).CombinedOutput(); err != nil {
		l.t.Fatalf("iptables %v: %v: %s", args, err, out)
	}
}

var engineLine = regexp.MustCompile(`(?m)^engine: \S+:(\d+)`)

// port is where the lab's agents find the engine.
func (l *liveLab) port() string {
	l.t.Helper()
	files, _ := filepath.Glob(filepath.Join(l.status().Dir, "*", "*.yaml"))
	more, _ := filepath.Glob(filepath.Join(l.status().Dir, "*.yaml"))
	for _, f := range append(files, more...) {
		b, _ := os.ReadFile(f)
		if m := engineLine.FindSubmatch(b); m != nil {
			return string(m[1])
		}
	}
	l.t.Fatalf("no agent's configuration in %s", l.status().Dir)
	return ""
}

// namespace makes a network namespace with a loopback, or skips the test.
func namespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("falcon-harm-%d", os.Getpid())
	for _, args := range [][]string{
		{"ip", "netns", "add", name},
		{"ip", "-n", name, "link", "set", "lo", "up"},
		{"ip", "netns", "exec", name, "iptables", "-w", "-L"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no network namespace with iptables can be made here: %v: %s", err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	return name
}

func harmScenario(name string) lab.Scenario {
	sc := recoverScenario(name, recoverLayouts[1].shape, harmSpares)
	sc.ForwardMs = harmMs / 15
	sc.Iterations = 100_000 // it is stopped
	return sc
}

// TestHarmless disturbs the agents of a job that trains, and the engine's
// network, as upgrades and bad networks do: nothing may be fenced, held or
// restarted, and no iteration lost. Then a node is lost in the midst of each
// kind of disturbance, and must be recovered.
func TestHarmless(t *testing.T) {
	if *labHarm == 0 {
		t.Skip("long: run make harmless")
	}
	l := startLab(t, harmScenario("harmless"), namespace(t))
	for i := range *labHarm {
		t.Logf("%3d %s", i+1, l.disturb())
		time.Sleep(time.Duration(l.rng.Int64N(int64(4 * time.Second))))
	}
	l.quiet("agents")
	for i := range *labHarm / 2 {
		d := l.span()
		reject := i%2 == 0
		l.cut(reject, d)
		t.Logf("%3d the engine's network is cut for %.1f s (refused: %t)", i+1, d.Seconds(), reject)
		time.Sleep(time.Duration(l.rng.Int64N(int64(8 * time.Second))))
	}
	l.quiet("network")
	lost := l.losses()
	r := l.stop()
	if len(r.Recoveries) != lost || len(r.Restarts) > 0 {
		t.Errorf("%d recoveries and %d restarts for %d lost nodes", len(r.Recoveries), len(r.Restarts), lost)
	}
	for i, it := range r.Iterations {
		if it.Index != int64(i) {
			t.Fatalf("iteration %d stands where %d should", it.Index, i)
		}
	}
	t.Logf("%d iterations, %d recoveries: %s", len(r.Iterations), len(r.Recoveries), machine())
}

// quiet reports what the engine did although nothing was at fault.
func (l *liveLab) quiet(what string) {
	l.t.Helper()
	at := l.status().Iteration
	l.await(at+20, time.Minute)
	if n := l.recoveries(); n != 0 {
		l.t.Fatalf("%d recoveries were begun while %s were disturbed\n%s", n, what, l.out.String())
	}
	l.t.Logf("%s disturbed: no recovery until iteration %d", what, l.status().Iteration)
}

// recoveries counts what `falcon recovery list` shows.
func (l *liveLab) recoveries() int {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(
		ctx,
		binFalcon(l.t),
		"recovery",
		"list",
		"--connect", l.status().Socket,
		"--json",
	).CombinedOutput()
	if err != nil {
		l.t.Fatalf("recovery list: %v: %s", err, out)
	}
	return strings.Count(string(out), `"id": "REC-`) + strings.Count(string(out), `"id":"REC-`)
}

// losses takes a node away in the midst of each kind of disturbance.
func (l *liveLab) losses() int {
	l.t.Helper()
	kinds := []string{"term", "kill", "stop", "drop", "reject"}
	gone := []string{}
	for i, kind := range kinds {
		at := l.status().Iteration
		victim := fmt.Sprintf("n%d", i) // from n4 on those that were spares
		others := slices.DeleteFunc([]string{"n0", "n1", "n2", "n3", "n4", "n5"}, func(n string) bool {
			return n == victim || slices.Contains(gone, n)
		})[:2]
		done := make(chan struct{})
		go func() {
			defer close(done)
			switch kind {
			case "drop", "reject":
				l.cut(kind == "reject", 12*time.Second)
			default:
				l.apply(kind, others, 12*time.Second)
			}
		}()
		time.Sleep(3 * time.Second)
		if _, err := lab.Ask(l.dir, lab.Request{Op: "kill", Target: "node " + victim}); err != nil {
			l.t.Fatal(err)
		}
		gone = append(gone, victim)
		began := time.Now()
		<-done
		l.await(at+60, 3*time.Minute)
		l.t.Logf("node %s lost in the midst of %s: iteration %d was done %.1f s after",
			victim, kind, at+60, time.Since(began).Seconds())
	}
	return len(kinds)
}
