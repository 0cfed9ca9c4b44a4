package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/agent/table"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds and periods of the loop.
const (
	scanEvery  = 200 * time.Millisecond // looks for new processes and changed states
	batchEvery = 200 * time.Millisecond // samples wait at most this long for company
	inboxMax   = 64                     // commands not yet taken up; the engine repeats what is lost
	exitWait   = time.Second            // a dead process's exit status is asked for this long
	staleMin   = 5 * time.Second        // a hook without a heartbeat for this long is dead
)

// shipper is the stream to the engine; *ship.Shipper is one.
type shipper interface {
	Send(f *falconv1.AgentFrame)
	Beat(now time.Time, ranks []*falconv1.RankBeat)
	// Ends are the processes' ends that the engine has not acknowledged.
	Ends() []*falconv1.RankState
	// Renew begins a new stream in the place of the present one.
	Renew()
}

// Agent is one node's daemon. Build it with New, feed it the engine's frames
// with Command and Welcome, and let Run do the rest.
type Agent struct {
	node     falcon.Node
	dir      Directory
	ship     shipper
	log      *slog.Logger
	probe    func(now time.Time, pids map[falcon.Rank]int) *falconv1.AgentFrame
	nicOf    func(falcon.Device) falcon.NIC
	launcher *launch.Launcher
	table    *table.Store
	proc     string // where the kernel tells of processes

	drainEvery, beatEvery, telemetryEvery time.Duration

	now func() time.Time

	desk     *act.Desk
	held     *hold // the pause in force, nil when none is
	inbox    chan *falconv1.Command
	welcomes chan *falconv1.Welcome
	roused   chan struct{} // holds one token when there is something to look at

	byPath  map[string]*process
	ignored map[string]bool // files that are not this agent's, or unusable
	blind   bool            // the directory can't be listed, and that was said
	buf     *buffers
	samples []falcon.Sample

	notes notebook
	next  succession

	last      struct{ turned, scanned, looked, shipped, beaten time.Time }
	suspended uint64    // newest suspension of the node, by this agent's word or an earlier one's
	urgentTil time.Time // looks come every recoverEvery until then

	working sync.WaitGroup // goroutines of orders in progress

	pids struct { // which the probe's goroutine reads
		sync.Mutex
		of map[falcon.Rank]int
	}
}

// Options are what New needs beside the configuration.
type Options struct {
	Directory Directory // nil = the configured shm_dir
	// Probe takes one look at the node's hardware; nil for none. It is called
	// from a goroutine of its own and may be slow.
	Probe func(now time.Time, pids map[falcon.Rank]int) *falconv1.AgentFrame
	// NIC tells the port that a device's traffic leaves by, "" while unknown;
	// nil for never. It must not block.
	NIC func(falcon.Device) falcon.NIC
	Log *slog.Logger
	// Launch replaces the machine that processes are started on, in tests.
	Launch launch.System
	// Old has the agent do without what newer kernels have, in tests and labs.
	Old OldKernel
	// Skew is by how much the agent's clock is ahead, on emulated nodes.
	Skew time.Duration
}

// New builds an agent. Bind gives it its stream before Run.
func New(cfg Config, opt Options) *Agent {
	a := &Agent{
		node: falcon.Node(cfg.Node), dir: opt.Directory, log: opt.Log, probe: opt.Probe, nicOf: opt.NIC,
		drainEvery: ms(cfg.DrainMs), beatEvery: ms(cfg.BeatMs), telemetryEvery: ms(cfg.TelemetryMs),
		inbox: make(chan *falconv1.Command, inboxMax), welcomes: make(chan *falconv1.Welcome, 1), roused: make(chan struct{}, 1),
		now:    func() time.Time { return time.Now().Add(opt.Skew) },
		byPath: map[string]*process{}, ignored: map[string]bool{}, buf: newBuffers(),
	}
	if a.dir == nil {
		a.dir = shmDir{path: cfg.ShmDir, job: cfg.Job, old: opt.Old}
	}
	if a.nicOf == nil {
		a.nicOf = func(falcon.Device) falcon.NIC { return "" }
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	at := launch.At{Node: a.node, Job: cfg.Job, ShmDir: cfg.ShmDir}
	a.table, a.proc = table.New(cfg.RankTable), cfg.Host.Proc
	a.notes.well = map[launchedRank]bool{}
	a.notes.path, a.notes.uid = filepath.Join(cfg.ShmDir, notebookName(cfg.Job, cfg.Node)), os.Geteuid()
	a.next = succession{
		node: cfg.Node, job: cfg.Job, path: filepath.Join(cfg.ShmDir, handoverName(cfg.Job, cfg.Node)), most: int64(cfg.SpoolMb)<<20 + handoverExtra, monoNs: a.dir.MonoNs,
	}
	a.launcher = launch.New(cfg.Launch, at, recordName(cfg.Job, cfg.Node), opt.Launch, a.log)
	a.desk = act.New(a.begin, func(r *falconv1.CommandResult) { a.ship.Send(resultFrame(r)) })
	return a
}

// Bind gives the agent its stream.
func (a *Agent) Bind(s shipper) { a.ship = s }

// Command queues a command; it never blocks. What does not fit is forgotten,
// as the engine sends it again.
func (a *Agent) Command(c *falconv1.Command) {
	select {
	case a.inbox <- c:
	default:
		a.log.Warn("too many commands at once, one was left for the engine to repeat", slog.Uint64("id", c.GetId()))
	}
}

// Welcome tells the agent of a new stream; it never blocks.
func (a *Agent) Welcome(w *falconv1.Welcome) {
	select {
	case <-a.welcomes:
	default:
	}
	select {
	case a.welcomes <- w:
	default:
	}
}

// Run follows the node's processes until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	var probing sync.WaitGroup
	if a.probe != nil {
		probing.Go(func() { a.probeLoop(ctx) })
	}
	defer probing.Wait()
	defer func() { a.closeAll(a.now()) }()
	defer a.working.Wait()
	a.Start(a.now())
	timer := time.NewTimer(a.drainEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			a.wakes(a.now())
			a.turn(a.now())
		case <-a.roused: // at once: peers wait for a dead rank in vain
			a.wakes(a.now())
			a.look(a.now())
		case w := <-a.welcomes:
			a.welcome(w)
			continue
		case c := <-a.inbox:
			if !a.wakes(a.now()) {
				a.desk.Take(c, a.now())
			}
			a.look(a.now()) // a survey is answered, a test begins at once
		}
		timer.Reset(a.pace(a.now()))
	}
}

// asleepAfter is how long the loop stands still before its agent counts as one that
// was stopped.
const asleepAfter = 10 * time.Second

// wakes reports whether the agent was stopped (SIGSTOP, a paused machine) until now.
// Commands that waited for it may be void by then, and their lives begin when they
// are taken: they are dropped, and the engine says again what still holds.
func (a *Agent) wakes(now time.Time) bool {
	slept := now.Sub(a.last.turned)
	first := a.last.turned.IsZero()
	a.last.turned = now
	if first || slept < asleepAfter {
		return false
	}
	a.log.Warn("the agent was stopped: it begins a new stream", slog.Duration("for", slept))
	for len(a.inbox) > 0 {
		<-a.inbox
	}
	a.ship.Renew()
	return true
}

// pace is the time to the next turn.
func (a *Agent) pace(now time.Time) time.Duration {
	switch {
	case a.held != nil:
		return min(hurryEvery, a.drainEvery)
	case now.Before(a.urgentTil):
		return min(recoverEvery, a.drainEvery)
	}
	return a.drainEvery
}

// turn looks at everything once every drainEvery, and in between, while the job
// is held or recovers, at the orders in progress alone.
func (a *Agent) turn(now time.Time) {
	if now.Sub(a.last.looked) >= a.drainEvery {
		a.look(now)
		return
	}
	a.attend(now)
}

// attend steps what the engine ordered.
func (a *Agent) attend(now time.Time) {
	if a.held != nil {
		a.held.step(now)
	}
	a.desk.Tick(now)
}

// begin is the desk's Starter.
func (a *Agent) begin(cmd *falconv1.Command, now, deadline time.Time) (act.Task, error) {
	switch body := cmd.Body.(type) {
	case *falconv1.Command_Profile:
		t, err := a.startProfile(body.Profile, now, deadline)
		if err != nil {
			a.ship.Send(profileFrame(&falconv1.Profile{Window: body.Profile.GetWindow(), Refused: err.Error()}))
			return nil, err
		}
		return t, nil
	case *falconv1.Command_Order:
		t, err := a.startOrder(body.Order, now, deadline)
		if err != nil {
			return nil, err
		}
		return t, nil
	case *falconv1.Command_Pause:
		return a.startPause(body.Pause, now)
	case *falconv1.Command_Launch:
		t, err := a.startLaunch(body.Launch, now)
		if err != nil {
			return nil, err
		}
		return t, nil
	case *falconv1.Command_Test:
		t, err := a.startTest(body.Test)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	return a.beginRecovery(cmd, now)
}

// beginRecovery begins what a recovery orders.
func (a *Agent) beginRecovery(cmd *falconv1.Command, now time.Time) (task act.Task, err error) {
	switch body := cmd.Body.(type) {
	case *falconv1.Command_Suspend:
		task, err = a.startSuspend(body.Suspend, now)
	case *falconv1.Command_Rejoin:
		task, err = a.startRejoin(body.Rejoin, now)
	case *falconv1.Command_Stop:
		task, err = a.startStop(body.Stop)
	case *falconv1.Command_Table:
		task, err = a.startTable(body.Table)
	default:
		return nil, errUnknown
	}
	if err != nil {
		return nil, err
	}
	return task, nil
}

// welcome takes over the engine's epoch and pace.
func (a *Agent) welcome(w *falconv1.Welcome) {
	a.desk.Fence(w.GetEpoch())
	if n := w.GetBeatPeriodMs(); n >= 50 && n <= 60_000 {
		a.beatEvery = ms(int(n))
	}
}

// look is one full turn of the loop.
func (a *Agent) look(now time.Time) {
	a.last.looked = now
	if now.Sub(a.last.scanned) >= scanEvery {
		a.last.scanned = now
		a.scan()
	}
	for _, p := range a.processes() {
		a.follow(p, now)
	}
	a.attend(now)
	if len(a.samples) > 0 && now.Sub(a.last.shipped) >= batchEvery {
		a.flush(now)
	}
	if now.Sub(a.last.beaten) >= a.beatEvery {
		a.last.beaten = now
		a.ship.Beat(now, a.beats())
	}
}

// follow drains one process and notices its end.
func (a *Agent) follow(p *process, now time.Time) {
	if p.dead {
		a.bury(p, now)
		return
	}
	gone := a.gone(p)
	a.samples = p.drain(a.buf, a.samples)
	p.seg.Beat()
	p.iterations.publishPeriod(p.seg)
	a.catchUp(p)
	a.announce(p)
	switch err := p.seg.Err(); {
	case err != nil:
		a.log.Error("left a process whose memory can't be read", slog.String("process", p.String()), slog.Any("err", err))
		a.die(p, now, "its shared memory became unreadable")
	case gone && a.leaving(p, now): // how it ended is known in a moment
	case gone:
		a.die(p, now, p.inOrder())
	}
}

// announce tells of a new rank, and of a step in a recovery, at once: its
// samples and its acknowledgement come behind.
func (a *Agent) announce(p *process) {
	if p.recovery.takeUnsent() {
		a.tell(p)
	}
	if !p.ranks.takeUnsent() {
		return
	}
	a.log.Info("a training process took another rank", slog.String("process", p.String()), slog.Uint64("order", p.ranks.newest.Order))
	a.tell(p)
	a.setPids()
}

func (a *Agent) gone(p *process) bool {
	select {
	case <-p.exit.Gone():
		return true
	default:
		return false
	}
}

func (a *Agent) flush(now time.Time) {
	if len(a.samples) > 0 {
		a.ship.Send(samplesFrame(a.samples))
		a.samples = a.samples[:0]
	}
	a.last.shipped = now
}

// die reports a process's end at once, with how it ended when that is known.
func (a *Agent) die(p *process, now time.Time, how string) {
	p.dead, p.deadline = true, now.Add(exitWait)
	a.launcher.Collect() // this agent's children
	if known, ok := p.howEnded(a.launcher); ok {
		how = known
	}
	if how != "" {
		p.deadline = now
	}
	a.flush(now) // its last iterations come before its end
	if st := p.ended(a.node, how); st != nil {
		a.tellEnd(st)
	}
	a.log.Info("a training process ended", slog.String("process", p.String()), slog.String("how", how), slog.Uint64("overwritten_unread", p.lost))
	a.setPids()
}

// tellEnd reports how a process ended. A launch asks later who has ended well.
func (a *Agent) tellEnd(st *falconv1.RankState) {
	a.ship.Send(rankFrame(st))
	if falconv1.ExitedWell(st.Exit) {
		a.notes.well[launchedRank{int(st.Rank), st.Generation}] = true
	}
}

// recordName is the file that says what this agent has started: one of its own
// for each job and node that share a directory.
func recordName(job, node string) string {
	return "falcon-launch." + ring.FileJob(job) + "." + ring.FileJob(node)
}

// bury asks how a process ended for a while, then lets go of it and its file.
func (a *Agent) bury(p *process, now time.Time) {
	if how, known := p.howEnded(a.launcher); known && now.Before(p.deadline) {
		if st := p.ended(a.node, how); st != nil {
			a.tellEnd(st)
		}
		p.deadline = now
	}
	if now.Before(p.deadline) {
		return
	}
	a.drop(p)
}

// processes is every process, in order of rank.
func (a *Agent) processes() []*process {
	all := make([]*process, 0, len(a.byPath))
	for _, p := range a.byPath {
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y *process) int {
		if d := cmp.Compare(x.rank, y.rank); d != 0 {
			return d
		}
		return cmp.Compare(x.path, y.path)
	})
	return all
}

// startedAs are the processes that live, by the ranks that they were started as.
func (a *Agent) startedAs() []launch.Running {
	var out []launch.Running
	for _, p := range a.alive() {
		out = append(out, launch.Running{PID: p.header.PID, Rank: p.header.Rank, Generation: p.status.Generation})
	}
	return out
}

func (a *Agent) setPids() {
	pids, order := map[falcon.Rank]int{}, map[falcon.Rank]uint64{}
	for _, p := range a.byPath {
		if _, twice := pids[p.rank]; p.rank < 0 || p.dead || (twice && order[p.rank] > p.ranks.newest.Order) {
			continue
		}
		pids[p.rank], order[p.rank] = p.header.PID, p.ranks.newest.Order
	}
	a.pids.Lock()
	a.pids.of = pids
	a.pids.Unlock()
}

func (a *Agent) closeAll(now time.Time) {
	if a.held != nil {
		a.held.letGo(now) // no agent will be here to do it
	}
	for _, p := range a.processes() {
		a.samples = p.drain(a.buf, a.samples)
	}
	a.flush(now)
	a.leave(now)
	a.notes.note(a)
	for _, p := range a.processes() {
		p.exit.Close()
		if err := p.seg.Close(); err != nil {
			a.log.Warn("closing shared memory", slog.Any("err", err))
		}
	}
}

// probeLoop looks at the hardware until ctx ends.
func (a *Agent) probeLoop(ctx context.Context) {
	ticker := time.NewTicker(a.telemetryEvery)
	defer ticker.Stop()
	for {
		a.pids.Lock()
		pids := maps.Clone(a.pids.of)
		a.pids.Unlock()
		if f := a.probe(a.now(), pids); f != nil {
			a.ship.Send(f)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
