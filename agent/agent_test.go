package agent

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestMarksBecomeExactSamples(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		for i := range int64(5) {
			s.mark(i, 1000+200*float64(i))
			wait(200 * time.Millisecond)
		}
		wait(time.Second)
		got := n.ship.samples()
		if len(got) != 4 {
			t.Fatalf("%d samples, want 4: %v", len(got), got)
		}
		for i, g := range got {
			if g.Rank != 2 ||
				g.Iteration != int64(i) ||
				g.Ms != 200 ||
				!g.Exact ||
				g.EndUnixNs != int64(1200+200*i)*1e6+5e9 {
				t.Fatalf("sample %d is %v", i, g)
			}
		}
		if n.ship.beats == 0 {
			t.Fatal("no beat")
		}
	})
}

// feed writes iterations of a pipeline stage: per micro-batch a receive and a
// send on comm 88, then one all-reduce on comm 77; iteration i takes ms(i).
func feed(s *fakeSegment, from, to, micro int, ms func(int) float64) {
	at := 1e9
	for i := range to {
		var out []ring.Record
		step := ms(i) * 1e6 / float64(2*micro+1)
		add := func(op falcon.Op, comm uint32, ordinal int) {
			out = append(out, ring.Record{
				EnterNs: int64(at),
				Op:      op,
				Comm:    comm,
				Count:   1000,
				Dtype:   7,
				Ordinal: uint64(ordinal),
				Step:    0xffffffff,
			})
			at += step
		}
		for m := range micro {
			add(falcon.OpRecv, 1, 2*(i*micro+m))
			add(falcon.OpSend, 1, 2*(i*micro+m)+1)
		}
		add(falcon.OpAllReduce, 0, i)
		if i >= from {
			s.set(func() { s.records = append(s.records, out...) })
		}
	}
}

func TestCallsBecomeInferredSamples(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 1, "")
		feed(s, 0, 30, 4, func(i int) float64 { return 100 + float64(i%2) })
		wait(2 * time.Second)
		got := n.ship.samples()
		if len(got) < 20 {
			t.Fatalf("only %d samples", len(got))
		}
		for i, g := range got {
			if g.Exact ||
				g.Rank != 1 ||
				g.Ms < 99 ||
				g.Ms > 102 ||
				(i > 0 && g.Iteration != got[i-1].Iteration+1) {
				t.Fatalf("sample %d is %v", i, g)
			}
		}
		states := n.ship.states()
		last := states[len(states)-1]
		if last.Period != 9 ||
			last.PeriodReason != "" ||
			last.Device != "n1.g0" ||
			len(last.Comms) != 2 ||
			s.period != 9 {
			t.Fatalf("state %v, published period %d", last, s.period)
		}
		if first := states[0]; first.Period == 0 && first.PeriodReason == "" {
			t.Fatalf("a state without a period says nothing of why: %v", first)
		}
	})
}

func TestMarksWinOverInference(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.mark(0, 1000)
		feed(s, 0, 30, 4, func(int) float64 { return 100 })
		s.mark(1, 1100)
		wait(2 * time.Second)
		if got := n.ship.samples(); len(got) != 1 || !got[0].Exact {
			t.Fatalf("samples %v", got)
		}
	})
}

func TestExitIsReportedAndCleared(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 3, "n1.g1")
		wait(time.Second)
		s.mark(0, 1000)
		s.mark(1, 1250)
		n.dir.exits[100].die("killed by signal 9 (SIGKILL)")
		wait(100 * time.Millisecond)
		states := n.ship.states()
		last := states[len(states)-1]
		if last.Alive || last.Exit != "killed by signal 9 (SIGKILL)" || last.Rank != 3 {
			t.Fatalf("state %v", last)
		}
		if got := n.ship.samples(); len(got) != 1 || got[0].Ms != 250 {
			t.Fatalf("the last iteration is missing: %v", got)
		}
		wait(time.Second)
		if n.dir.exists(100) || !s.closed {
			t.Fatal("the dead process's file was left")
		}
	})
}

// A rank that starts itself again by exec keeps its pid, and its hook makes a new
// file in the place of the old one: the agent must not go on with the old memory.
func TestExecIsFollowed(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		old := n.dir.add(100, 3, "n1.g1")
		wait(time.Second)
		s := n.dir.add(100, 3, "n1.g1")
		s.set(func() { s.header.StartMonoNs = 7 })
		wait(time.Second)
		states := n.ship.states()
		if len(states) != 3 ||
			states[1].Alive ||
			states[1].Exit == "" ||
			!states[2].Alive ||
			!old.closed ||
			!n.dir.exists(100) {
			t.Fatalf("states %v, closed %v", states, old.closed)
		}
		s.mark(0, 1000)
		s.mark(1, 1250)
		wait(time.Second)
		if got := n.ship.samples(); len(got) != 1 {
			t.Fatalf("samples %v", got)
		}
	})
}

// The kernel knows the exit status only once the parent has collected it.
func TestLateExitStatusFollows(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.dir.exits[100].die("")
		wait(300 * time.Millisecond)
		n.dir.exits[100].die("exited normally")
		wait(300 * time.Millisecond)
		var how []string
		for _, st := range n.ship.states() {
			if !st.Alive {
				how = append(how, st.Exit)
			}
		}
		if strings.Join(how, "|") != "|exited normally" {
			t.Fatalf("exits %q", how)
		}
	})
}

func TestUnreadableMemoryEndsTheProcessOnly(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		bad, good := n.dir.add(100, 0, "n1.g0"), n.dir.add(101, 1, "n1.g1")
		wait(time.Second)
		bad.set(func() { bad.err = errors.New("shrank") })
		wait(2 * time.Second)
		good.mark(0, 100)
		good.mark(1, 200)
		wait(time.Second)
		if got := n.ship.samples(); len(got) != 1 || got[0].Rank != 1 {
			t.Fatalf("samples %v", got)
		}
	})
}

func TestStaleFilesAreRemovedUnlessTheyBeat(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		dead := n.dir.add(100, 0, "")
		elsewhere := n.dir.add(101, 1, "")
		other := n.dir.add(102, 2, "n2.g0")
		_, _ = dead, other
		elsewhere.control.HeartbeatNs = time.Now().Add(time.Hour).UnixNano()
		n.dir.mu.Lock()
		for _, pid := range []int{100, 101, 102} {
			e := n.dir.entry(pid)
			n.dir.stale = append(n.dir.stale, e)
		}
		n.dir.mu.Unlock()
		n.dir.hide(100, 101, 102)
		wait(time.Second)
		if n.dir.exists(100) || !n.dir.exists(101) || !n.dir.exists(102) {
			t.Fatalf("dead %v, beating %v, other node's %v",
				n.dir.exists(100), n.dir.exists(101), n.dir.exists(102))
		}
	})
}

// hide makes processes dead to Discover's list of live ones.
func (d *fakeDir) hide(pids ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hidden = pids
}

func TestOtherNodesProcessesAreLeftAlone(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n2.g0").mark(0, 1)
		wait(time.Second)
		if got := n.ship.states(); len(got) != 0 {
			t.Fatalf("states %v", got)
		}
	})
}

func TestRankComesFromTheLargestCommunicator(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, -1, "n1.g0")
		s.set(func() { s.header.World, s.comms = -1, nil })
		wait(time.Second)
		if len(n.ship.states()) != 0 {
			t.Fatal("a state without a rank was sent")
		}
		s.set(func() {
			s.comms = []ring.Comm{{ID: 5, State: ring.CommLive, Size: 2, Rank: 0}, {
				Slot:  1,
				ID:    6,
				State: ring.CommLive,
				Size:  8,
				Rank:  5,
			}}
		})
		wait(time.Second)
		got := n.ship.states()
		if len(got) != 1 || got[0].Rank != 5 || got[0].World != 8 {
			t.Fatalf("states %v", got)
		}
	})
}

func TestWelcomeFencesOldEpochs(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.Welcome(&falconv1.Welcome{Epoch: 2, BeatPeriodMs: 100})
		n.Command(&falconv1.Command{Epoch: 1, Id: 9})
		wait(time.Second)
		got := n.ship.results()
		if len(got) != 1 || got[0].Status != falconv1.CommandStatus_COMMAND_STATUS_REFUSED {
			t.Fatalf("a command of an old epoch: %v", got)
		}
		if n.ship.beats < 8 {
			t.Fatalf("%d beats in a second, the engine asked for ten", n.ship.beats)
		}
	})
}

// The engine counts a node's silence from its newest beat: a stream that has just begun carries one.
func TestAStreamBeginsWithABeat(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wait(2100 * time.Millisecond)
		before := n.ship.beats
		n.Welcome(&falconv1.Welcome{Epoch: 1, BeatPeriodMs: 2000})
		wait(200 * time.Millisecond)
		if got := n.ship.beats - before; got != 1 {
			t.Fatalf("%d beats in the first 0.2 s of a stream", got)
		}
		wait(1600 * time.Millisecond)
		if got := n.ship.beats - before; got != 1 {
			t.Fatalf("%d beats within the first period of a stream", got)
		}
	})
}

func TestConfig(t *testing.T) {
	if cfg, err := ParseConfig([]byte(Example)); err != nil || cfg.Node != "n1" {
		t.Fatalf("the example does not parse: %v", err)
	}
	example, _ := ParseConfig([]byte(Example))
	want := Defaults()
	want.Node, want.Engine = example.Node, example.Engine
	want.Cert = example.Cert
	want.Key = example.Key
	want.CA = example.CA
	want.NICs = map[string]string{}
	want.Launch.Command = []string{}
	want.Launch.Env = map[string]string{}
	want.Launch.Standby.Imports = []string{}
	if !reflect.DeepEqual(example, want) {
		t.Fatalf("the example shows other defaults:\n%+v\n%+v", example, want)
	}
	for text, say := range map[string]string{
		"node: n1\nnodes: 4":                     "nodes",
		"node: n1\ncert: c\nkey: k":              "engine is missing",
		strings.Replace(Example, "2000", "1", 1): "beat_ms is 1",
		strings.Replace(
			Example,
			"command: []",
			"command: [/bin/true]",
			1,
		): "node_ranks is 0",
		strings.Replace(
			Example,
			"command: []",
			"command: [/bin/true]\n  node_ranks: 1",
			1,
		): "already defined",
		Example + "launch2: 1": "launch2",
		strings.NewReplacer(
			"command: []",
			"command: [/bin/true]",
			"node_ranks: 0",
			"node_ranks: 1",
		).Replace(Example): "job is missing",
		"beat_ms: [": "line 1",
		strings.Replace(Example, "down_s: 5", "down_s: 0", 1):                  "nic.down_s is 0",
		strings.Replace(Example, `rank_table: ""`, "rank_table: hccl.json", 1): "no absolute path",
		strings.Replace(Example, `listen: ""`, "listen: 127.0.0.1:29500", 1):   "belong together",
		strings.Replace(Example, "{} ", "{n1.x: n1.nic0}", 1):                  "not of the form NODE.gINDEX",
		strings.Replace(Example, "{} ", "{n1.g0: n1.eth0}", 1):                 "n1.nic0",
		strings.Replace(
			Example,
			"{} ",
			"{n1.g0: n2.nic0}",
			1,
		): "not a GPU and a port of node n1",
	} {
		_, err := ParseConfig([]byte(text))
		if !errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), say) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v lacks %q", text, err, say)
		}
	}
	if _, err := ReadConfig("absent.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(Example))
	f.Add([]byte("node: [n1]\nlab: {node: -1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := ParseConfig(text)
		if err == nil && (cfg.Node == "" || cfg.DrainMs < 1 || cfg.SpoolFrames < 1) {
			t.Fatalf("accepted %+v", cfg)
		}
		if err != nil && (!errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("error %q", err)
		}
	})
}

// An agent that was stopped drops what waited for it: the engine says again, on a new
// stream, what still holds.
func TestStoppedAgentBeginsANewStream(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		if n.ship.renewed != 0 {
			t.Fatalf("%d streams", n.ship.renewed)
		}
		cfg := Defaults()
		cfg.Node = "n1"
		cfg.ShmDir = t.TempDir()
		a := New(cfg, Options{Now: time.Now, Directory: n.dir})
		ship := &fakeShip{}
		a.Bind(ship)
		now := time.Now()
		a.Start(now)
		a.Tick(now)
		a.Command(orderCommand(1, 4, time.Minute))
		a.Tick(now.Add(stoppedAfter))
		if ship.renewed != 1 || len(s.orders) != 0 || len(ship.results()) != 0 {
			t.Fatalf("%d new streams, %d orders, results %v", ship.renewed, len(s.orders), ship.results())
		}
		a.Command(orderCommand(1, 4, time.Minute))
		a.Tick(now.Add(stoppedAfter + time.Second))
		if ship.renewed != 1 || len(s.orders) != 1 {
			t.Fatalf("%d new streams, %d orders", ship.renewed, len(s.orders))
		}
		a.Halt(now.Add(stoppedAfter + 2*time.Second))
	})
}
