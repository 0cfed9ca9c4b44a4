package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/relay"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/agent/ship"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// stream is what a stream would hand over: nothing waits in it.
func stream(next uint64) ship.Handover {
	return ship.Handover{Boot: "b1", Next: next}
}

// succeed is a life that takes over what was left, and hands over at its end.
func succeed(t *testing.T, dir *fakeDir, ship *fakeShip, during func(a *Agent)) {
	t.Helper()
	succeedWith(t, launchConfig(), Options{Directory: dir}, ship, during)
}

func succeedWith(t *testing.T, cfg Config, opt Options, ship *fakeShip, during func(a *Agent)) {
	t.Helper()
	cfg.Node = "n1"
	cfg.ShmDir = opt.Directory.(*fakeDir).path
	cfg.Job = "j"
	a := New(cfg, withTime(opt))
	a.Bind(ship)
	a.TakeOver()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	synctest.Wait()
	wait(time.Second)
	during(a)
	cancel()
	if err := errors.Join(<-ended, a.HandOver(stream(9))); err != nil {
		t.Fatal(err)
	}
}

// newest is the newest result of a command.
func newest(s *fakeShip, id uint64) *falconv1.CommandResult {
	for _, r := range slices.Backward(s.results()) {
		if r.Id == id {
			return r
		}
	}
	return nil
}

// An agent is replaced in the middle of a suspension, then of a rejoin: the next
// one ends both, writes nothing twice, and the engine's repeats start nothing.
func TestARecoveryOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		s := dir.add(100, 0, "n1.g0")
		s.set(s.declare)
		suspend := &falconv1.Command{
			Epoch:          1,
			Id:             3,
			DeadlineUnixNs: time.Now().Add(time.Minute).UnixNano(),
			Body:           &falconv1.Command_Suspend{Suspend: &falconv1.SuspendCommand{Generation: 2}},
		}
		first := &fakeShip{}
		second := &fakeShip{}
		third := &fakeShip{}
		succeed(t, dir, first, func(a *Agent) {
			a.Command(suspend)
			wait(time.Second)
		})
		rejoin := &falconv1.Command{
			Epoch:          1,
			Id:             4,
			DeadlineUnixNs: time.Now().Add(time.Minute).UnixNano(),
			Body: &falconv1.Command_Rejoin{Rejoin: &falconv1.RejoinCommand{
				Generation:      2,
				ResumeIteration: 7,
				Seats:           []*falconv1.RankSeat{{Rank: 0, Pid: 100}},
			}},
		}
		succeed(t, dir, second, func(a *Agent) {
			s.set(func() {
				s.control.Suspended = 2
				s.recovery.park = ring.Park{On: true, Generation: 2}
			})
			wait(time.Second)
			if r := newest(second, 3); r.GetStatus() != done {
				t.Fatalf("the suspension: %v", r)
			}
			a.Command(suspend) // the engine has not heard of it
			a.Command(rejoin)
			wait(time.Second)
		})
		succeed(t, dir, third, func(a *Agent) {
			s.set(func() {
				s.control.GenerationNow, s.control.RejoinOrdered = 2, 2
				s.recovery.park.On = false
				s.recovery.rejoined = ring.Rejoined{Generation: 2, Iteration: 7}
			})
			wait(time.Second)
			a.Command(rejoin)
			a.Command(suspend)
			wait(time.Second)
			if r := newest(third, 4); r.GetStatus() != done || len(r.Ranks) != 1 {
				t.Fatalf("the rejoin: %v", r)
			}
		})
		if s.recovery.suspended != 1 || len(s.recovery.orders) != 1 {
			t.Fatalf("%d suspensions and %d rejoins were written",
				s.recovery.suspended, len(s.recovery.orders))
		}
	})
}

// A launch goes on under the next agent, which starts nothing twice.
func TestALaunchOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, n := &fakeMachine{how: map[int]string{}}, &node{dir: newFakeDir(t)}
		opt := Options{Directory: n.dir, Launch: m}
		first := &fakeShip{}
		second := &fakeShip{}
		succeedWith(t, launchConfig(), opt, first, func(a *Agent) {
			a.Command(launchCommand(1, 2, 4, 5))
			wait(time.Second)
			n.up(201, 4, 0, 2)
			wait(time.Second)
		})
		succeedWith(t, launchConfig(), opt, second, func(a *Agent) {
			n.up(202, 5, 1, 2)
			wait(time.Second)
			a.Command(launchCommand(1, 2, 4, 5))
			wait(time.Second)
			r := newest(second, 1)
			if r.GetStatus() != done || len(r.Ranks) != 2 || len(m.started) != 2 {
				t.Fatalf("%v after %d starts", r, len(m.started))
			}
		})
	})
}

// A profile ends with its agent, and so does a pause: the next
// agent answers for both.
func TestWhatEndsWithTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		first := &fakeShip{}
		second := &fakeShip{}
		s := dir.add(100, 0, "n1.g0")
		succeed(t, dir, first, func(a *Agent) {
			a.Command(profileCommand(1, 3))
			wait(100 * time.Millisecond)
		})
		if !s.open {
			t.Fatal("no profile was begun")
		}
		succeed(t, dir, second, func(a *Agent) {
			if r := newest(second, 1); r.GetStatus() != falconv1.CommandStatus_COMMAND_STATUS_EXPIRED {
				t.Fatalf("%v", r)
			}
			if p := second.profiles(); len(p) != 1 || p[0].Refused == "" {
				t.Fatalf("%v", p)
			}
		})
	})
}

// No iteration is sent twice, and none is lost, over an upgrade.
func TestMarksAreReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		ships := []*fakeShip{{}, {}, {}}
		s := dir.add(100, 0, "n1.g0")
		next := int64(0)
		for _, ship := range ships {
			succeed(t, dir, ship, func(*Agent) {
				for range 5 {
					s.mark(next, float64(100*(next+1)))
					next++
				}
				wait(time.Second)
			})
			s.mark(next, float64(100*(next+1))) // while no agent looks
			next++
		}
		var got []int64
		for _, ship := range ships {
			for _, sample := range ship.samples() {
				got = append(got, sample.Iteration)
			}
		}
		for i, it := range got {
			if it != int64(i) {
				t.Fatalf("iterations %v", got)
			}
		}
		if len(got) != int(next)-2 {
			t.Fatalf("%d iterations of %d", len(got), next)
		}
	})
}

// A lab's agent whose clock is ahead takes a deadline of the engine's for over.
func TestAClockThatIsAhead(t *testing.T) {
	onNodeWith(t, Defaults(), Options{Skew: 10 * time.Minute}, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		c := profileCommand(1, 3)
		c.DeadlineUnixNs = time.Now().Add(time.Minute).UnixNano()
		n.Command(c)
		wait(time.Second)
		if r := newest(n.ship, 1); r.GetStatus() != falconv1.CommandStatus_COMMAND_STATUS_EXPIRED {
			t.Fatalf("%v", r)
		}
	})
}

func newAgent(t *testing.T, dir, node, job string) *Agent {
	t.Helper()
	cfg := Defaults()
	cfg.Node = node
	cfg.ShmDir = dir
	cfg.Job = job
	a := New(cfg, Options{Now: time.Now})
	a.Bind(&fakeShip{})
	return a
}

// A handover is taken once, by its agent, in time, and whole; what can't be used
// goes as well.
func TestHandoversThatAreNotTaken(t *testing.T) {
	seal := func(t *testing.T, change func(*handoverHead), stream ship.Handover) []byte {
		head := newAgent(t, t.TempDir(), "n1", "j").next.newHead()
		change(&head)
		b, err := handover{stream: stream}.encodeParts(head)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := seal(t, func(*handoverHead) {}, stream(5))
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, b := range map[string][]byte{
		"damaged":         flipped,
		"cut":             good[:len(good)-1],
		"empty":           nil,
		"another node":    seal(t, func(h *handoverHead) { h.Node = "n2" }, stream(5)),
		"another job":     seal(t, func(h *handoverHead) { h.Job = "k" }, stream(5)),
		"another machine": seal(t, func(h *handoverHead) { h.Machine = "x" }, stream(5)),
		"too old": seal(t, func(h *handoverHead) {
			h.WrittenNs -= int64(11 * time.Minute)
		}, stream(5)),
		"of the future": seal(t, func(h *handoverHead) {
			h.WrittenNs += int64(time.Hour)
		}, stream(5)),
		"newer":     seal(t, func(h *handoverHead) { h.Version++ }, stream(5)),
		"no number": seal(t, func(*handoverHead) {}, stream(0)),
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, handoverFile.nameFor("j", "n1"))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if h := newAgent(t, dir, "n1", "j").TakeOver(); h != nil {
			t.Errorf("%s: taken: %v", name, h)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: it is still there", name)
		}
	}
	dir := t.TempDir()
	if err := newAgent(t, dir, "n1", "j").HandOver(stream(5)); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, dir, "n1", "j")
	if h := a.TakeOver(); h == nil || h.Next != 5 || h.Boot != "b1" {
		t.Fatalf("%v", h)
	}
	if a.TakeOver() != nil {
		t.Fatal("taken twice")
	}
}

// Frames and answers come out as they went in.
func TestAHandoverIsWhole(t *testing.T) {
	in := handover{
		stream: ship.Handover{
			Boot:    "b",
			Next:    9,
			Dropped: 1,
			Lost:    2,
			Frames: []*falconv1.AgentFrame{
				{Seq: 7, Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{Pid: 4}}},
			},
		},
		commands: act.Memory{
			Epoch:   3,
			Floor:   2,
			Answers: []*falconv1.CommandResult{{Epoch: 3, Id: 5, Status: done}},
			Open: []act.Open{{
				Command: &falconv1.Command{Epoch: 3, Id: 6},
				Left:    1500 * time.Millisecond,
			}},
		},
		readings: []reading{{Path: "p", MadeNs: 1, Next: 2}},
	}
	b, err := in.encodeParts(handoverHead{Version: handoverVersion})
	if err != nil {
		t.Fatal(err)
	}
	var head handoverHead
	parts, err := relay.Decode(b, &head)
	if err != nil {
		t.Fatal(err)
	}
	out, err := head.decodeParts(parts)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(in.stream)
	if string(x) != func() string {
		y, _ := json.Marshal(out.stream)
		return string(y)
	}() {
		t.Errorf("%+v", out.stream)
	}
	if out.commands.Epoch != 3 ||
		out.commands.Floor != 2 ||
		out.commands.Answers[0].Id != 5 ||
		out.commands.Open[0].Command.Id != 6 ||
		out.commands.Open[0].Left != 1500*time.Millisecond ||
		out.readings[0] != in.readings[0] {
		t.Errorf("%+v", out)
	}
}

func FuzzHandover(f *testing.F) {
	good, err := handover{stream: stream(5)}.encodeParts(handoverHead{Version: handoverVersion})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, []byte{8, 1}, 1, 0, 0)
	f.Fuzz(func(t *testing.T, b, part []byte, frames, answers, left int) {
		var head handoverHead
		parts, err := relay.Decode(b, &head)
		if err != nil {
			head = handoverHead{
				Boot:    "b",
				Next:    5,
				Frames:  frames,
				Answers: answers,
				LeftMs:  make([]int64, max(0, left%4)),
			}
		}
		h, err := head.decodeParts(append(parts, part))
		if err == nil &&
			(h.stream.Check() != nil ||
				len(h.stream.Frames)+len(h.commands.Answers)+len(h.commands.Open) != len(parts)+1) {
			t.Fatalf("%+v", h)
		}
	})
}
