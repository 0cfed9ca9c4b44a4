package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/ship/shiptest"
)

func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("node: n1\nbeats: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{nil, 2, "--config FILE is missing"},
		{[]string{"--config", bad}, 2, "field beats not found"},
		{[]string{"--config", filepath.Join(dir, "absent")}, 2, "no such file"},
		{[]string{"--nonsense"}, 2, "falcon-agent --help"},
		{[]string{"start"}, 2, "unexpected argument"},
		{[]string{"run"}, 2, "no command to start"},
		{[]string{"run", "--job", "a b", "--", "true"}, 2, "job"},
		{[]string{"run", "--hook", filepath.Join(dir, "absent.so"), "--", "true"}, 1, "there is no hook at"},
		{[]string{"run", "--hook", bad, "--", "no-such-command-at-all"}, 1, "no-such-command-at-all"},
	} {
		var out, errs bytes.Buffer
		code := runCommand(c.args, &out, &errs)
		if code != c.code ||
			!strings.Contains(errs.String(), c.say) ||
			strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: exit %d, %q", c.args, code, errs.String())
		}
	}
}

func TestHelpShowsTheConfiguration(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"run", "--help"}} {
		var out, errs bytes.Buffer
		code := runCommand(args, &out, &errs)
		if code != 0 ||
			!strings.Contains(out.String(), "shm_dir: /dev/shm") ||
			errs.Len() > 0 {
			t.Errorf("%v: exit %d, %q", args, code, errs.String())
		}
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		before []string
		job    string
		want   []string
	}{
		{[]string{"A=1"}, "", []string{"A=1", "LD_PRELOAD=/h.so"}},
		{
			[]string{"LD_PRELOAD=/x.so", "FALCON_JOB=old"},
			"new",
			[]string{"FALCON_JOB=new", "LD_PRELOAD=/h.so:/x.so"},
		},
		{
			[]string{"LD_PRELOAD=/h.so:/x.so", "FALCON_JOB=old"},
			"",
			[]string{"FALCON_JOB=old", "LD_PRELOAD=/h.so:/x.so"},
		},
		{[]string{"LD_PRELOAD="}, "j", []string{"FALCON_JOB=j", "LD_PRELOAD=/h.so"}},
	} {
		got := environment(c.before, watchers{hook: "/h.so"}, c.job)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.before, got, c.want)
		}
	}
}

// --check says everything that is wrong, a line each, and starts nothing.
func TestCheck(t *testing.T) {
	e := shiptest.NewEngine(t)
	f := e.Agent()
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.yaml")
	good := "node: n1\njob: j\nengine: " + e.Address() + "\ncert: " + f.Cert + "\nkey: " + f.Key +
		"\nca: " + f.CA + "\nshm_dir: " + dir + "\n"
	for _, c := range []struct {
		text string
		code int
		says []string
	}{
		{good, 0, []string{"nothing is wrong"}},
		{
			good +
				"launch: {command: [/nowhere/train], node_ranks: 1, log_dir: /nowhere/logs, dir: /dev/null}\n",
			1,
			[]string{"launch.command", "launch.log_dir", "launch.dir"},
		},
		{strings.Replace(good, f.Key, "/nowhere/key", 1), 1, []string{"/nowhere/key"}},
		{
			strings.Replace(good, "shm_dir: "+dir, "shm_dir: /nowhere/shm", 1),
			1,
			[]string{"shm_dir: /nowhere/shm", "name another"},
		},
		{good + "rank_table: /dev/null\n", 1, []string{"rank_table", "remove it"}},
		{good + "rank_tables: x\n", 2, []string{"rank_tables"}},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := runCommand([]string{"--config", path, "--check"}, &out, &errs)
		for _, say := range c.says {
			if !strings.Contains(out.String()+errs.String(), say) || code != c.code {
				t.Errorf("exit %d, want %d and %q: %s%s", code, c.code, say, &out, &errs)
			}
		}
	}
}
