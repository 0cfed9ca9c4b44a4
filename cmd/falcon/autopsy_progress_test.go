package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// A large file says how far it is read and how long it takes still, and takes the line away.
func TestReadingIsShown(t *testing.T) {
	var out bytes.Buffer
	r := &reading{
		ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 1000))),
		out:        &out,
		name:       "big.log",
		size:       4000,
		began:      time.Now().Add(-10 * time.Second),
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	r.show(r.began.Add(10 * time.Second))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, "big.log: 0.0 of 0.0 GB, 30s left") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("%q", text)
	}
}
