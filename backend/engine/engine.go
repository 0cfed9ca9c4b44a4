package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/backend/vote"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
)

// Bounds of the loop.
const (
	arrivalsMax = 4096 // frames that wait for the engine; agents keep the rest and send it again
	requestsMax = 256  // console calls that wait
	batchMax    = 512  // arrivals taken into one batch
	// how long further arrivals are taken into it: profiles come by the thousand
	batchFor = 5 * time.Millisecond
	// ranks from which a window's profiles are compared aside: some 10 ms of the loop
	compareAside = 1000
	// rounds of Ready in one turn of the loop; more is a defect of a machine
	settleMax = 32
)

// Engine is the loop and what it owns. Fields below the channels belong to
// Run's goroutine.
type Engine struct {
	*shared

	id       string
	arrivals chan arrival
	requests chan func()
	done     chan struct{} // closed when Run has ended

	status      *jobStatus
	intake      *sampleIntake
	readings    *deviceReadings
	describer   *jobDescriber
	views       *stateViews
	arbiter     *arbiter
	links       *linkWatch
	validations *validationQueue
	delivery    *planDelivery
	recoveries  *recoveryDriver
	policies    *policyKeeper
	demands     *recoveryDemands
	fencer      *nodeFencer
	decisions   *actionDecisions
	restart     *restartDriver
	hub         *hub
	writer      *journalWriter
	measured    *measurements
	hangs       *hangWatch
	history     *jobHistory
	probes      *probeKeeper
	paces       *paceKeeper
	triage      *triageStore
	peeks       *peekRequests
	kernel      *kernelNotes
}

// New restores the engine from its journal. Run must be called to make it work.
func New(cfg Config) (*Engine, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Fault == nil {
		cfg.Fault = func(string) error { return nil }
	}
	cfg.Detect.CompareAside = cmp.Or(cfg.Detect.CompareAside, compareAside)
	if cfg.Detector == nil {
		cfg.Detector = detect.New(cfg.Detect)
	}
	if cfg.Planner == nil {
		cfg.Planner = mitigate.New(cfg.Mitigate)
	}
	if cfg.Recoverer == nil {
		cfg.Recoverer = recovery.New(cfg.Recovery.Machine)
	}
	if cfg.Policy.Mode == "" {
		cfg.Policy.Mode = falcon.ModeObserve
	}
	mem, refused, err := restore(cfg.Journal)
	if err != nil {
		return nil, err
	}
	gap := cfg.beginClock(mem)
	e := assemble(cfg, mem)
	e.logGap(gap)
	e.alarmRefused(refused)
	return e, e.begin()
}

func assemble(cfg Config, mem *journalState) *Engine {
	s := newShared(cfg, mem)
	e := &Engine{
		shared:   s,
		id:       cmp.Or(cfg.ID, newID()),
		arrivals: make(chan arrival, arrivalsMax),
		requests: make(chan func(), requestsMax),
		done:     make(chan struct{}),
		hub:      newHub(mem.events, mem.EventSeq),
		readings: newDeviceReadings(),
		paces:    &paceKeeper{shared: s},
		links:    newLinkWatch(cfg.beatPeriod(), s.rec, s.oplog),
	}
	e.intake = &sampleIntake{shared: s, paces: e.paces}
	e.intake.beginEpoch(falcon.NoIteration)
	e.status = &jobStatus{shared: s, intake: e.intake}
	e.history = &jobHistory{shared: s, status: e.status}
	e.probes = &probeKeeper{shared: s}
	e.triage = &triageStore{shared: s}
	e.peeks = newPeekRequests(s)
	e.learner.engine = e
	e.kernel = newKernelNotes(s)
	e.describer = &jobDescriber{shared: s, intake: e.intake}
	e.validations = &validationQueue{
		shared: s,
		machine: validate.New(cfg.Validation.machine(), func() uint64 {
			return s.batch.commandID(cfg.Now())
		}),
	}
	e.arbiter = &arbiter{
		shared:      s,
		validations: e.validations,
		describer:   e.describer,
		status:      e.status,
		intake:      e.intake,
	}
	e.hangs = newHangWatch(s, e.arbiter, e.status)
	e.writer = &journalWriter{shared: s, arbiter: e.arbiter, hub: e.hub}
	e.measured = &measurements{
		shared:   s,
		readings: e.readings,
		silicon:  newSiliconWatch(s),
	}
	e.views = &stateViews{
		shared:      s,
		id:          e.id,
		status:      e.status,
		intake:      e.intake,
		readings:    e.readings,
		describer:   e.describer,
		validations: e.validations,
		links:       e.links,
		hangs:       e.hangs,
		kernel:      e.kernel,
		silicon:     e.measured.silicon,
		paces:       e.paces,
		waits:       &e.writer.held,
		dirty:       true,
		// a console must not take a new engine's snapshot for an old one's
		version: uint64(cfg.Now().UnixMilli()),
	}
	e.assembleDrivers()
	e.validations.obstacle, e.validations.released = e.arbiter.testObstacle, e.delivery.resume
	e.validations.changed = func() { e.views.dirty = true }
	for _, o := range e.orders.open() {
		o.quiet = cfg.Now().Add(vote.Wait)
	}
	return e
}

// assembleDrivers makes the parts that carry out what is decided.
func (e *Engine) assembleDrivers() {
	e.decisions = &actionDecisions{shared: e.shared}
	e.fencer = &nodeFencer{shared: e.shared}
	e.demands = &recoveryDemands{
		shared:    e.shared,
		status:    e.status,
		describer: e.describer,
	}
	e.policies = &policyKeeper{shared: e.shared}
	e.restart = &restartDriver{
		shared:     e.shared,
		describer:  e.describer,
		views:      e.views,
		beginEpoch: e.beginEpoch,
	}
	e.restart.adopt(e.state.restart)
	e.delivery = &planDelivery{
		shared:      e.shared,
		arbiter:     e.arbiter,
		describer:   e.describer,
		validations: e.validations,
		views:       e.views,
		left:        e.restart.processesLeave,
	}
	e.recoveries = &recoveryDriver{
		shared:     e.shared,
		arbiter:    e.arbiter,
		intake:     e.intake,
		links:      e.links,
		restart:    e.restart,
		hangs:      e.hangs,
		rejoinAcks: map[falcon.Rank]rejoinAck{},
		loggedOnce: map[string]bool{},
		back:       comebacks{},
		tables:     newTableBook(),
	}
	e.views.rejoinAcks = e.recoveries.rejoinAcks
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// begin makes the start durable, and begins to learn from the nodes. The machines get what
// the journal kept when that is over.
func (e *Engine) begin() error {
	now := e.cfg.Now()
	e.learner.begin(now, e.id)
	e.batch.reserve(now)
	e.markClock(now)
	e.policies.adoptConfigured(now)
	e.plan.Step(now, mitigate.SetPolicy{Policy: e.state.policy.Policy}) // it is shown, and can be changed
	e.recoveries.fenceStore(e.state.fences.newest)
	if e.cfg.TrustJournal {
		e.learner.learnsOn(now)
	}
	if err := e.settleMachines(now); err != nil {
		return err
	}
	e.writer.compact(now, min(e.cfg.Retention.snapshotBytes(), compactAtStart))
	return nil
}

// restoreMachines gives the machines back what the journal kept, in the order that they
// ask for: job, incidents and actions, policy. What they decide on it is settled with the turn.
func (e *Engine) restoreMachines(now time.Time) {
	if len(e.state.job.Placement) > 0 {
		e.describer.announce(now, e.state.job)
	}
	open := e.state.unfinished()
	if len(open) > 0 || e.state.baseline.Ms > 0 || e.state.NextIncident > 1 {
		e.det.Step(now, detect.Restored{
			Incidents: open,
			Baseline:  e.state.baseline.Ms,
			NextID:    e.state.NextIncident,
		})
	}
	// first: nothing below may act against it
	e.plan.Step(now, mitigate.SetPolicy{Policy: e.state.policy.Policy})
	if len(e.state.actions) > 0 ||
		e.state.NextOrder > 1 ||
		len(e.state.impacts) > 0 {
		e.plan.Step(now, mitigate.Restored{
			Actions:     e.state.actions,
			NextOrder:   e.state.NextOrder,
			OverheadsMs: e.state.overheads,
			Impacts:     e.state.impactList(),
		})
	}
	for _, v := range e.state.incidents {
		e.plan.Step(now, mitigate.Incident{Incident: v})
		if speeds := e.state.speeds[v.ID]; v.Open() && len(speeds.SelfMs) > 0 {
			e.plan.Step(now, mitigate.Speeds(speeds))
		}
	}
	for _, a := range e.state.actions {
		e.restoreActed(now, a)
	}
	e.restart.restore(now)
	e.det.Step(now, detect.Culprits{Past: e.state.named()})
	e.validations.restore(now)
	e.recoveries.restore(now)
}

// restoreActed gives the detector what the planner's actions did to the job: it
// may have been lost between the journal and the detector.
func (e *Engine) restoreActed(now time.Time, a falcon.Action) {
	v, known := e.state.incident(a.Incident)
	if !known || v.State == falcon.IncidentClosed {
		return
	}
	acted := detect.Acted{
		Incident:     a.Incident,
		Rung:         a.Rung,
		Iteration:    a.AppliedIteration,
		MicroBatches: a.MicroBatches,
	}
	if a.Rung == falcon.RungS3 || a.Rung == falcon.RungS4 {
		acted.Placement = slices.Clone(e.state.job.Placement) // the newest: older ones are superseded
	}
	switch a.State {
	case falcon.ActionApplied, falcon.ActionKept, falcon.ActionReverting:
		e.det.Step(now, acted)
	case falcon.ActionReverted:
		acted.Iteration = a.RevertedIteration
		acted.Reverted = true
		acted.MicroBatches = e.state.job.MicroBatches
		e.det.Step(now, acted)
	}
}

// Run is the loop; it ends with ctx (nil) or when something can't be made
// durable (the error). It must be called once.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	defer e.hub.close()
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-e.requests:
			f()
		case a := <-e.heard():
			e.handleArrival(a, e.cfg.Now())
			e.drain()
		case <-ticker.C:
			if err := e.retry(e.cfg.Now()); err != nil {
				return err
			}
			e.onTick(e.cfg.Now())
		}
		if err := e.finish(e.cfg.Now()); err != nil {
			return err
		}
	}
}

// drain takes what else has arrived into the same batch: one fsync for all.
func (e *Engine) drain() {
	begun := e.cfg.Now()
	for range batchMax {
		now := e.cfg.Now()
		if now.Sub(begun) > batchFor {
			return
		}
		select {
		case a := <-e.arrivals:
			e.handleArrival(a, now)
		default:
			return
		}
	}
}

func (e *Engine) onTick(now time.Time) {
	if e.writer.held.round != nil {
		return
	}
	e.links.noteTick(now)
	e.watchClock(now)
	e.oplog.tellNews(now)
	e.recoveries.logStoreNews()
	if e.learner.learnsOn(now) {
		return
	}
	e.learner.goAboveRival(now)
	e.intake.release(now)
	if e.describer.recheck {
		e.describe(now)
	}
	e.det.Tick(now)
	e.measured.newSpeeds = true // a late window ends with the tick
	e.plan.Tick(now)
	e.validations.dropSilent(now)
	e.validations.machine.Tick(now)
	e.recoveries.reportProgress(now)
	e.recoveries.liftPaused(now)
	e.rec.Tick(now)
	e.cluster.send(e.outbox.NextBatch(now)) // of a rank table
	e.validations.tryAsks(now)
	e.delivery.judge(now)
	e.delivery.sendWaiting(now)
	e.restart.tick(now)
	e.fencer.follow(now)
	e.describer.refreshMeans(now)
	e.history.tick(now)
	e.paces.tick(now)
	e.views.dirty = e.hangs.tick(now) || e.views.dirty
}

// readInLoop runs f in the loop and waits until what it led to is durable. It is for
// what reads: it is answered also while nothing can be made durable.
func (e *Engine) readInLoop(ctx context.Context, f func()) error {
	return e.inTurn(ctx, f, false)
}

// decideInLoop is readInLoop for what decides: it is refused while the journal can't
// be written, and otherwise returns f's own refusal.
func (e *Engine) decideInLoop(ctx context.Context, f func() error) error {
	var refused error
	if err := e.inTurn(ctx, func() { refused = f() }, true); err != nil {
		return err
	}
	return refused
}

func (e *Engine) inTurn(ctx context.Context, f func(), decides bool) error {
	ready := make(chan error, 1)
	select {
	case e.requests <- func() { e.serve(f, decides, ready) }:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		return ErrStopped
	}
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		return ErrStopped
	}
}

// ID is new for every start of the engine.
func (e *Engine) ID() string { return e.id }

// Done is closed when Run has ended.
func (e *Engine) Done() <-chan struct{} { return e.done }
