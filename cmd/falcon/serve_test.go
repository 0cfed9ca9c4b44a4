package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/tui/report"
)

// command runs falcon in this process and returns its exit code and output.
func command(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(t.Context())
	var code exitError
	switch {
	case errors.As(err, &code):
		return int(code), out.String(), errs.String()
	case err == nil:
		return 0, out.String(), errs.String()
	case errors.Is(err, errUsage):
		return 2, out.String(), sentence(err)
	}
	return 1, out.String(), sentence(err)
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "falcon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func testEngine(t *testing.T) (*engineHandle, engineConfig) {
	t.Helper()
	cfg := engineConfig{StateDir: shortDir(t), Listen: "127.0.0.1:0"}
	cfg.fillDefaults()
	if err := certsInit(filepath.Join(cfg.StateDir, certsName), nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	h, err := startEngine(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, cfg
}

func TestCommandsTalkToARunningEngine(t *testing.T) {
	h, cfg := testEngine(t)
	if code, out, errs := command(t, "incident", "list", "--connect", h.Socket); code != 0 ||
		out != "no incidents\n" {
		t.Errorf("list: %d %q %q", code, out, errs)
	}
	code, out, errs := command(t, "incident", "list", "--json", "--connect", h.Socket)
	var doc struct{ Incidents []report.Incident }
	if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil || doc.Incidents == nil {
		t.Errorf("list --json: %d %q %q, %v", code, out, errs, err)
	}
	for _, args := range [][]string{
		{"incident", "show", "INC-0009"},
		{"incident", "export", "INC-0009"},
		{"decide", "INC-0009", "--veto"},
	} {
		code, _, errs := command(t, append(args, "--connect", h.Socket)...)
		if code != 1 || !strings.Contains(errs, `no incident "INC-0009"`) {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
	if code, _, errs := command(
		t,
		"journal",
		"verify",
		filepath.Join(cfg.StateDir, journalName),
	); code != 1 ||
		!strings.Contains(errs, "held by another process") {
		t.Errorf("verify under a running engine: %d %q", code, errs)
	}
	// Over the network, with a viewer's certificate: looking is allowed, deciding is not.
	certs := filepath.Join(cfg.StateDir, certsName)
	if err := certsIssue(certs, auth.Request{
		Role: auth.RoleViewer,
		Name: "ann",
		Life: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	f := auth.FilesIn(certs, "ann")
	tls := []string{"--connect", h.Address, "--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
	if code, out, errs := command(t, append([]string{"incident", "list"}, tls...)...); code != 0 ||
		out != "no incidents\n" {
		t.Errorf("list over TLS: %d %q %q", code, out, errs)
	}
	if code, _, errs := command(t, append([]string{"decide", "INC-0001", "--veto"}, tls...)...); code != 1 ||
		!strings.Contains(errs, "role approver") {
		t.Errorf("a viewer decides: %d %q", code, errs)
	}
}

func TestEngineStopsAndItsJournalIsWhole(t *testing.T) {
	h, cfg := testEngine(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	code, out, errs := command(
		t,
		"journal",
		"verify",
		filepath.Join(cfg.StateDir, journalName),
		"--json",
	)
	var doc struct {
		Records uint64
		Head    string
	}
	if err := json.Unmarshal([]byte(out), &doc); code != 0 ||
		err != nil ||
		doc.Records == 0 ||
		len(doc.Head) != 64 {
		t.Errorf("verify: %d %q %q, %v", code, out, errs, err)
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	dir := shortDir(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	held := filepath.Join(dir, "held")
	if err := os.MkdirAll(held, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(held, journalName))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	broken := filepath.Join(dir, "broken")
	if err := errors.Join(
		os.MkdirAll(broken, 0o700),
		os.WriteFile(filepath.Join(broken, journalName), bytes.Repeat([]byte("x"), 40000), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	certs := filepath.Join(dir, certsName)
	if err := certsInit(certs, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		yaml string
		code int
		say  string
	}{
		"unknown key":    {"state: x\n", 2, "field state not found"},
		"no yaml":        {"\t:", 2, "yaml"},
		"unknown mode":   {"policy: {mode: wild}\n", 2, "observe, approve, auto"},
		"unknown cap":    {"policy: {cap: S9}\n", 2, "S1, S2, S3, S4"},
		"bad threshold":  {"detect: {threshold: 3}\n", 2, "between 0 and 1"},
		"bad validation": {"validation: {mode: maybe}\n", 2, "auto or manual"},
		"long hold":      {"validation: {life: 2m}\n", 2, "held for 1m0s at most"},
		"negative test":  {"validation: {per_hour: -1}\n", 2, "no value of validation can be negative"},
		"large matrices": {"validation: {gemm_n: 20000}\n", 2, "gemm_n may be 16384"},
		"free rung":      {"mitigate: {overheads_ms: {S3: 0}}\n", 2, "expected cost in ms"},
		"no certs":       {"state_dir: " + filepath.Join(dir, "new") + "\n", 1, "falcon certs init"},
		"port in use": {
			"state_dir: " + dir + "\nlisten: " + busy.Addr().String() + "\n",
			1,
			"port is in use",
		},
		"journal held":   {"state_dir: " + held + "\nlisten: none\n", 1, "held by another process"},
		"journal broken": {"state_dir: " + broken + "\nlisten: none\n", 1, "corrupt"},
	} {
		path := filepath.Join(dir, "falcon.yaml")
		if err := os.WriteFile(path, []byte(c.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := command(t, "serve", "--config", path)
		if code != c.code ||
			!strings.Contains(errs, c.say) ||
			strings.Contains(errs, "\n\n") {
			t.Errorf("%s: exit %d %q, want %d with %q", name, code, errs, c.code, c.say)
		}
	}
	if code, _, errs := command(t, "serve", "--config", filepath.Join(dir, "none.yaml")); code != 2 ||
		!strings.Contains(errs, "no configuration file") {
		t.Errorf("absent configuration: %d %q", code, errs)
	}
}

func TestWrongUseOfEngineCommands(t *testing.T) {
	t.Setenv("FALCON_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"incident", "list"}, 1, "falcon serve"},
		{[]string{"incident", "show"}, 2, "give one incident"},
		{[]string{"incident", "export", "INC-0001", "--format", "pdf"}, 2, "neither md, json nor html"},
		{[]string{"decide", "INC-0001"}, 2, "--approve, --veto and --undo"},
		{[]string{"decide", "INC-0001", "--approve", "--veto"}, 2, "--approve, --veto and --undo"},
		{[]string{"decide", "INC-0001", "--approve", "--action", "x"}, 2, "go together"},
		{[]string{"incident", "list", "--connect", "127.0.0.1:1"}, 2, "--ca, --cert and --key"},
		{[]string{"certs", "issue", "--role", "boss", "--name", "x"}, 2, "none of viewer"},
		{[]string{"certs", "issue", "--role", "agent", "--name", "../x"}, 2, "letters"},
		{
			[]string{"certs", "issue", "--role", "agent", "--name", "n1", "--dir", t.TempDir()},
			1,
			"falcon certs init",
		},
		{[]string{"journal", "verify", "a", "b"}, 2, "at most one FILE"},
		{[]string{"journal", "verify", filepath.Join(t.TempDir(), "none")}, 1, "no such file"},
		{[]string{"serve", "extra"}, 2, "takes no arguments"},
	} {
		code, _, errs := command(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.say) {
			t.Errorf("%v: exit %d %q, want %d with %q", c.args, code, errs, c.code, c.say)
		}
	}
}

// What an operator reads names no package.
func TestRefusalsAreSentences(t *testing.T) {
	for remote, want := range map[string]string{
		"engine: stale: mitigate: no such proposal: incident INC-0001 is not open": "no such proposal: incident INC-0001 is not open",
		"engine: refused: a profile window is in progress":                         "a profile window is in progress",
		"the engine: stale: is left alone":                                         "the engine: stale: is left alone",
	} {
		if got := trimPackage(remote); got != want {
			t.Errorf("%q is reported as %q, want %q", remote, got, want)
		}
	}
}

func TestStoriesAreCleanedAndComplete(t *testing.T) {
	bad := "a\x1b[2Jb\u009b"
	r := &falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{
			Id:                "INC-0001" + bad,
			State:             "located" + bad,
			OnsetIteration:    40,
			DetectedIteration: 43,
			RelievedIteration: -1,
			HealthyMs:         100,
			SlowMs:            180,
			Verdict: &falconv1.Verdict{
				Cause:    "gpu_degradation" + bad,
				Devices:  []string{"n1.g0" + bad},
				Evidence: []*falconv1.Evidence{{Kind: "timing" + bad, Text: "2.0 x | <b>" + bad}},
			},
		}},
		Ladders: []*falconv1.Ladder{{
			LostGpuHours: 0.5,
			Rungs:        []*falconv1.RungView{{Rung: "S2" + bad, Reason: bad}},
			Actions: []*falconv1.Action{{
				Id:           "INC-0001/S2/1" + bad,
				State:        "kept" + bad,
				DecidedBy:    bad,
				Reason:       bad,
				Why:          bad,
				MicroBatches: []int32{9, 5},
				PredictedMs:  120,
			}},
		}},
	}
	s := report.Of(r)[0]
	var text, md, js bytes.Buffer
	if err := errors.Join(
		writeText(&text, s),
		writeString(&md, s.Markdown()),
		writeJSON(&js, s),
		listIncidents(&text, incidentList{report.Of(r)}),
	); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*bytes.Buffer{"text": &text, "markdown": &md, "json": &js} {
		i := strings.IndexFunc(b.String(), func(r rune) bool {
			return r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0)
		})
		if i >= 0 {
			t.Errorf("%s holds a control character at %d: %q", name, i, b.String())
		}
		if strings.Contains(b.String(), `\u001b`) || strings.Contains(b.String(), `\u009b`) {
			t.Errorf("%s holds an escaped control character", name)
		}
	}
	if !strings.Contains(md.String(), "+80 %") ||
		!strings.Contains(md.String(), "&lt;b>") ||
		!strings.Contains(md.String(), "[9 5]") {
		t.Errorf("markdown: %s", md.String())
	}
	var doc map[string]any
	if err := json.Unmarshal(js.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"id", "onset_iteration", "detected_iteration", "relieved_iteration", "verdict", "actions",
		"cost",
	} {
		if _, ok := doc[key]; !ok {
			t.Errorf("the JSON lacks %q", key)
		}
	}
	if doc["relieved_iteration"] != nil {
		t.Errorf("relieved_iteration is %v, want null while it lasts", doc["relieved_iteration"])
	}
}
