package launch

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/failslow/falcon/agent/internal/procstat"
)

// cgroups is where cgroups of version 2 are mounted.
const cgroups = "/sys/fs/cgroup"

// Free is what the kernel says that processes may still take without swapping, of the
// machine and of each cgroup that this process is in.
func (m machine) Free() (int, bool) {
	free, known := valueIn(readText(filepath.Join(m.proc, "meminfo")), "MemAvailable:")
	if !known {
		return 0, false
	}
	free <<= 10
	for group := ownCgroup(readText(filepath.Join(
		m.proc,
		"self/cgroup",
	))); group != ""; group = path.Dir(group) {
		if left, bounded := cgroupFree(filepath.Join(cgroups, group)); bounded {
			free = min(free, left)
		}
		if group == "/" || group == "." {
			break
		}
	}
	return int(free >> 20), true
}

// Resident is what a process has in memory.
func (m machine) Resident(p Proc) (int, bool) {
	if !procstat.Runs(m.proc, p.PID, p.Start) {
		return 0, false
	}
	kb, known := valueIn(readText(filepath.Join(m.proc, strconv.Itoa(p.PID), "status")), "VmRSS:")
	return int(kb >> 10), known
}

// cgroupFree is what a cgroup leaves to its processes, false where it sets no bound.
func cgroupFree(dir string) (int64, bool) {
	most, err := strconv.ParseInt(
		strings.TrimSpace(readText(filepath.Join(dir, "memory.max"))),
		10,
		64,
	)
	used, err2 := strconv.ParseInt(
		strings.TrimSpace(readText(filepath.Join(dir, "memory.current"))),
		10,
		64,
	)
	if err != nil || err2 != nil {
		return 0, false
	}
	cached, _ := valueIn(readText(filepath.Join(dir, "memory.stat")), "inactive_file")
	return max(0, most-used+cached), true
}

// ownCgroup is the path of version 2's cgroup in /proc/PID/cgroup, "" for none.
func ownCgroup(text string) string {
	for line := range strings.Lines(text) {
		if group, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return path.Clean(group)
		}
	}
	return ""
}

// valueIn is the number behind a name at the beginning of a line.
func valueIn(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// readText is a small file of the kernel, "" where it can't be read.
func readText(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(text)
}
