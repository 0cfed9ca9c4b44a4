package phrase

import (
	"cmp"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
)

// Statement is a statement in one line; what matters most comes first, as a line may be cut.
func Statement(s *statements.Statement, now time.Time) string {
	switch s.Kind {
	case statements.Unseen:
		return "the engine does not answer: what follows is from its last picture"
	case statements.Recovery:
		return recovering(s, now)
	case statements.Acting, statements.Pending, statements.Decision, statements.InForce:
		return acting(s, now)
	case statements.Frozen:
		return "FROZEN: nothing new is dispatched until a person unfreezes"
	case statements.Incident:
		return s.Incident.GetId() +
			" " +
			s.Incident.GetState() +
			Prefixed(" for ", lasting(s, now)) +
			Prefixed(", ", Again(s.Incident)) +
			": " +
			Verdict(s.Incident.GetVerdict()) +
			"; " +
			Slowdown(s.Incident)
	case statements.Fenced:
		return "fenced: " + Few(s.Nodes, 4)
	case statements.Last:
		return lastly(s, now)
	}
	return standing(s, now)
}

// standing is how the job stands.
func standing(s *statements.Statement, now time.Time) string {
	j := s.Job
	pace := Ms(j.GetIterationMs()) + " an iteration, baseline " + Ms(j.GetBaselineMs())
	switch s.Kind {
	case statements.Unknown:
		return "nothing received yet"
	case statements.Waiting:
		if falcon.JobState(j.GetState()) != falcon.JobWaiting {
			if s.Severity < statements.Warn {
				return "waiting for the first iteration"
			}
			return "waiting for an iteration: none was heard of so far"
		}
		if s.Severity < statements.Warn && len(s.Nodes) > 0 {
			return fmt.Sprintf("waiting for the job: %s connected, no rank has begun to communicate so far",
				Plural(len(s.Nodes), "agent"))
		}
		return "waiting for agents" + Prefixed(", ", waitingAgents(s, now))
	case statements.Learning:
		if j.GetIterationMs() <= 0 {
			return "learning the healthy iteration time: the first iterations are under way"
		}
		return "learning the healthy iteration time, iteration " + Iteration(j.GetIteration())
	case statements.Running:
		return "running: " + pace + newestSlower(j)
	case statements.Slow:
		return "running, " + Percent(j.GetSlowdown()) + " against the baseline: " + pace
	case statements.Slower:
		n := ""
		if k := j.GetSlowerIterations(); k > 0 {
			n = fmt.Sprintf(" for %d iterations", k)
		}
		return "slower" + n + ", checking: " + pace + " (" + Percent(j.GetSlowdown()) + ")"
	case statements.Held:
		return s.Test.GetId() + " holds the job for a test: " + idle(s, now)
	case statements.Standing:
		return stands(s, now)
	case statements.Resuming:
		return "nothing trains: " + idle(s, now)
	case statements.Moving:
		return cmp.Or(j.GetRestart(), "restarting") + "; " + idle(s, now)
	}
	return ended(s)
}

// newestSlower says that the newest iterations were slow, while they are too few to say more; or "".
func newestSlower(j *falconv1.Job) string {
	switch k := j.GetSlowerIterations(); k {
	case 0:
		return ""
	case 1:
		return "; the newest was slower"
	default:
		return fmt.Sprintf("; the newest %d were slower", k)
	}
}

// waitingAgents is what is known of a job of which not all ranks are heard, or "".
func waitingAgents(s *statements.Statement, now time.Time) string {
	if s.Severity < statements.Warn {
		return ""
	}
	return "not all ranks are heard; " + idle(s, now)
}

// stands is a job of which no iteration comes, and who holds it up where that is known.
func stands(s *statements.Statement, now time.Time) string {
	if s.Hang != nil {
		return HangHeadline(s.Hang, now)
	}
	if r := s.Recovery; r != nil {
		return "nothing trains: " +
			r.GetId() +
			" " +
			r.GetState() +
			Prefixed(": ", r.GetReason()) +
			"; " +
			idle(s, now)
	}
	if falcon.JobState(s.Job.GetState()) == falcon.JobLost {
		return "nothing trains, ranks are lost: " + idle(s, now)
	}
	return idle(s, now)
}

// idle is for how long no iteration has come, beside how long one usually takes.
func idle(s *statements.Statement, now time.Time) string {
	text := "no iteration so far"
	if !s.Since.IsZero() {
		text = "no iteration for " + Brief(s.For(now))
	}
	if s.Usual > 0 {
		text += " (usually " + Brief(s.Usual) + ")"
	}
	return text
}

// Brief is a short time with as many digits as an operator can use: "0.14 s", "2.1 s", "40 s".
func Brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return Lasting(d)
}

// Lost is a time that was lost, given in ms.
func Lost(ms float64) string {
	if !(ms > 0) {
		return "nothing"
	}
	return Brief(time.Duration(min(ms, 1e12) * float64(time.Millisecond)))
}

// endWords head how a job ended.
var endWords = map[statements.Kind]string{
	statements.Stopped:  "STOPPED BY SOMEBODY",
	statements.Failed:   "FAILED BY ITSELF",
	statements.Gone:     "STOPPED, OR FAILED ALIKE",
	statements.Ended:    "ENDED BY FALCON",
	statements.Finished: "finished",
}

// ended is how a job ended, and who or what ended it.
func ended(s *statements.Statement) string {
	text := endWords[s.Kind]
	e := s.Job.GetEnd()
	switch r := s.Recovery; {
	case s.Kind != statements.Ended && r.GetTogether() != "":
		text = Together(r)
		if f := statements.Spoken(r); f != nil {
			text += ": " + Ranks(f.GetRanks(), 1) + ": " + f.GetWords()
		}
	case e.GetBy() != "" || e.GetWhy() != "":
		text += ": " + e.GetBy()
		if e.GetBy() != "" && e.GetWhy() != "" {
			text += ": "
		}
		text += e.GetWhy()
	case r != nil:
		text += ": " + r.GetId() + " " + r.GetState() + Prefixed(": ", r.GetReason())
	case s.Kind == statements.Finished && e.GetRanks() > 0 && e.GetRanks() < s.Job.GetWorld():
		text += fmt.Sprintf(": %d of %d ranks ended with success, of the others nothing is known",
			e.GetRanks(), s.Job.GetWorld())
	case s.Kind == statements.Finished && e.GetRanks() > 0:
		text += fmt.Sprintf(": all %d ranks ended with success", e.GetRanks())
	case s.Kind == statements.Finished:
		text += ", at iteration " + Iteration(s.Job.GetIteration())
	}
	return text
}

// recovering is a recovery that is not over: for whom it waits first, then about what.
func recovering(s *statements.Statement, now time.Time) string {
	r := s.Recovery
	text := r.GetId() + " " + r.GetState()
	if r.GetAttempts() > 0 {
		text += fmt.Sprintf(", generation %d", r.GetGeneration())
	}
	left, counts := s.Left(now)
	w := r.GetWait()
	switch state := falcon.RecoveryState(r.GetState()); {
	case state == falcon.RecoveryProposed && r.GetTogether() != "":
		text = r.GetId() +
			" WAITS for " +
			whom(s.Who) +
			Prefixed(", ", since(s, now)) +
			": start the job again (approve), or leave it ended (deny)?"
	case state == falcon.RecoveryProposed && s.Who != statements.Nobody:
		text = r.GetId() +
			" WAITS for " +
			whom(s.Who) +
			Prefixed(", ", since(s, now)) +
			": " +
			Faults(r.GetFaults()) +
			Prefixed("; ", r.GetReason())
	case state == falcon.RecoveryProposed:
		text += ", begins in " + Seconds(left) + ": " + Faults(r.GetFaults())
	case s.Who != statements.Nobody && w.GetSpare():
		text = r.GetId() +
			" WAITS for a spare node" +
			Prefixed(" or ", back(w)) +
			Prefixed(", ", since(s, now)) +
			": " +
			Faults(r.GetFaults())
		if counts {
			text += "; in " + Seconds(left) + " " + afterWait(w.GetThen())
		}
	case r.GetAwaitsProof():
		text = r.GetId() +
			" WAITS for " +
			whom(s.Who) +
			" to state that nothing of the job runs any more" +
			Prefixed(", ", since(s, now)) +
			": " +
			Faults(r.GetFaults())
	default:
		text += ": " + Faults(r.GetFaults()) + Prefixed("; ", Progress(r))
		if counts {
			text += ", " + Seconds(left) + " to its deadline"
		}
	}
	// of a job that was stopped nothing is lost
	if lost := r.GetLostGpuHours(); lost >= 0.005 && r.GetTogether() == "" {
		text += fmt.Sprintf("; %.2f GPU-h lost", lost)
	}
	return text
}

// back names the nodes whose return ends a wait, or "".
func back(w *falconv1.RecoveryWait) string {
	if len(w.GetNodes()) == 0 {
		return ""
	}
	return Few(w.GetNodes(), 3) + " to come back"
}

// Plural is a number of things.
func Plural[N int | int32 | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Count(int64(n)) + " " + what + "s"
}

// whom says who must act.
func whom(w statements.Who) string {
	if w == statements.Second {
		return "a second approver"
	}
	return "an approver"
}

// since is for how long it has been so, or "".
func since(s *statements.Statement, now time.Time) string {
	if t := lasting(s, now); t != "" {
		return t + " so far"
	}
	return ""
}

// lasting is for how long it has been so, or "".
func lasting(s *statements.Statement, now time.Time) string {
	if s.Since.IsZero() {
		return ""
	}
	return Lasting(s.For(now))
}

// acting is an action that is proposed, about to go out, under way or in force.
func acting(s *statements.Statement, now time.Time) string {
	a := s.Action
	name := a.GetRung() + " for " + a.GetIncident()
	by := Prefixed("approved by ", Approvers(a))
	will := ": " + Predicted(a) + Prefixed("; ", Does(a.GetRung(), a.GetVariant())) + Prefixed("; ", by)
	waits := " WAITS for " + whom(s.Who) + Prefixed(", ", since(s, now)) + endsWords(s.Ends)
	switch left, counts := s.Left(now); {
	case s.Kind == statements.InForce:
		return name + " " + inForce(a)
	case s.Kind == statements.Acting:
		return name + endsWords(s.Ends) + ": " + underWay(a)
	case s.Kind == statements.Decision && by != "" && s.Who != statements.Second:
		return name + waits + ": approved, held while policy is frozen or observes" + Prefixed("; ", by)
	case s.Kind == statements.Decision:
		return name + waits + will
	case counts && left == 0:
		return name + " is due, and goes out when nothing else is carried out" + endsWords(s.Ends) + will
	case counts:
		return name + " ACTS IN " + Seconds(left) + endsWords(s.Ends) + will
	case falcon.ActionPhase(a.GetPhase()) == falcon.PhaseMeasuring:
		return name + " goes out once the ranks are measured again" + endsWords(s.Ends) + will
	}
	return name + " is being ordered" + endsWords(s.Ends) + will
}

// Ends says whose processes an action ends, or "".
func Ends(a *falconv1.Action) string {
	return endsWords(statements.EndsOf(a))
}

// endsWords say whose processes an action ends, or "".
func endsWords(e statements.Ends) string {
	switch e {
	case statements.EndsAll:
		return ", ENDS ALL processes"
	case statements.EndsNode:
		return ", ends the processes of a node"
	case statements.EndsNone:
	}
	return ""
}

// phases are those of an action under way in words.
var phases = map[falcon.ActionPhase]string{
	falcon.PhasePlacement:  "ranks change places",
	falcon.PhaseSplit:      "the split for the new places is ordered",
	falcon.PhaseCheckpoint: "the ranks write a checkpoint and end",
	falcon.PhaseLeaving:    "the checkpoint is written, the processes end",
	falcon.PhaseLaunching:  "processes are being started on the new nodes",
	falcon.PhaseRelaunch:   "that failed, processes are being started on the old nodes",
	falcon.PhaseFencing:    "a recovery replaces the node",
}

func underWay(a *falconv1.Action) string {
	if a.GetState() == string(falcon.ActionReverting) {
		return "is being reverted" + Because(a)
	}
	return cmp.Or(phases[falcon.ActionPhase(a.GetPhase())], "the ranks are agreeing on an iteration")
}

func inForce(a *falconv1.Action) string {
	force := "in force"
	if statements.EndsOf(a) != statements.EndsNone { // processes that have ended are not brought back
		force = "carried out"
	}
	switch {
	case a.GetState() == string(falcon.ActionApplied):
		return force + ", its gain is being measured"
	case a.GetMeasuredMs() > 0:
		return force + ", kept: " + Measured(a)
	}
	return force + ", kept"
}

// lastly is what ended last.
func lastly(s *statements.Statement, now time.Time) string {
	ago := ""
	if !s.Since.IsZero() {
		ago = " " + Lasting(s.For(now)) + " ago"
	}
	if r := s.Recovery; r != nil {
		return "last: " +
			r.GetId() +
			" " +
			r.GetState() +
			ago +
			": " +
			Faults(r.GetFaults()) +
			Prefixed("; ", r.GetReason())
	}
	text := "last: " + s.Incident.GetId() + " " + s.Incident.GetState() + ago + ": " +
		Verdict(s.Incident.GetVerdict())
	if s.Incident.GetDeparted() {
		text += "; " + parts(s.Incident.GetVerdict()) + " left the job"
	}
	return text
}
