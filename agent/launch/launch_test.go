package launch

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// fakeSystem starts numbers instead of processes.
type fakeSystem struct {
	specs  []Spec
	alive  map[int]bool
	how    map[int]string
	killed []int
	fail   error
	die    func(started int) // called after each start: the agent is killed there
}

func newFakeSystem() *fakeSystem {
	return &fakeSystem{alive: map[int]bool{}, how: map[int]string{}}
}

func (s *fakeSystem) Start(spec Spec) (Proc, error) {
	if s.fail != nil {
		return Proc{}, s.fail
	}
	s.specs = append(s.specs, spec)
	pid := 100 + len(s.specs)
	s.alive[pid] = true
	if s.die != nil {
		s.die(len(s.specs))
	}
	return Proc{PID: pid, Start: uint64(pid)}, nil
}

func (s *fakeSystem) Ended(p Proc) (string, bool) {
	return s.how[p.PID], !s.alive[p.PID]
}

func (s *fakeSystem) Kill(p Proc) {
	s.killed = append(s.killed, p.PID)
	delete(s.alive, p.PID)
}

func (s *fakeSystem) Place() string { return "here" }

func (s *fakeSystem) Find(assignment string) (Proc, bool) {
	for i, spec := range s.specs {
		if pid := 101 + i; s.alive[pid] && slices.Contains(spec.Env, assignment) {
			return Proc{PID: pid, Start: uint64(pid)}, true
		}
	}
	return Proc{}, false
}

var example = Config{
	Command: []string{
		"/bin/train", "--rank={rank}", "{local_rank}", "{resume}", "--of", "{world}",
		"g{generation}", "{device}", `{"json": 1}`,
	},
	Env: map[string]string{
		"MASTER_PORT": "29{generation}0",
		"PATH":        "/bin",
		"FALCON_JOB":  "gpt",
	},
	NodeRanks: 4,
}

func newLauncher(t *testing.T, sys System, dir string) *Launcher {
	t.Helper()
	return New(
		example,
		At{Node: "n1", Job: "gpt", ShmDir: dir},
		filepath.Join(dir, "record"),
		sys,
		slog.New(slog.DiscardHandler),
	)
}

func plan(generation uint64, ranks ...int) Plan {
	p := Plan{Generation: generation, World: 8, Resume: true}
	for i, r := range ranks {
		p.Ranks = append(p.Ranks, Rank{
			Rank:      r,
			LocalRank: i,
			Device:    falcon.NewDevice("n1", i),
		})
	}
	return p
}

func begin(t *testing.T, l *Launcher, p Plan, running ...Running) {
	t.Helper()
	if err := l.Begin(p, running); err != nil {
		t.Fatal(err)
	}
}

func TestWhatAProcessIsStartedWith(t *testing.T) {
	t.Setenv("RANK", "77")
	t.Setenv("NOTIFY_SOCKET", "/run/agent")
	t.Setenv("KEPT", "1")
	sys := newFakeSystem()
	dir := t.TempDir()
	begin(t, newLauncher(t, sys, dir), plan(2, 4, 5))
	got := sys.specs[1]
	want := []string{"/bin/train", "--rank=5", "1", "--resume", "--of", "8", "g2", "n1.g1", `{"json": 1}`}
	if !slices.Equal(got.Argv, want) || got.Dir != "/" || got.Log != os.DevNull {
		t.Fatalf("spec %+v", got)
	}
	for _, kv := range []string{
		"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "FALCON_DEVICE=n1.g1",
		"FALCON_GENERATION=2", "FALCON_JOB=gpt",
		"FALCON_NODE=n1", "FALCON_RESUME=1", "FALCON_SHM_DIR=" + dir,
		"MASTER_PORT=2920", "PATH=/bin", "KEPT=1",
	} {
		key, _, _ := strings.Cut(kv, "=")
		same := slices.DeleteFunc(slices.Clone(got.Env), func(e string) bool {
			return !strings.HasPrefix(e, key+"=")
		})
		if len(same) != 1 || same[0] != kv {
			t.Errorf("environment has %v, want %q once", same, kv)
		}
	}
	if slices.ContainsFunc(got.Env, func(e string) bool {
		return strings.HasPrefix(e, "NOTIFY_SOCKET=")
	}) {
		t.Error("the service manager's socket was handed on")
	}
	p := plan(3, 4)
	p.Resume = false
	sys2 := newFakeSystem()
	begin(t, newLauncher(t, sys2, t.TempDir()), p)
	if slices.Contains(sys2.specs[0].Argv, "--resume") ||
		len(sys2.specs[0].Argv) != len(want)-1 {
		t.Fatalf("argv %q", sys2.specs[0].Argv)
	}
}

func TestRepeatsStartNothing(t *testing.T) {
	sys := newFakeSystem()
	dir := t.TempDir()
	l := newLauncher(t, sys, dir)
	begin(t, l, plan(2, 0, 1))
	begin(t, l, plan(2, 0, 1), Running{PID: 101, Generation: 2})
	delete(sys.alive, 102)
	sys.how[102] = "exited with status 3"
	later := newLauncher(t, sys, dir) // another life of the agent
	begin(t, later, plan(2, 0, 1))
	later.Collect()
	s := later.State(1)
	if len(sys.specs) != 2 ||
		s.PID != 102 ||
		!s.Ended ||
		s.How != "exited with status 3" ||
		later.State(0).Ended {
		t.Fatalf("%d starts, state %+v", len(sys.specs), s)
	}
	if how, ok := later.How(102, 2); !ok || how != "exited with status 3" {
		t.Fatalf("how %q, %v", how, ok)
	}
	if _, ok := later.How(102, 1); ok {
		t.Fatal("told how a process of another generation ended")
	}
}

// The agent is killed after each number of starts, before it could write the
// process down: the next life starts what is missing, and nothing twice.
func TestKilledInTheMiddle(t *testing.T) {
	for at := 1; at <= 4; at++ {
		sys, dir := newFakeSystem(), t.TempDir()
		sys.die = func(started int) {
			if started == at {
				panic("killed")
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = newLauncher(t, sys, dir).Begin(plan(2, 0, 1, 2, 3), nil)
		}()
		sys.die = nil
		l := newLauncher(t, sys, dir)
		begin(t, l, plan(2, 0, 1, 2, 3))
		var ranks []string
		for _, s := range sys.specs {
			ranks = append(ranks, s.Argv[1])
		}
		if want := []string{"--rank=0", "--rank=1", "--rank=2", "--rank=3"}; !slices.Equal(ranks, want) {
			t.Fatalf("killed after %d: started %v", at, ranks)
		}
		for r := range 4 {
			if l.State(r).PID != 101+r {
				t.Fatalf("killed after %d: rank %d is %+v", at, r, l.State(r))
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	sys := newFakeSystem()
	dir := t.TempDir()
	l := newLauncher(t, sys, dir)
	begin(t, l, plan(5, 0, 1))
	other := plan(5, 0, 1)
	other.Ranks[1].Device = "n1.g3"
	twice := plan(6, 3, 3)
	local := plan(6, 3, 4)
	local.Ranks[1].LocalRank = 0
	device := plan(6, 3, 4)
	device.Ranks[1].Device = "n1.g0"
	foreign := plan(6, 3)
	foreign.Ranks[0].Device = "n2.g0"
	for name, c := range map[string]struct {
		plan Plan
		say  string
		live []Running
	}{
		"older":          {plan(4, 0, 1), "generation 4 is over", nil},
		"another plan":   {other, "something else", nil},
		"no generation":  {plan(0, 1), "generation above 0", nil},
		"too many":       {plan(6, 0, 1, 2, 3, 4), "node_ranks allows 1 to 4", nil},
		"none":           {plan(6), "0 ranks", nil},
		"beyond":         {plan(6, 8), "world of 8", nil},
		"a rank twice":   {twice, "named twice", nil},
		"a place twice":  {local, "local rank 0", nil},
		"a device twice": {device, "two ranks", nil},
		"another node":   {foreign, "not one of node n1", nil},
		"older processes": {
			plan(6, 0),
			"rank 7 (pid 9) of generation 0 still runs",
			[]Running{{PID: 9, Text: "rank 7 (pid 9)"}},
		},
	} {
		err := l.Begin(c.plan, c.live)
		if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v lacks %q", name, err, c.say)
		}
	}
	if len(sys.specs) != 2 || len(sys.killed) != 0 {
		t.Fatalf("%d starts, killed %v", len(sys.specs), sys.killed)
	}
	none := New(Config{}, At{Node: "n1"}, "r", sys, slog.New(slog.DiscardHandler))
	if err := none.Begin(plan(1, 0), nil); !errors.Is(err, ErrPlan) ||
		!strings.Contains(err.Error(), "launch.command") {
		t.Errorf("without a command: %v", err)
	}
}

// What a launch before left waiting for peers that never came is ended.
func TestNewGenerationEndsWhatNeverCameUp(t *testing.T) {
	sys := newFakeSystem()
	dir := t.TempDir()
	begin(t, newLauncher(t, sys, dir), plan(1, 0, 1))
	delete(sys.alive, 101)
	begin(t, newLauncher(t, sys, dir), plan(2, 0, 1))
	if !slices.Equal(sys.killed, []int{102}) || len(sys.specs) != 4 {
		t.Fatalf("killed %v, %d starts", sys.killed, len(sys.specs))
	}
}

func joining(generation uint64, rank, local int) Plan {
	return Plan{
		Generation: generation,
		World:      8,
		Join:       true,
		Ranks: []Rank{{
			Rank:      rank,
			LocalRank: local,
			Device:    falcon.NewDevice("n1", local),
		}},
	}
}

// Those that a process joins go on, across lives of the agent, and how they end
// is still known.
func TestJoin(t *testing.T) {
	sys := newFakeSystem()
	dir := t.TempDir()
	begin(t, newLauncher(t, sys, dir), plan(1, 4, 5, 6))
	delete(sys.alive, 102)
	l := newLauncher(t, sys, dir)
	begin(t, l, joining(3, 5, 1), Running{PID: 101, Rank: 4, Device: "n1.g0", Generation: 1}, Running{
		PID:        103,
		Rank:       6,
		Device:     "n1.g2",
		Generation: 1,
	})
	spec := sys.specs[3]
	if len(sys.killed) != 0 ||
		len(sys.specs) != 4 ||
		!slices.Contains(spec.Env, "FALCON_JOIN=1") ||
		!slices.Contains(spec.Env, "LOCAL_WORLD_SIZE=4") ||
		!slices.Contains(sys.specs[0].Env, "FALCON_JOIN=0") {
		t.Fatalf("killed %v, %d starts, %q", sys.killed, len(sys.specs), spec.Env)
	}
	l = newLauncher(t, sys, dir)
	begin(t, l, joining(3, 5, 1))
	delete(sys.alive, 103)
	sys.how[103] = "exited with status 7"
	l.Collect()
	how, ok := l.How(103, 1)
	if how != "exited with status 7" || !ok || len(sys.specs) != 4 {
		t.Fatalf("how %q, %d starts", how, len(sys.specs))
	}
	// The next fault takes the place of one that never parked, and of rank 6.
	begin(t, l, joining(4, 5, 1))
	if !slices.Equal(sys.killed, []int{104}) {
		t.Fatalf("killed %v", sys.killed)
	}
	begin(t, l, joining(5, 6, 2))
	got := len(l.rec.Older)
	if got != 2 || !slices.Equal(sys.killed, []int{104}) { // 101 and 105
		t.Fatalf("%d older, killed %v", got, sys.killed)
	}
	l.End() // the join failed: those that were to be joined go on
	if !slices.Equal(sys.killed, []int{104, 106}) {
		t.Fatalf("killed %v", sys.killed)
	}
	begin(t, l, plan(6, 0, 1)) // a whole restart: nothing is left
	if !slices.Equal(sys.killed, []int{104, 106, 101, 105}) {
		t.Fatalf("killed %v", sys.killed)
	}
}

func TestJoinRefusals(t *testing.T) {
	l := newLauncher(t, newFakeSystem(), t.TempDir())
	for _, r := range []Running{
		{Rank: 5, Device: "n1.g3", Text: "rank 5"},
		{Rank: 7, Device: "n1.g1", Text: "rank 7"},
	} {
		err := l.Begin(joining(3, 5, 1), []Running{r})
		if !errors.Is(err, ErrPlan) ||
			!strings.Contains(err.Error(), r.Text+" of generation 0 still runs here") {
			t.Errorf("%v: %v", r, err)
		}
	}
	begin(t, l, joining(3, 5, 1))
	again := joining(3, 5, 1)
	again.Join = false
	if err := l.Begin(again, nil); !errors.Is(err, ErrPlan) {
		t.Errorf("another plan: %v", err)
	}
}

// An agent that was updated knows what the one before has started.
// Numbers of another boot, or of another container's namespace, are other processes' here.
func TestProcessesOfAnotherPlaceAreNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	r := record{
		Plan: Plan{
			Generation: 3,
			World:      1,
			Ranks:      []Rank{{Rank: 0, Device: "n1.g0"}},
		},
		Procs: []Proc{{PID: 77, Start: 77}},
		Place: "elsewhere",
	}
	if err := writeRecord(path, r); err != nil {
		t.Fatal(err)
	}
	sys := &fakeSystem{alive: map[int]bool{77: true}, how: map[int]string{}}
	l := New(
		example,
		At{Node: "n1", Job: "gpt"},
		path,
		sys,
		slog.New(slog.DiscardHandler),
	)
	if left := l.EndUnseen(9, nil); left != 0 || len(sys.killed) > 0 {
		t.Errorf("%d are ended, killed %v", left, sys.killed)
	}
}

func TestRecordOfVersionOne(t *testing.T) {
	r, err := decodeRecord(spoilt(77))
	if err != nil || r.Procs[0].PID != 77 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := decodeRecord([]byte(`{"version":3,"plan":{"generation":1},"procs":[]}`)); err == nil {
		t.Fatal("a record of a later version was read")
	}
}

// An agent that takes an older one's place back reads what the newer one has added
// fields to.
func TestUnknownFieldsOfARecordAreIgnored(t *testing.T) {
	text := bytes.Replace(
		spoilt(77),
		[]byte(`{"version":1,`),
		[]byte(`{"version":2,"added_later":{"a":[1]},`),
		1,
	)
	r, err := decodeRecord(text)
	if err != nil || r.Procs[0].PID != 77 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := decodeRecord(append(text, "{}"...)); err == nil {
		t.Fatal("a record with something behind it was read")
	}
}

func TestFailedLaunchIsNotTakenUpAgain(t *testing.T) {
	sys := newFakeSystem()
	dir := t.TempDir()
	l := newLauncher(t, sys, dir)
	begin(t, l, plan(1, 0, 1))
	l.End()
	if !slices.Equal(sys.killed, []int{101, 102}) {
		t.Fatalf("killed %v", sys.killed)
	}
	for _, l := range []*Launcher{l, newLauncher(t, sys, dir)} {
		err := l.Begin(plan(1, 0, 1), nil)
		if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "has failed") {
			t.Fatal(err)
		}
	}
	sys.fail = errors.New("no such file")
	if err := l.Begin(plan(2, 0, 1), nil); !errors.Is(err, ErrStart) ||
		!strings.Contains(err.Error(), "rank 0: no such file") {
		t.Fatal(err)
	}
	sys.fail = nil
	if err := l.Begin(plan(2, 0, 1), nil); !errors.Is(err, ErrPlan) {
		t.Fatalf("begun again: %v", err)
	}
	begin(t, l, plan(3, 0, 1))
}

func TestRecordsThatAreNotTrusted(t *testing.T) {
	sys := newFakeSystem()
	for name, spoil := range map[string]func(path string) error{
		"open to others": func(p string) error { return os.Chmod(p, 0o644) },
		"a link": func(p string) error {
			return errors.Join(os.Rename(p, p+"x"), os.Symlink(p+"x", p))
		},
		"not JSON": func(p string) error {
			return os.WriteFile(p, []byte("{"), 0o600)
		},
		"init": func(p string) error {
			return os.WriteFile(p, spoilt(1), 0o600)
		},
		"a huge number": func(p string) error {
			return os.WriteFile(p, spoilt(1<<40), 0o600)
		},
	} {
		dir := t.TempDir()
		begin(t, newLauncher(t, sys, dir), plan(1, 0))
		starts := len(sys.specs)
		if err := spoil(filepath.Join(dir, "record")); err != nil {
			t.Fatal(err)
		}
		if err := newLauncher(t, sys, dir).Begin(plan(2, 0), nil); !errors.Is(err, ErrRecord) ||
			len(sys.specs) != starts {
			t.Errorf("%s: %v, %d more starts", name, err, len(sys.specs)-starts)
		}
	}
	l := New(
		example,
		At{Node: "n1"},
		filepath.Join(t.TempDir(), "absent", "record"),
		sys,
		slog.New(slog.DiscardHandler),
	)
	starts := len(sys.specs)
	if err := l.Begin(plan(1, 0), nil); !errors.Is(err, ErrRecord) || len(sys.specs) != starts {
		t.Errorf("without room for the record: %v", err)
	}
}

func spoilt(pid int) []byte {
	return fmt.Appendf(nil,
		`{"version":1,"plan":{"generation":1,"world":1,"ranks":[{"rank":0}]},"procs":[{"pid":%d,"start":1}]}`,
		pid)
}

func FuzzDecode(f *testing.F) {
	f.Add(spoilt(77))
	f.Add([]byte(`{"version":1,"procs":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeRecord(text)
		if err == nil &&
			(len(r.Procs) != len(r.Plan.Ranks) || len(r.Procs) > RanksMax || len(r.Older) > RanksMax) {
			t.Fatalf("accepted %+v", r)
		}
		for _, p := range r.Procs {
			if err == nil && (p.PID == 1 || p.PID < beingStarted) {
				t.Fatalf("accepted process %d", p.PID)
			}
		}
	})
}

func TestConfigurations(t *testing.T) {
	if err := example.CheckSame("FALCON_JOB", "other"); err == nil ||
		example.CheckSame("FALCON_JOB", "gpt") != nil ||
		example.CheckSame("X", "") != nil {
		t.Errorf("another job: %v", err)
	}
	if err := errors.Join(example.Check(), Config{}.Check()); err != nil {
		t.Fatal(err)
	}
	for say, c := range map[string]Config{
		"no command":       {NodeRanks: 2},
		"node_ranks is 0":  {Command: []string{"/bin/true"}},
		"node_ranks is 65": {Command: []string{"/bin/true"}, NodeRanks: 65},
		"launch.command":   {Command: []string{"python"}, NodeRanks: 1},
		"launch.dir":       {Command: []string{"/bin/true"}, NodeRanks: 1, Dir: "work"},
		"launch.log_dir":   {Command: []string{"/bin/true"}, NodeRanks: 1, LogDir: "."},
		"no name": {
			Command:   []string{"/bin/true"},
			NodeRanks: 1,
			Env:       map[string]string{"A=B": "1"},
		},
		"RANK is set by": {
			Command:   []string{"/bin/true"},
			NodeRanks: 1,
			Env:       map[string]string{"RANK": "1"},
		},
		"a zero byte": {Command: []string{"/bin/true", "a\x00b"}, NodeRanks: 1},
		"launch has 300 argu": {
			Command:   append([]string{"/bin/true"}, make([]string, 299)...),
			NodeRanks: 1,
		},
	} {
		err := c.Check()
		if err == nil ||
			!strings.Contains(err.Error(), say) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v lacks %q", c, err, say)
		}
	}
}
