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
	for range 200 {
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
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	fmt.Fprint(out, "step 1\nCUDA error: an illegal memory access\n")
	onNode(t, func(t *testing.T, n *node) {
		pid := cmd.Process.Pid
		n.dir.add(pid, 2, "n1.g0")
		wait(time.Second)
		const want = "stdout and stderr [\"CUDA error: an illegal memory access\"] \n"
		if got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "log", Rank: 2, Lines: 1}); got.Peek != 1 || linesOf(got) != want {
			t.Errorf("%v", got)
		}
		n.dir.exits[pid].die("killed by signal 9 (SIGKILL)")
		wait(3 * time.Second)
		if got := n.asksFor(t, &falconv1.Peek{Id: 2, What: "log", Rank: 2, Lines: 1}); linesOf(got) != want {
			t.Errorf("after its end: %v", got)
		}
		if got := n.asksFor(t, &falconv1.Peek{Id: 3, What: "log", Rank: 7}); !strings.Contains(got.Refused, "no process of this rank") {
			t.Errorf("%v", got)
		}
		if got := n.asksFor(t, &falconv1.Peek{Id: 4, What: "colour"}); !strings.Contains(got.Refused, "does not know") {
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
		if got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "log", Rank: 2}); !strings.Contains(got.Refused, "logs.enabled") {
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
		if got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "log", Rank: 2}); !strings.Contains(got.Refused, "still reads") {
			t.Errorf("%v", got)
		}
		for range 10 * peeksMax {
			n.Peek(&falconv1.Peek{Id: 2, What: "log", Rank: 2}) // never blocks
		}
		synctest.Wait()
		<-n.questions.busy
	})
}
