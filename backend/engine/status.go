package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/restart"
)

// jobStatus knows what the job does.
type jobStatus struct {
	*shared

	intake *sampleIntake
}

func (s *jobStatus) current(now time.Time) falcon.JobState {
	switch {
	case s.restarting(now) != "":
		return falcon.JobRestarting
	case s.cluster.recovering() != nil || s.cluster.unadopted() != nil:
		return falcon.JobRecovering
	case len(s.job.ranks) == 0 && s.cluster.finishedBefore():
		return falcon.JobFinished
	case len(s.job.ranks) == 0:
		return falcon.JobWaiting
	case s.job.ended() && s.endedByRecovery() != nil:
		return falcon.JobLost // processes that are ordered to end may do so with success
	case s.job.ended() && s.state.restart.ToldToLeave(s.state.job.Epoch):
		return falcon.JobLost // they wrote a checkpoint, and nothing was started again
	case s.job.wasDismissed():
		return falcon.JobLost
	case s.finishedInPart():
		return falcon.JobWaiting
	case s.job.finishedWell(): // a job that has ended needs no agents
		return falcon.JobFinished
	case s.job.someLost(now) || s.nodeLost(now):
		return falcon.JobLost
	case !s.job.complete() && !s.job.someEnded():
		return falcon.JobWaiting
	case slices.ContainsFunc(s.state.incidents, falcon.Incident.Open):
		return falcon.JobSlow
	case s.det.Steady().Learning:
		return falcon.JobLearning
	}
	return falcon.JobSteady
}

// nodeLost distinguishes a lost node from a lost agent: with a node gone the whole job
// stops, with an agent gone it trains on and the others report.
func (s *jobStatus) nodeLost(now time.Time) bool {
	return !s.intake.lastData.IsZero() &&
		now.Sub(s.intake.lastData) > s.standstill() &&
		s.cluster.blindNode(now) != ""
}

// standstill is how long a job that goes on is silent at most.
func (s *jobStatus) standstill() time.Duration {
	return max(staleAfter, time.Duration(min(10*s.det.Steady().CurrentMs, msMost)*float64(time.Millisecond)))
}

// restarting is what a restart waits for, for people; "" when there is none.
func (s *jobStatus) restarting(now time.Time) string {
	r := s.state.restart
	switch r.Phase {
	case restart.Leaving:
		rank, _ := s.cluster.stillRunning(now, r.Home)
		return fmt.Sprintf("restarting from iteration %d: waiting for %s to end",
			r.Resume, s.cluster.rankText(rank))
	case restart.Left:
		return "restarting: all processes have ended, the launch is being planned"
	case restart.Launching:
		return "restarting: " + s.cluster.launchText(*r.Launch)
	case restart.Clearing:
		return fmt.Sprintf("restarting: launch %d has failed (%s), what it started is to end",
			r.Launch.Generation, r.Failed)
	}
	o := s.orders.leaving()
	if o != nil && (o.vote.Taken() > 0 || s.job.ended()) {
		return fmt.Sprintf("restarting: order %d has the processes write a checkpoint and leave", o.Order.ID)
	}
	return ""
}
