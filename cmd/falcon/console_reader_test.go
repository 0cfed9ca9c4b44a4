package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flag before environment before setting.
func TestReaderIsChosen(t *testing.T) {
	for _, c := range []struct {
		name    string
		flag    readerOption
		env     map[string]string
		setting bool
		want    bool
		bad     bool
	}{
		{"nothing", readerOption{}, nil, false, false, false},
		{"setting", readerOption{}, nil, true, true, false},
		{"environment over setting", readerOption{}, map[string]string{readerEnv: "0"}, true, false, false},
		{"environment", readerOption{}, map[string]string{readerEnv: "1"}, false, true, false},
		{
			"flag over environment",
			readerOption{given: true},
			map[string]string{readerEnv: "1"},
			true,
			false,
			false,
		},
		{"flag", readerOption{given: true, on: true}, map[string]string{readerEnv: "0"}, false, true, false},
		{"shared", readerOption{}, map[string]string{readerEnvShared: "yes"}, false, true, false},
		{"shared, no", readerOption{}, map[string]string{readerEnvShared: "0"}, true, false, false},
		{
			"own over shared",
			readerOption{},
			map[string]string{readerEnv: "false", readerEnvShared: "1"},
			false,
			false,
			false,
		},
		{"no word", readerOption{}, map[string]string{readerEnv: "maybe"}, false, false, true},
	} {
		got, err := c.flag.wanted(func(name string) string {
			return c.env[name]
		}, c.setting)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// The command's whole way: the file of preferences, the variable, the flag.
func TestConsoleForAScreenReader(t *testing.T) {
	h, _ := testEngine(t)
	prefs := filepath.Join(t.TempDir(), "console.toml")
	writeFile(t, prefs, "screen_reader = true\n")
	once := func(args ...string) string {
		code, out, errs := command(
			t,
			append([]string{"console", "--connect", h.Socket, "--once"}, args...)...,
		)
		if code != 0 {
			t.Fatalf("%v: %d, %s", args, code, errs)
		}
		return out
	}
	const spoken, printed = "Before the first iteration. ", "[start] "
	for _, c := range []struct {
		env  string
		args []string
		want string
	}{
		{"", nil, printed},
		{"", []string{"--prefs", prefs}, spoken},
		{"0", []string{"--prefs", prefs}, printed},
		{"1", nil, spoken},
		{"1", []string{"--screen-reader=false"}, printed},
		{"", []string{"--screen-reader"}, spoken},
	} {
		t.Setenv(readerEnv, c.env)
		if out := once(c.args...); !strings.HasPrefix(out, c.want) {
			t.Errorf("$%s=%s and %v: %q", readerEnv, c.env, c.args, out)
		}
	}
	t.Setenv(readerEnv, "maybe")
	if code, _, errs := command(t, "console", "--connect", h.Socket, "--once"); code != 2 ||
		!strings.Contains(errs, "set it to 1 or 0") {
		t.Errorf("a wrong value: %d, %s", code, errs)
	}
	if err := os.Unsetenv(readerEnv); err != nil {
		t.Fatal(err)
	}
	if out := once("--json", "--screen-reader"); !strings.HasPrefix(out, "{") {
		t.Errorf("JSON for a program: %q", out)
	}
}
