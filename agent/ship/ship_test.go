package ship

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/failslow/falcon/agent/ship/shiptest"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, e *shiptest.Engine, adjust func(*Config)) *Shipper {
	t.Helper()
	f := e.Agent()
	cfg := Config{
		Address:  e.Address(),
		CertFile: f.Cert,
		KeyFile:  f.Key,
		CAFile:   f.CA,
		Hello:    &falconv1.Hello{Node: "n0", Boot: "b1"},
	}
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func sampleFrame(iteration int64) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{
		Samples: []*falconv1.Sample{{Rank: 1, Iteration: iteration, Ms: 100}},
	}}}
}

func empty(s *Shipper) func() bool {
	return func() bool { return s.Stats().Frames == 0 }
}

// Streams are cut again and again; every frame is handled once, in order.
func TestReconnectsAndResumesWithoutLossOrDuplicates(t *testing.T) {
	e := shiptest.NewEngine(t)
	e.Start()
	s := open(t, e, nil)
	const frames = 120
	for i := range frames {
		if i%20 == 10 {
			e.CutAfter(3)
		}
		s.Send(sampleFrame(int64(i)))
		if i%20 == 19 {
			shiptest.Until(t, "the frames so far", func() bool {
				return e.Numbered() == i+1
			})
		}
	}
	shiptest.Until(t, "acknowledgement of all", empty(s))
	if n := len(e.Hellos()); n < 6 {
		t.Fatalf("only %d streams, the cuts did not happen", n)
	}
	got := e.Frames()
	for i, f := range got {
		if f.Seq != uint64(i+1) || f.GetSamples().Samples[0].Iteration != int64(i) {
			t.Fatalf("frame %d is number %d with %v: lost or doubled", i, f.Seq, f.GetSamples())
		}
	}
	if len(got) != frames {
		t.Fatalf("%d frames handled, want %d", len(got), frames)
	}
}

// The engine comes late; what was spooled meanwhile arrives.
func TestWorksWithoutTheEngine(t *testing.T) {
	e := shiptest.NewEngine(t)
	s := open(t, e, nil)
	for i := range 10 {
		s.Send(sampleFrame(int64(i)))
	}
	if st := s.Stats(); st.Connected || st.Frames != 10 {
		t.Fatalf("stats %+v", st)
	}
	e.Start()
	shiptest.Until(t, "the spooled frames", empty(s))
	s.Beat(time.Now(), nil, nil)
	shiptest.Until(t, "a beat", func() bool { return e.Beats() > 0 })
	if e.Numbered() != 10 {
		t.Fatalf("%d frames", e.Numbered())
	}
}

func TestSpoolIsBoundedAndKeepsResults(t *testing.T) {
	e := shiptest.NewEngine(t)
	s := open(t, e, func(c *Config) { c.FramesMax = 16 })
	s.Send(resultFrame(42))
	for i := range 100 {
		s.Send(sampleFrame(int64(i)))
	}
	if st := s.Stats(); st.Frames != 16 || st.Dropped != 85 || st.Lost != 0 {
		t.Fatalf("stats %+v", st)
	}
	e.Start()
	shiptest.Until(t, "the spool to empty", empty(s))
	got := e.Frames()
	if len(got) != 16 ||
		got[0].GetResult().GetId() != 42 ||
		got[15].GetSamples().Samples[0].Iteration != 99 {
		t.Fatalf("the result or the newest sample is missing: %v", got)
	}
}

// A new engine knows nothing of the ranks whose samples wait in the spool, and may not know
// of an end that the one before it had acknowledged.
func TestStreamsBeginWithThePresentRanks(t *testing.T) {
	e := shiptest.NewEngine(t)
	e.Start()
	s := open(t, e, nil)
	s.Send(rankFrame(1, true, 0))
	s.Send(rankFrame(2, true, 0))
	s.Send(rankFrame(1, true, 33))
	s.Send(rankFrame(2, false, 0))
	shiptest.Until(t, "the states", empty(s))
	e.Stop()
	s.Send(sampleFrame(7))
	before := len(e.Frames())
	e.Start()
	shiptest.Until(t, "the sample", empty(s))
	after := e.Frames()[before:]
	if len(after) != 3 ||
		after[0].Seq != 0 ||
		after[0].GetRank().GetPid() != 102 ||
		after[0].GetRank().GetAlive() ||
		after[1].Seq != 0 ||
		after[1].GetRank().GetPeriod() != 33 ||
		after[2].GetSamples() == nil {
		t.Fatalf("the second stream began with %v", after)
	}
	if ends := s.Ends(); len(ends) != 1 || ends[0].Pid != 102 {
		t.Fatalf("the ends are %v", ends)
	}
}

// A rank changes hands between processes of one node, or leaves it: what a new
// stream begins with are the ranks that they hold now.
func TestStreamsBeginWithTheRanksHeldNow(t *testing.T) {
	e := shiptest.NewEngine(t)
	e.Start()
	s := open(t, e, nil)
	s.Send(stateFrame(11, 1, true, 0))
	s.Send(stateFrame(12, 2, true, 0))
	s.Send(stateFrame(11, 2, true, 0))
	s.Send(stateFrame(12, 7, true, 0))
	shiptest.Until(t, "the states", empty(s))
	e.Stop()
	s.Send(sampleFrame(7))
	before := len(e.Frames())
	e.Start()
	shiptest.Until(t, "the sample", empty(s))
	ranks := map[int32]int32{}
	for _, f := range e.Frames()[before:] {
		if st := f.GetRank(); st != nil {
			ranks[st.Pid] = st.Rank
		}
	}
	if len(ranks) != 2 || ranks[11] != 2 || ranks[12] != 7 {
		t.Fatalf("the second stream began with %v by pid", ranks)
	}
}

func TestCommandsAndWelcomeReachTheAgent(t *testing.T) {
	e := shiptest.NewEngine(t)
	e.Start()
	commands := make(chan *falconv1.Command, 4)
	welcomes := make(chan *falconv1.Welcome, 4)
	open(t, e, func(c *Config) {
		c.Command = func(m *falconv1.Command) { commands <- m }
		c.Welcome = func(w *falconv1.Welcome) { welcomes <- w }
	})
	if w := <-welcomes; w.Epoch != 1 {
		t.Fatalf("welcome %v", w)
	}
	e.Command(&falconv1.Command{Id: 5})
	if c := <-commands; c.Id != 5 {
		t.Fatalf("command %v", c)
	}
}

func TestCloseSendsWhatIsSpooled(t *testing.T) {
	e := shiptest.NewEngine(t)
	e.Start()
	s := open(t, e, nil)
	shiptest.Until(t, "the stream", func() bool { return s.Stats().Connected })
	for i := range 50 {
		s.Send(sampleFrame(int64(i)))
	}
	s.Close()
	shiptest.Until(t, "the frames", func() bool { return e.Numbered() == 50 })
}

func TestStrangersAreRefused(t *testing.T) {
	e := shiptest.NewEngine(t)
	e.Start()
	other := shiptest.NewAuthority(t).Issue(t, "stranger")
	s := open(t, e, func(c *Config) {
		c.CertFile, c.KeyFile = other.Cert, other.Key
	})
	wrongCA := open(t, e, func(c *Config) { c.CAFile = other.CA })
	s.Send(sampleFrame(0))
	wrongCA.Send(sampleFrame(0))
	time.Sleep(3 * BackoffMin) // several attempts; an early look could only pass wrongly, never fail
	if len(e.Hellos()) != 0 || s.Stats().Connected || wrongCA.Stats().Connected {
		t.Fatal("a stranger got in")
	}
}

func TestBadCredentialsAreNamed(t *testing.T) {
	f := shiptest.NewAuthority(t).Issue(t, "agent")
	for name, cfg := range map[string]Config{
		"no certificate": {Address: "127.0.0.1:1", CertFile: "absent.pem", KeyFile: f.Key, CAFile: f.CA},
		"no CA": {
			Address:  "127.0.0.1:1",
			CertFile: f.Cert,
			KeyFile:  f.Key,
			CAFile:   f.Key,
		},
		"no port": {
			Address:  "engine",
			CertFile: f.Cert,
			KeyFile:  f.Key,
			CAFile:   f.CA,
		},
	} {
		if _, err := Open(cfg); !errors.Is(err, ErrCredentials) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
