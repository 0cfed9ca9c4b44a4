package engine

import (
	"context"
	"time"

	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// briefAge is how old a picture may be that a brief one is made of.
const briefAge = time.Second

// Brief is the state in a few lines, for a console that lists many jobs. Where no one looks at
// this job it builds no ranks and keeps no pictures coming: its cost does not grow with the job.
func Brief(ctx context.Context, e *Engine, who Actor) (*falconv1.SnapshotReply, error) {
	var out *falconv1.SnapshotReply
	s := e.views.snapshot.Load()
	if s != nil && e.cfg.Now().UnixNano()-s.Reply.GetAtUnixNs() < int64(briefAge) {
		out = convert.Brief(s.Reply)
	} else if err := e.readInLoop(ctx, func() {
		out = convert.Brief(e.views.withoutRanks(e.cfg.Now()))
	}); err != nil {
		return nil, err
	}
	out.Role, out.Actor = who.Role, who.Name
	return out, nil
}

// withoutRanks is what a brief picture is made of.
func (sv *stateViews) withoutRanks(now time.Time) *falconv1.SnapshotReply {
	out := &falconv1.SnapshotReply{
		Version:    sv.version,
		EngineId:   sv.id,
		AtUnixNs:   now.UnixNano(),
		Engine:     ownBuild(),
		Job:        sv.jobView(now),
		Policy:     convert.PolicyToProto(sv.plan.Policy(), sv.state.policy.Version),
		Validation: sv.validations.newestView(),
		Recovery:   sv.newestRecovery(),
		Hang:       sv.hangs.view(),
		Fenced:     sv.fencedNodes(),
	}
	sv.addIncidents(out)
	return out
}
