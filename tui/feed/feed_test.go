package feed

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const patience = 10 * time.Second // far above what any of these waits takes

func start(t *testing.T, e *enginetest.Engine) *Feed {
	t.Helper()
	srv := e.ServeInMemory()
	cc, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	f := New(falconv1.NewConsoleClient(cc), nil)
	t.Cleanup(func() {
		f.Close()
		_ = cc.Close()
		srv.Close()
	})
	return f
}

// until waits for a state that satisfies ok; it never polls.
func until(t *testing.T, f *Feed, what string, ok func(*State) bool) *State {
	t.Helper()
	deadline := time.After(patience)
	for {
		if s := f.Latest(); ok(s) {
			return s
		}
		select {
		case <-f.Changed():
		case <-deadline:
			t.Fatalf("waited in vain for %s; last state: %+v", what, f.Latest())
		}
	}
}

func TestSnapshotsArriveAndChange(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	f := start(t, e)
	until(t, f, "the first snapshot", func(s *State) bool { return s.Conn == Live })
	e.AdvanceTo(enginetest.Located)
	s := until(t, f, "the verdict", func(s *State) bool {
		return len(s.Snap.Incidents) == 1 && s.Snap.Incidents[0].State == "located"
	})
	if n := len(s.Events); n != 3 {
		t.Errorf("%d events held, want 3", n)
	}
}

func TestWantIsSentWithTheNextPull(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	f := start(t, e)
	f.Ask(Want{Rank: 5, Columns: 7, RunLengths: 9})
	s := until(t, f, "rank 5", func(s *State) bool {
		return s.Snap.GetSeries().GetRank() == 5
	})
	if len(s.Snap.Series.Ms) != 7 || len(s.Snap.Series.Posterior) != 63 {
		t.Errorf("%d columns, %d posterior entries",
			len(s.Snap.Series.Ms), len(s.Snap.Series.Posterior))
	}
}

func TestRemoteTextIsCleaned(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.Hostile("\x1b[2J\u202e")
	e.AdvanceTo(enginetest.Proposed)
	f := start(t, e)
	s := until(t, f, "everything", func(s *State) bool {
		return s.Snap.GetLadder().GetProposal() != nil
	})
	got := s.Snap.String()
	if strings.ContainsAny(got, "\x1b\u202e") ||
		strings.Contains(got, `\x1b`) ||
		strings.Contains(got, `\u202e`) {
		t.Errorf("controls survived: %q", got)
	}
}

func TestLostConnectionIsSaidAndHeals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	e := enginetest.New(enginetest.Options{})
	listen := func() *enginetest.Server {
		lis, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return e.Serve(lis)
	}
	srv := listen()
	cc, err := Dial("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	f := New(falconv1.NewConsoleClient(cc), nil)
	defer func() {
		f.Close()
		_ = cc.Close()
	}()
	until(t, f, "live", func(s *State) bool { return s.Conn == Live })
	srv.Close()
	s := until(t, f, "lost", func(s *State) bool { return s.Conn == Lost })
	if s.Err == "" || s.Snap.Job == nil {
		t.Errorf("a lost connection must keep the last picture and say why: %+v", s)
	}
	srv = listen()
	defer srv.Close()
	until(t, f, "live again", func(s *State) bool { return s.Conn == Live })
}

func TestDecideAndRefusal(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	f := start(t, e)
	_, err := f.Decide(context.Background(), &falconv1.DecideRequest{
		Action:   "INC-0001/S2/1",
		PlanHash: "stale",
		Approve:  true,
	})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "plan has changed") {
		t.Errorf("stale plan: %v", err)
	}
	a, err := f.Decide(context.Background(), &falconv1.DecideRequest{
		Action:   "INC-0001/S2/1",
		PlanHash: "9f2c41d0",
		Approve:  true,
	})
	if err != nil || a.State != "dispatched" {
		t.Errorf("approval: %v %v", a, err)
	}
}

func TestFreezeWinsOverAStaleVersion(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	f := start(t, e)
	until(t, f, "live", func(s *State) bool { return s.Conn == Live })
	old := f.Latest().Snap.Policy
	if _, err := e.SetPolicy(context.Background(), &falconv1.SetPolicyRequest{Policy: old}); err != nil {
		t.Fatal(err) // another operator was faster
	}
	if _, err := f.Freeze(context.Background()); err != nil || !e.Policy().Frozen {
		t.Errorf("freeze: %v, policy %v", err, e.Policy())
	}
}

func TestMergeKeepsOrderAndBound(t *testing.T) {
	var held []*falconv1.EventLine
	for i := range uint64(2 * MaxEvents) {
		line := &falconv1.EventLine{Seq: i + 1}
		held = mergeEvents(held, []*falconv1.EventLine{line, line})
	}
	if len(held) != MaxEvents ||
		held[0].Seq != MaxEvents+1 ||
		held[MaxEvents-1].Seq != 2*MaxEvents {
		t.Errorf("%d lines from %d to %d", len(held), held[0].Seq, held[len(held)-1].Seq)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, a := range []string{"", "unix:", "host:1234", "/" + strings.Repeat("x", 200)} {
		if _, err := Dial(a); !errors.Is(err, ErrAddress) {
			t.Errorf("Dial(%.20q): %v", a, err)
		}
	}
}

func TestRecoveriesArePulledWhileWanted(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	f := start(t, e)
	s := until(t, f, "the first snapshot", func(s *State) bool { return s.Conn == Live })
	if s.Recoveries != nil {
		t.Error("recoveries were pulled though nobody wants them")
	}
	f.Ask(Want{Rank: WorstRank, Columns: 1, Recoveries: true})
	until(t, f, "what could be lost", func(s *State) bool {
		return len(s.Recoveries.GetExposures()) > 0
	})
	e.Lose(falcon.RecoveryReplace)
	until(t, f, "the recovery, without a map", func(s *State) bool {
		return len(s.Recoveries.GetRecoveries()) == 1 && len(s.Recoveries.GetExposures()) == 0
	})
}

func TestHistoryIsPulledWhileWanted(t *testing.T) {
	e := enginetest.New(enginetest.Options{Past: true})
	e.AdvanceTo(30)
	e.Hostile("\x1b[31m")
	f := start(t, e)
	s := until(t, f, "the first snapshot", func(s *State) bool { return s.Conn == Live })
	if s.History != nil {
		t.Error("the history was pulled without a request")
	}
	f.Ask(Want{Rank: WorstRank, Columns: 1, History: true})
	s = until(t, f, "the history", func(s *State) bool {
		return len(s.History.GetPast()) > 0
	})
	text := s.History.String() + s.Snap.GetCulprits()[0].GetDevice()
	if strings.Contains(text, "\x1b") || strings.Contains(text, `\033`) {
		t.Errorf("uncleaned: %q", text)
	}
}
