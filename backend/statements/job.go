package statements

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Sampling is how much later than it began an iteration may be known: agents look, send, and the
// engine draws its pictures in steps.
const Sampling = time.Second

// Standstill is how many usual iteration times without an iteration are a standstill.
const standstill = 3

// longStand is how many usual times, and how long at least, are more than a pause of the job's own.
const (
	longStand      = 10
	longStandLeast = 10 * time.Second
)

// unknownUsual is how long no iteration may come where it is not known how long one takes.
const unknownUsual = time.Minute

// slowerLeast is how many iterations in a row are more than a stray one.
const slowerLeast = 3

// job is how the job stands.
func (p Picture) job() Statement {
	j := p.Snap.GetJob()
	s := Statement{Job: j, Severity: Plain, Usual: usual(j)}
	switch state := falcon.JobState(j.GetState()); {
	case state == "":
		s.Kind = Unknown
	case p.together() != "":
		s.Kind = p.together()
		s.Severity = Bad
		s.Since = at(p.Snap.GetRecovery().GetStartedUnixNs())
		s.Recovery = p.Snap.GetRecovery()
		s.Ranks = Spoken(s.Recovery).GetRanks()
	case j.GetEnd() != nil:
		s.Kind = endKind(j.GetEnd().GetHow())
		s.Severity = Bad
		s.Since = at(j.GetEnd().GetAtUnixNs())
		s.Ranks = j.GetEnd().GetFirst()
		switch known := j.GetEnd().GetRanks(); {
		case s.Kind != Finished:
		case known > 0 && known < j.GetWorld(): // of the others nothing is known
			s.Severity = Warn
		default:
			s.Severity = Good
		}
	case state == falcon.JobFinished && p.endedByRecovery():
		s.Kind = Ended
		s.Severity = Bad
		s.Recovery = p.Snap.GetRecovery()
	case state == falcon.JobFinished:
		s.Kind, s.Severity = Finished, Good
	case p.stands():
		s.Kind, s.Severity, s.Recovery, s.Since = Standing, Bad, p.Snap.GetRecovery(), p.lastIteration()
	case state == falcon.JobRestarting:
		s.Kind, s.Severity, s.Since = Moving, Bad, p.lastIteration()
	case state == falcon.JobRecovering:
		s.Kind, s.Severity, s.Since = Resuming, Bad, p.lastIteration()
		s.carried = len(p.recovery()) > 0
	case state == falcon.JobLost:
		s.Kind, s.Severity, s.Since = Standing, Bad, p.lastIteration()
	case state == falcon.JobWaiting && j.GetEpoch() == 0:
		s.Kind, s.Nodes = Waiting, p.connected()
	case state == falcon.JobWaiting: // a job that is known, of which not all ranks are heard
		if p.going(&s); s.Kind == Running || s.Kind == Learning {
			s.Kind, s.Severity = Waiting, Warn
		}
	default:
		p.going(&s)
	}
	if p.Lost && s.Severity == Good && s.Kind != Finished { // nobody knows how it is now
		s.Severity = Plain
	}
	return s
}

// going is a job of which nothing is known to be lost: it runs, or it stands.
func (p Picture) going(s *Statement) {
	s.Since = p.lastIteration()
	v := p.Snap.GetValidation()
	switch idle := s.For(p.Now); {
	case p.Snap.GetHang() != nil:
		s.Kind = Standing
		s.Severity = Bad
		s.Hang = p.Snap.GetHang()
		s.Since = at(p.Snap.GetHang().GetSinceUnixNs())
		for _, c := range s.Hang.GetCulprits() {
			s.Ranks = append(s.Ranks, c.GetRanks()...)
		}
	case v.GetState() != "" &&
		!falcon.ValidationState(v.GetState()).Over() &&
		idle > Sampling+standstill*s.Usual:
		s.Kind = Held
		s.Severity = Warn
		s.Test = v
	case s.Since.IsZero(): // this engine has heard of no iteration: nobody knows whether it trains
		s.Kind, s.Severity = Waiting, Warn
	case s.Usual > 0 && idle > Sampling+standstill*s.Usual, s.Usual == 0 && idle > unknownUsual:
		s.Kind, s.Severity = Standing, Warn
		if idle > max(longStandLeast, longStand*s.Usual) {
			s.Severity = Bad
		}
	case s.Job.GetIteration() < 0: // this job epoch has had none so far, as each has at its start
		s.Kind = Waiting
	default:
		p.pace(s)
	}
}

// pace is that of a job that runs.
func (p Picture) pace(s *Statement) {
	s.Since = time.Time{}
	j := s.Job
	open := falcon.JobState(j.GetState()) == falcon.JobSlow ||
		slices.ContainsFunc(p.Snap.GetIncidents(), isOpen)
	switch {
	case falcon.JobState(j.GetState()) == falcon.JobLearning:
		s.Kind = Learning
	case open:
		s.Kind, s.Severity = Slow, Warn
	case j.GetSlowerIterations() >= slowerLeast ||
		j.GetSlowerIterations() > 0 && j.GetSlowdown() >= falcon.MinorBelow:
		s.Kind, s.Severity = Slower, Warn
	case j.GetSlowdown() >= falcon.MinorBelow: // an engine that does not count them
		s.Kind, s.Severity = Slower, Warn
	default:
		s.Kind, s.Severity = Running, Good
		if p.blind() {
			s.Severity = Warn // ranks are not watched
		}
	}
}

// connected are the nodes whose agents are here.
func (p Picture) connected() (out []string) {
	for _, n := range p.Snap.GetNodes() {
		if n.GetConnected() {
			out = append(out, n.GetNode())
		}
	}
	return out
}

// blind reports whether an agent is away, so that not all ranks are watched.
func (p Picture) blind() bool {
	for _, n := range p.Snap.GetNodes() {
		if !n.GetConnected() && !isFenced(p.Snap, n.GetNode()) {
			return true
		}
	}
	return false
}

func isFenced(s *falconv1.SnapshotReply, node string) bool {
	for _, n := range s.GetFenced() {
		if n == node {
			return true
		}
	}
	return false
}

// usualMost bounds what is believed of an iteration's time, in ms.
const usualMost = 1e9

// usual is the time of an iteration as the job goes, 0 where it is not known.
func usual(j *falconv1.Job) time.Duration {
	for _, ms := range []float64{j.GetUsualMs(), j.GetIterationMs(), j.GetBaselineMs()} {
		if ms > 0 {
			return time.Duration(min(ms, usualMost) * float64(time.Millisecond))
		}
	}
	return 0
}

// lastIteration is when the newest iteration was reported; zero where none was. An engine that
// does not say knows the age of its newest data.
func (p Picture) lastIteration() time.Time {
	j := p.Snap.GetJob()
	if ns := j.GetIterationUnixNs(); ns != 0 {
		return at(ns)
	}
	if j.GetDataAgeMs() < 0 || p.Snap.GetAtUnixNs() == 0 {
		return time.Time{}
	}
	return time.Unix(0, p.Snap.GetAtUnixNs()).Add(-time.Duration(j.GetDataAgeMs()) * time.Millisecond)
}

// endKind is the kind for an end's word on the wire.
func endKind(how string) Kind {
	switch k := Kind(how); k {
	case Finished, Stopped, Failed, Gone, Ended:
		return k
	default:
		return Failed
	}
}

// together is what the ends of all ranks mean about which a recovery asks, or "".
func (p Picture) together() Kind {
	r := p.Snap.GetRecovery()
	if falcon.RecoveryState(r.GetState()) != falcon.RecoveryProposed {
		return ""
	}
	switch falcon.EndsTogether(r.GetTogether()) {
	case falcon.EndsStopped:
		return Stopped
	case falcon.EndsAtOnce:
		return Gone
	case falcon.EndsUnbegun, falcon.EndsErred, falcon.EndsAlike:
		return Failed
	}
	return ""
}

// Spoken is the first fault of a recovery whose process said why it ended; nil where none did.
func Spoken(r *falconv1.Recovery) *falconv1.Fault {
	for _, f := range r.GetFaults() {
		if f.GetWords() != "" {
			return f
		}
	}
	return nil
}

// stands reports whether the newest recovery is over without success and the job has not trained since.
func (p Picture) stands() bool {
	r := p.Snap.GetRecovery()
	state := falcon.RecoveryState(r.GetState())
	return state.Over() &&
		state != falcon.RecoveryResumed &&
		p.Snap.GetJob().GetIteration() <= r.GetBeforeIteration()
}

// endedByRecovery reports whether the newest recovery has ended the job: for an engine that does
// not say how jobs end.
func (p Picture) endedByRecovery() bool {
	r := p.Snap.GetRecovery()
	switch falcon.RecoveryState(r.GetState()) {
	case falcon.RecoveryFailed, falcon.RecoveryCancelled:
		return r.GetEndedJob() ||
			r.GetAttempts() > 0 && p.Snap.GetJob().GetIteration() <= r.GetBeforeIteration()
	}
	return false
}
