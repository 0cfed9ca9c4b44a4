package ship

import falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"

// Link is a Shipper whose frames its owner carries, in place of a connection:
// the same spool, introduction and acknowledgements, without goroutines and
// without a network. One goroutine uses it. A simulation drives agents with it.
type Link struct {
	s    *Shipper
	sent uint64 // newest frame handed out on the present stream
}

// NewLink makes a link. Of cfg, what concerns the network does not count. An
// error wraps ErrHandover.
func NewLink(cfg Config) (*Link, error) {
	s, err := newShipper(cfg)
	if err != nil {
		return nil, err
	}
	return &Link{s: s}, nil
}

// Shipper is what the agent sends through.
func (l *Link) Shipper() *Shipper { return l.s }

// Hello is the first frame of a stream.
func (l *Link) Hello() *falconv1.AgentFrame { return l.s.helloFrame() }

// Welcomed begins a stream with the engine's first frame, and returns what is
// to be sent before anything else.
func (l *Link) Welcomed(w *falconv1.Welcome) []*falconv1.AgentFrame {
	l.sent = w.GetAcked()
	return l.s.beginStream(w)
}

// Next is the frame to send now; nil when there is none.
func (l *Link) Next() *falconv1.AgentFrame {
	beat, frame, _ := l.s.nextFrame(l.sent)
	if beat != nil { // the frame is picked again
		return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: beat}}
	}
	if frame != nil {
		l.sent = frame.Seq
	}
	return frame
}

// Received takes one frame of the engine.
func (l *Link) Received(f *falconv1.EngineFrame) {
	l.s.handleFrame(f)
}

// Broken ends the stream.
func (l *Link) Broken() {
	l.s.setConnected(false)
}

// OnRenew has f called where the agent asks for a new stream.
func (l *Link) OnRenew(f func()) {
	l.s.setBreakOff(f)
}

// Goodbye is the last frame of an agent that stops in order.
func (l *Link) Goodbye() *falconv1.AgentFrame { return sendGoodbye() }
