package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/procstat"
)

// DefaultDir is where the hook puts its files unless $FALCON_SHM_DIR is set.
const DefaultDir = "/dev/shm"

const (
	filePrefix = "falcon."
	clockHz    = 100             // USER_HZ of /proc, fixed by the kernel's ABI
	startSlack = 2 * time.Second // rounding of start times
)

// Entry is one file found by Discover.
type Entry struct {
	Path string
	Job  string
	PID  int
	// StartMonoNs is Header.StartMonoNs of a live file as it lies there now: a
	// process that starts another program (exec) makes a new file in its place.
	StartMonoNs int64
}

// Discover lists the files of a job (all jobs when job is empty) in dir: live
// ones, whose process runs, and stale ones, left by a crash. A file whose hook
// has not finished its header yet is neither. A pid used again by a later
// process makes its old file stale.
func Discover(dir, job string) (live, stale []Entry, err error) {
	if job != "" {
		job = FileJob(job)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("ring: cannot list %s: %w", dir, err)
	}
	for _, n := range names {
		e, ok := parseName(dir, n.Name())
		if !ok || (job != "" && e.Job != job) {
			continue
		}
		switch running, ready := (&e).checkProcess(); {
		case !running:
			stale = append(stale, e)
		case ready:
			live = append(live, e)
		}
	}
	return live, stale, nil
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
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			b[i] = '_'
		}
	}
	return string(b)
}

// Remove deletes a stale file; one that is gone already is fine.
func (e Entry) Remove() error {
	if err := os.Remove(e.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ring: cannot remove the file of a dead process: %w", err)
	}
	return nil
}

func parseName(dir, file string) (Entry, bool) {
	rest, ok := strings.CutPrefix(file, filePrefix)
	i := strings.LastIndexByte(rest, '.')
	if !ok || i < 1 {
		return Entry{}, false
	}
	pid, err := strconv.Atoi(rest[i+1:])
	if err != nil || pid < 1 || strings.ContainsFunc(rest[:i], func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Entry{}, false
	}
	return Entry{Path: filepath.Join(dir, file), Job: rest[:i], PID: pid}, true
}

// checkProcess reports whether the process runs and whether its file is complete.
func (e *Entry) checkProcess() (running, ready bool) {
	if err := unix.Kill(e.PID, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return false, false
	}
	start, ready := fileStartNs(e.Path)
	made := start + suspendedNs()
	if began, ok := processStart(e.PID); ready && ok && (began > made+startSlack || made > sinceBoot()+startSlack) {
		return false, false // of a process before it, or of an earlier boot
	}
	e.StartMonoNs = int64(start)
	return true, ready
}

// fileStartNs reads when the file was made, by CLOCK_MONOTONIC: the wall clock may
// have been set since.
func fileStartNs(path string) (made time.Duration, ready bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	var b [headerBytes]byte
	if n, _ := f.ReadAt(b[:], 0); n < len(b) {
		return 0, false
	}
	return time.Duration(binary.LittleEndian.Uint64(b[hdrStartMonoNs:])), binary.LittleEndian.Uint64(b[hdrMagic:]) != 0
}

// suspendedNs is by how much CLOCK_MONOTONIC lags: it stands still in a suspended
// machine.
func suspendedNs() time.Duration { return sinceBoot() - time.Duration(MonoNs()) }

func sinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// processStart is when a process began, since boot.
func processStart(pid int) (began time.Duration, ok bool) {
	s, err := procstat.Read("/proc", pid)
	return time.Duration(s.Start) * (time.Second / clockHz), err == nil
}
