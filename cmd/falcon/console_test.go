package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConsoleWrongUse(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	broken := filepath.Join(t.TempDir(), "console.toml")
	if err := os.WriteFile(broken, []byte("[keys]\neverywhere.approve = [\"enter\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"console", "--theme", "nope"}, 2},
		{[]string{"console", "--connect", none, "--config", "x.yaml"}, 2},
		{[]string{"console", "--connect", "host:7440"}, 2}, // TLS needs certificates
		{[]string{"console", "--config", none}, 2},
		{[]string{"console", "--connect", none}, 1},
		{[]string{"console", "extra"}, 2},
		{[]string{"console", "--prefs", none}, 2},
		{[]string{"console", "keys", "--prefs", broken}, 2},
		{[]string{"console", "keys", "extra"}, 2},
		{[]string{"lab", "run", "--prefs", broken}, 2},
	} {
		if got := execute(c.args); got != c.code {
			t.Errorf("falcon %s: exit code %d, want %d", strings.Join(c.args, " "), got, c.code)
		}
	}
}

// Where the engine runs as a service, the console of the same configuration is its screen:
// it does not ask for the engine to be stopped.
func TestConsoleOfARunningEngine(t *testing.T) {
	h, cfg := testEngine(t)
	file := filepath.Join(cfg.StateDir, "falcon.yaml")
	writeFile(t, file, "state_dir: "+cfg.StateDir+"\nsocket: "+h.Socket+"\nlisten: none\n")
	t.Setenv("FALCON_SOCKET", h.Socket)
	for _, args := range [][]string{{"--config", file}, {}} {
		code, out, errs := command(t, append([]string{"console", "--once", "--json"}, args...)...)
		if code != 0 || !strings.Contains(out, `"job"`) || strings.Contains(errs, "held") {
			t.Errorf("%v: %d, %q, %q", args, code, out, errs)
		}
	}
	if socket, err := (&engineTarget{}).runningEngine(file); socket != h.Socket || err != nil {
		t.Errorf("beside it: %q, %v", socket, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if socket, err := (&engineTarget{}).runningEngine(file); socket != "" || err != nil {
		t.Errorf("after its end: %q, %v", socket, err)
	}
}

// Without a terminal the console writes lines, and ends with its context.
func TestConsoleWithoutATerminal(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	err := runConsole(
		ctx,
		filepath.Join(t.TempDir(), "none.sock"),
		consoleOptions{Plain: true, Out: &out},
	)
	if err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("got %v, %q", err, out.String())
	}
	if err := runConsole(ctx, "host:1", consoleOptions{Plain: true}); !errors.Is(err, errUsage) {
		t.Errorf("a bad address is wrong use: %v", err)
	}
}
