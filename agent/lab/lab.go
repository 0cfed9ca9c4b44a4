package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failslow/falcon"
)

// Job is the name of the lab's training job.
const Job = "lab"

// Bounds of waiting for processes.
const (
	stragglerWait = 20 * time.Second // after the last rank that ended, for the others
	launchWait    = 2 * time.Minute  // for a job that was left to be started again
	recoverWait   = 4 * time.Minute  // from one rank's coming or going to the next, in a recovery
	decideWait    = time.Hour        // the same where a person decides: ranks that park give up before
	stopWait      = 5 * time.Second  // between asking and killing
	agentRestart  = time.Second      // as a service manager would
)

// testWorkspaceMB is what the hook reserves for tests on an emulated GPU: the
// lab's tests are small, and all GPUs share one machine's memory.
const testWorkspaceMB = 8

// NodeSetup is what an agent's configuration is made from.
type NodeSetup struct {
	Node     falcon.Node
	Index    int
	Devices  []falcon.Device
	ShmDir   string
	State    string // the emulated silicon
	NvmlPath string
	Sysfs    string            // the node's emulated NICs
	NICs     map[string]string // GPU to NIC, such as n1.g0 to n1.nic0
	Dir      string            // of the lab
	Launch   NodeLaunch
	Outputs  string // pattern of the files that keep what a rank prints, for the agent's configuration
}

// NodeLaunch is how the node's agent starts ranks for a launch order: the
// command with its words in braces still open, and what its environment adds.
// Command is empty where the lab can't follow such ranks.
type NodeLaunch struct {
	Command []string
	Env     map[string]string
	Dir     string // that they run in; empty = /
	Ranks   int    // that the node has room for
	Logs    string // folder for what they print

	Checkpoint string // where the newest is found, where the trainer does not report it
}

// Options are how to play a scenario.
type Options struct {
	Bin  string // folder of falcon-agent, falcon-trainer and lib/
	Seed int64
	Hook bool
	// NCCL's profiler plug-in in place of the hook: the job is only watched
	Plugin    bool
	Marks     bool   // the trainer gives step marks
	NoAdapter bool   // the trainer makes no call of falcon_job.h
	Build     string // version, for the report
	Attended  bool   // a person may decide what is done
	// faults last until ReleaseFaults, the job until it is stopped
	Hold        bool
	Unpaced     bool                                     // no modelled time: as fast as the host goes
	Train       *OwnTraining                             // a user's own command; nil = the lab's trainer
	AgentConfig func(NodeSetup) (file string, err error) // writes it, names it
	// AgentEnv adds to the environment of a node's agent: FALCON_LAB_SKEW shifts its
	// clock, FALCON_NO_PIDFD and FALCON_NO_EXIT_INFO make its kernel old. nil = nothing.
	AgentEnv func(NodeSetup) []string
}

// Lab is one running cluster.
type Lab struct {
	sc      Scenario
	opt     Options
	place   *place
	hw      *silicon
	spawn   *spawner
	agents  []*agentNode
	ranks   []*rankProcess
	events  chan event
	control *control
	logs    *rankLogs
	records *records
	faults  *faults
	network *network
	kills   []Kill
	stalls  stalls

	engineAway atomic.Int64 // how long the engine stays away after its next end, in ns; 0 = as usual
	clockOff   atomic.Int64 // of the engine's wall clock, in ns

	closing context.Context // done when Close begins
	stop    context.CancelFunc
	wait    sync.WaitGroup // every goroutine and child
	once    sync.Once
	mu      sync.Mutex // guards what Status reads
	status  Status
}

// Status is what `falcon lab status` shows.
type Status struct {
	Scenario   string         `json:"scenario"`
	Dir        string         `json:"dir"`
	Socket     string         `json:"socket"`
	Iteration  int64          `json:"iteration"`
	Iterations int            `json:"iterations"`
	RankPids   map[string]int `json:"rank_pids"`
	AgentPids  map[string]int `json:"agent_pids"`
	EnginePid  int            `json:"engine_pid"`
	Faults     []string       `json:"faults"` // in force now, such as "link n1-n2 bandwidth 0.12"
}

type event struct {
	proc   *rankProcess
	line   *line
	joined bool // proc was started by an agent, and is here
	exited bool
	err    error
	unixNs int64  // of an end
	call   func() // a control request, run by the loop
}

type agentNode struct {
	setup  NodeSetup
	config string
	pgid   atomic.Int64 // written when the node's first process starts
	lost   atomic.Bool  // the node was killed: nothing is started there again
	away   atomic.Int64 // how long the agent stays away after its next end, in ns; 0 = as usual
	cmd    *exec.Cmd    // owned by whoever starts the agent: Start, then keepAgent
}

// New claims a place, makes the silicon and the nodes' folders. The engine is
// started by the caller before Start; its files go to Dir.
func New(sc Scenario, opt Options) (*Lab, error) {
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	if err := checkBinaries(opt); err != nil {
		return nil, err
	}
	p, err := claimPlace()
	if err != nil {
		return nil, err
	}
	l := &Lab{
		sc:      sc,
		opt:     opt,
		place:   p,
		spawn:   newSpawner(),
		events:  make(chan event, 256),
		records: newRecords(sc.Layout.Layout().World()),
	}
	l.closing, l.stop = context.WithCancel(context.Background())
	l.status = Status{
		Scenario:   sc.Name,
		Dir:        p.dir,
		Iterations: sc.Iterations,
		RankPids:   map[string]int{},
		AgentPids:  map[string]int{},
		Faults:     []string{},
	}
	if err := l.prepareNodes(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func checkBinaries(opt Options) error {
	for _, f := range []string{
		"falcon-agent",
		"falcon-trainer",
		"lib/libnccl.so.2",
		"lib/libfalcon_hook.so",
	} {
		if _, err := os.Stat(filepath.Join(opt.Bin, f)); err != nil {
			return fmt.Errorf("lab: %s is missing in %s; run `make build` first", f, opt.Bin)
		}
	}
	return nil
}

func (l *Lab) prepareNodes() error {
	peak, err := l.peakFlops()
	if err != nil {
		return err
	}
	if l.hw, err = createSilicon(
		l.place.statePath(),
		l.sc.nodeCount(),
		l.sc.gpusPerNode(),
		peak,
		l.sc.LinkMBs*1e6,
	); err != nil {
		return err
	}
	if l.opt.Unpaced {
		l.hw.storeUint32(offUnpaced, 1)
	}
	l.faults = newFaults(l.sc, l.hw)
	if l.opt.Hold {
		holdScenario(l)
		l.faults.holdAll()
	}
	l.network = newNetwork(l.sc, l.hw, l.opt.Seed)
	for i := range l.sc.nodeCount() {
		if err := l.prepareNode(i); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(l.place.dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := announceWork(l.sc, l.place.dir); err != nil {
		return err
	}
	if l.logs, err = listenRanks(l); err != nil {
		return err
	}
	l.control, err = listenControl(l)
	return err
}

func (l *Lab) prepareNode(i int) error {
	n := NodeSetup{
		Node:     nodeNameOf(i),
		Index:    i,
		ShmDir:   filepath.Join(l.place.shm, string(nodeNameOf(i))),
		State:    l.place.statePath(),
		NvmlPath: filepath.Join(l.opt.Bin, "lib", "libnvidia-ml.so.1"),
		Dir:      l.place.dir,
		Outputs:  outputPattern(l.place.dir),
	}
	for g := range l.sc.gpusPerNode() {
		n.Devices = append(n.Devices, falcon.NewDevice(n.Node, g))
	}
	if err := os.Mkdir(n.ShmDir, 0o700); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if l.sc.Strangers {
		if err := inviteStrangers(l, n); err != nil {
			return err
		}
	}
	if err := l.network.createTree(&n); err != nil {
		return err
	}
	n.Launch = l.nodeLaunch(n)
	l.agents = append(l.agents, &agentNode{setup: n})
	return nil
}

// Dir is the lab's folder, removed by Close.
func (l *Lab) Dir() string { return l.place.dir }

// peakFlops asks the trainer how fast a GPU must be modelled so that a forward
// micro-batch takes forward_ms.
func (l *Lab) peakFlops() (float64, error) {
	if l.opt.Train != nil {
		return l.opt.Train.Peak, nil
	}
	args := append(l.shapeArgs(), "--print-peak")
	out, err := exec.Command(filepath.Join(l.opt.Bin, "falcon-trainer"), args...).Output()
	if err != nil {
		return 0, fmt.Errorf("lab: falcon-trainer --print-peak: %w", withStderr(err))
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil || !(v > 0) {
		return 0, fmt.Errorf("lab: falcon-trainer --print-peak printed %q, a positive number was wanted",
			strings.TrimSpace(string(out)))
	}
	return v, nil
}

// nodeLaunch is how this node's agent would start ranks: as the lab does, with
// their lines to the lab's socket.
func (l *Lab) nodeLaunch(n NodeSetup) NodeLaunch {
	if !l.opt.Hook {
		return NodeLaunch{} // without the hook they would not be seen to come
	}
	env := map[string]string{}
	for _, v := range l.nodeEnvironment(n) {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	lines := "unix:" + l.place.rankSocket()
	trainer := append(l.trainerCommand(), "--log", lines, "{resume}")
	dir := ""
	if t := l.opt.Train; t != nil {
		trainer, dir = t.Command, t.Dir
		for _, v := range t.environment(lines) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
	}
	command := append([]string{filepath.Join(l.opt.Bin, "falcon-agent")}, l.hookedCommand(trainer)...)
	out := NodeLaunch{
		Command: command,
		Env:     env,
		Dir:     dir,
		Ranks:   l.sc.gpusPerNode(),
		Logs:    filepath.Join(l.place.dir, "logs"),
	}
	if l.opt.NoAdapter {
		out.Checkpoint = filepath.Join(l.place.checkpoints(), "step-{iteration}-g*", "complete.json")
	}
	return out
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

func (l *Lab) shapeArgs() []string {
	args := []string{
		"--tp", strconv.Itoa(l.sc.Layout.TP),
		"--dp", strconv.Itoa(l.sc.Layout.DP),
		"--pp", strconv.Itoa(l.sc.Layout.PP),
		"--micro-batches", strconv.Itoa(l.sc.MicroBatches),
		"--iterations", strconv.Itoa(l.sc.Iterations),
		"--seed", strconv.FormatInt(l.opt.Seed, 10),
		"--fwd-ms", strconv.FormatFloat(l.sc.ForwardMs, 'g', -1, 64),
	}
	// S4 means the batch to shrink with the replicas
	if dropped, _ := l.sc.Policy["allow_drop"].(bool); !dropped {
		args = append(args,
			"--global-batch", strconv.Itoa(l.sc.Layout.DP*l.sc.MicroBatches),
		)
	}
	if l.sc.Layout.Zero > 0 {
		args = append(args,
			"--zero", strconv.Itoa(l.sc.Layout.Zero),
			"--zero-instances", strconv.Itoa(max(1, l.sc.Layout.Instances)),
		)
	}
	return args
}

// Spawn starts a process that dies with the lab: the engine. Its standard
// files are the caller's; it gets the lab's mark in its environment.
func (l *Lab) Spawn(cmd *exec.Cmd, sameGroup bool) error {
	cmd.Env = append(l.labEnvironment(), envClock+"="+filepath.Join(l.place.dir, clockFile))
	pgid := 0
	if sameGroup {
		pgid = -1
	}
	return l.spawn.startCommand(cmd, pgid)
}

// labEnvironment is the lab's own environment with its mark.
func (l *Lab) labEnvironment() []string {
	return append(os.Environ(), envDir+"="+l.place.dir)
}

// Start starts agents, then ranks.
func (l *Lab) Start() error {
	for _, a := range l.agents {
		file, err := l.opt.AgentConfig(a.setup)
		if err != nil {
			return err
		}
		a.config = file
		if err := l.startAgent(a); err != nil {
			return err
		}
	}
	l.applyDueFaults()
	l.wait.Go(l.countNetwork)
	for r, d := range l.sc.Placement() {
		if err := l.startRank(falcon.Rank(r), d); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) openLogFile(name string) (*os.File, error) {
	f, err := os.OpenFile(
		filepath.Join(l.place.dir, "logs", name),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND,
		0o600,
	)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	return f, nil
}

func (l *Lab) startAgent(a *agentNode) error {
	log, err := l.openLogFile("agent-" + string(a.setup.Node) + ".log")
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	a.cmd = exec.Command(
		filepath.Join(l.opt.Bin, "falcon-agent"),
		"--config", a.config,
	)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.Env = append(l.labEnvironment(),
		"FALCON_LAB_STATE="+a.setup.State,
		envNode+"="+strconv.Itoa(a.setup.Index),
	)
	if l.opt.AgentEnv != nil {
		a.cmd.Env = append(a.cmd.Env, l.opt.AgentEnv(a.setup)...)
	}
	a.cmd.Env = append(a.cmd.Env, "FALCON_LAB_CUT="+filepath.Join(l.place.dir, cutFile+string(a.setup.Node)))
	cmd := a.cmd
	if err := l.spawn.startCommand(cmd, a.processGroup()); err != nil {
		return fmt.Errorf("lab: can't start the agent of %s: %w", a.setup.Node, err)
	}
	if a.processGroup() == 0 {
		a.setGroupLeader(cmd.Process.Pid)
	}
	l.updateStatus(func(s *Status) {
		s.AgentPids[string(a.setup.Node)] = cmd.Process.Pid
	})
	l.wait.Go(func() { l.keepAgent(a, cmd) })
	return nil
}

// processGroup is the node's process group, 0 before it has one.
func (a *agentNode) processGroup() int {
	return int(a.pgid.Load())
}

// setGroupLeader makes process pid the leader of the node's group.
func (a *agentNode) setGroupLeader(pid int) {
	a.pgid.Store(int64(pid))
}

// keepAgent waits for the agent and starts it again, as a service manager
// would, until the lab closes.
func (l *Lab) keepAgent(a *agentNode, cmd *exec.Cmd) {
	_ = cmd.Wait()
	select {
	case <-l.closing.Done():
	case <-time.After(cmp.Or(time.Duration(a.away.Swap(0)), agentRestart)):
	}
	if l.closing.Err() != nil || a.lost.Load() {
		return
	}
	if l.startAgent(a) != nil { // the group is gone with its last process: lead a new one
		a.setGroupLeader(0)
		_ = l.startAgent(a)
	}
}

// postEvent hands an event to the loop; nothing blocks once the lab closes.
func (l *Lab) postEvent(e event) {
	select {
	case l.events <- e:
	case <-l.closing.Done():
	}
}

func (l *Lab) updateStatus(f func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.status)
}

// SetEngine notes where the engine is, for status and for tests that kill it.
func (l *Lab) SetEngine(pid int, socket string) {
	l.updateStatus(func(s *Status) { s.EnginePid, s.Socket = pid, socket })
}
