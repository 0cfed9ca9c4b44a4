package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one read.
const (
	recordBytes = 16 << 10 // one read of /dev/kmsg returns one record, at most 8 KiB
	readMost    = 16 << 20
	readWithin  = time.Second
)

// ErrSource is wrapped where the kernel's messages can't be read.
var ErrSource = errors.New("kernel: its messages can't be read")

// Log reads the kernel's messages from /dev/kmsg, or from a file with lines in that form or in
// dmesg's.
type Log struct {
	fd   int
	rest []byte // of a line that has not ended
}

// Open opens the messages; atEnd leaves out those that are there already.
func Open(path string, atEnd bool) (*Log, error) {
	fd, err := unix.Open(
		path,
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY,
		0,
	)
	if err != nil {
		return nil, sourceError(path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, sourceError(path, err)
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFCHR {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%w: %s is neither /dev/kmsg nor a file: set logs.kernel", ErrSource, path)
	}
	if atEnd {
		_, _ = unix.Seek(fd, 0, io.SeekEnd) // of no file that can't: all is new then
	}
	return &Log{fd: fd}, nil
}

// sourceError names the remedy.
func sourceError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf(
			"%w: the agent may not read %s: run it as root or with CAP_SYSLOG, or set kernel.dmesg_restrict to 0",
			ErrSource, path,
		)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no %s: in a container it must be mounted; set logs.kernel",
			ErrSource, path)
	}
	return fmt.Errorf("%w: %s: %w", ErrSource, path, err)
}

// Read hands out the records that are there, oldest first, without waiting for others. lost
// reports whether some were overwritten before they were read.
func (l *Log) Read(each func(Record)) (lost bool, err error) {
	deadline := time.Now().Add(readWithin)
	buf := make([]byte, recordBytes)
	for total := 0; total < readMost && time.Now().Before(deadline); {
		n, err := unix.Read(l.fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE):
			lost = true
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return lost, nil
		case err != nil:
			return lost, fmt.Errorf("%w: %w", ErrSource, err)
		}
		total += n
		l.split(buf[:n], each)
	}
	return lost, nil
}

// split takes whole lines; one that is too long is dropped up to its end.
func (l *Log) split(b []byte, each func(Record)) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			break
		}
		if r, ok := ParseRecord(string(l.rest[:i])); ok {
			each(r)
		}
		l.rest = l.rest[i+1:]
	}
	if len(l.rest) > recordBytes {
		l.rest = nil
	}
	l.rest = append([]byte(nil), l.rest...)
}

// Close ends it.
func (l *Log) Close() {
	_ = unix.Close(l.fd)
}

// Booted is when the kernel's clock began, by now.
func Booted(now time.Time) time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(ts.Nano()))
}
