package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// hasty is a pace at which tests need not wait.
var hasty = pace{
	10 * time.Millisecond,
	20 * time.Millisecond,
	20 * time.Millisecond,
	time.Second,
	10 * time.Millisecond,
	5 * time.Millisecond,
}

// scripted is a target whose engine is e.
func scripted(t *testing.T, name string, e *enginetest.Engine) Target {
	srv := e.ServeInMemory()
	t.Cleanup(srv.Close)
	return Target{Name: name, Address: "mem:" + name, Dial: srv.Dial}
}

// stub answers snapshots by a function.
type stub struct {
	falconv1.UnimplementedConsoleServer
	answer func(*falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error)
}

func (s *stub) Snapshot(_ context.Context, q *falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
	return s.answer(q)
}

// stubbed is a target that answers by a function; without one it has no console service.
func stubbed(
	t *testing.T,
	name string,
	answer func(*falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error),
) Target {
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer()
	if answer != nil {
		falconv1.RegisterConsoleServer(srv, &stub{answer: answer})
	}
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	return Target{
		Name:    name,
		Address: "mem:" + name,
		Dial:    dialer(lis),
	}
}

func dialer(lis *bufconn.Listener) func() (*grpc.ClientConn, error) {
	return func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return lis.DialContext(ctx)
			}))
	}
}

// hung is a target that accepts and never answers.
func hung(t *testing.T, name string) Target {
	lis := bufconn.Listen(1 << 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	t.Cleanup(func() {
		_ = lis.Close()
		<-done
	})
	return Target{
		Name:    name,
		Address: "mem:" + name,
		Dial:    dialer(lis),
	}
}

func watching(t *testing.T, targets ...Target) *Fleet {
	f := newFleet(targets, nil, nil, hasty)
	t.Cleanup(f.Close)
	return f
}

// until waits until a job is as wanted.
func until(t *testing.T, f *Fleet, name string, ok func(*Row) bool) *Row {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		for _, j := range f.Jobs() {
			if r := RowOf(j, time.Now()); j.Name == name && ok(&r) {
				return &r
			}
		}
		select {
		case <-f.Changed():
		case <-deadline:
			for _, j := range f.Jobs() {
				r := RowOf(j, time.Now())
				t.Log(r.Line(time.Now()))
			}
			t.Fatalf("%s is never as wanted", name)
		}
	}
}

func is(c Class) func(*Row) bool {
	return func(r *Row) bool { return r.Class == c }
}

func slowJob() *enginetest.Engine {
	e := enginetest.New(enginetest.Options{Job: "llm", Start: time.Now()})
	e.AdvanceTo(enginetest.Proposed + 4)
	return e
}

// Whatever is wrong with other engines, a job is shown as its engine has it, and each of the
// others says what is wrong with it.
func TestOneEngineHidesNoOther(t *testing.T) {
	refused := func(*falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
		return nil, status.Error(codes.PermissionDenied, "this needs the role viewer")
	}
	newer := func(*falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
		return &falconv1.SnapshotReply{
			Job:   &falconv1.Job{Name: "next", World: 4, State: "steady"},
			Brief: &falconv1.Brief{Revision: 99, Open: 2},
		}, nil
	}
	old := enginetest.New(enginetest.Options{Job: "old", Old: true, Healthy: true})
	old.AdvanceTo(40)
	f := watching(
		t,
		scripted(t, "good", slowJob()),
		hung(t, "hung"),
		stubbed(t, "other", nil),
		stubbed(t, "refused", refused),
		stubbed(t, "newer", newer),
		scripted(t, "old", old),
		Target{
			Name:    "nowhere",
			Address: "x",
			Dial: func() (*grpc.ClientConn, error) {
				return nil, errors.New("no certificate\x1b[2J")
			},
		},
	)
	r := until(t, f, "good", func(r *Row) bool {
		return r.Class == Slow && len(r.Waits) == 1
	})
	if r.Waits[0].Text() != "S2 for INC-0001 waits for you" ||
		r.Lost <= 0 ||
		r.PerHour <= 0 ||
		r.World() != 8 ||
		r.JobName() != "llm" {
		t.Errorf("%s", r.Line(time.Now()))
	}
	for name, why := range map[string]string{
		"hung":    "no answer in time",
		"other":   "no Falcon engine",
		"refused": "no access: this needs the role viewer",
		"nowhere": "no certificate",
	} {
		r := until(t, f, name, is(Away))
		if !strings.Contains(r.State.Err, why) || strings.ContainsRune(r.State.Err, '\x1b') {
			t.Errorf("%s is away for %q, want %q", name, r.State.Err, why)
		}
	}
	if r := until(t, f, "newer", is(Slow)); !strings.Contains(r.Version(), "newer engine (protocol 99") {
		t.Errorf("newer: %q", r.Version())
	}
	if r := until(t, f, "old", is(Training)); !strings.HasPrefix(r.Version(), "older engine") ||
		r.World() != 8 ||
		len(r.State.Snap.GetRanks()) > 0 ||
		r.State.Snap.GetColumns() != nil {
		t.Errorf("old: %q, %d ranks, %v", r.Version(), r.World(), r.State.Snap)
	}
}

// An engine that comes back is shown at once, and the last picture stays until then.
func TestAwayAndBack(t *testing.T) {
	var down atomic.Bool
	e := slowJob()
	f := watching(t, stubbed(t, "a", func(q *falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
		if down.Load() {
			return nil, status.Error(codes.Unavailable, "gone")
		}
		return e.Snapshot(context.Background(), q)
	}))
	until(t, f, "a", is(Slow))
	down.Store(true)
	r := until(t, f, "a", func(r *Row) bool {
		return r.Class == Away && r.Tries > 3
	})
	if r.State.Err != "gone" ||
		r.World() != 8 ||
		len(r.Waits) != 1 ||
		!strings.Contains(r.Line(time.Now()), "away for") ||
		r.Retry.IsZero() {
		t.Errorf("%s; %+v", r.Line(time.Now()), r)
	}
	down.Store(false)
	f.Pull("a")
	if r := until(t, f, "a", is(Slow)); r.Tries != 0 || r.State.Err != "" {
		t.Errorf("%+v", r.Job)
	}
}

// Tries come less and less often, to the bound.
func TestBackoff(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := newFleet(nil, nil, func() time.Time { return now }, usual)
	defer f.Close()
	w := newWatch(f, Target{Name: "a"}, 0)
	for i := range 40 {
		w.failed("gone")
		wait := w.period()
		most := min(minBackoff<<min(i, 10), maxBackoff)
		if wait < most/2 || wait > most*3/2 {
			t.Errorf("try %d waits %s, want about %s", i, wait, most)
		}
	}
	j := w.job.Load()
	if j.State.Since != now || j.State.Conn != feed.Connecting {
		t.Errorf("%+v", j.State)
	}
}

// What an engine sends can neither steer the terminal, pass for another job, nor grow.
func TestHostileEngine(t *testing.T) {
	evil := "\x1b[2J\nprod-b: training\u202e"
	f := watching(t, stubbed(t, "prod-a", func(*falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
		r := &falconv1.SnapshotReply{
			Role:     evil,
			Actor:    evil,
			EngineId: evil,
			Job: &falconv1.Job{
				Name:        "prod-b" + evil,
				World:       -5,
				State:       "slow" + evil,
				Slowdown:    math.NaN(),
				IterationMs: math.Inf(1),
				Iteration:   math.MinInt64,
				DataAgeMs:   math.MinInt64,
			},
			Brief: &falconv1.Brief{
				Revision:              1,
				Open:                  math.MinInt32,
				LostGpuHours:          math.Inf(1),
				LossPerMinuteGpuHours: math.NaN(),
				Waiting:               -1,
			},
			Recovery: &falconv1.Recovery{
				Id:              evil,
				State:           evil,
				BeforeIteration: math.MaxInt64,
			},
		}
		for i := range 5000 {
			id := fmt.Sprint(evil, i)
			r.Incidents = append(r.Incidents, &falconv1.Incident{
				Id:          id,
				State:       "located",
				OnsetUnixNs: math.MinInt64,
				Verdict:     &falconv1.Verdict{Cause: evil, Devices: []string{evil, evil}},
			})
			r.Others = append(r.Others, &falconv1.Ladder{
				Incident:     id,
				LostGpuHours: math.MaxFloat64,
				Proposal: &falconv1.Action{
					Rung:           evil,
					Incident:       id,
					State:          "proposed",
					DeadlineUnixNs: math.MinInt64,
				},
			})
			r.Nodes = append(r.Nodes, &falconv1.NodeView{Node: evil})
		}
		return r, nil
	}), scripted(t, "prod-b", slowJob()))
	r := until(t, f, "prod-a", func(r *Row) bool { return r.News >= 0 })
	b := until(t, f, "prod-b", is(Slow))
	if len(r.State.Snap.GetIncidents()) > 4 ||
		len(r.State.Snap.GetNodes()) > 0 ||
		len(r.Waits) > 8 {
		t.Errorf("%d incidents, %d nodes and %d waits were kept",
			len(r.State.Snap.GetIncidents()), len(r.State.Snap.GetNodes()), len(r.Waits))
	}
	now := time.Now()
	lines := append(r.Lines(now, nil),
		r.Line(now),
		r.What(),
		Summary([]Row{*r, *b}),
	)
	for _, l := range lines {
		if strings.ContainsAny(l, "\x1b\n\u202e") {
			t.Errorf("%q", l)
		}
	}
	if !strings.HasPrefix(r.Line(now), "prod-a: ") ||
		r.Lost > 1e9 ||
		r.Slowdown != 0 ||
		r.World() != 0 ||
		!(r.PerHour >= 0) {
		t.Errorf("%s %+v", r.Line(now), r)
	}
	rows := (&Table{}).Rows(f.Jobs(), now)
	if len(rows) != 2 || rows[0].Name == rows[1].Name {
		t.Errorf("%d rows", len(rows))
	}
}

// An engine that answers with too much is away, and says why.
func TestTooLargeAnAnswer(t *testing.T) {
	f := watching(t, stubbed(t, "big", func(*falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
		return &falconv1.SnapshotReply{EngineId: strings.Repeat("x", messageMax+1)}, nil
	}))
	r := until(t, f, "big", is(Away))
	if !strings.Contains(r.State.Err, "too large") {
		t.Error(r.State.Err)
	}
}

// Engines on this machine come and go; the operator's own stay, and none is there twice.
func TestDiscovery(t *testing.T) {
	lab, mine := scripted(t, "lab", slowJob()), scripted(t, "mine", slowJob())
	lab.Name = "mine" // as the operator's
	again := mine
	again.Name = "local"
	var down, gone atomic.Bool
	dial := lab.Dial
	lab.Dial = func() (*grpc.ClientConn, error) {
		if down.Load() {
			return nil, errors.New("down")
		}
		return dial()
	}
	down.Store(true)
	f := newFleet([]Target{mine}, func() []Target {
		if gone.Load() {
			return nil
		}
		return []Target{lab, again}
	}, nil, hasty)
	defer f.Close()
	if r := until(t, f, "mine-2", is(Away)); !r.Found || len(f.Jobs()) != 2 {
		t.Errorf("%+v of %d", r.Job, len(f.Jobs()))
	}
	down.Store(false)
	f.Pull("mine-2")
	until(t, f, "mine-2", is(Slow))
	gone.Store(true) // it still answers: it stays
	until(t, f, "mine", is(Slow))
	if f.look(); len(f.Jobs()) != 2 {
		t.Errorf("a job that answers was dropped: %d are left", len(f.Jobs()))
	}
	f.watchOf("mine-2").failed("gone")
	if f.look(); len(f.Jobs()) != 1 || f.Jobs()[0].Name != "mine" {
		t.Errorf("%d jobs", len(f.Jobs()))
	}
}

// A console that is out of focus, or looks at an older engine, asks less often.
func TestPeriods(t *testing.T) {
	f := newFleet(nil, nil, nil, usual)
	defer f.Close()
	w := newWatch(f, Target{Name: "a"}, 0)
	w.answered(&falconv1.SnapshotReply{Brief: &falconv1.Brief{Revision: 1}})
	if p := w.period(); p != ActivePeriod {
		t.Errorf("%s in focus", p)
	}
	f.Blur(true)
	if p := w.period(); p != BlurredPeriod {
		t.Errorf("%s out of focus", p)
	}
	w.answered(&falconv1.SnapshotReply{Version: 8})
	if p := w.period(); p != OlderPeriod {
		t.Errorf("%s of an older engine", p)
	}
}

// Whoever asks an older engine again gets what has changed, or that nothing has.
func TestOlderEngineIsAskedForChanges(t *testing.T) {
	var known atomic.Uint64
	f := watching(t, stubbed(t, "old", func(q *falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
		if q.GetKnownVersion() == 7 {
			known.Add(1)
			return &falconv1.SnapshotReply{Unchanged: true, Version: 7}, nil
		}
		return &falconv1.SnapshotReply{
			Version: 7,
			Job:     &falconv1.Job{Name: "x", World: 2, State: "steady"},
			Ranks:   make([]*falconv1.RankView, 2),
		}, nil
	}))
	until(t, f, "old", func(*Row) bool { return known.Load() > 2 })
	if r := until(t, f, "old", is(Training)); r.World() != 2 || r.Revision != 0 {
		t.Errorf("%+v", r.Job)
	}
}
