package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/auth"
)

// ownContexts lets a test have contexts, and engines on this machine, of its own.
func ownContexts(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "contexts.toml")
	t.Setenv("FALCON_CONTEXTS", file)
	t.Setenv("FALCON_SOCKET", "")
	t.Setenv("TMPDIR", shortDir(t)) // no labs
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	return file
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := command(t, args...)
	if code != 0 {
		t.Fatalf("falcon %s: %d, %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// Two engines, one by its socket and one over TLS, are added, listed, used, and shown together
// with one that is away.
func TestContextsAndTheirConsole(t *testing.T) {
	file := ownContexts(t)
	one, _ := testEngine(t)
	two, cfg := testEngine(t)
	certs := filepath.Join(cfg.StateDir, certsName)
	if err := certsIssue(certs, auth.Request{
		Role: auth.RoleViewer,
		Name: "maria",
		Life: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	own := auth.FilesIn(certs, "maria")
	if out := must(t, "context", "list"); !strings.Contains(out, "no contexts") {
		t.Error(out)
	}
	must(t, "context", "add", "here", "unix:"+one.Socket)
	must(
		t,
		"context",
		"add",
		"tls",
		two.Address,
		"--ca", own.CA,
		"--cert", own.Cert,
		"--key", own.Key,
	)
	must(t, "context", "add", "gone", filepath.Join(t.TempDir(), "gone.sock"))
	must(t, "context", "use", "here")
	if out := must(t, "context", "list"); !strings.Contains(out, "* here") ||
		!strings.Contains(out, "  tls   "+two.Address) {
		t.Error(out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, args := range [][]string{{"incident", "list"}, {"incident", "list", "--context", "tls"}} {
		if out := must(t, args...); out != "no incidents\n" {
			t.Errorf("%v: %s", args, out)
		}
	}
	var jobs []struct{ Name, State, Role, Away string }
	if err := json.Unmarshal([]byte(must(t, "console", "--all", "--once", "--json")), &jobs); err != nil ||
		len(jobs) != 3 {
		t.Fatalf("%v: %v", err, jobs)
	}
	got := map[string]string{}
	for _, j := range jobs {
		got[j.Name] = j.State + " " + j.Role
	}
	if got["here"] != "waiting admin" || got["tls"] != "waiting viewer" || got["gone"] != "away " {
		t.Errorf("%v", got)
	}
	out := must(t, "console", "--context", "tls,here", "--once")
	if !strings.Contains(out, "here: waiting") ||
		!strings.Contains(out, "tls: waiting") ||
		strings.Contains(out, "gone") ||
		!strings.Contains(out, "2 jobs") {
		t.Error(out)
	}
	if out := must(
		t,
		"console",
		"--context", "tls",
		"--once",
		"--json",
	); !strings.Contains(out, `"role":"viewer"`) {
		t.Error(out)
	}
	must(t, "context", "remove", "here")
	code, _, errs := command(t, "console", "--context", "here,tls", "--once")
	if code != 2 || !strings.Contains(errs, `no context "here"; there are gone, tls`) {
		t.Errorf("%d %s", code, errs)
	}
}

func TestContextWrongUse(t *testing.T) {
	file := ownContexts(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"context add", 2, "give a name and an address"},
		{"context add a host:1", 2, "set ca, cert and key"},
		{"context add a/b /x", 2, "no name of a context"},
		{"context use nope", 2, "add one with falcon context add"},
		{"context use", 2, "takes the context's name"},
		{"context remove nope", 2, "no context"},
		{"context nope", 2, "no command"},
		{"incident list --context nope", 2, "no context"},
		{"incident list --context nope --connect /x", 2, "both name an engine"},
		{"console --all --context a", 2, "give one of them"},
		{"console --all --config x.yaml", 2, "give one of them"},
		{"console --all --connect /x", 2, "give one of them"},
		{"console --all --record f", 2, "records one job"},
		{"console --all --once --open inc/INC-0001?job=a", 2, "about one job"},
		{"console --context a --config x.yaml", 2, "give one of them"},
		{"console --all --once", 1, "no engine is known"},
	} {
		code, _, errs := command(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("falcon %s: %d, %q; want %d, %q", c.args, code, errs, c.code, c.want)
		}
	}
	if err := os.WriteFile(file, []byte("[contexts.a]\naddress = \"/x\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command(t, "context", "list"); code != 2 || !strings.Contains(errs, "chmod 600") {
		t.Errorf("others may read it: %d, %q", code, errs)
	}
}

// Names of contexts are completed, one after the other where several are taken.
func TestContextsAreCompleted(t *testing.T) {
	ownContexts(t)
	must(t, "context", "add", "prod-a", "/x")
	must(t, "context", "add", "prod-b", "/y")
	for args, want := range map[string]string{
		"context use ":                     "prod-a\t/x\nprod-b\t/y\n",
		"incident list --context ":         "prod-a\t/x\nprod-b\t/y\n",
		"console --context prod-a,":        "prod-a,prod-a\t/x\nprod-a,prod-b\t/y\n",
		"context remove prod-a ":           "",
		"console --all --context=prod-a,p": "prod-a,prod-a\t/x\nprod-a,prod-b\t/y\n",
	} {
		out := must(t, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		list, _, _ := strings.Cut(out, ":")
		if list != want {
			t.Errorf("%q completes %q, want %q", args, list, want)
		}
	}
}

// Engines on this machine are found: of the state directory, of $FALCON_SOCKET and of labs.
func TestEnginesHereAreFound(t *testing.T) {
	ownContexts(t)
	h, _ := testEngine(t)
	t.Setenv("FALCON_SOCKET", h.Socket)
	lab := runFakeLab(t, "run-1")
	found := map[string]string{}
	for _, x := range enginesHere() {
		found[x.Name] = x.Address
	}
	if len(found) != 2 || found["env"] != h.Socket || found["lab-1"] != lab {
		t.Errorf("%v", found)
	}
}
