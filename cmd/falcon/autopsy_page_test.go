package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
)

// The page has the answer, its evidence and the series, needs nothing else, and says nothing
// that a file smuggles in.
func TestAutopsyPage(t *testing.T) {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintf(&b, "step=%d loss=2.1 step_time=%.3fs\n",
			i, 1.0+0.25*float64(i/50)+0.002*float64(i%3))
	}
	log := textFile(t, "train.log", b.String()+"RuntimeError in <script>alert(1)</script>\n")
	page := filepath.Join(t.TempDir(), "answer.html")
	if code, _, errs := command(t, "detect", log, "--html", page); code != exitSlow {
		t.Fatal(code, errs)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"SLOW", "iterations take", "<polyline points=", `class="onset"`, "train.log",
		"What to do next",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	for _, never := range []string{"<script>", "http://", "https://", "src="} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in the page", never)
		}
	}
	if code, _, errs := command(t, "detect", log, "--html", page); code != 1 ||
		!strings.Contains(errs, "answer.html") {
		t.Errorf("a file that is there: %d %s", code, errs)
	}
}

// Archives within folders are read like files, and a broken one says so.
func TestAutopsyArchives(t *testing.T) {
	dir := t.TempDir()
	writeArchives(t, dir, slowRun())
	a, code := answered(t, "", dir)
	if code != exitSlow || len(a.Inputs) != 4 {
		t.Fatalf("%d %+v", code, a.Inputs)
	}
	for _, in := range a.Inputs[:3] {
		if !in.Used {
			t.Errorf("%+v", in)
		}
	}
	if broken := a.Inputs[3]; broken.Used || broken.Why == "" {
		t.Errorf("%+v", broken)
	}
}

// A person's folder holds files of several kinds: the answer is that of all of them.
func TestAutopsyFolders(t *testing.T) {
	steps := func(n, slowFrom int, factor float64) string {
		var b strings.Builder
		for i := range n {
			s := 1.0 + 0.002*float64(i%3)
			if i >= slowFrom {
				s *= factor
			}
			fmt.Fprintf(&b, "step=%d loss=2.1 step_time=%.3fs\n", i, s)
		}
		return b.String()
	}
	const (
		xid    = "[Wed Feb 14 05:04:02 2026] NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.\n"
		behind = "#0-0 (78db) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  7 ranks have launched up to operation 64\n" +
			"  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 16 on node node1\n"
		stack  = "Process 16: python train.py\nThread 16 (idle): \"MainThread\"\n    get (queue.py:180)\n    train (train.py:88)\n"
		failed = "Traceback (most recent call last):\n  File \"train.py\", line 9, in f\nValueError: no labels\n"
		smi    = "GPU 00000000:3B:00.0\n    Clocks Event Reasons\n        HW Slowdown                       : Active\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		kind  string
		text  string
	}{
		"kernel and log": {
			map[string]string{"logs/n0/train.log": steps(80, 80, 1), "dmesg.txt": xid},
			autopsy.KindFailed,
			"0000:5d:00",
		},
		"RAS and a stack": {
			map[string]string{"ras.txt": behind, "a/b/stack.7.txt": stack, "README.md": "# job\n"},
			autopsy.KindHang,
			"rank 7",
		},
		"slow and a reason": {
			map[string]string{"run/train.log": steps(80, 50, 1.3), "smi/q.txt": smi},
			autopsy.KindSlow,
			"3B:00.0",
		},
		"ranks, one raised": {
			map[string]string{
				"0/stdout.log": steps(40, 40, 1),
				"1/rank_3.log": failed,
				"config.yaml":  "a: 1\n",
			},
			autopsy.KindFailed,
			"rank 3",
		},
		"healthy and others": {
			map[string]string{
				"train.log":   steps(80, 80, 1),
				"metrics.csv": "step,loss\n1,2.0\n2,1.9\n",
				"notes.txt":   "fine\n",
			},
			autopsy.KindHealthy,
			"no fault",
		},
	} {
		dir := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(dir, path)
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(path), 0o700),
				os.WriteFile(path, []byte(text), 0o600),
			); err != nil {
				t.Fatal(err)
			}
		}
		a, _ := answered(t, "", dir)
		if a.Kind != c.kind ||
			!strings.Contains(a.Summary, c.text) ||
			len(a.Inputs) != len(c.files) {
			t.Errorf("%s: %s: %s\n%+v", name, a.Kind, a.Summary, a.Inputs)
		}
	}
}
