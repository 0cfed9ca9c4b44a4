package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page has the answer, its evidence and the series, needs nothing else, and says nothing that a file smuggles in.
func TestAutopsyPage(t *testing.T) {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintf(&b, "step=%d loss=2.1 step_time=%.3fs\n", i, 1.0+0.25*float64(i/50)+0.002*float64(i%3))
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
	for _, want := range []string{"SLOW", "iterations take", "<polyline points=", `class="onset"`, "train.log", "What to do next"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	for _, never := range []string{"<script>", "http://", "https://", "src="} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in the page", never)
		}
	}
	if code, _, errs := command(t, "detect", log, "--html", page); code != 1 || !strings.Contains(errs, "answer.html") {
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
