package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/failslow/falcon/backend/sim/tabletest"
)

// machine is where and when figures were measured, for their pages.
func machine() string {
	return fmt.Sprintf("Machine: %d cores of %s, shared and noisy. Date: %s.%s",
		runtime.NumCPU(), tabletest.Processor(), time.Now().UTC().Format(time.DateOnly),
		commitText())
}

// commitText is empty outside of a checkout.
func commitText() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" Commit: %s.", strings.TrimSpace(string(out)))
}
