package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/liveness"
)

// stalledFor is for how long no iteration has begun although one should have: two
// beats longer than usual; 0 = it goes on, or that is unknown.
func (d *detector) stalledFor(now time.Time) time.Duration {
	usual, known := d.pace.Usual()
	if !known {
		usual = d.cfg.HangMin
	}
	idle := d.pace.IdleTime(now)
	if d.pace.Held() || d.pace.Newest() < 0 || idle < 2*d.cfg.Beat+usual {
		return 0
	}
	return idle
}

// notBegunFor is for how long a job has not begun its first iteration, from HangMin on, as it may
// load, compile or warm up before; 0 = it has begun one, or that is unknown.
func (d *detector) notBegunFor(now time.Time) time.Duration {
	idle := d.pace.IdleTime(now)
	if d.pace.Newest() >= 0 || d.pace.Held() || idle < d.cfg.HangMin {
		return 0
	}
	return idle
}

// standstillFor is for how long the job stalls, by its iterations or by ranks that all wait, which
// show it earlier; 0 = it goes on, or that is unknown. Who was in its own code, or in storage, until
// just now has not waited for anybody for long.
func (d *detector) standstillFor(now time.Time, t testimony) time.Duration {
	usual, known := d.pace.Usual()
	stall := d.stalledFor(now)
	switch {
	case stall > 0 && t.allWait() && now.Sub(t.since) < 2*d.cfg.Beat:
		return 0
	case stall > 0 || d.pace.Held():
		return stall
	case d.pace.Newest() < 0 && t.allWait(): // a job begins when it does: all but some have, for long
		return max(0, now.Sub(t.since)-d.cfg.HangMin)
	case d.pace.Newest() < 0 ||
		!known ||
		!t.allWait() ||
		d.pace.IdleTime(now) < 2*d.cfg.Beat ||
		now.Sub(t.since) < 2*d.cfg.Beat+usual:
		return 0
	}
	return now.Sub(t.since)
}

// stallUnexplained reports whether the job stalls, and no rank that is heard
// explains it: by its own work, or by its end with success.
func (d *detector) stallUnexplained(now time.Time) bool {
	return d.stalledFor(now)+d.notBegunFor(now) > 0 &&
		!d.finishing() &&
		d.collectTestimony(now).busy == 0
}

// jobHang finds a job whose processes live and which does not move. What to
// do about it is for a person to decide.
func (d *detector) jobHang(now time.Time) (falcon.Fault, bool) {
	if d.pace.Hung() {
		return falcon.Fault{}, false
	}
	limit := max(time.Duration(d.cfg.HangFactor*float64(d.pace.Typical())), d.cfg.HangMin)
	stall := d.stalledFor(now)
	if begin := d.notBegunFor(now); begin > 0 {
		if t := d.collectTestimony(now); t.allWait() {
			stall = min(begin, now.Sub(t.since))
		} else if d.health.Exhausted(now, d.cfg.HangMin) { // it may have begun unheard
			stall = begin
		}
	}
	if stall < limit || !d.ranks.anyProcessAlive() {
		return falcon.Fault{}, false
	}
	d.pace.MarkHung()
	sound, sign := d.soundness(now)
	return falcon.Fault{
		Kind:    falcon.FaultHang,
		Sign:    sign,
		FirstNs: d.pace.Moved().UnixNano(),
		Evidence: []string{
			fmt.Sprintf("no rank has begun an iteration for %.0f s, %s", stall.Seconds(), sound),
			cmp.Or(d.heldUp, d.ranks.describeSlowest()),
		},
	}, true
}

// emptyJob finds a job of which no process is left although all its nodes are
// heard: they ended unseen. A person may have stopped it.
func (d *detector) emptyJob(now time.Time) (falcon.Fault, bool) {
	idle := d.pace.IdleTime(now)
	if d.pace.Hung() ||
		d.pace.Held() ||
		d.ends.Count() > 0 ||
		d.health.Holds() ||
		d.ranks.anyProcessAlive() ||
		idle < d.cfg.HangMin ||
		d.nodes.AnyMissing(d.ranks.usedNodes(), now) {
		return falcon.Fault{}, false
	}
	d.pace.MarkHung()
	return falcon.Fault{
		Kind:     falcon.FaultHang,
		Sign:     falcon.SignNoneLeft,
		FirstNs:  d.pace.Moved().UnixNano(),
		Evidence: []string{fmt.Sprintf("%s for %.0f s; how they ended is unknown", noneLeft, idle.Seconds())},
	}, true
}

// noneLeft begins the evidence that all processes are gone.
const noneLeft = "all nodes are heard, and none has had a process of the job"

// unheardOf begins the part of a hang's evidence that names silent nodes.
const unheardOf = "and nothing is heard of "

// soundness describes the condition of the nodes of a job that hangs, and whether any is not heard.
func (d *detector) soundness(now time.Time) (string, falcon.FaultSign) {
	var silent []falcon.Node
	for _, n := range d.ranks.usedNodes() {
		if d.nodes.Get(n, now).Unheard(now) {
			silent = append(silent, n)
		}
	}
	if len(silent) == 0 {
		return "all processes and their hooks are alive", ""
	}
	return unheardOf + nodeList(silent), falcon.SignUnheard
}

// secondSign is the second sign against a silent node, empty = none. While iterations begin there
// is none, as all ranks live; where no node is heard it is unknown whether any begin.
func (d *detector) secondSign(now time.Time, n falcon.Node, t testimony, stall time.Duration) string {
	h := d.nodes.Get(n, now)
	fatal, _, failed := h.Fatal(now)
	if d.op.isUnderway() {
		return d.secondSignInRecovery(now, n, h)
	}
	switch {
	case stall == 0, t.nodes == 0, t.busy > 0, d.someLeaving(now) && stall < d.cfg.LeaveStall:
		// it may be one of theirs
		return ""
	case failed:
		return fatal.String()
	case d.policy.Recovery.FenceAlone && d.pace.Newest() >= 0:
		return fmt.Sprintf(
			"no rank has begun an iteration for %.1f s, and policy takes a silent agent for enough",
			stall.Seconds(),
		)
	case d.ranks.anyProcessEnded(n):
		return "a process on it has ended"
	}
	return t.signAgainst(stall, d.cfg.UnvouchedStall)
}

// secondSignInRecovery is the same in a recovery, where no iterations begin.
func (d *detector) secondSignInRecovery(now time.Time, n falcon.Node, h *liveness.Host) string {
	fatal, _, failed := h.Fatal(now)
	idle := d.op.clock.Idle(now)
	if h.Leaving(now) && idle < d.cfg.LeaveStall {
		return ""
	}
	switch {
	case failed:
		return fatal.String()
	case d.policy.Recovery.FenceAlone:
		return "policy takes a silent agent for enough"
	case d.ranks.anyProcessEnded(n):
		return "a process on it has ended"
	case d.op.waitsForNode(n) &&
		idle >= d.patience() &&
		d.onlySilent(now) &&
		!d.copies.irreplaceable(now, n) &&
		!d.othersBusy(now):
		return "the recovery waits for nothing but silent nodes"
	}
	return ""
}

// onlySilent reports whether all nodes that are heard did what the state asks.
func (d *detector) onlySilent(now time.Time) bool {
	return !slices.ContainsFunc(d.ranks.usedNodes(), func(n falcon.Node) bool {
		return !d.nodes.Get(n, now).SilentFor(now, d.cfg.Dead) && d.op.waitsForNode(n)
	})
}

// leftByThemselves reports whether ranks that are heard left training by themselves, so that a
// peer of their communicators is gone.
func (d *detector) leftByThemselves() bool {
	return d.op.rec.State == falcon.RecoverySuspend &&
		slices.ContainsFunc(d.op.rec.Faults, func(f falcon.Fault) bool {
			return f.Kind == falcon.FaultHang && f.Node != ""
		})
}

// othersBusy reports whether ranks that have rejoined are in their own code, or in
// storage: a rank that waits for no other is no sign against a node that is not heard.
func (d *detector) othersBusy(now time.Time) bool {
	return d.op.rec.State == falcon.RecoveryRejoin &&
		d.op.replies.RejoinedCount() > 0 &&
		d.collectTestimony(now).busy > 0
}

// patience is how long nothing may bring a recovery forward before nodes that are
// not heard are at fault for it. Once a rank trains again, all have built the
// groups with it: beats of the iterations that begin may then speak for them.
func (d *detector) patience() time.Duration {
	switch {
	case d.leftByThemselves():
		return 0
	case d.op.rec.State != falcon.RecoveryRejoin || d.op.replies.RejoinedCount() == 0:
		return 2 * d.cfg.Beat
	}
	usual, _ := d.pace.Usual()
	return 4*d.cfg.Beat + min(3*usual, d.cfg.HangMin)
}
