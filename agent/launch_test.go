package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// fakeMachine starts numbers from 201 on.
type fakeMachine struct {
	mu      sync.Mutex
	started []launch.Spec
	how     map[int]string // of those that have ended
}

func (m *fakeMachine) Start(s launch.Spec) (launch.Proc, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started = append(m.started, s)
	return launch.Proc{PID: 200 + len(m.started), Start: 1}, nil
}

// starts is how many processes were started so far.
func (m *fakeMachine) starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.started)
}

func (m *fakeMachine) Ended(p launch.Proc) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	how, ended := m.how[p.PID]
	return how, ended
}

func (m *fakeMachine) Kill(p launch.Proc) {
	m.end(p.PID, "killed by signal 9 (SIGKILL)")
}

func (m *fakeMachine) Place() string { return "here" }

func (m *fakeMachine) Find(string) (launch.Proc, bool) {
	return launch.Proc{}, false
}

func (m *fakeMachine) end(pid int, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.how[pid] = how
}

func launchConfig() Config {
	cfg := Defaults()
	cfg.Job = "j"
	cfg.Launch = launch.Config{Command: []string{"/bin/train", "{resume}"}, NodeRanks: 4}
	return cfg
}

func launchCommand(id, generation uint64, ranks ...int32) *falconv1.Command {
	l := &falconv1.LaunchCommand{
		Generation: generation,
		World:      8,
		Resume:     true,
	}
	for i, r := range ranks {
		l.Ranks = append(l.Ranks, &falconv1.RankLaunch{
			Rank:      r,
			LocalRank: int32(i),
			Device:    "n1.g" + strconv.Itoa(i),
		})
	}
	return &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(10 * time.Second).UnixNano(),
		Body:           &falconv1.Command_Launch{Launch: l},
	}
}

// up is a launched process that makes its communicators known.
func (n *node) up(pid, rank, index int, generation uint64) *fakeSegment {
	s := n.dir.add(pid, rank, "n1.g"+strconv.Itoa(index))
	s.set(func() { s.control.Generation = generation })
	return s
}

func TestLaunchIsDoneWhenAllAreKnown(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		c := launchCommand(1, 2, 4, 5)
		n.Command(c)
		wait(time.Minute) // beyond the command's deadline
		n.expect(t, accepted)
		if len(m.started) != 2 || m.started[1].Argv[1] != "--resume" {
			t.Fatalf("started %v", m.started)
		}
		n.up(201, 4, 0, 2)
		wait(time.Second)
		n.up(202, 5, 1, 2)
		wait(time.Second)
		n.Command(c)
		wait(time.Second)
		got := n.expect(t, accepted, accepted, done, done)
		if len(got[1].Ranks) != 1 ||
			len(got[2].Ranks) != 2 ||
			got[2].Ranks[1].Rank != 5 ||
			len(m.started) != 2 {
			t.Fatalf("results %v, %d starts", got, len(m.started))
		}
		for _, st := range n.ship.states() {
			if st.Generation != 2 {
				t.Fatalf("state %v", st)
			}
		}
		m.end(201, "exited with status 9") // the agent collects its own
		n.dir.exits[201].die("")
		wait(2 * time.Second)
		states := n.ship.states()
		if st := states[len(states)-1]; st.Alive || st.Exit != "exited with status 9" {
			t.Fatalf("state %v", st)
		}
	})
}

func TestLaunchFailsWithItsFirstProcess(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		n.Command(launchCommand(1, 2, 4, 5))
		wait(time.Second)
		m.end(202, "exited with status 1")
		wait(time.Second)
		got := n.expect(t, accepted, refused)
		if !strings.Contains(got[1].Detail, "rank 5 (pid 202) exited with status 1 before") ||
			m.how[201] == "" {
			t.Fatalf("result %v, ended %v", got[1], m.how)
		}
	})
}

func TestLaunchThatNobodyComesUpFrom(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		n.Command(launchCommand(1, 2, 4, 5))
		wait(time.Second)
		n.up(201, 4, 0, 1) // of another generation: its environment did not come through
		n.up(202, 5, 0, 2) // on another device
		wait(launchWait)
		got := n.expect(t, accepted, expired)
		if !strings.Contains(got[1].Detail, "2 of 2 processes") ||
			m.how[201] == "" ||
			m.how[202] == "" {
			t.Fatalf("result %v, ended %v", got[1], m.how)
		}
	})
}

func TestLaunchBesideARunningJobIsRefused(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		n.dir.add(100, 3, "n1.g0")
		wait(time.Second)
		n.Command(launchCommand(1, 2, 4, 5))
		wait(time.Second)
		n.dir.exits[100].die("exited normally")
		wait(2 * time.Second)
		n.Command(launchCommand(2, 2, 4, 5))
		wait(time.Second)
		got := n.expect(t, refused, accepted)
		if !strings.Contains(got[0].Detail, "rank 3 (pid 100) of generation 0 still runs here") ||
			len(m.started) != 2 {
			t.Fatalf("results %v, %d starts", got, len(m.started))
		}
	})
}

func TestNodeThatCannotLaunch(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.Command(launchCommand(1, 2, 4))
		wait(time.Second)
		if got := n.expect(t, refused); !strings.Contains(got[0].Detail, "set launch.command") {
			t.Fatalf("result %v", got[0])
		}
	})
}

// Real processes outlive the agent that started them; the next one, which is
// given the command again, starts nothing.
func TestLaunchedProcessesOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	cfg := launchConfig()
	cfg.Node, cfg.ShmDir = "n1", dir
	cfg.Launch = launch.Config{
		Command:   []string{"/bin/sh", "-c", "echo $RANK >> $FALCON_SHM_DIR/starts; exec sleep 600"},
		NodeRanks: 2,
	}
	var pids []int
	for life := range 2 {
		ship := &fakeShip{}
		a := New(cfg, Options{Now: time.Now})
		a.Bind(ship)
		a.executor.Execute(launchCommand(1, 2, 0, 1), time.Now())
		a.pollProcesses(time.Now())
		if r := ship.results(); len(r) != 1 || r[0].Status != accepted {
			t.Fatalf("life %d: %v", life, r)
		}
		for rank := range 2 {
			pids = append(pids, a.launcher.State(rank).PID)
		}
		if life == 1 {
			t.Cleanup(a.launcher.End)
		}
		a.closeProcesses(time.Now())
	}
	if pids[0] != pids[2] || pids[1] != pids[3] {
		t.Fatalf("processes %v", pids)
	}
	for end := time.Now().Add(realPatience); ; time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dir, "starts"))
		if len(strings.Fields(string(text))) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("starts %q", text)
		}
	}
	if live, _, err := ring.Discover(dir, "j"); err != nil || len(live) != 0 {
		t.Fatalf("the record was taken for a process's file: %v, %v", live, err)
	}
}

// A rank is replaced beside others that go on: it is known when it parks, and
// then says which generation it is of.
func TestLaunchOfAProcessThatJoins(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		n.Command(launchCommand(1, 2, 4, 5))
		wait(time.Second)
		n.up(201, 4, 0, 2)
		n.up(202, 5, 1, 2)
		wait(time.Second)
		join := func(id, generation uint64) *falconv1.Command {
			c := launchCommand(id, generation, 5)
			c.GetLaunch().Join, c.GetLaunch().Resume = true, false
			c.GetLaunch().Ranks[0].LocalRank, c.GetLaunch().Ranks[0].Device = 1, "n1.g1"
			return c
		}
		n.Command(join(2, 3)) // the old process lives: it may be frozen
		wait(time.Second)
		m.end(202, "killed by signal 9 (SIGKILL)")
		n.dir.exits[202].die("")
		wait(2 * time.Second)
		n.Command(join(3, 4))
		wait(time.Second)
		e := m.started[len(m.started)-1].Env
		if len(m.started) != 3 ||
			!slices.Contains(e, "FALCON_JOIN=1") ||
			!slices.Contains(e, "FALCON_GENERATION=4") ||
			!slices.Contains(e, "LOCAL_WORLD_SIZE=4") {
			t.Fatalf("%d starts, environment %q", len(m.started), e)
		}
		s := n.up(203, 5, 1, 4)
		wait(time.Second)
		before := len(n.ship.results())
		s.joins(4)
		wait(10 * time.Millisecond)
		got := n.ship.results()
		last := got[len(got)-1]
		if len(got) != before+1 || last.Status != done || last.Ranks[0].Rank != 5 {
			t.Fatalf("results %v", got)
		}
		if got[2].Status != refused ||
			!strings.Contains(got[2].Detail, "rank 5 (pid 202) of generation 2 still runs here") {
			t.Fatalf("result %v", got[2])
		}
		m.end(201, "exited with status 4") // of the earlier generation, and still this agent's
		n.dir.exits[201].die("")
		wait(10 * time.Millisecond)
		if st := n.newest(4); st.Alive || st.Exit != "exited with status 4" {
			t.Fatalf("state %v", st)
		}
	})
}

func TestJoiningProcessThatEndsEarly(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		c := launchCommand(1, 3, 5)
		c.GetLaunch().Join = true
		n.Command(c)
		wait(time.Second)
		m.end(201, "exited with status 1")
		wait(100 * time.Millisecond)
		got := n.expect(t, accepted, refused)
		if !strings.Contains(got[1].Detail, "before it was parked to join the job") {
			t.Fatalf("result %v", got[1])
		}
	})
}

// Without ranks a stop means the whole node: what becomes known later too, but
// nothing that was launched since.
func TestStopOfAFailedLaunch(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		n.Command(launchCommand(1, 2, 4, 5))
		wait(time.Second)
		up := n.up(201, 4, 0, 2)
		up.set(func() {
			up.declare()
			up.control.GenerationNow = 2
		})
		wait(time.Second)
		n.order(2, time.Minute, stopCommand(3))
		if up.control.SuspendWanted != 3 ||
			up.recovery.stop != 3 ||
			m.how[202] == "" {
			t.Fatalf("suspended for %d, stopped for %d, unseen %q",
				up.control.SuspendWanted, up.recovery.stop, m.how[202])
		}
		n.Command(launchCommand(3, 3, 4, 5)) // before the last one is gone
		wait(time.Second)
		if len(m.started) != 2 {
			t.Fatalf("%d starts beside a process that is to end", len(m.started))
		}
		m.end(201, "exited normally")
		n.dir.exits[201].die("exited normally")
		wait(time.Second)
		if len(m.started) != 4 {
			t.Fatalf("%d starts", len(m.started))
		}
		fresh := n.up(203, 4, 0, 3)
		wait(time.Second)
		n.order(4, time.Minute, stopCommand(3))
		if fresh.recovery.stop != 0 || m.how[204] != "" {
			t.Fatal("what was launched since was ordered to end")
		}
	})
}
