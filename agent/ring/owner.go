package ring

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// checkOwner compares who made a file with whose process its name gives: any
// local user may write into the folder. A process that has gone, or that this
// agent may not read, can't be compared; Discover leaves out the first.
func checkOwner(path string, info fs.FileInfo) error {
	e, ok := parseName(filepath.Split(path))
	owner, known := info.Sys().(*syscall.Stat_t)
	if !ok || !known || owner.Uid == 0 {
		return nil // root needs no such file to speak for a process
	}
	uids, ok := usersOfProcess(e.PID)
	if ok && !slices.Contains(uids, owner.Uid) {
		return fmt.Errorf("%w: %s was made by user %d, and process %d runs as user %d: remove the file", ErrForeign, path, owner.Uid, e.PID, uids[0])
	}
	return nil
}

// usersOfProcess are a process's real, effective, saved and file system user.
func usersOfProcess(pid int) ([]uint32, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, false
	}
	return parseUsers(b)
}

func parseUsers(status []byte) ([]uint32, bool) {
	for s := bufio.NewScanner(bytes.NewReader(status)); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), "Uid:")
		if !ok {
			continue
		}
		var out []uint32
		for _, f := range strings.Fields(rest) {
			n, err := strconv.ParseUint(f, 10, 32)
			if err != nil {
				return nil, false
			}
			out = append(out, uint32(n))
		}
		return out, len(out) > 0
	}
	return nil, false
}
