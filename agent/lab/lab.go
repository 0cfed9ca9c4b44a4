package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	stragglerWait = 20 * time.Second // after the first rank ended, for the others
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
}

// Options are how to play a scenario.
type Options struct {
	Bin         string // folder of falcon-agent, falcon-trainer and lib/
	Seed        int64
	Hook        bool
	Marks       bool                                     // the trainer gives step marks
	Build       string                                   // version, for the report
	Unpaced     bool                                     // no modelled time: as fast as the host goes
	AgentConfig func(NodeSetup) (file string, err error) // writes it, names it
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
	records *records
	faults  *faults
	network *network

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
	rank   int
	line   *line
	exited bool
	err    error
	call   func() // a control request, run by the loop
}

type rankProcess struct {
	rank   falcon.Rank
	device falcon.Device
	cmd    *exec.Cmd
	exited bool
	err    error
	log    string
}

type agentNode struct {
	setup  NodeSetup
	config string
	pgid   atomic.Int64 // written when the node's first process starts
	cmd    *exec.Cmd    // owned by whoever starts the agent: Start, then keepAgent
}

// New claims a place, makes the silicon and the nodes' folders. The engine is
// started by the caller before Start; Dir says where its files go.
func New(sc Scenario, opt Options) (*Lab, error) {
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	if err := checkBin(opt); err != nil {
		return nil, err
	}
	p, err := claim()
	if err != nil {
		return nil, err
	}
	l := &Lab{sc: sc, opt: opt, place: p, spawn: newSpawner(), events: make(chan event, 256), records: newRecords(sc.Layout.Layout().World())}
	l.closing, l.stop = context.WithCancel(context.Background())
	l.status = Status{Scenario: sc.Name, Dir: p.dir, Iterations: sc.Iterations, RankPids: map[string]int{}, AgentPids: map[string]int{}, Faults: []string{}}
	if err := l.prepare(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func checkBin(opt Options) error {
	for _, f := range []string{"falcon-agent", "falcon-trainer", "lib/libnccl.so.2", "lib/libfalcon_hook.so"} {
		if _, err := os.Stat(filepath.Join(opt.Bin, f)); err != nil {
			return fmt.Errorf("lab: %s is missing in %s; run `make build` first", f, opt.Bin)
		}
	}
	return nil
}

func (l *Lab) prepare() error {
	peak, err := l.peakFlops()
	if err != nil {
		return err
	}
	if l.hw, err = createSilicon(l.statePath(), l.sc.Nodes, l.sc.gpusPerNode(), peak, l.sc.LinkMBs*1e6); err != nil {
		return err
	}
	if l.opt.Unpaced {
		l.hw.u32(offUnpaced, 1)
	}
	l.faults = newFaults(l.sc, l.hw)
	l.network = newNetwork(l.sc, l.hw, l.opt.Seed)
	for i := range l.sc.Nodes {
		if err := l.prepareNode(i); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(l.place.dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	l.control, err = listen(l)
	return err
}

func (l *Lab) prepareNode(i int) error {
	n := NodeSetup{
		Node: nodeName(i), Index: i, ShmDir: filepath.Join(l.place.shm, string(nodeName(i))),
		State: l.statePath(), NvmlPath: filepath.Join(l.opt.Bin, "lib", "libnvidia-ml.so.1"), Dir: l.place.dir,
	}
	for g := range l.sc.gpusPerNode() {
		n.Devices = append(n.Devices, falcon.NewDevice(n.Node, g))
	}
	if err := os.Mkdir(n.ShmDir, 0o700); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.network.create(&n); err != nil {
		return err
	}
	l.agents = append(l.agents, &agentNode{setup: n})
	return nil
}

func (l *Lab) statePath() string { return filepath.Join(l.place.dir, "state") }

// Dir is the lab's folder, removed by Close.
func (l *Lab) Dir() string { return l.place.dir }

// peakFlops asks the trainer how fast a GPU must be modelled so that a forward
// micro-batch takes forward_ms.
func (l *Lab) peakFlops() (float64, error) {
	args := append(l.shapeArgs(), "--print-peak")
	out, err := exec.Command(filepath.Join(l.opt.Bin, "falcon-trainer"), args...).Output()
	if err != nil {
		return 0, fmt.Errorf("lab: falcon-trainer --print-peak: %w", explain(err))
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil || !(v > 0) {
		return 0, fmt.Errorf("lab: falcon-trainer --print-peak printed %q, a positive number was wanted", strings.TrimSpace(string(out)))
	}
	return v, nil
}

func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

func (l *Lab) shapeArgs() []string {
	return []string{
		"--tp", strconv.Itoa(l.sc.Layout.TP), "--dp", strconv.Itoa(l.sc.Layout.DP), "--pp", strconv.Itoa(l.sc.Layout.PP),
		"--micro-batches", strconv.Itoa(l.sc.MicroBatches), "--iterations", strconv.Itoa(l.sc.Iterations),
		"--seed", strconv.FormatInt(l.opt.Seed, 10), "--fwd-ms", strconv.FormatFloat(l.sc.ForwardMs, 'g', -1, 64),
	}
}

// Spawn starts a process that dies with the lab: the engine. Its standard
// files are the caller's; it gets the lab's mark in its environment.
func (l *Lab) Spawn(cmd *exec.Cmd, sameGroup bool) error {
	cmd.Env = append(os.Environ(), envDir+"="+l.place.dir)
	pgid := 0
	if sameGroup {
		pgid = -1
	}
	return l.spawn.start(cmd, pgid)
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
	l.faults.before(0)
	l.wait.Add(1)
	go l.countNetwork()
	for r, d := range l.sc.Placement() {
		if err := l.startRank(falcon.Rank(r), d); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) logFile(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(l.place.dir, "logs", name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	return f, nil
}

func (l *Lab) startAgent(a *agentNode) error {
	log, err := l.logFile("agent-" + string(a.setup.Node) + ".log")
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	a.cmd = exec.Command(filepath.Join(l.opt.Bin, "falcon-agent"), "--config", a.config)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.Env = append(os.Environ(), envDir+"="+l.place.dir, "FALCON_LAB_STATE="+a.setup.State, "FALCON_LAB_NODE="+strconv.Itoa(a.setup.Index))
	cmd := a.cmd
	if err := l.spawn.start(cmd, a.group()); err != nil {
		return fmt.Errorf("lab: can't start the agent of %s: %w", a.setup.Node, err)
	}
	if a.group() == 0 {
		a.lead(cmd.Process.Pid)
	}
	l.setPid(func(s *Status) { s.AgentPids[string(a.setup.Node)] = cmd.Process.Pid })
	l.wait.Add(1)
	go l.keepAgent(a, cmd)
	return nil
}

// group is the node's process group, 0 before it has one.
func (a *agentNode) group() int { return int(a.pgid.Load()) }

// lead makes process pid the leader of the node's group.
func (a *agentNode) lead(pid int) { a.pgid.Store(int64(pid)) }

// keepAgent waits for the agent and starts it again, as a service manager
// would, until the lab closes.
func (l *Lab) keepAgent(a *agentNode, cmd *exec.Cmd) {
	defer l.wait.Done()
	_ = cmd.Wait()
	select {
	case <-l.closing.Done():
	case <-time.After(agentRestart):
	}
	if l.closing.Err() != nil {
		return
	}
	if l.startAgent(a) != nil { // the group is gone with its last process: lead a new one
		a.lead(0)
		_ = l.startAgent(a)
	}
}

func (l *Lab) startRank(r falcon.Rank, d falcon.Device) error {
	node := l.agents[int(r)/l.sc.gpusPerNode()]
	log, err := l.logFile(fmt.Sprintf("rank-%d.log", r))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(l.opt.Bin, "falcon-agent"), l.rankArgs()...)
	if !l.opt.Hook {
		cmd = exec.Command(filepath.Join(l.opt.Bin, "falcon-trainer"), l.trainerArgs()...)
	}
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), l.rankEnv(node, r, d)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.spawn.start(cmd, node.group()); err != nil {
		return fmt.Errorf("lab: can't start rank %d: %w", r, err)
	}
	p := &rankProcess{rank: r, device: d, cmd: cmd, log: log.Name()}
	l.ranks = append(l.ranks, p)
	l.setPid(func(s *Status) { s.RankPids[strconv.Itoa(int(r))] = cmd.Process.Pid })
	l.wait.Add(1)
	go l.followRank(p, out)
	return nil
}

func (l *Lab) rankArgs() []string {
	args := []string{"run", "--job", Job, "--hook", filepath.Join(l.opt.Bin, "lib", "libfalcon_hook.so"), "--", filepath.Join(l.opt.Bin, "falcon-trainer")}
	return append(args, l.trainerArgs()...)
}

func (l *Lab) trainerArgs() []string {
	args := append(l.shapeArgs(), "--rendezvous", filepath.Join(l.place.dir, "rendezvous"))
	if !l.opt.Marks {
		args = append(args, "--marks=off")
	}
	return args
}

func (l *Lab) rankEnv(n *agentNode, r falcon.Rank, d falcon.Device) []string {
	return []string{
		envDir + "=" + l.place.dir,
		"RANK=" + strconv.Itoa(int(r)), "WORLD_SIZE=" + strconv.Itoa(l.sc.Layout.Layout().World()), "LOCAL_RANK=" + strconv.Itoa(d.Index()),
		"FALCON_DEVICE=" + string(d), "FALCON_SHM_DIR=" + n.setup.ShmDir, "FALCON_JOB=" + Job,
		"FALCON_LAB_STATE=" + n.setup.State, "FALCON_LAB_NODE=" + strconv.Itoa(n.setup.Index),
		"LD_LIBRARY_PATH=" + filepath.Join(l.opt.Bin, "lib"), "FALCON_TEST_MB=" + strconv.Itoa(testWorkspaceMB),
	}
}

func (l *Lab) followRank(p *rankProcess, out io.Reader) {
	defer l.wait.Done()
	readLines(out, func(ln line) { l.post(event{rank: int(p.rank), line: &ln}) })
	err := p.cmd.Wait()
	l.post(event{rank: int(p.rank), exited: true, err: err})
}

// post hands an event to the loop; nothing blocks once the lab closes.
func (l *Lab) post(e event) {
	select {
	case l.events <- e:
	case <-l.closing.Done():
	}
}

func (l *Lab) setPid(f func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.status)
}

// SetEngine notes where the engine is, for status and for tests that kill it.
func (l *Lab) SetEngine(pid int, socket string) {
	l.setPid(func(s *Status) { s.EnginePid, s.Socket = pid, socket })
}
