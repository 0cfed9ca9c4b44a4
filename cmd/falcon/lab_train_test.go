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

var labTorch = flag.String("lab-torch", "", "python with torch: play PyTorch jobs on emulated GPUs")

// storyLines are the lines that a lab without a screen prints.
type storyLines struct {
	t     *testing.T
	lines chan string
	seen  []string
}

// awaitLine waits for a line with this text.
func (s *storyLines) awaitLine(text string, most time.Duration) {
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
				return
			}
		case <-late:
			s.t.Fatalf("no %q within %v:\n%s", text, most, strings.Join(s.seen, "\n"))
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
	cmd := exec.Command(binFalcon(t), "lab", "run", "--headless", "--approve", "never", "--gpu-gflops", "60", "--scenario", file, "--train", *labTorch+" "+script)
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
	s.awaitLine("learning the healthy iteration time", 2*time.Minute)
	found, _ := filepath.Glob(filepath.Join(temp, "falcon-lab-*", "run-*", "control.sock"))
	if len(found) != 1 {
		t.Fatalf("%d labs run in %s", len(found), temp)
	}
	return s, filepath.Dir(found[0])
}

// TestTorchWithoutAdapter: of an unchanged script the iterations are found by its calls
// alone, and so is the GPU that slows them, with both of PyTorch's NCCL backends.
func TestTorchWithoutAdapter(t *testing.T) {
	if *labTorch == "" {
		t.Skip("needs a python with torch: run make torch-lab")
	}
	script, err := filepath.Abs("../../native/python/examples/plain_ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"nccl", "nccl2"} {
		t.Run(backend, func(t *testing.T) {
			s, dir := startTraining(t, script+" "+backend, lab.Shape{TP: 1, DP: 4, PP: 1})
			s.awaitLine("Healthy profile of 4 of 4 ranks stored", 2*time.Minute)
			if _, err := lab.Ask(dir, lab.Request{Op: "inject", Event: &lab.Event{GPU: "n1.g0", Clock: 0.5}}); err != nil {
				t.Fatal(err)
			}
			s.awaitLine("GPU degradation on ", 2*time.Minute)
			if last := s.seen[len(s.seen)-1]; !strings.Contains(last, "GPU degradation on n1.g0") {
				t.Fatalf("another one is named: %s", last)
			}
			t.Log(s.seen[len(s.seen)-1])
		})
	}
}
