package procstat

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	statusBytesMost = 16 << 10
	valuesMost      = 64 // of one line: the kernel allows 32 nested namespaces
)

// Status is what is read of /proc/PID/status.
type Status struct {
	Numbers []int    // of the process, from this namespace's to its own
	Users   []uint32 // real, effective, saved and of the file system
}

// ReadStatus reads the file of one process below proc, normally /proc.
func ReadStatus(proc string, pid int) (Status, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return Status{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, statusBytesMost))
	if err != nil {
		return Status{}, err
	}
	return ParseStatus(pid, string(text))
}

// ParseStatus reads the lines of numbers and users. Kernels before 4.1 tell no numbers: there the process has
// the one that it has here.
func ParseStatus(pid int, text string) (Status, error) {
	var st Status
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(line, ":")
		if key != "NSpid" && key != "Uid" {
			continue
		}
		for _, field := range strings.Fields(rest) {
			n, err := strconv.ParseUint(field, 10, 32)
			if err != nil || len(st.Numbers) > valuesMost || len(st.Users) > valuesMost {
				return Status{}, ErrFormat
			}
			if key == "Uid" {
				st.Users = append(st.Users, uint32(n))
			} else {
				st.Numbers = append(st.Numbers, int(n))
			}
		}
	}
	if len(st.Numbers) == 0 {
		st.Numbers = []int{pid}
	}
	if len(st.Users) == 0 {
		return Status{}, ErrFormat
	}
	return st, nil
}
