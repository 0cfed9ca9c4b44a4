package launch

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// standbySystem keeps the other ends of the sockets of what it starts, and has memory.
type standbySystem struct {
	*fakeSystem
	lines    map[int]int // by process
	free     int
	unknown  bool
	resident int
}

func newStandbySystem(t *testing.T) *standbySystem {
	t.Helper()
	s := &standbySystem{
		fakeSystem: newFakeSystem(),
		lines:      map[int]int{},
		free:       1 << 20,
		resident:   700,
	}
	t.Cleanup(func() {
		for _, fd := range s.lines {
			_ = unix.Close(fd)
		}
	})
	return s
}

func (s *standbySystem) Start(spec Spec) (Proc, error) {
	p, err := s.fakeSystem.Start(spec)
	if err == nil && spec.Line != nil {
		s.lines[p.PID], err = unix.Dup(int(spec.Line.Fd()))
	}
	return p, err
}

func (s *standbySystem) Free() (int, bool) { return s.free, !s.unknown }

func (s *standbySystem) Resident(Proc) (int, bool) {
	return s.resident, true
}

// say is what a standby tells its agent.
func (s *standbySystem) say(t *testing.T, pid int, text string) {
	t.Helper()
	if err := unix.Send(s.lines[pid], []byte(text), unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
}

// order is what a standby was sent, and whether a log came with it.
func (s *standbySystem) order(t *testing.T, pid int) (standbyOrder, bool) {
	t.Helper()
	buf := make([]byte, 1<<20)
	files := make([]byte, 64)
	n, files0, _, _, err := unix.Recvmsg(
		s.lines[pid],
		buf,
		files,
		unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC,
	)
	if err != nil || n == 0 {
		return standbyOrder{}, false
	}
	var o standbyOrder
	if err := json.Unmarshal(buf[:n], &o); err != nil {
		t.Fatal(err)
	}
	got, err := unix.ParseSocketControlMessage(files[:files0])
	if err != nil || len(got) != 1 {
		t.Fatalf("no log came: %v", err)
	}
	fds, err := unix.ParseUnixRights(&got[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return o, len(fds) == 1
}

// die ends a standby as the kernel does: its socket closes with it.
func (s *standbySystem) die(pid int) {
	_ = unix.Close(s.lines[pid])
	delete(s.lines, pid)
	delete(s.alive, pid)
}

func standbyConfig(n int) Config {
	return Config{
		Command: []string{
			"/bin/falcon-agent", "run", "--", "/bin/python", "-m", standbyModule, "train.py",
			"--rank={rank}", "{resume}",
		},
		Env:       map[string]string{"MASTER_PORT": "29{generation}0", "PATH": "/bin"},
		NodeRanks: 4,
		Standby:   Standby{Processes: n},
	}
}

// standbyRig is a Launcher with a clock.
type standbyRig struct {
	*Launcher
	sys *standbySystem
	at  time.Time
}

func newStandbyRig(t *testing.T, cfg Config) *standbyRig {
	t.Helper()
	dir := t.TempDir()
	return standbyRigIn(cfg, newStandbySystem(t), dir)
}

func standbyRigIn(cfg Config, sys *standbySystem, dir string) *standbyRig {
	r := &standbyRig{sys: sys, at: time.Unix(1000, 0)}
	r.Launcher = New(
		cfg,
		At{Node: "n1", Job: "gpt", ShmDir: dir},
		filepath.Join(dir, "record"),
		sys,
		slog.New(slog.DiscardHandler),
	)
	r.pool.now = func() time.Time { return r.at }
	return r
}

// keep lets time pass, and standbys be kept.
func (r *standbyRig) keep(d time.Duration, spare bool) {
	for end := r.at.Add(d); r.at.Before(end); {
		r.at = r.at.Add(min(standbyLookGap, d))
		r.Collect()
		r.KeepStandbys(spare, true)
	}
}

// readyStandby starts one, which has imported everything.
func (r *standbyRig) readyStandby(t *testing.T) int {
	t.Helper()
	r.keep(10*time.Second, false)
	pid := 100 + len(r.sys.specs)
	r.sys.say(t, pid, `{"ready":true}`)
	r.keep(time.Second, false)
	if got := r.Standbys(); got.Ready != 1 {
		t.Fatalf("standbys %+v", got)
	}
	return pid
}

func joiners(generation uint64, ranks ...int) Plan {
	p := plan(generation, ranks...)
	p.Join = true
	return p
}

func environment(kvs []string) map[string]string {
	out := map[string]string{}
	for _, kv := range kvs {
		key, value, _ := strings.Cut(kv, "=")
		out[key] = value
	}
	return out
}

// A standby that has taken its order has what an ordinary process has.
func TestAStandbyBecomesWhatALaunchWouldStart(t *testing.T) {
	t.Setenv("RANK", "77")
	t.Setenv(standbyVariable, "9")
	r := newStandbyRig(t, standbyConfig(1))
	pid := r.readyStandby(t)
	started := r.sys.specs[0]
	for _, name := range ownVariables {
		if v, has := environment(started.Env)[name]; has && name != standbyVariable && name != "FALCON_NODE" {
			t.Errorf("a standby is started with %s=%s", name, v)
		}
	}
	if _, has := environment(started.Env)["MASTER_PORT"]; has ||
		!slices.Contains(started.Env, standbyVariable+"=3") {
		t.Errorf("a standby is started with %v", started.Env)
	}
	begin(t, r.Launcher, joiners(2, 5))
	order, log := r.sys.order(t, pid)
	if len(r.sys.specs) != 1 || !log || r.State(5).PID != pid {
		t.Fatalf("%d starts, state %+v", len(r.sys.specs), r.State(5))
	}
	if want := []string{"train.py", "--rank=5", "--resume"}; !slices.Equal(order.Args, want) {
		t.Errorf("arguments %q", order.Args)
	}
	is := environment(started.Env)
	maps.Copy(is, order.Env)
	delete(is, standbyVariable)
	if want := environment(r.environmentFor(
		os.Environ(),
		joiners(2, 5),
		joiners(2, 5).Ranks[0],
	)); !maps.Equal(is, want) {
		t.Errorf("it has\n%v, an ordinary process\n%v", is, want)
	}
	r.sys.say(t, pid, `{"taken":"x"}`)
	r.Collect()
	if len(r.pool.taking) != 0 || len(r.sys.killed) != 0 {
		t.Errorf("%d takeovers, killed %v", len(r.pool.taking), r.sys.killed)
	}
	r.at = r.at.Add(time.Hour)
	r.Collect()
	r.sys.die(pid)
	r.Collect()
	if len(r.sys.specs) != 1 || !r.State(5).Ended {
		t.Error("a rank that died was started again without an order")
	}
}

// Whatever becomes of the standby, one process becomes the rank.
func TestAnOrdinaryProcessInPlaceOfAStandby(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *standbyRig, pid int) // it is ordered
		after  func(r *standbyRig, pid int)
		killed bool
	}{
		"dead before": {before: func(r *standbyRig, pid int) {
			r.sys.die(pid)
		}},
		"dead afterwards": {after: func(r *standbyRig, pid int) {
			r.sys.die(pid)
		}},
		"stopped": {
			killed: true,
			after: func(r *standbyRig, _ int) {
				r.at = r.at.Add(takeWait - time.Millisecond)
				r.Collect()
				if len(r.sys.killed) > 0 {
					panic("it was not given its time")
				}
				r.at = r.at.Add(time.Millisecond)
			},
		},
		"answers nonsense": {
			killed: true,
			after: func(r *standbyRig, pid int) {
				_ = unix.Send(r.sys.lines[pid], []byte("what"), 0)
			},
		},
		"closes its socket": {
			killed: true,
			after: func(r *standbyRig, pid int) {
				_ = unix.Close(r.sys.lines[pid])
				delete(r.sys.lines, pid)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStandbyRig(t, standbyConfig(1))
			pid := r.readyStandby(t)
			if c.before != nil {
				c.before(r, pid)
			}
			begin(t, r.Launcher, joiners(2, 5))
			if c.after != nil {
				c.after(r, pid)
				r.Collect()
			}
			if c.killed && !slices.Contains(r.sys.killed, pid) {
				t.Errorf("killed %v", r.sys.killed)
			}
			r.Collect()
			if len(r.sys.specs) != 2 || r.State(5).PID != 102 || r.State(5).Ended {
				t.Fatalf("%d starts, state %+v", len(r.sys.specs), r.State(5))
			}
			rank := environment(r.sys.specs[1].Env)["RANK"]
			if rank != "5" || r.sys.specs[1].Line != nil {
				t.Errorf("an ordinary process of rank %q was started", rank)
			}
			r.Collect()
			if len(r.sys.specs) != 2 {
				t.Error("it was started twice")
			}
		})
	}
}

// What was killed may take a while to go: until then nothing else becomes the rank.
func TestNoSecondProcessWhileTheStandbyLives(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	pid := r.readyStandby(t)
	begin(t, r.Launcher, joiners(2, 5))
	slow := &slowToDie{standbySystem: r.sys}
	r.Launcher.sys = slow
	r.at = r.at.Add(takeWait)
	for range 3 {
		r.Collect()
	}
	if len(r.sys.specs) != 1 || slow.kills != 1 {
		t.Fatalf("%d starts, killed %d times", len(r.sys.specs), slow.kills)
	}
	r.sys.say(t, pid, `{"taken":"x"}`) // too late: it is being killed
	r.Collect()
	r.sys.die(pid)
	r.Collect()
	if len(r.sys.specs) != 2 {
		t.Fatalf("%d starts", len(r.sys.specs))
	}
}

type slowToDie struct {
	*standbySystem
	kills int
}

func (s *slowToDie) Kill(Proc) {
	s.kills++
}

func TestTwoRanksAndOneStandby(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	pid := r.readyStandby(t)
	begin(t, r.Launcher, joiners(2, 5, 6))
	order, _ := r.sys.order(t, pid)
	if len(r.sys.specs) != 2 ||
		order.Env["RANK"] != "5" ||
		environment(r.sys.specs[1].Env)["RANK"] != "6" {
		t.Fatalf("order %v, %d starts", order, len(r.sys.specs))
	}
	if _, again := r.sys.order(t, pid); again {
		t.Error("it was ordered twice")
	}
	begin(t, r.Launcher, joiners(2, 5, 6)) // the same command once more
	if len(r.sys.specs) != 2 {
		t.Error("ranks were started twice")
	}
}

// A launch of an older generation, or one that is refused, is given no standby.
func TestNoStandbyForALaunchThatIsRefused(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	begin(t, r.Launcher, joiners(3, 4))
	r.sys.die(101)
	pid := r.readyStandby(t)
	if err := r.Begin(joiners(2, 5), nil); err == nil {
		t.Fatal("an older generation was launched")
	}
	if err := r.Begin(joiners(4, 5), []Running{{Rank: 5, Generation: 1}}); err == nil {
		t.Fatal("a rank that runs was launched")
	}
	if _, ordered := r.sys.order(t, pid); ordered || r.Standbys().Ready != 1 {
		t.Error("the standby was used")
	}
}

// What has not said that it is a rank ends with its launch.
func TestATakeoverEndsWithItsLaunch(t *testing.T) {
	for name, end := range map[string]func(r *standbyRig){
		"failed": func(r *standbyRig) { r.End() },
		"the next generation": func(r *standbyRig) {
			_ = r.Begin(joiners(3, 6), nil)
		},
		"ordered to end": func(r *standbyRig) { r.EndUnseen(9, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newStandbyRig(t, standbyConfig(1))
			pid := r.readyStandby(t)
			begin(t, r.Launcher, joiners(2, 5))
			end(r)
			for range 3 {
				r.at = r.at.Add(takeWait)
				r.Collect()
			}
			again := slices.ContainsFunc(r.sys.specs[1:], func(s Spec) bool {
				return environment(s.Env)["RANK"] == "5"
			})
			if !slices.Contains(r.sys.killed, pid) || again {
				t.Errorf("killed %v, started again: %v", r.sys.killed, again)
			}
		})
	}
}

// An agent that is killed with an order under way leaves a record that names the process.
func TestTheRecordNamesAStandbyBeforeItsOrder(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	pid := r.readyStandby(t)
	begin(t, r.Launcher, joiners(2, 5))
	next := standbyRigIn(standbyConfig(1), r.sys, filepath.Dir(r.path))
	begin(t, next.Launcher, joiners(2, 5))
	if len(r.sys.specs) != 1 || next.State(5).PID != pid {
		t.Fatalf("%d starts, state %+v", len(r.sys.specs), next.State(5))
	}
	r.sys.die(pid) // without its agent it takes nothing
	next.Collect()
	if !next.State(5).Ended {
		t.Error("its end is not seen: the launch would wait for it")
	}
}

func TestStandbysAndMemory(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(2))
	r.sys.free = freeDefault + 100 // one does not fit
	r.keep(time.Minute, false)
	if len(r.sys.specs) != 0 {
		t.Fatalf("%d were started", len(r.sys.specs))
	}
	r.sys.free = freeDefault - 1
	r.keep(time.Minute, false)
	if got := r.Standbys(); got.Wanted != 2 || !strings.Contains(got.Why, "free_mb") {
		t.Errorf("%+v", got)
	}
	r.sys.free = 1 << 20
	pid := r.readyStandby(t)
	r.sys.free = freeDefault - 1
	r.keep(10*time.Second, false)
	if got := r.Standbys(); got.Ready != 0 ||
		!slices.Contains(r.sys.killed, pid) ||
		!strings.Contains(got.Why, "free_mb") {
		t.Errorf("%+v, killed %v", got, r.sys.killed)
	}
	r.sys.free = 1 << 20
	r.sys.unknown = true
	before := len(r.sys.specs)
	r.keep(time.Minute, false)
	if len(r.sys.specs) != before {
		t.Error("started without a knowledge of memory")
	}
}

func TestAStandbyThatIsTooLargeEnds(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	pid := r.readyStandby(t)
	r.sys.resident = mostDefault + 1
	r.keep(5*time.Second, false)
	got := r.Standbys()
	if !slices.Contains(r.sys.killed, pid) || !strings.Contains(got.Why, "most_mb") {
		t.Fatalf("%+v, killed %v", got, r.sys.killed)
	}
	r.keep(time.Hour, false)
	if n := len(r.sys.specs); n < 3 || n > 12 {
		t.Errorf("%d were started within an hour", n)
	}
}

func TestAStandbyThatNeverComesUpIsTriedSeldom(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	for range 3600 {
		r.keep(time.Second, false)
		for pid := range r.sys.lines {
			r.sys.die(pid)
		}
	}
	if n := len(r.sys.specs); n < 4 || n > 12 {
		t.Errorf("%d were started within an hour", n)
	}
	got := r.Standbys()
	if got.Ready != 0 || !strings.Contains(got.Why, "before it was ready") {
		t.Errorf("%+v", got)
	}
}

// A node without ranks keeps as many as it may be given; once it has ranks the rest ends.
func TestASpareKeepsOneForEachRank(t *testing.T) {
	r := newStandbyRig(t, standbyConfig(1))
	for range 60 {
		r.keep(time.Second, true)
		if n := len(r.sys.specs); n > 0 {
			r.sys.say(t, 100+n, `{"ready":true}`)
		}
	}
	if got := r.Standbys(); got.Ready != 4 || len(r.sys.specs) != 4 || got.ResidentMb != 2800 {
		t.Fatalf("%+v, %d starts", got, len(r.sys.specs))
	}
	begin(t, r.Launcher, joiners(2, 5, 6))
	if len(r.sys.specs) != 4 {
		t.Fatalf("%d starts", len(r.sys.specs))
	}
	r.keep(time.Second, false)
	if got := r.Standbys(); got.Ready != 1 || got.Wanted != 1 {
		t.Errorf("%+v", got)
	}
	r.EndStandbys("the job has finished")
	if got := r.Standbys(); got.Ready != 0 || got.Why != "the job has finished" {
		t.Errorf("%+v", got)
	}
}

func TestWhatAStandbyNeedsOfTheConfiguration(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"": func(*Config) {},
		"must start the script": func(c *Config) {
			c.Command = []string{"/bin/train"}
			c.Standby.Processes = 1
		},
		"depends on the rank": func(c *Config) {
			c.Command = slices.Insert(c.Command, 1, "{device}")
		},
		"from -1 (none) to":   func(c *Config) { c.Standby.Processes = 5 },
		"free_mb":             func(c *Config) { c.Standby.FreeMb = -1 },
		"no name of a module": func(c *Config) { c.Standby.Imports = []string{"a,b"} },
	} {
		c := standbyConfig(1)
		change(&c)
		err := c.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	none := standbyConfig(-1)
	none.Command = slices.Insert(none.Command, 1, "{device}")
	if err := none.Check(); err != nil || none.standbys() != 0 {
		t.Errorf("%v", err)
	}
	if usual := standbyConfig(0); usual.standbys() != 1 {
		t.Error("none is kept by default")
	}
	if example.standbys() != 0 {
		t.Error("a command that is no standby has some")
	}
}

func TestFreeMemory(t *testing.T) {
	m := machine{proc: "/proc"}
	self := Proc{PID: os.Getpid()}
	if free, known := m.Free(); !known || free <= 0 {
		t.Errorf("free %d, %v", free, known)
	}
	if st, err := os.ReadFile("/proc/self/stat"); err == nil {
		_, rest, _ := strings.Cut(string(st), ") ")
		_, _ = fmt.Sscan(strings.Fields(rest)[19], &self.Start)
	}
	if mb, known := m.Resident(self); !known || mb <= 0 || mb > 1<<20 {
		t.Errorf("resident %d, %v", mb, known)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("memory.max", "max\n")
	write("memory.current", "700\n")
	if _, bounded := cgroupFree(dir); bounded {
		t.Error("a cgroup without a bound has one")
	}
	write("memory.max", "1000\n")
	write("memory.stat", "anon 5\ninactive_file 100\n")
	if left, bounded := cgroupFree(dir); !bounded || left != 400 {
		t.Errorf("%d left, %v", left, bounded)
	}
	if got := ownCgroup("1:name=x:/a\n0::/b/c\n"); got != "/b/c" {
		t.Errorf("cgroup %q", got)
	}
}
