package validate

import (
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// survey collects where the ranks are, node by node.
type survey struct {
	sentAt     time.Time
	answers    map[falcon.Rank]*falconv1.RankPause
	roundTrips []time.Duration // of the nodes that have answered
}

func newSurvey(now time.Time) survey {
	return survey{sentAt: now, answers: map[falcon.Rank]*falconv1.RankPause{}}
}

// add takes one node's answer and returns how many nodes have answered.
func (s *survey) add(now time.Time, pauses []*falconv1.RankPause) int {
	for _, p := range pauses {
		s.answers[falcon.Rank(p.GetRank())] = p
	}
	s.roundTrips = append(s.roundTrips, now.Sub(s.sentAt))
	return len(s.roundTrips)
}

// margin is the boundary's distance from the newest iteration: one iteration
// and those that pass while the order travels. The counts were read after the
// survey was sent, and the order arrives within a round trip from now: the
// survey's own p99 stands for that. Each further attempt doubles it.
func (s *survey) margin(now time.Time, attempt int) int64 {
	iteration := 0.0
	for _, p := range s.answers {
		if ms := p.GetIterationMs(); ms > 0 && (iteration == 0 || ms < iteration) {
			iteration = ms
		}
	}
	margin := int64(marginLeast)
	if iteration > 0 {
		slices.Sort(s.roundTrips)
		p99 := s.roundTrips[(len(s.roundTrips)*99-1)/100]
		travel := float64((now.Sub(s.sentAt) + p99).Microseconds()) / 1e3
		margin = max(margin, 1+int64(math.Ceil(min(travel/iteration, marginMost))))
	}
	return min(margin<<(attempt-1), marginMost)
}
