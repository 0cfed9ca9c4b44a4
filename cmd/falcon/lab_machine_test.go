package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine is where and when figures were measured, for their pages.
func machine() string {
	model := "unknown processor"
	b, _ := os.ReadFile("/proc/cpuinfo") // without it the name is unknown
	for _, l := range strings.Split(string(b), "\n") {
		if name, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(v)
			break
		}
	}
	return fmt.Sprintf("Machine: %d cores of %s, shared and noisy. Date: %s.%s", runtime.NumCPU(), model, time.Now().UTC().Format(time.DateOnly), commitText())
}

// commitText is empty outside of a checkout.
func commitText() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" Commit: %s.", strings.TrimSpace(string(out)))
}
