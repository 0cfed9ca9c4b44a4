package shiptest

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const patience = 60 * time.Second

var errCut = errors.New("shiptest: cut by the test")

type stream = grpc.BidiStreamingServer[falconv1.AgentFrame, falconv1.EngineFrame]

// Engine takes what agents say. Its memory outlives Stop.
type Engine struct {
	falconv1.UnimplementedFleetServer
	t     *testing.T
	auth  *Authority
	files Files

	mu       sync.Mutex
	server   *grpc.Server
	serving  sync.WaitGroup
	addr     string
	hellos   []*falconv1.Hello
	beats    int
	frames   []*falconv1.AgentFrame // in the order taken
	acked    map[string]uint64      // by boot, as every boot counts from 0
	cut      int
	commands []*falconv1.Command // sent again on every stream
	tell     chan struct{}
	revision uint32 // of the contract, as it says in its welcomes
}

// NewEngine makes an engine that does not listen yet.
func NewEngine(t *testing.T) *Engine {
	t.Helper()
	a := NewAuthority(t)
	e := &Engine{
		t:        t,
		auth:     a,
		files:    a.Issue(t, "engine"),
		addr:     "127.0.0.1:0",
		acked:    map[string]uint64{},
		tell:     make(chan struct{}),
		revision: falconv1.ProtocolRevision,
	}
	l := e.listen()
	e.addr = l.Addr().String()
	l.Close()
	t.Cleanup(e.Stop)
	return e
}

// Address is where it listens once started, always the same.
func (e *Engine) Address() string { return e.addr }

// Agent makes credentials that it accepts.
func (e *Engine) Agent() Files {
	return e.auth.Issue(e.t, "agent")
}

func (e *Engine) listen() net.Listener {
	e.t.Helper()
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	return l
}

// Start listens.
func (e *Engine) Start() {
	e.t.Helper()
	l := e.listen()
	s := grpc.NewServer(grpc.Creds(grpccreds.NewTLS(e.auth.serverTLS(e.t, e.files))),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	falconv1.RegisterFleetServer(s, e)
	e.mu.Lock()
	e.server = s
	e.mu.Unlock()
	e.serving.Go(func() { _ = s.Serve(l) })
}

// Speak makes it an engine of another revision of the contract: of 0 it passes
// over what came later.
func (e *Engine) Speak(revision uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revision = revision
}

// Started reports whether it listens.
func (e *Engine) Started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.server != nil
}

// Stop ends all streams at once, as a crash would.
func (e *Engine) Stop() {
	e.mu.Lock()
	s := e.server
	e.server = nil
	e.mu.Unlock()
	if s != nil {
		s.Stop()
		e.serving.Wait()
	}
}

// CutAfter ends the stream at the nth numbered frame from now on, which is
// taken from the wire and never handled.
func (e *Engine) CutAfter(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = n
}

// Command sends a command now, and again on every later stream.
func (e *Engine) Command(c *falconv1.Command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commands = append(e.commands, c)
	close(e.tell)
	e.tell = make(chan struct{})
}

// Attach implements the Fleet service.
func (e *Engine) Attach(st stream) error {
	first, err := st.Recv()
	if err != nil || first.GetHello() == nil {
		return errors.New("shiptest: the first frame was no hello")
	}
	boot := first.GetHello().GetBoot()
	e.mu.Lock()
	e.hellos = append(e.hellos, first.GetHello())
	acked := e.acked[boot]
	revision := e.revision
	e.mu.Unlock()
	if err := st.Send(&falconv1.EngineFrame{
		Body: &falconv1.EngineFrame_Welcome{
			Welcome: &falconv1.Welcome{Epoch: 1, Acked: acked, Protocol: revision},
		},
	}); err != nil {
		return err
	}
	acks := make(chan uint64, 1024)
	ended := make(chan error, 1)
	go func() { ended <- e.readStream(st, boot, acks) }()
	return e.write(st, acks, ended)
}

func (e *Engine) readStream(st stream, boot string, acks chan<- uint64) error {
	for {
		f, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		ack, cut := e.takeFrame(f, boot)
		if cut {
			return errCut
		}
		if ack > 0 {
			acks <- ack
		}
	}
}

func (e *Engine) write(st stream, acks <-chan uint64, ended <-chan error) error {
	announced := 0
	for {
		e.mu.Lock()
		fresh := slices.Clone(e.commands[announced:])
		tell := e.tell
		e.mu.Unlock()
		for _, c := range fresh {
			if err := st.Send(&falconv1.EngineFrame{
				Body: &falconv1.EngineFrame_Command{Command: c},
			}); err != nil {
				return err
			}
			announced++
		}
		select {
		case err := <-ended:
			return err
		case seq := <-acks:
			if err := st.Send(&falconv1.EngineFrame{
				Body: &falconv1.EngineFrame_Ack{Ack: &falconv1.Ack{Seq: seq}},
			}); err != nil {
				return err
			}
		case <-tell:
		}
	}
}

func (e *Engine) takeFrame(f *falconv1.AgentFrame, boot string) (ack uint64, cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.revision == 0 && f.GetGoodbye() != nil {
		return 0, false
	}
	if f.GetBeat() != nil {
		e.beats++
		return 0, false
	}
	if f.Seq > 0 && e.cut > 0 {
		if e.cut--; e.cut == 0 {
			return 0, true
		}
	}
	e.frames = append(e.frames, f)
	if f.Seq > 0 {
		e.acked[boot] = f.Seq
	}
	return f.Seq, false
}

// Frames is every frame handled so far but beats, in order.
func (e *Engine) Frames() []*falconv1.AgentFrame {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.frames)
}

// Numbered is how many numbered frames were handled.
func (e *Engine) Numbered() int {
	n := 0
	for _, f := range e.Frames() {
		if f.Seq > 0 {
			n++
		}
	}
	return n
}

// Hellos is every hello so far: one a stream.
func (e *Engine) Hellos() []*falconv1.Hello {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.hellos)
}

// Beats is how many heartbeats came.
func (e *Engine) Beats() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.beats
}

// Until waits for ok, and fails the test when it does not come.
func Until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}
