package validate

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// rankStates is the newest report of every rank in one attempt to hold the job.
type rankStates struct {
	roster
	states map[falcon.Rank]*falconv1.RankPause
}

func newRankStates(r roster) rankStates {
	return rankStates{roster: r, states: map[falcon.Rank]*falconv1.RankPause{}}
}

// update keeps the newest report of each rank. It reports whether one of them is
// or was held.
func (s *rankStates) update(pauses []*falconv1.RankPause) (held bool) {
	for _, p := range pauses {
		rank := falcon.Rank(p.GetRank())
		if old := s.states[rank]; old != nil { // a final report need not repeat what was measured
			p.HeldMs = max(p.GetHeldMs(), old.GetHeldMs())
			p.QuietMs = max(p.GetQuietMs(), old.GetQuietMs())
		}
		s.states[rank] = p
		switch p.GetState() {
		case falconv1.PauseState_PAUSE_STATE_REACHED, falconv1.PauseState_PAUSE_STATE_QUIET:
			held = true
		default:
			held = held || p.GetHeldMs() > 0
		}
	}
	return held
}

// durations are for how long a rank was held, and how long it took to become
// quiet, at most, ms.
func (s *rankStates) durations() (heldMs, quietMs float64) {
	for _, p := range s.states {
		heldMs = max(heldMs, p.GetHeldMs())
		quietMs = max(quietMs, p.GetQuietMs())
	}
	return heldMs, quietMs
}

// refusal is the reason of the node's first rank that refused, else the node's
// own.
func (s *rankStates) refusal(node falcon.Node, detail string) string {
	for _, rank := range s.ranksOf[node] {
		if p := s.states[rank]; p.GetState() == falconv1.PauseState_PAUSE_STATE_REFUSED {
			detail = fmt.Sprintf("rank %d: %s", rank, p.GetReason())
			break
		}
	}
	return fmt.Sprintf("node %s can't hold: %s", node, detail)
}

// earlyRelease describes which rank of the node is not held although it should be.
func (s *rankStates) earlyRelease(node falcon.Node) string {
	for _, rank := range s.ranksOf[node] {
		switch p := s.states[rank]; p.GetState() {
		case falconv1.PauseState_PAUSE_STATE_EXPIRED:
			return fmt.Sprintf("rank %d let go at the order's deadline", rank)
		case falconv1.PauseState_PAUSE_STATE_REFUSED:
			return fmt.Sprintf("rank %d: %s", rank, p.GetReason())
		case falconv1.PauseState_PAUSE_STATE_RELEASED:
			return fmt.Sprintf("rank %d was let go by its agent", rank)
		}
	}
	return fmt.Sprintf("node %s let go", node)
}

// retryable reports whether a cut farther ahead may do where the node refused this one:
// every rank that refused was late, in the middle of a group, or made other
// calls in one iteration (an evaluation, a log line) than in those before it.
func (s *rankStates) retryable(node falcon.Node) bool {
	some := false
	for _, rank := range s.ranksOf[node] {
		p := s.states[rank]
		if p.GetState() != falconv1.PauseState_PAUSE_STATE_REFUSED {
			continue
		}
		switch p.GetReasonCode() {
		case falconv1.PauseReason_PAUSE_REASON_MISSED, falconv1.PauseReason_PAUSE_REASON_GROUP,
			falconv1.PauseReason_PAUSE_REASON_LATE,
			falconv1.PauseReason_PAUSE_REASON_UNEVEN:
			some = true
		default:
			return false
		}
	}
	return some
}

// nodeQuiet reports whether all ranks of a node are quiet; broken is the first
// state that ends the attempt instead.
func (s *rankStates) nodeQuiet(node falcon.Node) (quiet bool, broken falconv1.PauseState) {
	quiet = true
	for _, rank := range s.ranksOf[node] {
		switch state := s.states[rank].GetState(); state {
		case falconv1.PauseState_PAUSE_STATE_RELEASED, falconv1.PauseState_PAUSE_STATE_EXPIRED,
			falconv1.PauseState_PAUSE_STATE_REFUSED:
			return false, state
		case falconv1.PauseState_PAUSE_STATE_QUIET:
		default:
			quiet = false
		}
	}
	return quiet, falconv1.PauseState_PAUSE_STATE_UNSPECIFIED
}

// notQuiet lists the ranks that are not quiet yet.
func (s *rankStates) notQuiet() []falcon.Rank {
	var out []falcon.Rank
	for r := range s.members {
		if s.states[falcon.Rank(r)].GetState() != falconv1.PauseState_PAUSE_STATE_QUIET {
			out = append(out, falcon.Rank(r))
		}
	}
	return out
}

// lateness describes the first rank that was not quiet when the order's life
// ended.
func (s *rankStates) lateness(life time.Duration) string {
	late := s.notQuiet()
	if len(late) == 0 {
		return "the order's time was over"
	}
	p := s.states[late[0]]
	where := "had not come to the boundary"
	if p.GetState() == falconv1.PauseState_PAUSE_STATE_REACHED {
		where = "had work on its streams still"
	}
	ahead := ""
	if p.GetRunAhead() > 0 {
		ahead = fmt.Sprintf("; its host runs %d iterations ahead of the device", p.GetRunAhead())
	}
	return fmt.Sprintf("rank %d %s after %s (%d ranks were late)%s", late[0], where, life, len(late), ahead)
}
