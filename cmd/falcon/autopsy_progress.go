package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Where progress is shown.
const (
	progressFrom  = 200 << 20 // bytes of a file
	progressEvery = 300 * time.Millisecond
)

// reading shows on a terminal how far a large file is read.
type reading struct {
	io.ReadCloser
	out   io.Writer
	name  string
	size  int64
	done  int64
	began time.Time
	shown time.Time
}

// watched wraps a file where its size is worth it and somebody looks.
func watched(file *os.File, name string) io.ReadCloser {
	info, err := file.Stat()
	if err != nil ||
		info.Size() < progressFrom ||
		!term.IsTerminal(int(os.Stderr.Fd())) {
		return file
	}
	return &reading{
		ReadCloser: file,
		out:        os.Stderr,
		name:       name,
		size:       info.Size(),
		began:      time.Now(),
	}
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.done += int64(n)
	if now := time.Now(); now.Sub(r.shown) >= progressEvery {
		r.shown = now
		r.show(now)
	}
	return n, err
}

func (r *reading) show(now time.Time) {
	left := "…"
	if spent := now.Sub(r.began); r.done > 0 && spent > time.Second {
		left = time.Duration(float64(spent) * float64(r.size-r.done) / float64(r.done)).
			Round(time.Second).
			String()
	}
	fmt.Fprintf(r.out, "\r\x1b[K%s: %.1f of %.1f GB, %s left",
		r.name, float64(r.done)/1e9, float64(r.size)/1e9, left)
}

// Close removes the line.
func (r *reading) Close() error {
	fmt.Fprint(r.out, "\r\x1b[K")
	return r.ReadCloser.Close()
}
