package agent

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// One question has the whole node read: its ranks' calls, its kernel, NCCL's RAS and each rank's last lines.
func TestPeekAtANode(t *testing.T) {
	cfg := Defaults()
	cfg.Logs.Kernel, cfg.NIC.Sysfs = filepath.Join("kernel", "testdata", "recorded.kmsg"), t.TempDir()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
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
	if _, err := out.WriteString("step 1\npassword=hunter2\n"); err != nil {
		t.Fatal(err)
	}
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		n.dir.add(cmd.Process.Pid, 2, "n1.g0")
		wait(time.Second)
		got := n.asksFor(t, &falconv1.Peek{Id: 1, What: "node", Lines: 5})
		by := map[string]*falconv1.PeekPart{}
		for _, p := range got.GetParts() {
			by[p.GetSource()] = p
		}
		said := by["stdout and stderr"]
		if by["calls"] == nil ||
			len(by["kernel"].GetLines()) == 0 ||
			by["ras"].GetNote() == "" ||
			said.GetOwner() != 3 {
			t.Fatalf("%s", linesOf(got))
		}
		if text := linesOf(got); !strings.Contains(text, "step 1") || strings.Contains(text, "hunter2") {
			t.Errorf("%s", text)
		}
	})
}

// RAS is asked once, and left where it does not answer whole.
func TestRASIsBounded(t *testing.T) {
	for _, answers := range []string{
		"NCCL version 2.28.9\n\x1b[2JJob summary\n",
		strings.Repeat("line\n", 10_000),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if line, err := bufio.NewReader(c).ReadString('\n'); err == nil && line == "verbose status\n" {
				_, _ = c.Write([]byte(answers)) // it ends when the reader has enough
			}
		}()
		p := rasPart(l.Addr().String())
		l.Close()
		if len(p.GetLines()) == 0 ||
			len(p.GetLines()) > 200 ||
			strings.ContainsRune(strings.Join(p.GetLines(), ""), '\x1b') {
			t.Errorf("%d lines, %q", len(p.GetLines()), p.GetNote())
		}
		if p := rasPart(l.Addr().String()); !strings.Contains(p.GetNote(),
			"no process of this node listens") {
			t.Errorf("nobody listens: %v", p)
		}
	}
}

func TestANodesAnswerIsBounded(t *testing.T) {
	var parts []*falconv1.PeekPart
	for range 2 * collectParts {
		p := &falconv1.PeekPart{Source: "stdout"}
		for range 200 {
			p.Lines = append(p.Lines, strings.Repeat("x", 2000))
		}
		p.Lines = append(p.Lines, "the newest")
		parts = append(parts, p)
	}
	parts = within(parts)
	total := 0
	for _, p := range parts {
		total += sizeOf(p.Lines)
		if p.Lines[len(p.Lines)-1] != "the newest" {
			t.Fatal("the newest line went first")
		}
	}
	if len(parts) != collectParts || total > collectBytes {
		t.Errorf("%d parts, %d bytes", len(parts), total)
	}
}
