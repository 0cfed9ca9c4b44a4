package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No command writes over a file that its flag names: it may be last night's.
func TestExportsNeverOverwrite(t *testing.T) {
	dir := t.TempDir()
	h, _ := testEngine(t)
	times := filepath.Join(dir, "times.csv")
	writeFile(t, times, "ms\n100\n101\n100\n")
	for _, args := range [][]string{
		{"detect", "iterations", times, "--posterior"},
		{"replay", labRecording, "--picture"},
		{"lab", "run", "--headless", "--report"},
		{"lab", "run", "--headless", "--journal"},
		{"lab", "run", "--headless", "--record"},
		{"console", "--plain", "--connect", h.Socket, "--record"},
	} {
		file := filepath.Join(dir, "taken")
		writeFile(t, file, "last night's")
		code, _, errs := command(t, append(args, file)...)
		if code == 0 || !strings.Contains(errs, file) {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "last night's" {
			t.Errorf("%v wrote over it: %q, %v", args, b, err)
		}
	}
	for _, free := range []string{"", os.DevNull, filepath.Join(dir, "new")} {
		if err := refuseExisting("--x", free); err != nil {
			t.Errorf("%q: %v", free, err)
		}
	}
}
