package engine

import (
	"context"
	"io"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// fakeStream is an agent's stream whose two directions are channels.
type fakeStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	in     chan *falconv1.AgentFrame
	out    chan *falconv1.EngineFrame
	begun  bool // it was welcomed
}

func (f *fakeStream) Context() context.Context { return f.ctx }

func (f *fakeStream) Send(e *falconv1.EngineFrame) error {
	select {
	case f.out <- e:
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

func (f *fakeStream) Recv() (*falconv1.AgentFrame, error) {
	select {
	case a := <-f.in:
		return a, nil
	case <-f.ctx.Done():
		return nil, io.EOF
	}
}

// carry sends a frame as a connection does: what arrives is the engine's own,
// however often the agent sends it again.
func (f *fakeStream) carry(a *falconv1.AgentFrame) {
	f.in <- proto.CloneOf(a)
}
