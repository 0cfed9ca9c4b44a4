package engine

import (
	"context"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of RecentOf: a console draws a line per rank only where that many fit a screen.
const (
	RecentRanks = 64 // jobs of as many ranks or more get none
	RecentMax   = 64 // iterations of a rank
)

// RecentOf is the newest iterations of every rank of an engine's job, and their processes; nil for
// a job of RecentRanks or more.
func RecentOf(ctx context.Context, e *Engine, iterations int) (*falconv1.Recent, error) {
	iterations = min(iterations, RecentMax)
	var out *falconv1.Recent
	err := e.readInLoop(ctx, func() { out = e.views.recent(iterations) })
	return out, err
}

// recent lays the ranks' newest iterations out on one axis, that of the rank that is furthest: a
// place without a sample stays 0.
func (sv *stateViews) recent(iterations int) *falconv1.Recent {
	world := sv.state.job.Layout.World()
	if world == 0 || world >= RecentRanks || iterations < 1 {
		return nil
	}
	out := &falconv1.Recent{
		LastIteration: falcon.NoIteration,
		Columns:       int32(iterations),
		Pids:          make([]int32, world),
	}
	for r := range world {
		if status, ok := sv.det.Rank(falcon.Rank(r)); ok {
			out.LastIteration = max(out.LastIteration, status.Iteration)
		}
		if p := sv.job.ranks[falcon.Rank(r)]; p != nil {
			out.Pids[r] = p.state.GetPid()
		}
	}
	out.Ms = make([]float32, world*iterations)
	first := out.LastIteration - int64(iterations) + 1
	for r := range world {
		for _, c := range sv.det.Series(falcon.Rank(r), iterations, 0) {
			if at := c.Iteration - first; at >= 0 && at < int64(iterations) {
				out.Ms[r*iterations+int(at)] = float32(c.Ms)
			}
		}
	}
	return out
}
