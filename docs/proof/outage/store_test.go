package outage

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// asPart makes this test binary a part of the emulation: descriptors of one
// process don't suffice for all.
const asPart = "FALCON_TEST_OUTAGE_PART"

func beAStore() {
	switch os.Getenv(asPart) {
	case "store":
		os.Exit(status(storePart()))
	case "clients":
		os.Exit(status(clientsPart()))
	}
}

func status(err error) int {
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// storePart serves; each line is a generation to fence.
func storePart() error {
	s, err := tcpstore.Listen("127.0.0.1:0", tcpstore.Options{})
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var g uint64
		if _, err := fmt.Sscan(in.Text(), &g); err != nil {
			return err
		}
		if err := s.Fence(g); err != nil {
			return err
		}
		fmt.Println("fenced")
	}
	return s.Close()
}

// clientsPart has as many clients meet as each line says.
func clientsPart() error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var address string
		var n int
		if _, err := fmt.Sscan(in.Text(), &address, &n); err != nil {
			return err
		}
		took, err := storetest.Meet(address, storetest.Current, n, patience)
		if err != nil {
			return err
		}
		fmt.Println(took.Nanoseconds())
	}
	return nil
}

// part is a process that answers lines.
type part struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func newPart(t *testing.T, what string) *part {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asPart+"="+what)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	return &part{in, bufio.NewReader(out)}
}

func (p *part) line() (string, error) {
	s, err := p.out.ReadString('\n')
	if why, bad := strings.CutPrefix(s, "error "); bad {
		err = fmt.Errorf("outage: a part failed: %s", why)
	}
	return strings.TrimSpace(s), err
}

func (p *part) ask(format string, a ...any) (string, error) {
	if _, err := fmt.Fprintf(p.in, format+"\n", a...); err != nil {
		return "", err
	}
	return p.line()
}

// apart is a store and its clients in a process each.
type apart struct {
	address        string
	store, clients *part
}

func newApart(t *testing.T) apart {
	t.Helper()
	m := apart{store: newPart(t, "store"), clients: newPart(t, "clients")}
	var err error
	if m.address, err = m.store.line(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m apart) Fence(generation uint64) error {
	_, err := m.store.ask("%d", generation)
	return err
}

func (m apart) Meet(n int) (time.Duration, error) {
	s, err := m.clients.ask("%s %d", m.address, n)
	if err != nil {
		return 0, err
	}
	var ns int64
	_, err = fmt.Sscan(s, &ns)
	return time.Duration(ns), err
}
