package plain

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var update = flag.Bool("update", false, "rewrite the golden stream")

const patience = 10 * time.Second

// sink is a writer that lets a test wait for a text.
type sink struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func newSink() *sink {
	return &sink{more: make(chan struct{}, 1)}
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *sink) until(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("waited in vain for %q in:\n%s", text, s.String())
		}
	}
}

func client(t *testing.T, e *enginetest.Engine) falconv1.ConsoleClient {
	t.Helper()
	srv := e.ServeInMemory()
	cc, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cc.Close()
		srv.Close()
	})
	return falconv1.NewConsoleClient(cc)
}

func TestWholeStory(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	out := newSink()
	ended := make(chan error, 1)
	cl := client(t, e)
	go func() { ended <- Run(context.Background(), cl, out, Options{}) }()
	out.until(t, "watching gpt-lab")
	for _, at := range []struct {
		iter int64
		text string
	}{
		{25, "running: "},
		{enginetest.Detected, "verified at 43"},
		{enginetest.Located, "GPU degradation on n1.g0 (rank 2), confidence 97%"},
		{enginetest.Proposed, "waits for a decision"},
	} {
		e.AdvanceTo(at.iter)
		out.until(t, at.text)
	}
	if _, err := e.Decide(context.Background(), &falconv1.DecideRequest{
		Action:   "INC-0001/S2/1",
		PlanHash: "9f2c41d0",
		Approve:  true,
	}); err != nil {
		t.Fatal(err)
	}
	out.until(t, "dispatched, decided by maria")
	for _, at := range []struct {
		iter int64
		text string
	}{
		{enginetest.Proposed + 2, "in force from iteration 52"},
		{enginetest.Proposed + 8, "kept: 400 ms → 262 ms measured"},
		{enginetest.Seen, "the fault has cleared"},
		{enginetest.Reverted, "reverted from iteration 208"},
		{enginetest.End, "cost "},
	} {
		e.AdvanceTo(at.iter)
		out.until(t, at.text)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/story.txt", out.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update rewrites it); got:\n%s", path, got)
	}
}

func TestStreamIsPrintable(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.Hostile("\x1b[31m\u202e")
	e.AdvanceTo(enginetest.End)
	out := newSink()
	if err := Run(context.Background(), client(t, e), out, Options{}); err != nil {
		t.Fatal(err)
	}
	s := out.String()
	if strings.ContainsAny(s, "\x1b\u202e") || !strings.Contains(s, "INC-0001") {
		t.Errorf("%q", s)
	}
}

func TestNoEngineEndsWithASentence(t *testing.T) {
	cc, err := feed.Dial(t.TempDir() + "/none.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	err = Run(context.Background(), falconv1.NewConsoleClient(
		cc,
	), newSink(), Options{Patience: 50 * time.Millisecond})
	if !errors.Is(err, ErrNoEngine) {
		t.Errorf("got %v", err)
	}
}

func TestCancelledStreamStillTellsTheStory(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Located)
	out := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cl := client(t, e)
	go func() { ended <- Run(ctx, cl, out, Options{}) }()
	out.until(t, "confidence 97%")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "evidence  + timing: rank 2") {
		t.Errorf("no story:\n%s", out.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) {
	return 0, errors.New("closed pipe")
}

func TestFailedWriteEndsTheStream(t *testing.T) {
	err := Run(
		context.Background(),
		client(t, enginetest.New(enginetest.Options{})),
		broken{},
		Options{},
	)
	if err == nil || !strings.Contains(err.Error(), "closed pipe") {
		t.Errorf("got %v", err)
	}
}
