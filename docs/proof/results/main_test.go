package main

import (
	"os"
	"strings"
	"testing"
)

// The page is what the measured pages say.
func TestPageIsAsMeasured(t *testing.T) {
	want, err := render("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../results.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/results.md is not what the measured pages say: make results")
	}
	if n := strings.Count(want, "\n| ") - strings.Count(want, "| What |"); n < 18 {
		t.Errorf("%d figures", n)
	}
}

// A figure that is gone is no empty cell.
func TestMissingFigure(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(root+"/docs/results", 0o755); err != nil {
		t.Fatal(err)
	}
	page := "<!-- a: written by x -->\n| n | 7 |\n<!-- end of a -->\n| n | 8 |\n"
	if err := os.WriteFile(root+"/docs/results/p.md", []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	f := figure{page: "p.md", part: "a", pattern: `^\| n \| (\d+)`, show: "%s"}
	if got, err := f.read(root); got != "7" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []figure{
		{page: "p.md", part: "b", pattern: f.pattern, show: f.show},
		{page: "p.md", part: "a", pattern: `^\| m \| (\d+)`, show: f.show},
		{page: "q.md", part: "a", pattern: f.pattern, show: f.show},
	} {
		if got, err := bad.read(root); err == nil {
			t.Errorf("%+v: %q", bad, got)
		}
	}
}
