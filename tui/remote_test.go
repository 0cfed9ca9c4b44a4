package tui

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// Half a mouse report at the end of what the decoder holds makes it reach
// beyond: the console ends in order, and the process goes on.
func TestAPanicOfTheDecoderEndsItsConsoleAlone(t *testing.T) {
	const held = 64 // the library's first buffer
	half := "\x9bM>\x18,"
	in, typed := io.Pipe()
	defer typed.Close()
	go func() {
		_, _ = io.WriteString(typed, strings.Repeat("x", held-len(half))+half)
	}()
	ended := make(chan error, 1)
	srv := enginetest.New(enginetest.Options{}).ServeInMemory()
	t.Cleanup(srv.Close)
	cc, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	src := feed.New(falconv1.NewConsoleClient(cc), nil)
	t.Cleanup(src.Close)
	go func() {
		ended <- Run(
			context.Background(),
			src,
			Terminal{
				In:     in,
				Out:    io.Discard,
				Env:    []string{"TERM=xterm"},
				Remote: &Remote{Size: Size{80, 24}},
			},
			Options{},
		)
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrTerminal) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the console goes on without an ear")
	}
}
