package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// signalTree reaches a process and all that it has started: a rank's command line may be a shell
// or a wrapper, and its training process a child of that. The parent is reached first, so that
// it starts nothing more.
func signalTree(pid int, sig unix.Signal) error {
	below := processesBelow(pid, parentsOfAll())
	err := signalPid(pid, sig)
	signalAll(below, sig)
	return err
}

func signalAll(pids []int, sig unix.Signal) {
	for _, pid := range pids {
		_ = unix.Kill(pid, sig) // gone already is as good
	}
}

// processesBelow are the descendants of a process, nearer ones first.
func processesBelow(pid int, parents map[int]int) []int {
	var out []int
	for near := []int{pid}; len(near) > 0; {
		var next []int
		for child, parent := range parents {
			if slices.Contains(near, parent) && child != pid && !slices.Contains(out, child) {
				next = append(next, child)
			}
		}
		slices.Sort(next)
		out = append(out, next...)
		near = next
	}
	return out
}

// parentsOfAll is the parent of every process that can be read.
func parentsOfAll() map[int]int {
	out := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, readErr := os.ReadFile(file)
		if err != nil || readErr != nil {
			continue
		}
		// The name in parentheses may hold anything; the state and the parent follow the last one.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) > 1 {
			if parent, err := strconv.Atoi(string(fields[1])); err == nil {
				out[pid] = parent
			}
		}
	}
	return out
}
