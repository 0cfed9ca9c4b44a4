package engine

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
)

// end is how the job ended; nil while a process lives, while how one ended is not known yet, and
// while something is at work that starts processes again.
func (s *jobStatus) end(now time.Time) *falconv1.JobEnd {
	switch {
	case s.cluster.recovering() != nil ||
		s.cluster.unadopted() != nil ||
		s.restarting(now) != "":
		return nil
	case len(s.job.ranks) == 0 && s.cluster.finishedBefore():
		return &falconv1.JobEnd{
			How:   string(statements.Finished),
			Ranks: int32(len(s.state.job.Placement)),
		}
	case !s.job.ended() || s.job.someUnannounced(now) || s.finishedInPart():
		return nil
	}
	out := &falconv1.JobEnd{
		Ranks:    int32(len(s.job.ranks)),
		AtUnixNs: s.job.lastEnd().UnixNano(),
	}
	switch r := s.endedByRecovery(); {
	case r != nil:
		out.How, out.By, out.Why = string(statements.Ended), r.ID, fmt.Sprintf("%s: %s", r.State, r.Reason)
	case s.state.restart.ToldToLeave(s.state.job.Epoch):
		out.How = string(statements.Ended)
		out.Why = "its processes were ordered to write a checkpoint and leave, and nothing was started again"
	case s.job.wasDismissed():
		out.How = string(statements.Ended)
		out.Why = "its processes were ordered to end while they waited for a recovery, of which this engine knows nothing more"
	case s.job.finishedWell():
		out.How = string(statements.Finished)
	default:
		s.job.fillBadEnd(out)
	}
	return out
}

// finishedInPart reports whether the ranks that are known have ended with success, and of others
// nothing is known, now or by the journal: an engine that has started again may not have heard of
// those that train.
func (s *jobStatus) finishedInPart() bool {
	return s.job.finishedWell() && !s.job.knowsAllRanks() && !s.cluster.finishedBefore()
}

// endedByRecovery is the newest recovery where it has had all processes of this job epoch end, or nil.
func (s *jobStatus) endedByRecovery() *falcon.Recovery {
	n := len(s.state.recoveries)
	if n == 0 {
		return nil
	}
	r := &s.state.recoveries[n-1]
	if !r.EndedJob || !r.State.Over() || r.JobEpoch != s.state.job.Epoch {
		return nil
	}
	return r
}

// someUntold reports whether of a process that has just ended it is not known how.
func (j *job) someUnannounced(now time.Time) bool {
	for _, p := range j.ranks {
		if !p.state.GetAlive() &&
			p.state.GetExit() == "" &&
			now.Sub(p.endedAt) < exitWait {
			return true
		}
	}
	return false
}

// lastEnd is when the last end was reported.
func (j *job) lastEnd() time.Time {
	var last time.Time
	for _, p := range j.ranks {
		if p.endedAt.After(last) {
			last = p.endedAt
		}
	}
	return last
}

// fillBadEnd says how processes ended that have not all ended with success: somebody has stopped them
// where SIGTERM or SIGINT ended all of them, else they failed, with the words of the first.
func (j *job) fillBadEnd(out *falconv1.JobEnd) {
	ordered := 0
	var first, unannounced *process // the first that failed, and the first of which nothing is reported
	for _, p := range j.ranks {
		if falconv1.ExitedWell(p.state.GetExit()) {
			continue
		}
		if endingOf(p.state).Ordered() {
			ordered++
			continue
		}
		if e := endingOf(p.state); !e.Known && e.Raised.IsZero() {
			unannounced = earlier(unannounced, p)
			continue
		}
		first = earlier(first, p)
	}
	how := statements.Failed
	if first == nil && unannounced != nil {
		first = unannounced
		how = statements.Gone
	}
	if first == nil {
		out.How = string(statements.Stopped)
		out.Why = fmt.Sprintf("%d of %d ranks were ended by SIGTERM or SIGINT", ordered, len(j.ranks))
		return
	}
	why := fmt.Sprintf("rank %d on %s %s",
		first.rank, first.node, orElse(clean(first.state.GetExit()), "ended, nobody knows how"))
	if words := endingOf(first.state).Words(); words != "" {
		why += ": " + words
	}
	out.How, out.Why, out.First = string(how), why, []int32{int32(first.rank)}
}

// earlier is the process of two that ended first, the lower rank of equals.
func earlier(a, b *process) *process {
	if a == nil ||
		b.endedAt.Before(a.endedAt) ||
		b.endedAt.Equal(a.endedAt) && b.rank < a.rank {
		return b
	}
	return a
}

func exitText(exit string) string {
	if exit = clean(exit); exit == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", exit)
}
