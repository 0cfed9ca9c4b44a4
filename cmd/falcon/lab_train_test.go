package main

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon/agent/lab"
)

var (
	labTorch   = flag.String("lab-torch", "", "python with torch: play PyTorch jobs on emulated GPUs")
	torchSeeds = flag.Int("lab-torch-seeds", 1, "slow GPUs in each kind of PyTorch job")
	torchSize  = flag.Int("lab-torch-ranks", 4, "ranks of such a job, on two nodes")
)

// storyLines are the lines that a lab without a screen prints.
type storyLines struct {
	t     *testing.T
	lines chan string
	seen  []string
}

// awaitLine waits for a line with this text, and returns it.
func (s *storyLines) awaitLine(text string, most time.Duration) string {
	s.t.Helper()
	late := time.After(most)
	for {
		select {
		case line, more := <-s.lines:
			if !more {
				s.t.Fatalf("the lab ended without %q:\n%s", text, strings.Join(s.seen, "\n"))
			}
			s.seen = append(s.seen, line)
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			s.t.Fatalf("no %q within %v:\n%s", text, most, strings.Join(s.seen, "\n"))
			return ""
		}
	}
}

// startTraining plays a user's own script without a fault; dir is the lab's folder.
func startTraining(t *testing.T, script string, layout lab.Shape) (s *storyLines, dir string) {
	t.Helper()
	temp, err := os.MkdirTemp("", "train") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	file := filepath.Join(t.TempDir(), "train.yaml")
	sc := scenario("train", layout.DP, layout.PP, 2, 8, 5, 1000)
	sc.Iterations = 1000
	text, err := yaml.Marshal(sc)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, string(text))
	cmd := exec.Command(
		binFalcon(t),
		"lab",
		"run",
		"--headless",
		"--approve", "never",
		"--gpu-gflops", "8",
		"--scenario", file,
		"--train", *labTorch+" "+script,
	)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "ITERATIONS=100000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s = &storyLines{t: t, lines: make(chan string, 10_000)}
	go func() {
		defer close(s.lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			s.lines <- sc.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	s.awaitLine("learning the healthy iteration time", 5*time.Minute)
	found, _ := filepath.Glob(filepath.Join(temp, "falcon-lab-*", "run-*", "control.sock"))
	if len(found) != 1 {
		t.Fatalf("%d labs run in %s", len(found), temp)
	}
	return s, filepath.Dir(found[0])
}
