package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func cutUntil(t *testing.T, file, mode string, d time.Duration) {
	t.Helper()
	text := mode + " " + strconv.FormatInt(time.Now().Add(d).UnixNano(), 10) + "\n"
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// echo answers every byte with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func ping(c net.Conn) error {
	b := []byte{7}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

func TestLabCutsConnections(t *testing.T) {
	n := labNet{filepath.Join(t.TempDir(), "cut.n1")}
	addr := echo(t)
	c, err := n.dialEngine(t.Context(), addr)
	if err != nil || ping(c) != nil {
		t.Fatal("no way to begin with")
	}
	cutUntil(t, n.file, "drop", time.Hour)
	answered := make(chan error, 1)
	go func() { answered <- ping(c) }()
	cutUntil(t, n.file, "drop", 0) // mended: what was dropped comes after all
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	cutUntil(t, n.file, "reset", time.Hour)
	if err := ping(c); err == nil {
		_, err = c.Read(make([]byte, 1)) // until the next look
		if err == nil {
			t.Fatal("not reset")
		}
	}
	if _, err := n.dialEngine(t.Context(), addr); err == nil {
		t.Fatal("a connection through a cut")
	}
	_ = c.Close()
	cutUntil(t, n.file, "reset", 0)
	again, err := n.dialEngine(t.Context(), addr)
	if err != nil || ping(again) != nil {
		t.Fatalf("not mended: %v", err)
	}
	if err := again.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// Outside of a lab none of its settings counts.
func TestLabSettingsAreTheLabsAlone(t *testing.T) {
	t.Setenv("FALCON_LAB_CUT", "x")
	t.Setenv("FALCON_LAB_SKEW", "10m")
	if labDialer(false) != nil || labClockSkew(false) != 0 {
		t.Error("they count on a real node")
	}
	if labDialer(true) == nil || labClockSkew(true) != 10*time.Minute {
		t.Error("they do not count in a lab")
	}
}
