package engine

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// The fake job: DP 4 on two nodes of two ranks, 8 micro-batches a replica.
// Rank 2 is slow from iteration slowFrom until slowUntil.
const (
	fakeRanks = 4
	slowRank  = 2
	slowFrom  = 10
	slowUntil = 70
	healthyMs = 100.0
)

// fakeDetector has an incident where the fake job is slow. It asks for one
// profile and gives its verdict when both nodes have answered.
type fakeDetector struct {
	job      detect.Job
	newest   int64
	oldest   int64 // iteration that it has seen
	incident *falcon.Incident
	parts    int
	ready    detect.Ready
	acted    []detect.Acted
	log      []detect.Input
	ask      *falcon.ValidationAsk // asked for at iteration askAt
	askAt    int64
	tests    []falcon.Validation
	again    []detect.Recurrence
	steps    map[falcon.Rank]int // running that the watch saw a rank slow
}

func (d *fakeDetector) emit() {
	d.ready.Incidents = append(d.ready.Incidents, *d.incident)
}

func (d *fakeDetector) Step(_ time.Time, in detect.Input) {
	d.log = append(d.log, in)
	switch in := in.(type) {
	case detect.Job:
		d.job = in
	case detect.Restored:
		if len(in.Incidents) > 0 {
			v := in.Incidents[0]
			d.incident = &v
			d.request()
		}
	case detect.Samples:
		for _, s := range in.Samples {
			if d.newest < 0 {
				d.oldest = s.Iteration
			}
			d.newest = max(d.newest, s.Iteration)
		}
		d.judge()
		if d.ask != nil && d.newest >= d.askAt {
			d.ready.Asks = append(d.ready.Asks, *d.ask)
			d.ask = nil
		}
	case detect.Validated:
		d.tests = append(d.tests, in.Validation)
	case detect.Profiled:
		if in.Refused == "" {
			d.parts++
		}
		d.locate()
	case detect.Acted:
		d.acted = append(d.acted, in)
		if in.Reverted && d.incident != nil && d.incident.State == falcon.IncidentRelieved {
			d.incident.State = falcon.IncidentClosed
			d.emit()
		}
	}
}

func (d *fakeDetector) request() {
	if d.incident.State == falcon.IncidentVerified {
		d.parts = 0
		d.ready.Requests = append(d.ready.Requests, detect.ProfileRequest{
			Window:     1,
			Iterations: 2,
			Why:        "test",
		})
	}
}

func (d *fakeDetector) judge() {
	switch {
	case d.incident == nil && d.newest >= slowFrom+3 && d.newest < slowUntil:
		d.incident = &falcon.Incident{
			ID:                "INC-0001",
			State:             falcon.IncidentVerified,
			OnsetIteration:    slowFrom,
			DetectedIteration: d.newest,
			RelievedIteration: falcon.NoIteration,
			HealthyMs:         healthyMs,
			SlowMs:            2 * healthyMs,
		}
		d.emit()
		d.request()
	case d.incident != nil && d.incident.Open() && d.newest >= slowUntil+5:
		d.incident.State = falcon.IncidentRelieved
		d.incident.RelievedIteration = slowUntil
		d.emit()
	}
}

func (d *fakeDetector) locate() {
	if d.incident == nil || d.incident.State != falcon.IncidentVerified || d.parts < 2 {
		return
	}
	d.incident.State = falcon.IncidentLocated
	d.incident.Verdict = falcon.Verdict{
		Cause:      falcon.CauseGPU,
		Devices:    []falcon.Device{"n1.g0"},
		Ranks:      []falcon.Rank{slowRank},
		Severity:   3,
		Confidence: 0.9,
	}
	d.emit()
}

func (d *fakeDetector) Tick(time.Time)      {}
func (d *fakeDetector) Ready() detect.Ready { return d.ready }
func (d *fakeDetector) Advance() {
	d.ready = detect.Ready{}
}

func (d *fakeDetector) Rank(r falcon.Rank) (detect.RankStatus, bool) {
	steps := d.steps[r]
	return detect.RankStatus{
		Ms:         healthyMs,
		BaselineMs: healthyMs,
		Iteration:  d.newest,
		SlowSteps:  steps,
		Failing:    steps > 10,
	}, int(r) < fakeRanks
}

func (d *fakeDetector) Series(_ falcon.Rank, columns, rows int) []detect.Column {
	var out []detect.Column
	for i := max(d.oldest, d.newest-int64(columns)+1); i <= d.newest; i++ {
		out = append(out, detect.Column{
			Iteration: i,
			Ms:        healthyMs,
			Posterior: make([]float64, rows),
		})
	}
	return out
}

func (d *fakeDetector) Decisions() []*detect.Decision { return nil }

func (d *fakeDetector) Steady() detect.Steady {
	return detect.Steady{
		BaselineMs: healthyMs,
		CurrentMs:  healthyMs,
		Iteration:  d.newest,
	}
}

func (d *fakeDetector) Recurring() []detect.Recurrence { return d.again }

func (d *fakeDetector) Profile() falcon.JobProfile {
	return falcon.JobProfile{SelfMs: d.Speeds()}
}

func (d *fakeDetector) Profiled() (uint64, time.Time) {
	return 0, time.Time{}
}

func (d *fakeDetector) Speeds() []float64 {
	return []float64{12, 12, 24, 12}
}

type cmdKey struct{ epoch, id uint64 }

// fakeAgent executes each command once and answers repeats from memory.
type fakeAgent struct {
	t        *testing.T
	node     string
	ranks    []int32
	stream   *fakeStream
	seq      uint64
	spool    []*falconv1.AgentFrame
	answers  map[cmdKey]*falconv1.CommandResult
	executed map[cmdKey]int
	mailbox  map[uint64]*falconv1.OrderCommand
	newest   uint64 // newest order prepared
	profiled int
	noWindow bool // profile windows are never answered
	place    fakePlace
	hold     fakeHold
	crew     fakeCrew
	protocol uint32
	stands   *falconv1.Standing                    // from StandingRevision on
	peeks    func(*falconv1.Peek) *falconv1.Peeked // answers; nil = not at all
}

func (a *fakeAgent) send(f *falconv1.AgentFrame) {
	a.seq++
	f.Seq = a.seq
	a.spool = append(a.spool, f)
	if a.stream != nil {
		a.stream.carry(f)
	}
}

// poll handles what the engine has sent.
func (a *fakeAgent) poll(j *fakeJob) {
	for a.stream != nil && !a.crew.gone {
		select {
		case e := <-a.stream.out:
			a.handle(e, j)
		default:
			return
		}
	}
}

func (a *fakeAgent) drop(upTo uint64) {
	a.spool = slices.DeleteFunc(a.spool, func(f *falconv1.AgentFrame) bool { return f.Seq <= upTo })
}

func (a *fakeAgent) handle(e *falconv1.EngineFrame, j *fakeJob) {
	switch b := e.GetBody().(type) {
	case *falconv1.EngineFrame_Welcome:
		if a.follows(b.Welcome); b.Welcome.GetAcked() == 0 && a.stream.begun {
			return // the engine has raised its epoch
		}
		a.stream.begun = true
		a.drop(b.Welcome.GetAcked())
		for _, r := range a.ranks { // first, and unnumbered: what waits was said of these processes
			a.stream.in <- j.rankState(a.node, r)
		}
		for _, f := range a.spool {
			a.stream.carry(f)
		}
	case *falconv1.EngineFrame_Ack:
		a.drop(b.Ack.GetSeq())
	case *falconv1.EngineFrame_Command:
		a.command(b.Command, j)
	case *falconv1.EngineFrame_Peek:
		if a.peeks == nil {
			return
		}
		if p := a.peeks(b.Peek); p != nil {
			p.Peek = b.Peek.GetId()
			a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Peeked{Peeked: p}})
		}
	}
}

func (a *fakeAgent) command(c *falconv1.Command, j *fakeJob) {
	k := cmdKey{c.GetEpoch(), c.GetId()}
	if a.outdated(c, j) {
		return
	}
	if old := a.answers[k]; old != nil {
		a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: old}})
		return
	}
	if c.GetDeadlineUnixNs() != 0 && c.GetLifeMs() == 0 {
		a.t.Errorf("command %d has a deadline by the engine's clock and no life: %v", k.id, c)
	}
	a.executed[k]++
	res := &falconv1.CommandResult{
		Epoch:  k.epoch,
		Id:     k.id,
		Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED,
	}
	if c.GetProfile() != nil && a.noWindow {
		delete(a.executed, k)
		return
	}
	if p := c.GetProfile(); p != nil {
		a.profiled++
		res.Status = falconv1.CommandStatus_COMMAND_STATUS_DONE
		part := &falconv1.Profile{Window: p.GetWindow()}
		for _, r := range a.ranks {
			part.Ranks = append(part.Ranks, &falconv1.RankProfile{Rank: r, SelfMs: 12})
		}
		a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Profile{Profile: part}})
	}
	if a.validates(c, j) {
		return
	}
	if a.recovers(c, j) {
		return
	}
	if c.GetLaunch() != nil {
		a.launch(c, j)
		return
	}
	if o := c.GetOrder(); o != nil {
		old := a.mailbox[o.GetOrder()]
		if old != nil && !slices.Equal(old.GetMicroBatches(), o.GetMicroBatches()) {
			a.t.Errorf("order %d came with two contents: %v and %v",
				o.GetOrder(), old.GetMicroBatches(), o.GetMicroBatches())
		}
		a.mailbox[o.GetOrder()] = o
		a.newest = max(a.newest, o.GetOrder())
	}
	a.answers[k] = res
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: res}})
}

// committed reports the vote for every command that carried this order.
func (a *fakeAgent) committed(order uint64, iteration int64) {
	for k, res := range a.answers {
		if res.GetStatus() != falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED {
			continue
		}
		done := &falconv1.CommandResult{
			Epoch:  k.epoch,
			Id:     k.id,
			Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
		}
		for _, r := range a.ranks {
			done.Ranks = append(done.Ranks, a.ack(r, order, iteration))
		}
		a.answers[k] = done
		a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: done}})
	}
}

// fakeJob trains: one call of step is one iteration of all ranks.
type fakeJob struct {
	agents    []*fakeAgent
	micro     []int32
	committed uint64
	commits   map[uint64]int64
	iteration int64
	begun     atomic.Int64 // iteration, for readers on the engine's goroutine
	pid       int32
	kept      fakeHistory
	waits     bool    // for the launch of its ranks
	stalled   bool    // a rank is gone, or does not take part
	waitedMs  float64 // how long the others wait for it
	mute      bool    // hooks can't say that
	pauses    bool    // all ranks are in their storage
	resumed   []int64 // iterations that recoveries have led to
	saved     int64   // checkpoint that the ranks report
}

func newFakeJob(t *testing.T) *fakeJob {
	j := &fakeJob{
		micro:   []int32{8, 8, 8, 8},
		commits: map[uint64]int64{},
		pid:     100,
	}
	for n := range 2 {
		j.agents = append(j.agents, &fakeAgent{
			t:        t,
			node:     fmt.Sprint("n", n),
			ranks:    []int32{int32(2 * n), int32(2*n + 1)},
			answers:  map[cmdKey]*falconv1.CommandResult{},
			executed: map[cmdKey]int{},
			mailbox:  map[uint64]*falconv1.OrderCommand{},
		})
	}
	return j
}

func (j *fakeJob) rankState(node string, r int32) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: j.agent(node).dress(&falconv1.RankState{
		Rank:                r,
		Device:              fmt.Sprintf("%s.g%d", node, r%2),
		Pid:                 j.pidOf(node, r),
		Alive:               true,
		Tp:                  1,
		Dp:                  j.world(),
		Pp:                  1,
		World:               j.world(),
		MicroBatches:        j.micro[r],
		CheckpointIteration: j.saved,
		Comms: []*falconv1.Comm{{
			Id:   77,
			Name: "dp",
			Size: j.world(),
			Rank: r,
		}},
		TestWorkspace:      64 << 20,
		Nic:                node + ".nic0",
		Can:                allCan(),
		PlacementOrder:     j.kept.order,
		PlacementIteration: j.kept.from,
		Generation:         j.kept.generation,
	})}}
}

// world is as many ranks as share the batch.
func (j *fakeJob) world() int32 { return int32(len(j.micro)) }

// vote is the MIN of what the ranks have prepared.
func (j *fakeJob) vote() {
	id := j.agents[0].newest
	for _, a := range j.holders() {
		id = min(id, a.newest)
	}
	if id <= j.committed ||
		slices.ContainsFunc(j.holders(), func(a *fakeAgent) bool {
			return a.mailbox[id] == nil
		}) {
		return
	}
	j.committed = id
	j.commits[id] = j.iteration
	if j.votes(id) {
		return
	}
	j.micro = slices.Clone(j.agents[0].mailbox[id].GetMicroBatches())
	for _, a := range j.agents {
		a.committed(id, j.iteration)
	}
}

func (j *fakeJob) ms() float64 {
	slowest := 0.0
	for r, m := range j.micro {
		per := 12.0
		if r == slowRank &&
			j.iteration >= slowFrom &&
			j.iteration < slowUntil &&
			j.kept.generation == 0 {
			per = 24
		}
		slowest = max(slowest, float64(m)*per)
	}
	return slowest
}

func (j *fakeJob) step() {
	if j.waits || j.stalled || j.pauses || j.held() {
		return
	}
	if j.vote(); j.waits {
		return
	}
	for _, a := range j.holders() {
		s := &falconv1.Samples{}
		for _, r := range a.ranks {
			j.kept.note(r, j.iteration, j.pidOf(a.node, r))
			s.Samples = append(s.Samples, &falconv1.Sample{
				Rank:      r,
				Iteration: j.iteration,
				Ms:        j.ms(),
				Exact:     true,
				EndUnixNs: int64(j.pidOf(a.node, r)),
			})
		}
		a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: s}})
	}
	j.iteration++
	j.begun.Store(j.iteration)
}

// bench is an engine with its agents, inside a synctest bubble.
type bench struct {
	t       *testing.T
	path    string
	job     *fakeJob
	engine  *Engine
	journal *journal.Journal
	det     *fakeDetector
	streams *fleet.Service
	stop    context.CancelFunc
	ended   chan error
	fault   func(string) error
	policy  falcon.Policy
	halted  bool
	plan    mitigate.Config
	tests   Validation

	retention Retention
	ask       *falcon.ValidationAsk
	script    *fakePlanner // instead of the planner
	each      func(*bench) // done in every turn of playTo

	clock    clock.Source // nil = time.Now
	recovers bool         // the recovery machine that is shipped is at work
	recovery recovery.Config
}

func newBench(t *testing.T) *bench {
	b := &bench{
		t:      t,
		path:   filepath.Join(t.TempDir(), "journal.db"),
		job:    newFakeJob(t),
		policy: falcon.Policy{Mode: falcon.ModeApprove},
	}
	t.Cleanup(func() { // also when a test gives up early
		if b.stop != nil && !b.halted {
			_ = b.halt()
		}
	})
	return b
}

// start opens the journal and runs an engine on it; false when the fault
// struck already while it was restoring.
func (b *bench) start() bool {
	b.t.Helper()
	// a process that ends leaves what it wrote
	j, err := journal.OpenWith(b.path, journal.Options{
		NoSync: true,
		Fault:  b.fault,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.journal = j
	b.det = &fakeDetector{newest: -1, ask: b.ask, askAt: 6}
	conf := Config{
		JobName:    "test",
		Journal:    j,
		Validation: b.tests,
		Detector:   b.det,
		Policy:     b.policy,
		Mitigate:   b.plan,
		Fault:      b.fault,
		Retention:  b.retention,
	}
	conf.Recoverer = asleep{}
	conf.Recovery.Machine = b.recovery
	conf.Clock = b.clock
	if b.recovers {
		conf.Recoverer = nil
	}
	if b.script != nil {
		b.script = b.script.again()
		conf.Planner = b.script
	}
	e, err := New(conf)
	if err != nil {
		if err := j.Close(); err != nil {
			b.t.Fatal(err)
		}
		return false
	}
	b.engine, b.streams, b.ended = e, fleet.NewService(e, nil), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.halted = cancel, false
	ended := b.ended
	go func() { ended <- e.Run(ctx) }()
	for _, a := range b.job.agents {
		if !a.crew.gone {
			b.attach(a)
		}
	}
	return true
}

func (b *bench) attach(a *fakeAgent) {
	ctx, cancel := context.WithCancel(context.Background())
	st := &fakeStream{
		ctx:    ctx,
		cancel: cancel,
		in:     make(chan *falconv1.AgentFrame, 1<<14),
		out:    make(chan *falconv1.EngineFrame, 1<<12),
	}
	a.stream = st
	streams := b.streams
	go func() {
		_ = streams.Run(st, &falconv1.Hello{
			Agent:       a.node,
			Node:        a.node,
			Boot:        "b1",
			Version:     "test",
			LaunchRanks: a.place.launches,
			Protocol:    a.protocol,
			Standing:    a.standing(b.job),
		})
		cancel()
	}()
}

// halt ends the engine as a kill does and cuts the agents off.
func (b *bench) halt() error {
	b.halted = true
	b.stop()
	err := <-b.ended
	for _, a := range b.job.agents {
		if a.stream != nil {
			a.stream.cancel()
		}
		a.stream = nil
	}
	b.streams.Close()
	if err := b.journal.Close(); err != nil {
		b.t.Fatal(err)
	}
	return err
}

var tester = Actor{Name: "tester", Role: "approver", From: "test"}

// bareEngine has no journal and machines that want nothing.
func bareEngine(mem *journalState) *Engine {
	return assemble(
		Config{
			Now:       time.Now,
			Log:       slog.New(slog.DiscardHandler),
			Detector:  &fakeDetector{newest: -1},
			Recoverer: asleep{},
		},
		mem,
	)
}
