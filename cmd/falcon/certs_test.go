package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

func TestCertificatesLiveAsLongAsAsked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if err := certsInit(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want time.Duration
	}{
		"a": {nil, auth.LeafLife},
		"b": {[]string{"--days", "7"}, 7 * 24 * time.Hour},
		"c": {[]string{"--hours", "24"}, 24 * time.Hour},
		"d": {[]string{"--life", "90m"}, 90 * time.Minute},
	} {
		args := append([]string{"certs", "issue", "--dir", dir, "--role", "agent", "--name", name}, c.args...)
		if code, _, errs := command(t, args...); code != 0 {
			t.Errorf("%v: %d %q", c.args, code, errs)
			continue
		}
		f := auth.FilesIn(dir, name)
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		left := time.Until(pair.Leaf.NotAfter)
		if left > c.want || left < c.want-time.Minute {
			t.Errorf("%v: good for %v, want %v", c.args, left, c.want)
		}
	}
	for _, args := range [][]string{
		{"--days", "0"},
		{"--hours", "-5"},
		{"--days", "999999999999"},
		{"--days", "1", "--hours", "1"},
		{"--life", "-1h"},
	} {
		code, _, errs := command(
			t,
			append([]string{"certs", "issue", "--dir", dir, "--role", "agent", "--name", "x"}, args...)...,
		)
		if code == 0 || errs == "" {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
}

// A certificate that is revoked by the command opens nothing more.
func TestRevokeByCommand(t *testing.T) {
	h, cfg := testEngine(t)
	dir := filepath.Join(cfg.StateDir, certsName)
	if err := certsIssue(dir, auth.Request{Role: auth.RoleViewer, Name: "ann", Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	f := auth.FilesIn(dir, "ann")
	list := func() int {
		code, _, _ := command(
			t,
			"incident",
			"list",
			"--connect", h.Address,
			"--ca", f.CA,
			"--cert", f.Cert,
			"--key", f.Key,
		)
		return code
	}
	if code := list(); code != 0 {
		t.Fatalf("before: %d", code)
	}
	for i, want := range []string{"is revoked by", "is revoked already"} {
		code, out, errs := command(t, "certs", "revoke", "--dir", dir, "ann")
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("time %d: %d %q %q", i, code, out, errs)
		}
	}
	h.care.certs.Refresh()
	if code := list(); code == 0 {
		t.Error("a revoked viewer is answered")
	}
	for _, args := range [][]string{{}, {"a", "b"}, {"../x"}, {"serial:zz"}} {
		code, _, errs := command(t, append([]string{"certs", "revoke", "--dir", dir}, args...)...)
		if code != 2 || errs == "" {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
}

func TestAdmissionIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"memory_limit: 5\n":      "memory_limit",
		"memory_limit: plenty\n": "such as 2GiB",
		"stream_most: 1s\n":      "at least 1m",
		"stream_most: -1h\n":     "stream_most",
	} {
		path := filepath.Join(t.TempDir(), "falcon.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadEngineConfig(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	cfg := engineConfig{
		StateDir: shortDir(t),
		Listen:   "127.0.0.1:0",
		Renew:    true,
	}
	cfg.fillDefaults()
	dir := filepath.Join(cfg.StateDir, certsName)
	if err := certsInit(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, auth.CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	f := checkEngine(cfg)
	if len(f.refused) > 0 ||
		len(f.off) != 1 ||
		!strings.Contains(f.off[0], "renew: false") {
		t.Errorf("renewal without the authority's key: %+v", f)
	}
}

// What ends soon is said once, in the event log.
func TestCertificatesNearTheirEndsAreTold(t *testing.T) {
	h, cfg := testEngine(t)
	dir := filepath.Join(cfg.StateDir, certsName)
	if err := certsIssue(dir, auth.Request{Role: auth.RoleViewer, Name: "ann", Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	f := auth.FilesIn(dir, "ann")
	target := &engineTarget{connect: h.Address, certs: f}
	conn, err := target.dialTarget()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := falconv1.NewConsoleClient(conn)
	watch, err := client.Watch(t.Context(), &falconv1.WatchRequest{AfterSeq: 1 << 40})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	k := &care{
		engine:  h.care.engine,
		server:  h.care.server,
		certs:   h.care.certs,
		log:     h.care.log,
		alarmed: map[string]bool{},
	}
	for range 2 {
		k.lookAtCertificates(t.Context(), time.Now().Add(55*time.Minute))
		k.lookAtCertificates(t.Context(), time.Now().Add(364*24*time.Hour))
	}
	var announced []string
	for range 2 {
		e, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		announced = append(announced, e.GetLine().GetKind()+": "+e.GetLine().GetText())
	}
	if !strings.Contains(announced[0], "alarm: certificates end soon: viewer ann") ||
		!strings.Contains(announced[1], "alarm: the engine's own certificate ends") {
		t.Errorf("announced %q", announced)
	}
	r, err := client.Snapshot(t.Context(), &falconv1.SnapshotRequest{Rank: -1})
	if status.Code(err) != codes.OK {
		t.Fatal(err)
	}
	n := 0
	for _, e := range r.GetEvents() {
		if e.GetKind() == "alarm" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d alarms, want each of two once", n)
	}
}
