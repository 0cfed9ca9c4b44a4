package recovery

import (
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// onRestored takes up where an engine before this one stopped: the orders of
// the state are given again, under the same generation.
func (m *Machine) onRestored(now time.Time, in Restored) {
	m.op.rec = nil
	m.health.Restart(now)
	for _, d := range in.Devices {
		report := d.Device.report()
		m.nodes.Get(report.Node(), now).Report(report, time.Unix(0, d.AtNs))
	}
	for _, r := range in.Ended {
		if m.ranks.hasRank(r) && !launchedSince(in.Recoveries, r) {
			m.ends.Succeed(now, r, m.pace.InBeats()) // an unexplained end counts as the same
		}
	}
	m.finishEpoch(now)
	m.hist.restore(ofBefore(in.Recoveries), in.NextID)
	m.flow.restoreHistory(now, in.Generation)
}

// ofBefore converts recoveries of journals that had neither signs nor a whole restart's own reason: their
// evidence begins or ends with what the sign says, and their reason with what WholeWhy is.
func ofBefore(all []falcon.Recovery) []falcon.Recovery {
	for i := range all {
		if c := &all[i]; c.Whole && c.WholeWhy == "" {
			c.WholeWhy = wholeWhyOf(c.Reason)
		}
		for k := range all[i].Faults {
			if f := &all[i].Faults[k]; f.Sign == "" {
				f.Sign = signOf(f)
			}
		}
	}
	return all
}

func wholeWhyOf(reason string) string {
	why, _, _ := strings.Cut(strings.TrimSuffix(reason, "; "+noCheckpoint), awaitsAgents)
	why, _, _ = strings.Cut(why, noProof)
	return strings.TrimSuffix(why, "; ")
}

func signOf(f *falcon.Fault) falcon.FaultSign {
	every := func(is func(string) bool) bool {
		return len(f.Evidence) > 0 &&
			!slices.ContainsFunc(f.Evidence, func(e string) bool { return !is(e) })
	}
	switch {
	case f.Kind == falcon.FaultExit &&
		every(func(e string) bool { return strings.HasSuffix(e, unwatched) }):
		return falcon.SignUnwatched
	case f.Kind != falcon.FaultHang || len(f.Evidence) == 0:
	case strings.HasPrefix(f.Evidence[0], noneLeft):
		return falcon.SignNoneLeft
	case strings.Contains(f.Evidence[0], unheardOf):
		return falcon.SignUnheard
	}
	return ""
}

// launchedSince reports whether an open recovery launched a rank that had ended with success.
func launchedSince(all []falcon.Recovery, r falcon.Rank) bool {
	return slices.ContainsFunc(all, func(c falcon.Recovery) bool {
		return !c.State.Over() && c.Launched[r] > 0
	})
}

// restoreHistory takes over the generations and the state of the newest recovery.
func (w *workflow) restoreHistory(now time.Time, generation uint64) {
	w.gens.raiseTo(generation)
	last := w.hist.newest()
	if last == nil {
		return
	}
	for _, c := range w.hist.newestFirst() {
		w.gens.raiseTo(c.Generation)
		w.ranks.restoreFloors(c, w.job)
	}
	switch {
	case !last.State.Over():
		w.takeUpRecovery(now, last)
	case last.JobEpoch != w.job.Epoch:
	case last.State == falcon.RecoveryResumed &&
		!last.Whole &&
		len(last.Placement) == w.ranks.worldSize():
		w.adoptOutcome(last)
	case last.State == falcon.RecoveryCancelled: // nothing was left to do, or what became of it is not known
	case last.State != falcon.RecoveryResumed && (last.DecidedBy != "" || last.Attempts > 0):
		w.stop.stopJob(now)
	}
	w.op.arrange()
}

// takeUpRecovery goes on with a recovery from before the engine's start.
func (w *workflow) takeUpRecovery(now time.Time, c *falcon.Recovery) {
	if c.Replaced == nil {
		c.Replaced = map[falcon.Rank]falcon.Device{}
	}
	if c.Launched == nil {
		c.Launched = map[falcon.Rank]uint64{}
	}
	if c.PhaseMs == nil {
		c.PhaseMs = map[string]float64{}
	}
	w.op.takeUpRecord(now, c)
	w.op.arrange()
	if c.JobEpoch != w.job.Epoch || len(c.Placement) != w.ranks.worldSize() {
		w.endByEpoch(now)
		return
	}
	w.repeatOrders(now)
	w.out.addNote(c.ID, "recovery", 1, "%s goes on at %s after a start of the engine", c.ID, c.State)
}

// repeatOrders gives the orders of the present state, with its whole time.
func (w *workflow) repeatOrders(now time.Time) {
	c := w.op.rec
	switch { // of the wait: no one is asked for anything until it is known that it still lacks that
	case c.Whole && c.State == falcon.RecoverySuspend:
		c.Reason = wholeReason(c)
	case c.Wait != nil && !c.Whole:
		c.Reason = ""
	}
	c.Wait = nil // it waits again, with its whole time
	for _, d := range c.Placement {
		w.nodes.Get(d.Node(), now)
	}
	w.op.awaitLaunched()
	if c.Whole && c.State != falcon.RecoveryProposed {
		w.repeatWhole(now)
		return
	}
	switch c.State {
	case falcon.RecoveryProposed:
		if c.DeadlineNs > 0 {
			w.op.clock.Restore(time.Unix(0, c.DeadlineNs))
		}
	case falcon.RecoverySuspend:
		w.op.gatherFaults(now)
		w.op.setDeadline(now, w.cfg.SuspendMost)
		w.orders.suspendNodes()
		w.orders.repeatLaunches(now)
	case falcon.RecoveryReplace:
		w.op.setDeadline(now, w.cfg.ReplaceMost)
		w.orders.launchReplacements(now)
		w.orders.repeatLaunches(now)
	case falcon.RecoveryTable:
		w.op.setDeadline(now, w.cfg.TableMost)
		w.orders.sendTable()
	case falcon.RecoveryCollect:
		w.op.setDeadline(now, w.cfg.CollectMost)
	case falcon.RecoveryRejoin:
		w.op.setDeadline(now, w.cfg.RejoinMost)
		w.orders.sendRejoin()
	}
}

// repeatWhole gives the orders of a whole restart again, or waits for its agents.
func (w *workflow) repeatWhole(now time.Time) {
	switch w.op.rec.State {
	case falcon.RecoverySuspend:
		w.op.repeatAgentWait(now)
	case falcon.RecoveryReplace:
		w.op.setDeadline(now, w.cfg.RestartMost)
		w.orders.restartWhole()
	}
}
