package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

const byPolicyName = "policy"

// approval decides whether policy approves the proposal by itself. It changes nothing.
type approval struct {
	*jobState
	op   *operation
	hist *history
}

// needsPerson is why a person must decide, empty = policy may.
func (ap *approval) needsPerson(now time.Time) string {
	why := ap.whyPerson(now)
	if why == "" {
		return ""
	}
	return withSubject(ap.op.rec, why)
}

func (ap *approval) whyPerson(now time.Time) string {
	p, c := ap.policy.Recovery, ap.op.rec
	most := cmp.Or(p.PerHour, perHourDefault)
	switch {
	case c.Whole && ap.job.Checkpoint < 0:
		return noCheckpoint
	case onlyHang(c) && hasSign(c, falcon.SignNoneLeft):
		return mayBeFinished
	case onlyHang(c) && hasSign(c, falcon.SignUnheard):
		return "the engine can't tell a dead node from a fault of its own network: look at the nodes that are not heard, then approve to suspend all and rejoin those that answer, or deny"
	case onlyHang(c):
		return "the processes are alive and the job may be waiting for something: approve to suspend all and rejoin them, or deny"
	case ap.mayHaveFinished(now, c):
		return mayBeFinished
	case c.Together != "":
		return ap.describeTogether(c.Together)
	case ap.policy.Mode == falcon.ModeObserve:
		return "the engine only observes"
	case ap.policy.Frozen:
		return "policy is frozen"
	case p.Approval != "" && p.Approval != falcon.ApprovalAuto:
		return "policy asks for a person"
	case ap.hist.automaticWithinHour(now, c) >= most:
		return fmt.Sprintf("%d recoveries within an hour were made without a person", most)
	case ap.health.Blind() && selfHealing(c):
		// for as long as most nodes are silent: for ever where they are dead
		return "most nodes are silent at once, and the engine's own network may be at fault: look at them, then approve or deny"
	}
	return ""
}

// mayBeOver reports whether the proposal is from before the engine had to listen again, and the
// job may go on by itself: iterations that begin are known some beats later.
func (ap *approval) mayBeOver(now time.Time) bool {
	switch {
	case !selfHealing(ap.op.rec):
		return false
	case ap.health.Holds(): // it must listen again now
		return true
	case newestFault(ap.op.rec).After(ap.health.Since()):
		return false
	}
	usual, _ := ap.pace.Usual()
	return now.Sub(ap.health.Since()) < 4*ap.cfg.Beat+min(2*usual, ap.cfg.HangMin)
}

// onlyHang reports whether nothing but the whole job's hang led to a recovery.
func onlyHang(c *falcon.Recovery) bool {
	return !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool {
		return f.Kind != falcon.FaultHang || f.Node != ""
	})
}

// onlyUnwatched reports whether nothing but ends that no agent watched led to a recovery.
func onlyUnwatched(c *falcon.Recovery) bool {
	return len(c.Faults) > 0 && !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool {
		return f.Kind != falcon.FaultExit || f.Sign != falcon.SignUnwatched
	})
}

// hasSign reports whether a fault has a sign.
func hasSign(c *falcon.Recovery, sign falcon.FaultSign) bool {
	return slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool { return f.Sign == sign })
}

// selfHealing reports whether nothing ended for good: what froze, fell silent or hung may go on.
func selfHealing(c *falcon.Recovery) bool {
	return !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool {
		return f.Kind == falcon.FaultExit || f.Kind == falcon.FaultDevice
	})
}

// newestFault is when the newest fault of a recovery was found.
func newestFault(c *falcon.Recovery) time.Time {
	newest := int64(0)
	for _, f := range c.Faults {
		newest = max(newest, f.DetectedNs)
	}
	return time.Unix(0, newest)
}

const mayBeFinished = "the job may have finished, or somebody may have stopped it: look at its log, then approve to start it again from its newest checkpoint, or deny"

const noCheckpoint = "no checkpoint is known of, so that a whole restart may begin from nothing: approve that, or deny"

// withSubject is a sentence on a proposal, naming what it is about unless that is in place.
func withSubject(c *falcon.Recovery, why string) string {
	if c.Shrink != nil || why == noCheckpoint {
		return wholeReason(c) + "; " + why
	}
	return why
}

// wholeReason is why survivors can't be kept, without what is waited for.
func wholeReason(c *falcon.Recovery) string {
	if c.Shrink != nil {
		return shrinkReason(c.Shrink)
	}
	return c.WholeWhy
}
