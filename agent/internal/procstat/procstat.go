// Package procstat reads /proc/PID/stat, by which a process is known for certain:
// its number is used again, but not with the same start.
//
// It guarantees that the name of a process, which may hold anything, is never read
// as a field. It holds no state and must not judge what it reads.
package procstat

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// ErrFormat is returned for a file that does not look as proc(5) says.
var ErrFormat = errors.New("/proc/PID/stat does not look as documented")

// fileBytesMax bounds what is read.
const fileBytesMax = 4096

// Fields behind the name.
const (
	fieldState   = 0
	fieldParent  = 1
	fieldSession = 3
	fieldThreads = 17
	fieldStart   = 19
)

// Stat is what is read of one process.
type Stat struct {
	State   byte // R, S, Z, …
	Parent  int
	Session int
	Threads int
	Start   uint64 // clock ticks since boot
}

// Read reads the file of one process below proc, normally /proc.
func Read(proc string, pid int) (Stat, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax))
	if err != nil {
		return Stat{}, err
	}
	i := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[i+1:])
	if i < 0 || len(fields) <= fieldStart || len(fields[fieldState]) != 1 {
		return Stat{}, ErrFormat
	}
	parent, err0 := strconv.Atoi(string(fields[fieldParent]))
	session, err := strconv.Atoi(string(fields[fieldSession]))
	threads, err2 := strconv.Atoi(string(fields[fieldThreads]))
	start, err3 := strconv.ParseUint(string(fields[fieldStart]), 10, 64)
	if errors.Join(err0, err, err2, err3) != nil {
		return Stat{}, ErrFormat
	}
	return Stat{
		State:   fields[fieldState][0],
		Parent:  parent,
		Session: session,
		Threads: threads,
		Start:   start,
	}, nil
}
