package page

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/phrase"
)

// Recovering is the recovery that is not over, or nil.
func (s *State) Recovering() *falconv1.Recovery {
	if r := s.Snap().GetRecovery(); feed.Recovering(r) {
		return r
	}
	return nil
}

// Asked is the recovery that waits for a decision, or nil.
func (s *State) Asked() *falconv1.Recovery {
	if r := s.Recovering(); r.GetState() == string(falcon.RecoveryProposed) {
		return r
	}
	return nil
}

// Stands is the newest recovery if it failed and the job has not trained since, or nil.
func (s *State) Stands() *falconv1.Recovery {
	r := s.Snap().GetRecovery()
	if r == nil ||
		feed.Recovering(r) ||
		r.State == string(falcon.RecoveryResumed) ||
		s.Snap().GetJob().GetIteration() > r.BeforeIteration ||
		s.Over() {
		return nil
	}
	return r
}

// EngineNow is the present by the engine's clock, to which deadlines refer.
func (s *State) EngineNow() time.Time {
	if s.Snap().GetAtUnixNs() == 0 {
		return time.Unix(0, 0)
	}
	return s.Feed.EngineTime(s.Now)
}

// Left is the time to the deadline of a recovery's state; ok is false without one.
func (s *State) Left(r *falconv1.Recovery) (left time.Duration, ok bool) {
	if r.GetDeadlineUnixNs() == 0 {
		return 0, false
	}
	return max(0, time.Unix(0, r.DeadlineUnixNs).Sub(s.EngineNow())), true
}

// Deadline describes Left in words, or "".
func (s *State) Deadline(r *falconv1.Recovery) string {
	left, ok := s.Left(r)
	switch {
	case !ok || !feed.Recovering(r):
		return ""
	case r.State == string(falcon.RecoveryProposed):
		return "policy acts in " + phrase.Seconds(left)
	case left == 0:
		return "deadline over"
	}
	return phrase.Seconds(left) + " to its deadline"
}

// RecoverySummary returns in one line where a recovery is.
func (s *State) RecoverySummary(r *falconv1.Recovery) string {
	switch falcon.RecoveryState(r.GetState()) {
	case falcon.RecoveryProposed:
		return "waits for a decision: " + r.Reason
	case falcon.RecoveryResumed:
		return fmt.Sprintf("resumed at %siteration %s, %s after the first sign",
			endClock(s, r), phrase.Iteration(r.ResumeIteration), phrase.Ms(Took(r)))
	case falcon.RecoveryFailed, falcon.RecoveryDenied, falcon.RecoveryCancelled:
		return r.State + ": " + r.Reason
	}
	if left, limited := s.Left(r); r.GetWait() != nil && limited {
		return phrase.WaitsFor(r.Wait, left)
	}
	text := r.GetState() + ": " + phrase.Progress(r)
	if d := s.Deadline(r); d != "" {
		text += ", " + d
	}
	return text
}

// endClock is when a recovery ended, "14:00:18Z, ", "" where that is not known.
func endClock(s *State, r *falconv1.Recovery) string {
	if r.GetEndedUnixNs() == 0 {
		return ""
	}
	return phrase.Clock(time.Unix(0, r.EndedUnixNs), s.EngineNow(), s.Zone) + ", "
}

// Underway reports whether a validation holds the job or is about to.
func Underway(v *falconv1.Validation) bool {
	return v.GetState() != "" && !falcon.ValidationState(v.GetState()).Over()
}

// Took is how long a recovery that is over took from the first sign on, ms.
func Took(r *falconv1.Recovery) float64 {
	return float64(r.GetEndedUnixNs()-r.GetStartedUnixNs()) / 1e6
}

// Running is how long the present phase has lasted: what has passed since the
// first sign and is in no phase that has ended, ms.
func (s *State) Running(r *falconv1.Recovery) float64 {
	spent := float64(s.EngineNow().UnixNano()-r.GetStartedUnixNs()) / 1e6
	for _, ms := range r.GetPhasesMs() {
		spent -= ms
	}
	return max(0, spent)
}

// pids is each rank's process when this console first saw a recovery, to show whether
// survivors kept theirs. It is a value: a held state keeps what it has seen.
type pids struct {
	id    string
	first map[int32]int32
	seen  int // survivors whose process was seen at first and is known now
	kept  int // of these, those with the same process
}

func (p pids) afterSnapshot(r *falconv1.Recovery) pids {
	if r == nil || len(r.Ranks) == 0 {
		if r.GetId() != p.id {
			return pids{}
		}
		return p // over: the last count holds
	}
	if r.Id != p.id {
		p = pids{id: r.Id, first: make(map[int32]int32, len(r.Ranks))}
		for _, x := range r.Ranks {
			p.first[x.GetRank()] = x.GetPid()
		}
	}
	p.seen, p.kept = 0, 0
	for _, x := range r.Ranks {
		first := p.first[x.GetRank()]
		_, replaced := r.Replaced[x.GetRank()]
		if replaced || first == 0 || x.GetPid() == 0 {
			continue
		}
		p.seen++
		if first == x.GetPid() {
			p.kept++
		}
	}
	return p
}

// KeptPids returns how many survivors of a recovery have the process that they had
// when this console first saw it, of how many; ok is false where it saw none.
func (s *State) KeptPids(r *falconv1.Recovery) (kept, of int, ok bool) {
	return s.pids.kept, s.pids.seen, r.GetId() == s.pids.id && s.pids.seen > 0
}

// RecoveryList is the snapshot's recovery, then those last pulled that are over. What is in
// progress is shown from the snapshot alone: keys decide on that one, and the list may be
// pulled before the snapshot that has it.
func (s *State) RecoveryList() []*falconv1.Recovery {
	over := slices.DeleteFunc(slices.Clone(s.Feed.Recoveries.GetRecoveries()), feed.Recovering)
	return newestThen(s.Snap().GetRecovery(), over)
}

// ValidationList is the same of validations.
func (s *State) ValidationList() []*falconv1.Validation {
	return newestThen(s.Snap().GetValidation(), s.Feed.Validations)
}

// newestThen lists the newest, if there is one, then the others.
func newestThen[T interface{ GetId() string }](newest T, list []T) []T {
	if newest.GetId() == "" {
		return list
	}
	rest := slices.DeleteFunc(slices.Clone(list), func(x T) bool {
		return x.GetId() == newest.GetId()
	})
	return append([]T{newest}, rest...)
}
