package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/report"
)

// fakeConsole answers Validate as an engine does; each look moves the
// validation one state on.
type fakeConsole struct {
	falconv1.UnimplementedConsoleServer
	mu     sync.Mutex
	asked  []*falconv1.ValidateRequest
	states []string
	end    *falconv1.Validation
	refuse error
	newer  bool // another validation has taken the snapshot's place
	seen   func()
}

func (f *fakeConsole) Validate(
	_ context.Context,
	q *falconv1.ValidateRequest,
) (*falconv1.ValidateReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, q)
	if f.refuse != nil {
		return nil, f.refuse
	}
	if q.GetCancel() != "" {
		f.states = nil
		f.end = &falconv1.Validation{
			Id:     q.GetCancel(),
			State:  "failed",
			Reason: "ended by ann",
		}
	}
	return &falconv1.ValidateReply{Validation: f.now()}, nil
}

func (f *fakeConsole) now() *falconv1.Validation {
	v, _ := proto.Clone(f.end).(*falconv1.Validation)
	if len(f.states) > 0 {
		v.State, f.states = f.states[0], f.states[1:]
		v.Gemm = nil
		v.Links = nil
		v.Reason = ""
	}
	return v
}

func (f *fakeConsole) Snapshot(context.Context, *falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen != nil {
		f.seen()
	}
	if f.newer {
		return &falconv1.SnapshotReply{Validation: &falconv1.Validation{Id: "VAL-0099"}}, nil
	}
	return &falconv1.SnapshotReply{Validation: f.now()}, nil
}

func (f *fakeConsole) Incidents(
	context.Context,
	*falconv1.IncidentsRequest,
) (*falconv1.IncidentsReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &falconv1.IncidentsReply{Validations: []*falconv1.Validation{{Id: "VAL-0099"}, f.now()}}, nil
}

func (f *fakeConsole) requests() []*falconv1.ValidateRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// serve opens a socket for the fake and points the commands at it.
func (f *fakeConsole) serve(t *testing.T) {
	f.serveAs(t, f)
}

// serveAs is serve for a fake that answers more.
func (*fakeConsole) serveAs(t *testing.T, f falconv1.ConsoleServer) {
	t.Helper()
	path := filepath.Join(shortDir(t), "f.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	falconv1.RegisterConsoleServer(server, f)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	t.Setenv("FALCON_SOCKET", path)
}

func testedJob() *falconv1.Validation {
	return &falconv1.Validation{
		Id:           "VAL-0003",
		By:           "ann\x1b[2J",
		Why:          "hot",
		State:        "done",
		Iteration:    120,
		Passes:       3,
		PassesDone:   3,
		ExtraPasses:  1,
		PausedMs:     84,
		QuietMs:      410,
		GemmN:        128,
		MessageBytes: 1 << 20,
		Gemm: []*falconv1.GemmResult{{Rank: 1, Device: "n0.g1", Ms: 12, MedianMs: 12, Ratio: 1}, {
			Rank:     2,
			Device:   "n1.g0",
			Ms:       24,
			MedianMs: 12,
			Ratio:    2,
			Slow:     true,
		}},
		Links: []*falconv1.LinkResult{{
			From:       1,
			To:         2,
			FromDevice: "n0.g1",
			ToDevice:   "n1.g0",
			Link:       "n0-n1",
			Class:      "same rail",
			Ms:         3,
			BaseMs:     math.NaN(),
			Err:        "timed out",
		}},
	}
}

func TestValidateFollowsToTheEnd(t *testing.T) {
	for _, newer := range []bool{false, true} {
		f := &fakeConsole{
			end:    testedJob(),
			newer:  newer,
			states: []string{"surveying", "testing"},
		}
		f.serve(t)
		code, out, errs := command(
			t,
			"validate",
			"--ranks", "1,4-6",
			"--gemm",
			"--pairs", "n3-n1",
			"--gemm-n", "128",
			"--message-bytes", "1048576",
			"--reason", "hot",
			"--yes",
		)
		if code != exitSlow ||
			!strings.Contains(errs, "n1.g0 is SLOW: 24.0 ms, 2.0 x the 12.0 ms of the others") ||
			!strings.Contains(errs+out, "VAL-0003 done; held at iteration 120 for 84 ms") {
			t.Fatalf("%d %q %q", code, out, errs)
		}
		for _, want := range []string{
			"3 of 3 passes (1 because pairs would share a NIC)",
			"n1.g0   2     24.000  2.00      SLOW",
			"n0-n1  same rail",
			"failed: timed out",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.ContainsRune(out, '\x1b') {
			t.Errorf("%q", out)
		}
		q := f.requests()[0]
		if !slices.Equal(q.GetRanks(), []int32{1, 4, 5, 6}) ||
			!slices.Equal(q.GetLinks(), []string{"n1-n3"}) ||
			!q.GetGemm() ||
			!q.GetLinkTest() ||
			q.GetGemmN() != 128 ||
			q.GetMessageBytes() != 1<<20 ||
			q.GetReason() != "hot" {
			t.Errorf("%v", q)
		}
	}
}

func TestValidateJSON(t *testing.T) {
	f := &fakeConsole{end: testedJob(), states: []string{"arming"}}
	f.serve(t)
	root := newRoot()
	var out, errs bytes.Buffer
	root.SetArgs([]string{"validate", "--links", "--json"})
	root.SetOut(&out)
	root.SetErr(&errs)
	if err := root.ExecuteContext(t.Context()); !errors.Is(err, exitError(exitSlow)) {
		t.Fatal(err)
	}
	var v falcon.Validation
	if err := json.Unmarshal(out.Bytes(), &v); err != nil ||
		v.State != falcon.ValidationDone ||
		!v.GEMM[1].Slow ||
		v.Links[0].Link != "n0-n1" ||
		v.Ask.MessageBytes != 1<<20 {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !strings.HasPrefix(errs.String(), "VAL-0003: arming\nVAL-0003: done\n") {
		t.Errorf("progress: %q", errs.String())
	}
	q := f.requests()[0]
	if q.GetGemm() || !q.GetLinkTest() || len(q.GetRanks()) != 0 {
		t.Errorf("%v", q)
	}
}

// Only a test that judged all that was asked for, and found nothing slow, succeeds.
func TestTheExitCodeOfATest(t *testing.T) {
	link := func(change func(*falconv1.LinkResult)) *falconv1.LinkResult {
		l := &falconv1.LinkResult{
			From:       2,
			To:         4,
			FromDevice: "n1.g0",
			ToDevice:   "n2.g0",
			Link:       "n1-n2",
			Class:      "same rail",
			Bytes:      262144,
			Ms:         109,
			BaseMs:     109,
			Ratio:      1,
			Basis:      "class",
		}
		change(l)
		return l
	}
	reference := link(func(l *falconv1.LinkResult) {
		l.Unjudged = "nothing to compare with"
		l.Reference = true
		l.ToDevice = "n3.g0"
	})
	for name, c := range map[string]struct {
		link *falconv1.LinkResult
		code int
		want string
	}{
		"fine": {link(func(*falconv1.LinkResult) {}), 0, ""},
		"slow": {link(func(l *falconv1.LinkResult) {
			l.Slow = true
			l.BaseMs = 13.2
			l.Ratio = 8.26
			l.Basis = "own"
			l.BaseFrom = "VAL-0001"
		}), 3, "falcon: n1-n2 is SLOW: 109 ms, 2.4 MB/s; 8.3 x the 13.2 ms of VAL-0001\n"},
		"nothing there": {
			link(func(l *falconv1.LinkResult) {
				l.BaseMs = 0
				l.Ratio = 0
				l.Basis = ""
				l.Unjudged = "nothing to compare with"
			}),
			4,
			"n1-n2 is NOT JUDGED: nothing to compare with; it takes 109 ms, 2.4 MB/s: there are too few paths of this kind",
		},
		"too short": {
			link(func(l *falconv1.LinkResult) { l.Unjudged = "too short to judge" }),
			4,
			"--message-bytes",
		},
		"failed": {link(func(l *falconv1.LinkResult) {
			l.Ms, l.Err = 0, "timed out"
		}), 4, "timed out"},
		"nothing": {nil, 4, "nothing was measured"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &falconv1.Validation{
				Id:    "VAL-0003",
				By:    "ann",
				State: "done",
				Links: []*falconv1.LinkResult{reference},
			}
			if v.Links = append(v.Links, c.link); c.link == nil {
				v.Links = nil
			}
			f := &fakeConsole{end: v}
			f.serve(t)
			code, out, errs := command(t, "validate", "--links", "--ranks", "2,4")
			if code != c.code || !strings.Contains(errs, c.want) {
				t.Errorf("%d %q\n%s", code, errs, out)
			}
			if code == 0 && !strings.HasPrefix(out, "n1-n2 is fine: 109 ms") {
				t.Errorf("%s", out)
			}
		})
	}
}

func TestValidateTellsWhyNot(t *testing.T) {
	failed := &falconv1.Validation{
		Id:     "VAL-0004",
		State:  "refused",
		Reason: "no consistent boundary: 20 calls against 21",
	}
	for name, c := range map[string]struct {
		f    *fakeConsole
		code int
		want string
	}{
		"refused at once": {
			&fakeConsole{
				refuse: status.Error(codes.FailedPrecondition, "engine: refused: the job is recovering"),
			},
			1,
			"the job is recovering",
		},
		"invalid": {
			&fakeConsole{
				refuse: status.Error(codes.InvalidArgument, "engine: invalid: rank 9 is none of the job's 8"),
			},
			2,
			"rank 9 is none",
		},
		"a viewer": {
			&fakeConsole{refuse: status.Error(codes.PermissionDenied, "this needs the role approver")},
			1,
			"role approver",
		},
		"refused later": {
			&fakeConsole{end: failed, states: []string{"surveying"}},
			1,
			"VAL-0004 was refused: no consistent boundary",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.serve(t)
			code, _, errs := command(t, "validate", "--gemm")
			if code != c.code || !strings.Contains(errs, c.want) {
				t.Errorf("%d %q", code, errs)
			}
		})
	}
}

func TestValidateCancels(t *testing.T) {
	f := &fakeConsole{end: testedJob(), states: []string{"testing", "testing", "testing"}}
	f.serve(t)
	code, out, errs := command(t, "validate", "--cancel", "VAL-0003")
	if code != 0 ||
		!strings.Contains(out, "VAL-0003 failed: ended by ann") ||
		f.requests()[0].GetCancel() != "VAL-0003" {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

func TestAnInterruptLetsTrainingGoOn(t *testing.T) {
	f := &fakeConsole{
		end:    testedJob(),
		states: slices.Repeat([]string{"testing"}, 1000),
	}
	f.serve(t)
	ctx, interrupt := context.WithCancel(t.Context())
	f.seen = interrupt
	root := newRoot()
	root.SetArgs([]string{"validate", "--gemm"})
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	err := root.ExecuteContext(ctx)
	if err == nil ||
		errors.Is(err, errUsage) ||
		!strings.Contains(err.Error(), "VAL-0003 was ended and training goes on") {
		t.Error(err)
	}
	if q := f.requests(); len(q) != 2 || q[1].GetCancel() != "VAL-0003" {
		t.Errorf("%v", q)
	}
}

func TestValidateWrongUse(t *testing.T) {
	for want, args := range map[string][]string{
		"--gemm, --links or both":   {},
		"give it alone":             {"--cancel", "VAL-0001", "--gemm"},
		"no rank and no range":      {"--gemm", "--ranks", "1,x"},
		`holds "5-2"`:               {"--gemm", "--ranks", "5-2"},
		"over 4096 ranks":           {"--gemm", "--ranks", "0-9999999"},
		"two different nodes":       {"--pairs", "n1"},
		"can't be negative":         {"--gemm", "--gemm-n", "-1"},
		"takes no arguments":        {"VAL-0001"},
		"invalid argument \"many\"": {"--gemm", "--message-bytes", "many"},
	} {
		code, _, errs := command(t, append([]string{"validate"}, args...)...)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
	t.Setenv("FALCON_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	if code, _, errs := command(t, "validate", "--gemm"); code != 1 ||
		!strings.Contains(errs, "falcon serve") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestIncidentsShowTheirTests(t *testing.T) {
	s := report.Of(&falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{
			Id: "INC-0001",
			Verdict: &falconv1.Verdict{
				Evidence: []*falconv1.Evidence{{Kind: "test", Text: "n1.g0 multiplies 2.00 x as long"}},
			},
		}},
		Validations: []*falconv1.Validation{
			{
				Id:       "VAL-0003",
				Incident: "INC-0001",
				State:    "done",
				PausedMs: 84,
				Gemm: []*falconv1.GemmResult{{
					Device: "n1.g0",
					Rank:   2,
					Ratio:  2,
					Slow:   true,
				}},
			},
			{Id: "VAL-0002", State: "done"},
		},
	})[0]
	if len(s.Validations) != 1 {
		t.Fatalf("%+v", s.Validations)
	}
	var text, md, js bytes.Buffer
	if err := errors.Join(
		writeText(&text, s),
		writeString(&md, s.Markdown()),
		writeJSON(&js, s),
	); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*bytes.Buffer{&text, &md} {
		if !strings.Contains(b.String(), "VAL-0003 done") ||
			!strings.Contains(b.String(), "n1.g0 (rank 2) 2.00 x the median") ||
			!strings.Contains(b.String(), "multiplies 2.00 x") {
			t.Errorf("%s", b.String())
		}
	}
	if !strings.Contains(js.String(), `"validations": [`) ||
		!strings.Contains(js.String(), `"id": "VAL-0003"`) {
		t.Errorf("%s", js.String())
	}
}

// A request that was taken says what it waits for.
func TestProgressOfAWait(t *testing.T) {
	v := falcon.Validation{
		ID:     "VAL-0002",
		State:  falcon.ValidationSurveying,
		Reason: "waits: a profile window is in progress",
	}
	if got := progress(v); got != "VAL-0002: surveying, waits: a profile window is in progress" {
		t.Errorf("%q", got)
	}
}
