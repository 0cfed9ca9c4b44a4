package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func peeked(n *node) []*falconv1.Peeked {
	return sent(n.ship, (*falconv1.AgentFrame).GetPeeked, func(p *falconv1.Peeked) bool { return p != nil })
}

// asksFor has the agent read something and returns its answer.
func (n *node) asksFor(t *testing.T, q *falconv1.Peek) *falconv1.Peeked {
	t.Helper()
	before := len(peeked(n))
	n.Peek(q)
	for range 400 {
		wait(10 * time.Millisecond)
		if got := peeked(n); len(got) > before {
			return got[before]
		}
	}
	t.Fatal("no answer")
	return nil
}

func linesOf(p *falconv1.Peeked) string {
	var b strings.Builder
	for _, part := range p.GetParts() {
		fmt.Fprintf(&b, "%s %q %s\n", part.GetSource(), part.GetLines(), part.GetNote())
	}
	return b.String()
}

// What a rank has printed is read on request, while it runs and after its end.
func TestPeekAtALog(t *testing.T) {
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	fmt.Fprint(out, "step 1\nCUDA error: an illegal memory access\n")
	onNode(t, func(t *testing.T, n *node) {
		pid := cmd.Process.Pid
		n.dir.add(pid, 2, "n1.g0")
		wait(time.Second)
		const want = "stdout and stderr [\"CUDA error: an illegal memory access\"] \n"
		if got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "log", Rank: 2, Lines: 1}); got.Peek != 1 ||
			linesOf(got) != want {
			t.Errorf("%v", got)
		}
		n.dir.exits[pid].die("killed by signal 9 (SIGKILL)")
		wait(3 * time.Second)
		if got := n.asksFor(t, &falconv1.Peek{Id: 2, What: "log", Rank: 2, Lines: 1}); linesOf(got) != want {
			t.Errorf("after its end: %v", got)
		}
		if got := n.asksFor(t, &falconv1.Peek{
			Id:   3,
			What: "log",
			Rank: 7,
		}); !strings.Contains(got.Refused, "no process of this rank") {
			t.Errorf("%v", got)
		}
		if got := n.asksFor(t, &falconv1.Peek{
			Id:   4,
			What: "colour",
		}); !strings.Contains(got.Refused, "does not know") {
			t.Errorf("%v", got)
		}
	})
}

func TestPeekIsSwitchedOff(t *testing.T) {
	cfg := Defaults()
	cfg.Logs.Enabled = false
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		n.dir.add(100, 2, "n1.g0")
		wait(time.Second)
		got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "log", Rank: 2})
		if !strings.Contains(got.Refused, "logs.enabled") {
			t.Errorf("%v", got)
		}
	})
}

// A request that is still read makes others wait for nothing: they are refused, and the
// agent goes on with its work.
func TestPeekOneAtATime(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.dir.add(100, 2, "n1.g0")
		wait(time.Second)
		n.questions.busy <- struct{}{} // a file system that does not answer
		got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "log", Rank: 2})
		if !strings.Contains(got.Refused, "still reads") {
			t.Errorf("%v", got)
		}
		for range 10 * peeksMax {
			n.Peek(&falconv1.Peek{Id: 2, What: "log", Rank: 2}) // never blocks
		}
		synctest.Wait()
		<-n.questions.busy
	})
}

// What the kernel has said is read from a recording (emulated), with what it means and of whom.
func TestPeekAtTheKernel(t *testing.T) {
	cfg := Defaults()
	cfg.Logs.Kernel, cfg.NIC.Sysfs = filepath.Join("kernel", "testdata", "recorded.kmsg"), t.TempDir()
	for _, address := range []string{"0000:17:00.0", "0000:3b:00.0"} {
		dir := filepath.Join(cfg.NIC.Sysfs, "bus", "pci", "devices", address)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"vendor": "0x10de\n", "class": "0x030200\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		n.dir.add(4107, 5, "n1.g1")
		wait(time.Second)
		got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "kernel", Lines: 4})
		text := linesOf(got)
		for _, want := range []string{
			"Xid 79: the GPU has fallen off the bus (n1.g1, rank 5). Take the node out and reboot it",
			"NVRM: Xid (PCI:0000:3b:00): 79",
			"killed for want of memory",
			"a network port went down",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "Corrected error received") {
			t.Errorf("more than was asked for:\n%s", text)
		}
	})
	cfg.Logs.Kernel = filepath.Join(t.TempDir(), "absent")
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "kernel"})
		if !strings.Contains(got.Refused, "set logs.kernel") {
			t.Errorf("%v", got)
		}
	})
	cfg.Logs.Kernel = ""
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "kernel"})
		if !strings.Contains(got.Refused, "logs.kernel is empty") {
			t.Errorf("%v", got)
		}
	})
}

// A stack is read of a rank that stands still, and of one that trains only for a person who
// is sure; never of one that has ended.
func TestPeekAtAStack(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	onNode(t, func(t *testing.T, n *node) {
		pid := cmd.Process.Pid
		seg := n.dir.add(pid, 2, "n1.g0")
		calls := func(age time.Duration) {
			seg.set(func() {
				now := time.Now().UnixNano()
				seg.control.HeartbeatNs = now
				seg.records = append(seg.records, ring.Record{
					Op:      falcon.OpAllReduce,
					Peer:    -1,
					EnterNs: now - age.Nanoseconds(),
				})
			})
			wait(100 * time.Millisecond)
		}
		wait(time.Second)
		calls(0)
		q := &falconv1.Peek{Id: 1, What: "stack", Rank: 2}
		if got := n.asksFor(
			t,
			q,
		); !strings.Contains(got.Refused,
			"does not stand still (its newest call was 100ms ago): ask with --sure") {
			t.Errorf("while it trains: %v", got)
		}
		if got := n.asksFor(t, &falconv1.Peek{
			Id:   2,
			What: "stack",
			Rank: 2,
			Sure: true,
		}); !strings.Contains(linesOf(got), "main thread") {
			t.Errorf("for one who is sure: %v", got)
		}
		wait(8 * time.Second) // in its newest call, or in its own code
		if got := n.asksFor(t, q); !strings.Contains(linesOf(got), "main thread") ||
			!strings.Contains(linesOf(got), "no answer within") {
			t.Errorf("once it makes no calls: %v", got)
		}
		n.dir.exits[pid].die("killed by signal 9 (SIGKILL)")
		wait(3 * time.Second)
		if got := n.asksFor(t, &falconv1.Peek{
			Id:   3,
			What: "stack",
			Rank: 2,
			Sure: true,
		}); !strings.Contains(got.Refused, "no process of rank 2 runs here") {
			t.Errorf("after its end: %v", got)
		}
	})
}

// What the kernel says while the agent runs is sent, once; what it has said before is not. The
// messages are emulated: a file in their form.
func TestKernelIsWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	says := func(line string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "3,1,1,-;%s\n", line); err != nil {
			t.Fatal(err)
		}
	}
	says("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, old news")
	cfg := Defaults()
	cfg.Logs.Kernel = path
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		notes := func() (out []*falconv1.KernelNote) {
			for _, k := range sent(
				n.ship,
				(*falconv1.AgentFrame).GetKernel,
				func(k *falconv1.KernelNotes) bool { return k != nil },
			) {
				out = append(out, k.Notes...)
			}
			return out
		}
		wait(3 * time.Second)
		for range 50 {
			says("NVRM: Xid (PCI:0000:3b:00): 79, pid=4107, GPU has fallen off the bus. token=abc")
		}
		says("eth0: renamed from veth1")
		says("Out of memory: Killed process 4110 (python) total-vm:1kB")
		wait(3 * time.Second)
		got := notes()
		if len(got) != 2 ||
			got[0].Code != 79 ||
			got[0].Pid != 4107 ||
			!got[0].Fatal ||
			!strings.Contains(got[0].Line, "token=[masked]") ||
			got[1].Kind != "oom" ||
			got[1].Pid != 4110 {
			t.Fatalf("%v", got)
		}
		for i := range 100 {
			says(fmt.Sprintf("Out of memory: Killed process %d (python)", i+1))
		}
		wait(3 * time.Second)
		if n := len(notes()); n != 2+notesMost {
			t.Errorf("%d notes", n)
		}
	})
}
