package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
)

// Validation says when the job may be held for tests, and what the tests are.
// Zero values mean the defaults of package validate and those below.
type Validation struct {
	Auto              bool          // the detector's requests are carried out without a person
	Life              time.Duration // of the order that holds the job; at most 60 s
	CollectiveTimeout time.Duration // of the job's framework: a hold lasts at most a quarter of it; 0 = unknown
	GEMMSide          int           // side of the matrices
	Repeats           int           // timed repeats of each test
	MessageBytes      int64         // of a link test
	PerHour           int           // automatic ones; 0 = PerHourDefault
	CoolDown          int64         // iterations between automatic ones; 0 = CoolDownDefault
}

// Bounds of validations that nobody asked for, and of what is kept of them.
const (
	PerHourDefault  = 6
	CoolDownDefault = 20
	askPatience     = 10 * time.Second // the detector waits 15 s for an answer
	asksMax         = 4                // requests that wait
	testsKept       = 128              // validations in memory; the journal keeps them all
	ripeIterations  = 4                // counts are compared over three whole ones
)

func (v Validation) machine() validate.Config {
	return validate.Config{
		Life: v.Life, CollectiveTimeout: v.CollectiveTimeout, GEMMSide: v.GEMMSide, Repeats: v.Repeats, MessageBytes: v.MessageBytes,
	}
}

// pendingAsk is a request of the detector that waits for its moment.
type pendingAsk struct {
	ask   falcon.ValidationAsk
	since time.Time
}

// advised takes a request of the detector: policy decides whether it is
// carried out or only told.
func (e *Engine) advised(now time.Time, ask falcon.ValidationAsk, r *round) {
	ask.By = "engine"
	if !e.cfg.Validation.Auto {
		e.tell("validation", 1, "a test is advised (%s); to hold the job for it: %s", ask.Why, commandFor(ask))
		r.steps = append(r.steps, func() { e.declined(now, ask, "validations wait for an operator (validation mode manual)") })
		return
	}
	if len(e.asks) >= asksMax {
		r.steps = append(r.steps, func() { e.declined(now, ask, "other validations wait already") })
		return
	}
	e.asks = append(e.asks, pendingAsk{ask, now})
	r.steps = append(r.steps, func() { e.tryAsks(now) })
}

// commandFor is what an operator types to have a request carried out.
func commandFor(ask falcon.ValidationAsk) string {
	var ranks []falcon.Rank
	ranks = append(ranks, ask.GEMM...)
	for _, g := range slices.Concat(ask.Rings, ask.Trees) {
		ranks = append(ranks, g...)
	}
	for _, p := range ask.Pairs {
		ranks = append(ranks, p[:]...)
	}
	s := "falcon validate --ranks " + strings.ReplaceAll(ranksText(slices.Compact(slices.Sorted(slices.Values(ranks)))), " ", "")
	if len(ask.GEMM) > 0 {
		s += " --gemm"
	}
	if len(ask.Rings)+len(ask.Trees)+len(ask.Pairs) > 0 {
		s += " --links"
	}
	return s
}

// declined tells the detector that a test will not come. Nothing was held, and
// nothing is kept but the line in the log.
func (e *Engine) declined(now time.Time, ask falcon.ValidationAsk, why string) {
	e.det.Step(now, detect.Validated{Validation: falcon.Validation{
		Ask: ask, State: falcon.ValidationRefused, Reason: why, Iteration: falcon.NoIteration, AtNs: now.UnixNano(),
	}})
}

// tryAsks starts the first request whose moment has come, and lets go of those
// that have none.
func (e *Engine) tryAsks(now time.Time) {
	for len(e.asks) > 0 && !e.val.Active() {
		p := e.asks[0]
		why, passing := e.obstacle(now, p.ask)
		if why == "" {
			why, passing = e.tooOften(now)
		}
		if why != "" && passing && now.Sub(p.since) < askPatience {
			return
		}
		e.asks = e.asks[1:]
		if why != "" {
			e.declined(now, p.ask, why)
			continue
		}
		e.startValidation(now, p.ask, Actor{Name: "engine", Role: "policy"})
	}
}

// obstacle says why the job can't be held for a test now, and whether that may
// pass by itself; "" when it can.
func (e *Engine) obstacle(now time.Time, ask falcon.ValidationAsk) (why string, passing bool) {
	if v, _ := e.val.View(); e.val.Active() {
		return fmt.Sprintf("%s is in progress (%s)", v.ID, v.State), true
	}
	if e.mem.policy.Policy.Frozen {
		return "the policy is frozen: thaw it first", false
	}
	if why, passing = e.unready(now); why != "" {
		return why, passing
	}
	for _, id := range sortedKeys(e.orders.open) {
		return fmt.Sprintf("order %d is being agreed on", e.orders.open[id].Order.ID), true
	}
	if e.windows.inFlight(now, e.jobNodes()) {
		return "a profile window is in progress", true
	}
	return e.unfit(ask), false
}

// unready says what is missing for any hold at all.
func (e *Engine) unready(now time.Time) (string, bool) {
	switch state := e.jobState(now); state {
	case "waiting for agents":
		return "no ranks are known, or not all of them", true
	case "finished", "lost":
		return "the job is " + state, false
	}
	if !e.stepped || !e.job.complete() || e.job.dirty || e.recheck {
		return "the job's description still changes", true
	}
	for _, n := range e.jobNodes() {
		if !e.connected(n) {
			return fmt.Sprintf("the agent of node %s is away", n), true
		}
	}
	if at := e.det.Steady().Iteration; at < ripeIterations {
		return "the job is not steady: it has not done four iterations yet", true
	}
	if still := e.standstill(); !e.lastData.IsZero() && now.Sub(e.lastData) > still {
		return fmt.Sprintf("the job is not steady: no iteration has ended for %s", now.Sub(e.lastData).Round(time.Second)), true
	}
	return "", false
}

// unfit names the first rank that can't be held, or tested.
func (e *Engine) unfit(ask falcon.ValidationAsk) string {
	for r := range e.job.world() {
		if e.job.ranks[falcon.Rank(r)].state.GetUnhooked() {
			return fmt.Sprintf("rank %d runs NCCL without the hook: start it with falcon-agent run", r)
		}
	}
	for _, r := range testedRanks(ask) {
		if int(r) < 0 || int(r) >= e.job.world() {
			return fmt.Sprintf("rank %d is none of the job's %d", r, e.job.world())
		}
		if e.job.ranks[r].state.GetTestWorkspace() == 0 {
			return fmt.Sprintf("rank %d has reserved no memory for tests: set FALCON_TEST_MB for its process", r)
		}
	}
	return ""
}

func testedRanks(ask falcon.ValidationAsk) []falcon.Rank {
	out := slices.Concat(ask.GEMM, slices.Concat(ask.Rings...), slices.Concat(ask.Trees...))
	for _, p := range ask.Pairs {
		out = append(out, p[:]...)
	}
	return out
}

// tooOften bounds what happens without a person.
func (e *Engine) tooOften(now time.Time) (string, bool) {
	most, apart := e.cfg.Validation.PerHour, e.cfg.Validation.CoolDown
	if most <= 0 {
		most = PerHourDefault
	}
	if apart <= 0 {
		apart = CoolDownDefault
	}
	recent, newest := 0, falcon.NoIteration
	for _, t := range e.mem.tests {
		if t.Validation.Ask.By != "engine" || now.UnixNano()-t.Validation.AtNs > int64(time.Hour) {
			continue
		}
		recent++
		if t.JobEpoch == e.mem.job.Epoch {
			newest = max(newest, t.Asked)
		}
	}
	if recent >= most {
		return fmt.Sprintf("%d validations were done by themselves in the last hour, and more need an operator", recent), false
	}
	if at := e.det.Steady().Iteration; newest != falcon.NoIteration && at < newest+apart {
		return fmt.Sprintf("the last one was %d iterations ago and %d must lie between", at-newest, apart), true
	}
	return "", false
}

// startValidation begins; obstacle has found nothing.
func (e *Engine) startValidation(now time.Time, ask falcon.ValidationAsk, who Actor) string {
	id := fmt.Sprintf("VAL-%04d", e.mem.nextTest)
	e.mem.nextTest++ // the record of its beginning says the same
	comms := e.job.comms(e.mem.job.Layout)
	members := make([]validate.Member, e.job.world())
	for r := range members {
		p := e.job.ranks[falcon.Rank(r)]
		nic, _ := nicOn(p.node, p.state.GetNic())
		members[r] = validate.Member{Device: p.device, NIC: nic, Comms: comms[falcon.Rank(r)]}
	}
	e.asking = asking{who: who, at: e.det.Steady().Iteration, epoch: e.mem.job.Epoch}
	e.val.Step(now, validate.Begin{ID: id, Ask: ask, Members: members, Emulated: e.job.emulated, Own: e.mem.ownTimes()})
	return id
}

// recoverValidation lets go of what an engine before this one held.
func (e *Engine) recoverValidation(now time.Time) {
	for _, t := range e.mem.tests {
		if t.Validation.State.Over() || e.val.Active() {
			continue
		}
		e.asking = asking{who: Actor{Name: t.By, Role: t.Role, From: t.From}, at: t.Asked, epoch: t.JobEpoch}
		e.val.Step(now, validate.Recover{Validation: t.Validation, Pause: t.Pause, Nodes: t.Nodes})
	}
}

// digestValidation persists what the validation wants persisted, and once it
// is over has the result for the detector and lets waiting orders go.
func (e *Engine) digestValidation(now time.Time, v validate.Ready, r *round) {
	r.tests = v.Commands
	if v.Persist != nil {
		who := e.asking
		rec := validationRecord{
			Validation: *v.Persist, Pause: v.Pause, JobEpoch: who.epoch, Asked: who.at,
			By: who.who.Name, Role: who.who.Role, From: who.who.From,
		}
		if v.Pause != 0 {
			rec.Nodes = e.jobNodes()
		}
		r.records = append(r.records, record(now, kindValidation, rec))
	}
	for _, n := range v.Notes {
		e.tell("validation", n.Severity, "%s", n.Text)
	}
	if v.Over {
		r.steps = append(r.steps, func() {
			e.det.Step(now, detect.Validated{Validation: *v.Persist})
			e.resumePlans(now)
		})
	}
}

// resumePlans sends what has waited for the validation's end.
func (e *Engine) resumePlans(now time.Time) {
	for _, id := range sortedKeys(e.orders.open) {
		e.broadcast(e.orders.open[id].frame(e.mem.epoch))
	}
	for _, w := range e.waiting {
		w.deadline = now.Add(WindowLife)
		e.windows.add(w)
		e.broadcast(w.frame(e.mem.epoch))
	}
	e.waiting = nil
}

// afterHold is when an order that is made now can go out at the latest.
func (e *Engine) afterHold(now time.Time) time.Time {
	if ends := e.val.Ends(); e.val.Active() && ends.After(now) {
		return ends
	}
	return now
}

// jobNodes are the nodes that hold ranks, sorted.
func (e *Engine) jobNodes() []falcon.Node {
	seen := map[falcon.Node]bool{}
	for r := range e.mem.job.Layout.World() {
		seen[e.nodeOf(falcon.Rank(r))] = true
	}
	return sortedKeys(seen)
}

// inFlight says that some node has not answered a window yet.
func (b *windowBook) inFlight(now time.Time, nodes []falcon.Node) bool {
	for _, w := range b.byCommand {
		if now.Before(w.deadline) && slices.ContainsFunc(nodes, func(n falcon.Node) bool { return !w.answered[n] }) {
			return true
		}
	}
	return false
}

func validationFrame(epoch uint64, c validate.Command) *falconv1.EngineFrame {
	out := &falconv1.Command{Epoch: epoch, Id: c.ID, DeadlineUnixNs: c.Deadline.UnixNano()}
	if c.Test != nil {
		out.Body = &falconv1.Command_Test{Test: c.Test}
	} else {
		out.Body = &falconv1.Command_Pause{Pause: c.Pause}
	}
	return command(out)
}

// validationRecord is a validation as it stood when it began, before the job
// was held, and when it was over with all its results.
type validationRecord struct {
	Validation falcon.Validation `json:"validation"`
	Pause      uint64            `json:"pause,omitempty"` // what a restart has to let go
	Nodes      []falcon.Node     `json:"nodes,omitempty"` // where
	JobEpoch   uint64            `json:"job_epoch"`
	Asked      int64             `json:"asked_iteration"`
	By         string            `json:"by"`
	Role       string            `json:"role"`
	From       string            `json:"from"`
}

// asking is who asked for the validation in progress, and when.
type asking struct {
	who   Actor
	at    int64
	epoch uint64
}

func (m *memory) setValidation(v validationRecord) {
	if i := slices.IndexFunc(m.tests, func(x validationRecord) bool { return x.Validation.ID == v.Validation.ID }); i >= 0 {
		m.tests[i] = v
		return
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(v.Validation.ID, "VAL-")); err == nil {
		m.nextTest = max(m.nextTest, n+1)
	}
	m.tests = append(m.tests, v)
	m.tests = slices.Delete(m.tests, 0, max(0, len(m.tests)-testsKept))
}

// ownTimes are the least times of every direction in earlier validations in
// which it was not slow.
func (m *memory) ownTimes() func(from, to falcon.Device, bytes int64) (float64, bool) {
	type direction struct {
		from, to falcon.Device
		bytes    int64
	}
	least := map[direction]float64{}
	for _, t := range m.tests {
		for _, l := range t.Validation.Links {
			k := direction{l.FromDevice, l.ToDevice, l.Bytes}
			if old, known := least[k]; l.Err == "" && !l.Slow && l.Ms > 0 && (!known || l.Ms < old) {
				least[k] = l.Ms
			}
		}
	}
	return func(from, to falcon.Device, bytes int64) (float64, bool) {
		ms, known := least[direction{from, to, bytes}]
		return ms, known
	}
}

// opening is when an incident was first written, and in which job epoch.
type opening struct {
	atNs  int64
	epoch uint64
}

// named lists the culprits of incidents that are over, oldest first.
func (m *memory) named() []detect.Named {
	var out []detect.Named
	for _, v := range m.incidents {
		if v.State != falcon.IncidentClosed {
			continue
		}
		at := m.opened[v.ID]
		n := detect.Named{Incident: v.ID, At: time.Unix(0, at.atNs), Cause: v.Verdict.Cause}
		if at.epoch != m.job.Epoch {
			n.Job = fmt.Sprintf("epoch %d", at.epoch)
		}
		for _, d := range v.Verdict.Devices {
			n := n
			n.Device = d
			out = append(out, n)
		}
		for _, l := range v.Verdict.Links {
			n := n
			n.Link = l
			out = append(out, n)
		}
	}
	return out
}
