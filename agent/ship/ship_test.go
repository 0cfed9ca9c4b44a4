package ship

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// engine is a fake Fleet server over mutual TLS. It keeps what it took over
// restarts of its listener and can cut streams at will.
type engine struct {
	falconv1.UnimplementedFleetServer
	t     *testing.T
	auth  *authority
	files files

	mu     sync.Mutex
	server *grpc.Server
	addr   string
	hellos int
	beats  int
	seqs   []uint64 // numbered frames in the order taken
	took   map[uint64]*falconv1.AgentFrame
	acked  uint64
	cut    int  // close the stream after this many more frames, 0 = never
	mute   bool // acknowledge nothing
	send   chan *falconv1.EngineFrame
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	a := newAuthority(t)
	e := &engine{t: t, auth: a, files: a.issue(t, "engine"), took: map[uint64]*falconv1.AgentFrame{}, send: make(chan *falconv1.EngineFrame, 16), addr: "127.0.0.1:0"}
	t.Cleanup(e.stop)
	return e
}

// reserve picks the port without listening on it yet.
func (e *engine) reserve() {
	e.t.Helper()
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.addr = l.Addr().String()
	l.Close()
}

func (e *engine) start() {
	e.t.Helper()
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(grpccreds.NewTLS(e.auth.serverTLS(e.t, e.files))),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	falconv1.RegisterFleetServer(s, e)
	e.mu.Lock()
	e.server, e.addr = s, l.Addr().String()
	e.mu.Unlock()
	go func() { _ = s.Serve(l) }()
}

func (e *engine) stop() {
	e.mu.Lock()
	s := e.server
	e.server = nil
	e.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

func (e *engine) Attach(st grpc.BidiStreamingServer[falconv1.AgentFrame, falconv1.EngineFrame]) error {
	first, err := st.Recv()
	if err != nil || first.GetHello() == nil {
		return errors.New("no hello")
	}
	e.mu.Lock()
	e.hellos++
	acked := e.acked
	e.mu.Unlock()
	if err := st.Send(&falconv1.EngineFrame{Body: &falconv1.EngineFrame_Welcome{Welcome: &falconv1.Welcome{Epoch: 1, Acked: acked}}}); err != nil {
		return err
	}
	for {
		f, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		ack, cut := e.take(f)
		if cut {
			return errors.New("cut")
		}
		if err := e.reply(st, ack); err != nil {
			return err
		}
	}
}

// reply acknowledges and sends one waiting command.
func (e *engine) reply(st grpc.BidiStreamingServer[falconv1.AgentFrame, falconv1.EngineFrame], ack uint64) error {
	if ack > 0 {
		if err := st.Send(&falconv1.EngineFrame{Body: &falconv1.EngineFrame_Ack{Ack: &falconv1.Ack{Seq: ack}}}); err != nil {
			return err
		}
	}
	select {
	case f := <-e.send:
		return st.Send(f)
	default:
		return nil
	}
}

func (e *engine) take(f *falconv1.AgentFrame) (ack uint64, cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.GetBeat() != nil {
		e.beats++
		return 0, false
	}
	if e.cut > 0 {
		if e.cut--; e.cut == 0 {
			return 0, true // taken from the wire, never handled
		}
	}
	e.seqs = append(e.seqs, f.Seq)
	e.took[f.Seq] = f
	if e.mute {
		return 0, false
	}
	e.acked = f.Seq
	return f.Seq, false
}

func (e *engine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.took)
}

func (e *engine) open(adjust func(*Config)) *Shipper {
	e.t.Helper()
	f := e.auth.issue(e.t, "agent")
	cfg := Config{Address: e.addr, CertFile: f.cert, KeyFile: f.key, CAFile: f.ca, Hello: &falconv1.Hello{Node: "n0", Boot: "b1"}}
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(s.Close)
	return s
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

func sampleFrame(iteration int64) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{
		Samples: []*falconv1.Sample{{Rank: 1, Iteration: iteration, Ms: 100}},
	}}}
}

// Streams are cut again and again; every frame is handled once, in order.
func TestReconnectsAndResumesWithoutLossOrDuplicates(t *testing.T) {
	e := newEngine(t)
	e.start()
	s := e.open(nil)
	const frames = 120
	for i := range frames {
		if i%20 == 10 {
			e.mu.Lock()
			e.cut = 3
			e.mu.Unlock()
		}
		s.Send(sampleFrame(int64(i)))
		if i%20 == 19 {
			until(t, "the frames so far", func() bool { return e.count() == i+1 })
		}
	}
	until(t, "acknowledgement of all", func() bool { return s.Stats().Frames == 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hellos < 6 {
		t.Fatalf("only %d streams, the cuts did not happen", e.hellos)
	}
	for i, seq := range e.seqs {
		if seq != uint64(i+1) {
			t.Fatalf("frame %d has number %d: lost or doubled (%v)", i, seq, e.seqs)
		}
		if got := e.took[seq].GetSamples().Samples[0].Iteration; got != int64(i) {
			t.Fatalf("number %d carries iteration %d", seq, got)
		}
	}
	if len(e.seqs) != frames {
		t.Fatalf("%d frames handled, want %d", len(e.seqs), frames)
	}
}

// The engine comes late and restarts; what was spooled meanwhile arrives.
func TestWorksWithoutTheEngine(t *testing.T) {
	e := newEngine(t)
	e.reserve()
	s := e.open(nil)
	for i := range 10 {
		s.Send(sampleFrame(int64(i)))
	}
	if st := s.Stats(); st.Connected || st.Frames != 10 {
		t.Fatalf("stats %+v", st)
	}
	e.start()
	until(t, "the spooled frames", func() bool { return s.Stats().Frames == 0 })
	s.Beat(time.Now())
	until(t, "a beat", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.beats > 0 })
	if e.count() != 10 {
		t.Fatalf("%d frames", e.count())
	}
}

func TestSpoolIsBoundedAndKeepsResults(t *testing.T) {
	e := newEngine(t)
	e.reserve()
	s := e.open(func(c *Config) { c.FramesMax = 16 })
	s.Send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: &falconv1.CommandResult{Id: 42}}})
	for i := range 100 {
		s.Send(sampleFrame(int64(i)))
	}
	if st := s.Stats(); st.Frames != 16 || st.Dropped != 85 || st.Lost != 0 {
		t.Fatalf("stats %+v", st)
	}
	e.start()
	until(t, "the spool to empty", func() bool { return s.Stats().Frames == 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.took[1].GetResult().GetId() != 42 || len(e.took) != 16 || e.took[101] == nil {
		t.Fatalf("the result or the newest sample is missing: %v", e.seqs)
	}
}

func TestCommandsAndWelcomeReachTheAgent(t *testing.T) {
	e := newEngine(t)
	e.start()
	commands := make(chan *falconv1.Command, 1)
	welcomes := make(chan *falconv1.Welcome, 1)
	s := e.open(func(c *Config) {
		c.Command = func(m *falconv1.Command) { commands <- m }
		c.Welcome = func(w *falconv1.Welcome) { welcomes <- w }
	})
	if w := <-welcomes; w.Epoch != 1 {
		t.Fatalf("welcome %v", w)
	}
	e.send <- &falconv1.EngineFrame{Body: &falconv1.EngineFrame_Command{Command: &falconv1.Command{Id: 5}}}
	s.Send(sampleFrame(0))
	if c := <-commands; c.Id != 5 {
		t.Fatalf("command %v", c)
	}
}

func TestCloseSendsWhatIsSpooled(t *testing.T) {
	e := newEngine(t)
	e.start()
	s := e.open(nil)
	until(t, "the stream", func() bool { return s.Stats().Connected })
	for i := range 50 {
		s.Send(sampleFrame(int64(i)))
	}
	s.Close()
	until(t, "the frames", func() bool { return e.count() == 50 })
}

func TestStrangersAreRefused(t *testing.T) {
	e := newEngine(t)
	e.start()
	other := newAuthority(t).issue(t, "stranger")
	s := e.open(func(c *Config) { c.CertFile, c.KeyFile = other.cert, other.key })
	s.Send(sampleFrame(0))
	wrongCA := e.open(func(c *Config) { c.CAFile = other.ca })
	wrongCA.Send(sampleFrame(0))
	time.Sleep(3 * BackoffMin) // several attempts; an early look could only pass wrongly, never fail
	if e.count() != 0 || s.Stats().Connected || wrongCA.Stats().Connected {
		t.Fatal("a stranger got in")
	}
}

func TestBadCredentialsAreNamed(t *testing.T) {
	a := newAuthority(t)
	f := a.issue(t, "agent")
	for name, cfg := range map[string]Config{
		"no certificate": {Address: "127.0.0.1:1", CertFile: "absent.pem", KeyFile: f.key, CAFile: f.ca},
		"no CA":          {Address: "127.0.0.1:1", CertFile: f.cert, KeyFile: f.key, CAFile: f.key},
		"no port":        {Address: "engine", CertFile: f.cert, KeyFile: f.key, CAFile: f.ca},
	} {
		if _, err := Open(cfg); !errors.Is(err, ErrCredentials) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
