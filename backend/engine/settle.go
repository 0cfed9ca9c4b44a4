package engine

import (
	"log/slog"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// settleMachines does what the machines want until they want nothing more: persist the
// whole batch, then send and publish, then Advance, then feed what one machine
// has for the other. It ends by acknowledging the agents' frames.
func (e *Engine) settleMachines(now time.Time) error {
	if e.learner.ends != nil {
		// nothing more is sent: what the machines want is not this engine's to order
		records, _ := e.batch.take()
		if err := e.writer.save(records); err != nil {
			e.log.Warn("the engine's last records are not in the journal", slog.Any("err", err))
		}
		return nil
	}
	for range settleMax {
		if e.writer.held.round != nil {
			return nil // nothing is decided before what was is durable
		}
		d := e.det.Ready()
		p := e.plan.Ready()
		v := e.validations.machine.Ready()
		x := e.rec.Ready()
		if d.Empty() &&
			p.Empty() &&
			v.Empty() &&
			x.Empty() &&
			e.batch.empty() &&
			len(e.recoveries.resend) == 0 {
			if !e.measured.announceSpeeds(now) {
				return e.acknowledgeDurable()
			}
			continue
		}
		r := e.collectRound(now, d, p, v, x)
		var err error
		if r.records, err = e.writer.fold(r.records); err != nil {
			return err
		}
		if v.Persist == nil && e.promised(r.tests) {
			// The job may be held: it does not wait for records of something else.
			e.sendTests(r.tests)
			r.tests = nil
		}
		if err = e.writer.persist(r.records); journal.Transient(err) {
			e.holdRound(now, &r, err)
			return nil
		} else if err != nil {
			return err
		}
		if err := e.carryOut(r); err != nil {
			return err
		}
	}
	// What was decided so far is durable and sent; the next turn goes on.
	e.log.Error("the machines did not settle in one turn", slog.Int("rounds", settleMax))
	return e.acknowledgeDurable()
}

// carryOut does what a durable batch is for.
func (e *Engine) carryOut(r decidedRound) error {
	e.sendRound(r)
	if err := e.cfg.Fault(PointAfterSend); err != nil {
		return err
	}
	e.det.Advance()
	e.plan.Advance()
	e.validations.machine.Advance()
	e.rec.Advance()
	for _, step := range r.steps {
		step()
	}
	e.views.dirty = true
	return nil
}

// acknowledgeDurable answers those who wait: everything so far is durable.
func (e *Engine) acknowledgeDurable() error {
	if !e.learner.learning() { // what waits is not used yet
		e.nodes.Acknowledge()
	}
	e.batch.settled(nil)
	return nil
}

// collectRound turns all Readies into one batch of records and what follows them.
func (e *Engine) collectRound(
	now time.Time,
	d detect.Ready,
	p mitigate.Ready,
	v validate.Ready,
	x recovery.Ready,
) decidedRound {
	r := decidedRound{windows: map[uint64]detect.ProfileRequest{}}
	e.digestRecovery(now, x, &r)
	e.digestValidation(now, v, &r)
	for _, v := range d.Incidents {
		e.digestIncident(now, v, &r)
	}
	for _, q := range d.Requests {
		r.windows[e.batch.commandID(now)] = q
	}
	for _, n := range d.Notes {
		e.oplog.detected(n)
	}
	for _, a := range p.Actions {
		e.batch.addRecords(record(now, kindAction, a))
		e.decisions.recordByPolicy(now, a)
	}
	for _, o := range p.Orders {
		g := e.state.job.Newest()
		rec := orderRecord{
			Order:      o,
			Command:    e.batch.commandID(now),
			DeadlineNs: e.delivery.orderDeadline(now, o).UnixNano(),
			Generation: &g,
		}
		r.orders = append(r.orders, rec)
		e.batch.addRecords(record(now, kindOrder, rec))
	}
	for _, ask := range d.Asks {
		e.validations.advised(now, ask, &r)
	}
	for _, a := range p.Acted {
		r.steps = append(r.steps, func() {
			e.det.Step(now, detect.Acted(a))
		})
	}
	if e.describer.detectorLater {
		e.describer.detectorLater = false
		r.steps = append(r.steps, func() { e.describer.announceLateToDetector(now) })
	}
	if d.Compare != nil {
		r.steps = append(r.steps, func() {
			e.measured.compare(*d.Compare, e.requests, e.done)
		})
	}
	if p.Look != "" {
		r.steps = append(r.steps, func() {
			e.det.Step(now, detect.Look{Why: p.Look})
		})
	}
	if p.Launch != nil {
		e.restart.stepWith(now, restart.Planned{Launch: p.Launch})
	}
	for _, f := range p.Fences {
		r.steps = append(r.steps, func() { e.fencer.demand(now, f) })
	}
	for _, t := range e.recoveries.resend {
		e.recoveries.promise(now, t, &r)
		r.commands = append(r.commands, t)
	}
	e.recoveries.resend = nil
	for _, v := range p.Impacts {
		e.batch.addRecords(record(now, kindImpact, v))
	}
	for _, n := range p.Notes {
		e.oplog.logAt(n.Iteration, planKind(n.Kind), 0, n.About, "%s", n.Text)
	}
	e.measured.learned(now, len(p.Actions) > 0)
	r.records, r.sends = e.batch.take()
	return r
}

// digestIncident records an incident and has it for the planner, with the
// speeds that S2 is solved with once a culprit is located.
func (e *Engine) digestIncident(now time.Time, v falcon.Incident, r *decidedRound) {
	if v.State == falcon.IncidentClosed {
		e.history.writeRest(now)
	}
	e.batch.addRecords(record(now, kindIncident, v))
	old, known := e.state.incident(v.ID)
	e.oplog.incident(old, known, v)
	r.steps = append(r.steps, func() {
		e.plan.Step(now, mitigate.Incident{Incident: v})
	})
	if v.State != falcon.IncidentLocated {
		return
	}
	// after a restart the journal's hold until there are new ones
	if next := e.measured.speedsOf(v.ID); len(next.SelfMs) > 0 {
		if !next.sameSpeeds(e.state.speeds[v.ID]) {
			e.batch.addRecords(record(now, kindSpeeds, next))
		}
		r.steps = append(r.steps, func() {
			e.plan.Step(now, mitigate.Speeds(next))
		})
	}
}

// sendRound sends what a durable batch is for. While a validation is in progress, orders
// and windows wait: one plan at a time.
func (e *Engine) sendRound(r decidedRound) {
	for _, v := range r.fences {
		e.recoveries.applyFence(e.cfg.Now(), v)
	}
	e.recoveries.sendCommands(r.commands)
	e.sendTests(r.tests)
	for _, send := range r.sends {
		send()
	}
	for _, rec := range r.orders {
		e.orders.addOrder(rec)
	}
	for _, id := range sortedKeys(r.windows) {
		e.delivery.addWindow(e.cfg.Now(), id, r.windows[id])
	}
	e.delivery.sendWaiting(e.cfg.Now())
}

// sendTests puts a validation's commands into the outbox, in place of those whose answers are of
// no use any more.
func (e *Engine) sendTests(list []validate.Command) {
	if len(list) == 0 {
		return
	}
	e.outbox.Remove(func(it *outbox.Item) bool {
		c, is := it.About.(validate.Command)
		return is && !e.validations.machine.Awaits(c.ID)
	})
	for _, c := range list {
		e.cluster.send(e.outbox.Put(testItem(c)).SendAll(e.cfg.Now()))
	}
}

// promised reports whether the ids of all commands are below one that is durable: no
// restart gives them out again.
func (e *Engine) promised(list []validate.Command) bool {
	return !slices.ContainsFunc(list, func(c validate.Command) bool {
		return c.ID >= e.batch.durable
	})
}
