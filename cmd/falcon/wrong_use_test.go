package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asFalcon makes this test binary act as falcon: what is judged is the present
// code, built or not.
const asFalcon = "FALCON_TEST_AS_FALCON"

func init() {
	if os.Getenv(asFalcon) != "" {
		os.Exit(execute(os.Args[1:]))
	}
}

// Bad input gets one clear sentence on stderr and exit code 1 or 2.
func TestWrongUse(t *testing.T) {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asFalcon, "1")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if out, err := exec.Command(
		bin,
		"certs",
		"init",
		"--dir", filepath.Join(dir, "state", "certs"),
	).CombinedOutput(); err != nil {
		t.Fatalf("certs init: %v: %s", err, out)
	}
	inUse := file("inuse.yaml", "state_dir: "+filepath.Join(dir, "state")+"\nlisten: "+l.Addr().String()+"\n")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown scenario": {[]string{"lab", "run", "--scenario", "nope"}, 2, "gpu-throttle"},
		"unknown scenario key": {
			[]string{
				"lab",
				"run",
				"--scenario", file("key.yaml", "layout: {tp: 1, dp: 2, pp: 1}\nnodes: 2\nspeed: 3\n"),
			},
			2,
			"speed",
		},
		"wrong layout product": {
			[]string{"lab", "run", "--dp", "3", "--pp", "1", "--nodes", "2"},
			2,
			"spread evenly",
		},
		"absent scenario file": {[]string{"lab", "run", "--scenario", "./absent.yaml"}, 1, "absent.yaml"},
		"bad flag":             {[]string{"lab", "run", "--nope"}, 2, "nope"},
		"bad approve":          {[]string{"lab", "run", "--approve", "maybe"}, 2, "never"},
		"stray word":           {[]string{"lab", "status", "now"}, 2, "now"},
		"inject no stage":      {[]string{"lab", "inject", "stage", "x"}, 2, "no stage"},
		"validation mode": {
			[]string{"serve", "--config", file("mode.yaml", "validation: {mode: maybe}\n")},
			2,
			"auto or manual",
		},
		"validation too long": {
			[]string{"serve", "--config", file("life.yaml", "validation: {mode: auto, life: 2m}\n")},
			2,
			"1m0s",
		},
		"inject too much": {
			[]string{"lab", "inject", "gpu", "n1.g0", "--clock", "3"},
			2,
			"between 0 and 1",
		},
		"inject no work": {[]string{"lab", "inject", "work", "--load", "0"}, 2, "0.1 to 10"},
		"absent preferences": {
			[]string{"console", "keys", "--prefs", filepath.Join(dir, "none.toml")},
			2,
			"none.toml",
		},
		"absent recording": {[]string{"replay", filepath.Join(dir, "none.frec")}, 1, "--record"},
		"authority is there": {
			[]string{"certs", "init", "--dir", filepath.Join(dir, "state", "certs")},
			1,
			"move it away",
		},
		"no rank":        {[]string{"rank", "logs", "n1.g0"}, 2, "give its number"},
		"negative rank":  {[]string{"rank", "stack", "--", "-1"}, 2, "give its number"},
		"too many lines": {[]string{"rank", "logs", "3", "--lines", "201"}, 2, "from 1 to 200"},
		"two ranks":      {[]string{"rank", "logs", "3", "4"}, 2, "give one rank"},
		"no node":        {[]string{"node", "kernel"}, 2, "give one node"},
		"rank without engine": {
			[]string{"rank", "logs", "3", "--connect", filepath.Join(dir, "none.sock")},
			1,
			"no engine",
		},
		"unknown command": {[]string{"frobnicate"}, 2, "frobnicate"},
		"absent iterations": {
			[]string{"detect", "iterations", filepath.Join(dir, "absent.csv")},
			1,
			"absent.csv",
		},
		"malformed iterations": {
			[]string{"detect", "iterations", file("bad.csv", "step,ms\n1,100\n2,abc\n")},
			1,
			"line 3",
		},
		"malformed calls": {
			[]string{"detect", "calls", file("calls.csv", "t_us,op\nx,allreduce\n")},
			1,
			"line 2",
		},
		"malformed profile": {
			[]string{
				"detect",
				"profile",
				file("profile.json", `{"layout":{"tp":1,"dp":2,"pp":1},"groups":[{}]}`),
			},
			1,
			"group 0",
		},
		"truncated trace": {
			[]string{"detect", "trace", file("trace.json", `{"traceEvents":[{"ph":"X"`)},
			1,
			"breaks off",
		},
		"pickled dump": {[]string{"detect", "trace", file("dump_0", "\x80\x02}q")}, 1, "pickle"},
		"deeply nested trace": {
			[]string{"detect", "trace", file("deep.json", `{"a":`+strings.Repeat("[", 1<<20))},
			1,
			"no JSON",
		},
		"absent trace": {
			[]string{"detect", "trace", filepath.Join(dir, "absent.json")},
			1,
			"absent.json",
		},
		"no number anywhere":  {[]string{"detect", "workers", file("w.csv", "step,worker\n")}, 1, "no rows"},
		"nothing to validate": {[]string{"validate", "--ranks", "1"}, 2, "--gemm"},
		"validate no engine": {
			[]string{"validate", "--gemm", "--connect", filepath.Join(dir, "none.sock")},
			1,
			"no engine",
		},
		"port in use": {[]string{"serve", "--config", inUse}, 1, "in use"},
		"absent config": {
			[]string{"serve", "--config", filepath.Join(dir, "none.yaml")},
			2,
			"none.yaml",
		},
		"unknown config key": {
			[]string{"serve", "--config", file("cfg.yaml", "colour: red\n")},
			2,
			"colour",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(bin, c.args...)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // the exit code is what is judged
			text := strings.TrimSpace(stderr.String())
			if cmd.ProcessState.ExitCode() != c.code ||
				!strings.Contains(text, c.want) ||
				strings.Contains(text, "\n") ||
				stdout.Len() != 0 {
				t.Errorf("exit %d, stderr %q, stdout %q; want exit %d and one line with %q",
					cmd.ProcessState.ExitCode(), text, stdout.String(), c.code, c.want)
			}
		})
	}
}
