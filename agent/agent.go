package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/table"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
)

// Bounds and periods of the loop.
const (
	scanEvery  = 200 * time.Millisecond // between scans for new processes and changed states
	batchEvery = 200 * time.Millisecond // samples are collected at most this long before they are sent
	inboxMax   = 64                     // commands not yet executed; the engine repeats what is lost
	exitWait   = time.Second            // a dead process's exit status is asked for this long
	staleMin   = 5 * time.Second        // a hook without a heartbeat for this long is dead
)

// shipper is the stream to the engine; *ship.Shipper is one.
type shipper interface {
	Send(f *falconv1.AgentFrame)
	Beat(now time.Time, ranks []*falconv1.RankBeat, unseen []*falconv1.UnseenRank)
	// Ends are the processes' ends that the engine has not acknowledged.
	Ends() []*falconv1.RankState
	// Renew replaces the present stream by a new one.
	Renew()
	// Hears reports whether the engine has welcomed the present stream.
	Hears() bool
}

// Agent is one node's daemon. Build it with New, feed it the engine's frames
// with Command and Welcome, and let Run do the rest.
type Agent struct {
	node falcon.Node
	dir  Directory
	ship shipper
	log  *slog.Logger
	now  func() time.Time

	nicOf    func(falcon.Device) falcon.NIC
	proc     string // root of the kernel's files about processes
	hardware hardwareProbe
	launcher *launch.Launcher
	table    *table.Store

	drainEvery, beatEvery time.Duration

	executor  *act.Executor
	held      *hold // the pause in force, nil when none is
	inbox     chan *falconv1.Command
	welcomes  chan *falconv1.Welcome
	questions               // of the engine and of people
	wakeup    chan struct{} // holds one token when the loop is to poll at once

	processes processSet
	found     findings
	buf       *buffers
	samples   []falcon.Sample // not sent so far

	notes  notebook
	next   carryover
	unseen unseenRanks

	last struct{ ticked, scanned, polled, shipped, beaten, heard, held time.Time }
	seenOrders
	pollSoonBy time.Time // processes are polled every recoveryPollEvery until then

	working sync.WaitGroup // goroutines of orders in progress
	stored  *storedCheckpoint
}

// findings is what the scans of the directory have come to.
type findings struct {
	own     *Folder                    // of the agent's files
	ownBad  bool                       // it is missing and can't be made, and that was logged
	ignored map[string]bool            // files that are not this agent's, or unusable
	refused map[string]falcon.Unproven // of those, why, where it is to be said
	user    jobUser
	elastic restarters
	fails   bool // it can't be listed, and that was logged
}

// Options are what New needs beside the configuration.
type Options struct {
	Directory Directory // nil = the configured shm_dir
	Folder    *Folder   // for the agent's own files; nil = shm_dir, in tests
	// Probe reads the node's hardware; nil for none. It is called from a goroutine
	// of its own and may be slow.
	Probe func(now time.Time, pids map[falcon.Rank]int) *falconv1.AgentFrame
	// NIC returns the port that a device's traffic leaves by, "" while unknown;
	// nil for never. It must not block.
	NIC func(falcon.Device) falcon.NIC
	Log *slog.Logger
	// Launch replaces the machine that processes are started on, in tests.
	Launch launch.System
	// Parents replaces the processes above those of the job, in tests.
	Parents Parents
	// Old has the agent do without what newer kernels have, in tests and labs.
	Old OldKernel
	// Now is the agent's time, which must not step; nil = this process's.
	Now func() time.Time
	// Skew is by how much the agent's clock is ahead, on emulated nodes.
	Skew time.Duration
}

// New builds an agent. Bind gives it its stream before Run.
func New(cfg Config, opt Options) *Agent {
	if opt.Now == nil {
		opt.Now = clock.Now
	}
	now := func() time.Time { return opt.Now().Add(opt.Skew) }
	own := opt.Folder
	if own == nil {
		own = &Folder{
			shared: cfg.ShmDir,
			path:   cfg.ShmDir,
			job:    cfg.Job,
			node:   cfg.Node,
		}
	}
	a := &Agent{
		node:  falcon.Node(cfg.Node),
		dir:   opt.Directory,
		log:   opt.Log,
		now:   now,
		nicOf: opt.NIC,
		proc:  cfg.Host.Proc,
		hardware: hardwareProbe{
			read:  opt.Probe,
			every: milliseconds(cfg.TelemetryMs),
			now:   now,
		},
		drainEvery: milliseconds(cfg.DrainMs),
		beatEvery:  milliseconds(cfg.BeatMs),
		inbox:      make(chan *falconv1.Command, inboxMax),
		welcomes:   make(chan *falconv1.Welcome, 1),
		questions:  newQuestions(cfg, own.file(outputsFile)),
		wakeup:     make(chan struct{}, 1),
		processes:  newProcessSet(),
		found:      newFindings(cfg, own),
		buf:        newBuffers(),
		table:      table.New(cfg.RankTable),
	}
	if a.dir == nil {
		a.dir = newShmDir(cfg.ShmDir, cfg.Job, opt.Old)
	}
	if a.nicOf == nil {
		a.nicOf = func(falcon.Device) falcon.NIC { return "" }
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.found.elastic = newRestarters(opt.Parents, a.log)
	a.stored = newStoredCheckpoint(cfg.Launch.Checkpoint, a.log)
	a.unseen = newUnseenRanks(cfg.Host.Proc, a.node, cfg.Job, cfg.ShmDir)
	a.notes = newNotebook(own.file(followedFile), a.dir.Namespace())
	a.next = carryover{
		node:   cfg.Node,
		job:    cfg.Job,
		path:   own.file(handoverFile),
		most:   int64(cfg.SpoolMb)<<20 + handoverExtra,
		monoNs: a.dir.MonoNs,
	}
	at := launch.At{Node: a.node, Job: cfg.Job, ShmDir: cfg.ShmDir}
	a.launcher = launch.New(cfg.Launch, at, own.file(launchFile), opt.Launch, a.log)
	a.executor = act.New(a.startCommand, func(r *falconv1.CommandResult) {
		a.ship.Send(resultFrame(r))
	})
	return a
}

// Bind gives the agent its stream.
func (a *Agent) Bind(s shipper) {
	a.ship = s
}

// Command queues a command; it never blocks. What does not fit is forgotten,
// as the engine sends it again.
func (a *Agent) Command(c *falconv1.Command) {
	select {
	case a.inbox <- c:
	default:
		a.log.Warn(
			"too many commands at once, one was left for the engine to repeat",
			slog.Uint64("id", c.GetId()),
		)
	}
}

// Welcome announces a new stream; it never blocks.
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
	probing.Go(func() { a.hardware.probeLoop(ctx, a.ship.Send) })
	defer probing.Wait()
	go a.stored.searchLoop(ctx)
	probing.Go(func() { a.watchKernel(ctx, a.ship.Send, a.log) })
	defer func() { a.closeProcesses(a.now()) }()
	defer a.working.Wait()
	a.Start(a.now())
	timer := time.NewTimer(a.drainEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			a.noticeStop(a.now())
			a.tick(a.now())
		case <-a.wakeup: // at once: peers wait for a dead rank in vain
			a.noticeStop(a.now())
			a.pollProcesses(a.now())
		case w := <-a.welcomes:
			a.acceptWelcome(w)
			continue
		case q := <-a.questions.asks:
			a.noticeStop(a.now())
			a.pollProcesses(a.now())
			a.answerAsk(q)
		case q := <-a.questions.peeks:
			a.noteSigns(a.processes.living(), a.dir.MonoNs())
			a.questions.answerPeek(q, func() []string {
				return a.processes.callLines(a.proc, a.dir.MonoNs())
			}, a.ship.Send)
			continue
		case c := <-a.inbox:
			if !a.noticeStop(a.now()) {
				a.executor.Execute(c, a.now())
			}
			a.pollProcesses(a.now()) // a survey is answered, a test begins at once
		}
		timer.Reset(a.tickInterval(a.now()))
	}
}

// stoppedAfter is how long the loop stands still before its agent counts as one that
// was stopped.
const stoppedAfter = 10 * time.Second

// noticeStop reports whether the agent was stopped (SIGSTOP, a paused machine) until
// now. Commands that waited for it may be void by then, and their lives begin when they
// are executed: they are dropped, and the engine sends again what still holds.
func (a *Agent) noticeStop(now time.Time) bool {
	stopped := now.Sub(a.last.ticked)
	first := a.last.ticked.IsZero()
	a.last.ticked = now
	if first || stopped < stoppedAfter {
		return false
	}
	a.log.Warn("the agent was stopped: it begins a new stream", slog.Duration("for", stopped))
	for len(a.inbox) > 0 {
		<-a.inbox
	}
	a.ship.Renew()
	return true
}

// tickInterval is the time to the next tick.
func (a *Agent) tickInterval(now time.Time) time.Duration {
	switch {
	case a.held != nil:
		return min(heldPollEvery, a.drainEvery)
	case now.Before(a.pollSoonBy):
		return min(recoveryPollEvery, a.drainEvery)
	}
	return a.drainEvery
}

// tick polls the processes every drainEvery. In between, while the job is held or
// recovers, it steps the orders in progress alone.
func (a *Agent) tick(now time.Time) {
	if now.Sub(a.last.polled) >= a.drainEvery {
		a.pollProcesses(now)
		return
	}
	a.stepOrders(now)
}

// stepOrders steps what the engine ordered.
func (a *Agent) stepOrders(now time.Time) {
	if a.held != nil {
		a.held.stepRanks(now)
	}
	a.executor.Poll(now)
}

// acceptWelcome takes over the engine's epoch and pace, and has the stream begin with a beat: the
// engine has heard nothing since the agent asked for it.
func (a *Agent) acceptWelcome(w *falconv1.Welcome) {
	a.executor.Follow(w.GetEpoch(), w.GetEngine(), w.GetRecord())
	a.publish(a)
	a.last.beaten = time.Time{}
	if n := w.GetBeatPeriodMs(); n >= 50 && n <= 60_000 {
		a.beatEvery = milliseconds(int(n))
	}
}

// pollProcesses reads what the processes wrote, steps the orders, and sends what is due.
func (a *Agent) pollProcesses(now time.Time) {
	a.last.polled = now
	if now.Sub(a.last.scanned) >= scanEvery {
		a.last.scanned = now
		a.scanDirectory()
		keepStandbys(a, now)
	}
	for _, p := range a.processes.allProcesses() {
		a.pollProcess(p, now)
	}
	a.stepOrders(now)
	if len(a.samples) > 0 && now.Sub(a.last.shipped) >= batchEvery {
		a.flushSamples(now)
	}
	if now.Sub(a.last.beaten) >= a.processes.beatPeriod(a.beatEvery) {
		a.last.beaten = now
		watchClock(a.log)
		a.publish(a)
		a.ship.Beat(
			now.Add(clock.Process().Offset()),
			a.rankBeats(),
			a.unseen.report(),
		)
	}
}

// watchClock logs a step of the machine's wall clock, once. The agent's own time does
// not follow it; a beat has the wall clock's, so that the engine can say whose is wrong.
func watchClock(log *slog.Logger) {
	if step, stepped := clock.Process().Look(); stepped {
		log.Warn("clock stepped: the machine's wall clock was set; nothing depends on it",
			slog.Duration("by", step.By), slog.Duration("offset", step.Offset))
	}
}

// pollProcess drains one process, and detects its end.
func (a *Agent) pollProcess(p *process, now time.Time) {
	if p.dead {
		a.reapProcess(p, now)
		return
	}
	gone := a.hasExited(p)
	a.samples = p.drainRings(a.buf, a.samples)
	p.seg.Beat(p.keepsParked() && a.ship.Hears())
	p.iterations.publishPeriod(p.seg)
	a.suspendLateJoiner(p)
	a.announceChanges(p)
	switch err := p.seg.Err(); {
	case err != nil:
		a.log.Error(
			"left a process whose memory can't be read",
			slog.String("process", p.String()),
			slog.Any("err", err),
		)
		a.reportEnd(p, now, "its shared memory became unreadable")
	case gone && a.exitPending(p, now): // how it ended is known in a moment
	case gone:
		a.reportEnd(p, now, p.exitFromMark())
	}
}

// announceChanges sends a new rank, and a step in a recovery, at once: before the
// process's samples and its acknowledgement.
func (a *Agent) announceChanges(p *process) {
	if p.recovery.takeUnsent() {
		a.sendState(p)
	}
	if !p.ranks.takeUnsent() {
		return
	}
	a.log.Info(
		"a training process took another rank",
		slog.String("process", p.String()),
		slog.Uint64("order", p.ranks.newest.Order),
	)
	a.sendState(p)
	a.updatePids()
}

func (a *Agent) hasExited(p *process) bool {
	select {
	case <-p.exit.Gone():
		return true
	default:
		return false
	}
}

// sampleAge is how long ago the newest iteration ended that any process has reported: an
// agent that was away finds what the hook has kept for it.
func (a *Agent) sampleAge() time.Duration {
	newest := int64(0)
	for _, p := range a.processes.allProcesses() {
		newest = max(newest, p.iterations.endedNs)
	}
	return max(0, time.Duration(a.dir.MonoNs()-newest))
}

func (a *Agent) flushSamples(now time.Time) {
	if len(a.samples) > 0 {
		a.ship.Send(samplesFrame(a.samples, a.sampleAge()))
		a.samples = a.samples[:0]
	}
	a.last.shipped = now
}

// reportEnd reports a process's end at once, with how it ended when that is known.
func (a *Agent) reportEnd(p *process, now time.Time, how string) {
	p.dead = true
	p.deadline = now.Add(exitWait)
	a.launcher.Collect() // this agent's children
	if known, ok := p.exitReason(a.launcher); ok {
		how = known
	}
	if how != "" {
		p.deadline = now
	}
	a.flushSamples(now) // its last iterations come before its end
	st := p.endedState(a.node, how)
	if st != nil {
		a.sendEnd(st)
	}
	if how != "" {
		a.readWords(p, st)
	}
	a.log.Info(
		"a training process ended",
		slog.String("process", p.String()),
		slog.String("how", how),
		slog.Uint64("overwritten_unread", p.lost),
	)
	a.updatePids()
}

// readWords has what an ended process printed read, once: whether that says why depends on how it
// ended, which is known by then, or will not be.
func (a *Agent) readWords(p *process, end *falconv1.RankState) {
	if end == nil || p.read {
		return
	}
	p.read = true
	a.questions.readWords(p, end)
}

// sendEnd reports how a process ended. A launch asks later which ranks ended well.
func (a *Agent) sendEnd(st *falconv1.RankState) {
	a.ship.Send(rankFrame(st))
	if falconv1.ExitedWell(st.Exit) {
		a.notes.endedWell[launchedRank{int(st.Rank), st.Generation}] = true
	}
}

// reapProcess asks for a while how a process ended, then drops it and its file.
func (a *Agent) reapProcess(p *process, now time.Time) {
	if how, known := p.exitReason(a.launcher); known && now.Before(p.deadline) {
		if st := p.endedState(a.node, how); st != nil {
			a.sendEnd(st)
			a.readWords(p, st)
		}
		p.deadline = now
	}
	if now.Before(p.deadline) {
		return
	}
	if !p.read { // how it ended stays unknown
		a.readWords(p, p.endedState(a.node, ""))
	}
	a.dropProcess(p)
}

func (a *Agent) updatePids() {
	a.hardware.setPids(a.processes.pidsByRank())
}

func (a *Agent) closeProcesses(now time.Time) {
	if a.held != nil {
		a.held.releaseOnce(now) // no agent will be here to do it
	}
	for _, p := range a.processes.allProcesses() {
		a.samples = p.drainRings(a.buf, a.samples)
	}
	a.flushSamples(now)
	a.launcher.EndStandbys("")
	a.exportWork(now)
	a.notes.saveLast(now, a)
	for _, p := range a.processes.allProcesses() {
		p.exit.Close()
		if err := p.seg.Close(); err != nil {
			a.log.Warn("closing shared memory", slog.Any("err", err))
		}
	}
}
