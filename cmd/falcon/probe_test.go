package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// probed runs a shell command as sampling jobs against an engine that answers by answer.
func probed(
	t *testing.T,
	ctx context.Context,
	s probeSettings,
	script string,
	answer func(*falconv1.ProbeRequest) error,
) (asked []*falconv1.ProbeRequest, out string, err error) {
	t.Helper()
	var text bytes.Buffer
	p := &prober{
		settings: s,
		command:  []string{"sh", "-c", script},
		out:      &text,
		errs:     &bytes.Buffer{},
		ask: func(q *falconv1.ProbeRequest) (*falconv1.ProbeReply, error) {
			asked = append(asked, q)
			if err := answer(q); err != nil {
				return nil, err
			}
			return &falconv1.ProbeReply{DeadlineUnixNs: time.Now().UnixNano() + q.GetForNs()}, nil
		},
	}
	err = p.runAll(ctx)
	return asked, text.String(), err
}

func allowAll(*falconv1.ProbeRequest) error { return nil }

// Nodes take turns, the job knows them, and each is given back before the next.
func TestProbesTakeTurns(t *testing.T) {
	list := filepath.Join(t.TempDir(), "nodes")
	s := probeSettings{
		kind:  "b",
		nodes: []string{"n0", "n1", "n2"},
		size:  2,
		every: 10 * time.Millisecond,
		span:  5 * time.Second,
		grace: time.Second,
	}
	ctx, stop := context.WithCancel(t.Context())
	runs := 0
	asked, out, err := probed(
		t,
		ctx,
		s,
		fmt.Sprintf(`echo "$FALCON_PROBE_KIND $FALCON_PROBE_NODES" >> %q`, list),
		func(q *falconv1.ProbeRequest) error {
			if q.GetEnd() {
				if runs++; runs == 3 {
					stop()
				}
			}
			return nil
		},
	)
	if !errors.Is(err, errInterrupted) {
		t.Errorf("%v", err)
	}
	got, _ := os.ReadFile(list)
	if want := "b n0,n1\nb n2,n0\nb n1,n2\n"; string(got) != want {
		t.Errorf("jobs ran on %q, want %q\n%s", got, want, out)
	}
	for i, q := range asked {
		if q.GetEnd() != (i%2 == 1) {
			t.Fatalf("request %d: %v", i, q)
		}
	}
}

// At the deadline the whole process group ends, also one that ignores SIGTERM.
func TestProbesEndAtTheDeadline(t *testing.T) {
	for name, script := range map[string]string{
		"obeys":   `sleep 60`,
		"ignores": `trap "" TERM; sleep 60 & echo $! > "$OUT"; wait; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			s := probeSettings{
				kind:  "a",
				nodes: []string{"n0"},
				every: time.Minute,
				span:  500 * time.Millisecond,
				grace: 200 * time.Millisecond,
			}
			began := time.Now()
			asked, out, err := probed(
				t,
				t.Context(),
				s,
				strings.ReplaceAll(script, "$OUT", pid),
				allowAll,
			)
			took := time.Since(began)
			if err != nil || took > 30*time.Second || !strings.Contains(out, "was ended after") {
				t.Errorf("took %s, %v:\n%s", took, err, out)
			}
			if n := len(asked); n != 2 || !asked[1].GetEnd() {
				t.Errorf("%v", asked)
			}
			var left int
			if b, err := os.ReadFile(pid); err == nil {
				left, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			}
			for range 100 {
				if left == 0 || syscall.Kill(left, 0) != nil || isZombie(left) {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("process %d lives on", left)
		})
	}
}

func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// A refusal starts nothing, and is the error where all are refused.
func TestProbesThatAreRefused(t *testing.T) {
	s := probeSettings{
		kind:  "a",
		nodes: []string{"n0"},
		every: 20 * time.Millisecond,
		span:  50 * time.Millisecond,
	}
	started := filepath.Join(t.TempDir(), "started")
	asked, _, err := probed(t, t.Context(), s, "touch "+started, func(*falconv1.ProbeRequest) error {
		return errors.New("node n0 is not idle")
	})
	if err == nil || !strings.Contains(err.Error(), "not idle") || len(asked) == 0 {
		t.Errorf("%v, %v", asked, err)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("a job was started all the same")
	}
}

// What the flags take.
func TestProbeSettings(t *testing.T) {
	good := probeSettings{
		kind:  "b",
		nodes: []string{"n0", "n1"},
		size:  2,
		every: time.Minute,
		span:  time.Hour,
	}
	if err := good.check([]string{"x"}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*probeSettings){
		"kind":  func(s *probeSettings) { s.kind = "c" },
		"nodes": func(s *probeSettings) { s.nodes = []string{"n0", "n0"} },
		"none":  func(s *probeSettings) { s.nodes = nil },
		"size":  func(s *probeSettings) { s.size = 3 },
		"for":   func(s *probeSettings) { s.span = 721 * time.Hour },
		"every": func(s *probeSettings) { s.every = 0 },
		"each":  func(s *probeSettings) { s.each = 25 * time.Hour },
	} {
		s := good
		if change(&s); !errors.Is(s.check([]string{"x"}), errUsage) {
			t.Errorf("%s: taken", name)
		}
	}
	if !errors.Is(good.check(nil), errUsage) {
		t.Error("no command: taken")
	}
}
