package ring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// DefaultDir is where the hook puts its files unless $FALCON_SHM_DIR is set.
const DefaultDir = "/dev/shm"

const filePrefix = "falcon."

// Entry is one file found by a Scanner.
type Entry struct {
	Path string
	Job  string
	// PID is the process's number as this agent sees it: proven of a live file. Of
	// others it is the one in the file's name, which may be another process's here.
	PID int
	// StartMonoNs is Header.StartMonoNs of a live file as it lies there now: a
	// process that starts another program (exec) makes a new file in its place.
	StartMonoNs int64
	UID         int             // whose file it is
	Device      string          // as its header says
	Unproven    falcon.Unproven // of a file whose process can't be proven
}

// FileJob is a job's name as the hook writes it into file names and headers:
// letters, digits, '.', '_' and '-' stay, every other byte becomes '_', at most
// 63 bytes; "job" when there is none.
func FileJob(job string) string {
	if job == "" {
		return "job"
	}
	b := []byte(job[:min(len(job), nameBytes-1)])
	for i, c := range b {
		if !('a' <= c && c <= 'z' ||
			'A' <= c && c <= 'Z' ||
			'0' <= c && c <= '9' ||
			c == '.' ||
			c == '_' ||
			c == '-') {
			b[i] = '_'
		}
	}
	return string(b)
}

// Remove deletes a stale file; one that is gone already is fine.
func (e Entry) Remove() error {
	err := os.Remove(e.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ring: cannot remove the file of a dead process: %w", err)
	}
	return nil
}

// parseName reads falcon.JOB.PID, or falcon.JOB.PID-NAMESPACE.
func parseName(dir, file string) (Entry, bool) {
	rest, ok := strings.CutPrefix(file, filePrefix)
	i := strings.LastIndexByte(rest, '.')
	if !ok || i < 1 {
		return Entry{}, false
	}
	number, namespace, longer := strings.Cut(rest[i+1:], "-")
	pid, err := strconv.Atoi(number)
	if err != nil ||
		pid < 1 ||
		strings.ContainsFunc(rest[:i], func(r rune) bool {
			return r <= ' ' || r > '~'
		}) {
		return Entry{}, false
	}
	if _, err := strconv.ParseUint(namespace, 10, 64); longer && err != nil {
		return Entry{}, false
	}
	return Entry{Path: filepath.Join(dir, file), Job: rest[:i], PID: pid}, true
}
