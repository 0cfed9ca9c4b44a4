package engine

import (
	"context"
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Recoveries lists recoveries, newest first: all, or the one named.
func (e *Engine) Recoveries(ctx context.Context, id string, _ bool) (*falconv1.RecoveriesReply, error) {
	if id != "" {
		return nil, noRecovery(id)
	}
	return &falconv1.RecoveriesReply{}, ctx.Err()
}

// Recover decides on a recovery or asks for one by hand.
func (e *Engine) Recover(_ context.Context, _ Actor, q *falconv1.RecoverRequest) (*falconv1.Recovery, error) {
	return nil, noRecovery(q.GetRecovery())
}

func noRecovery(id string) error {
	return fmt.Errorf("%w: no recovery %q; list them with: falcon recovery list", ErrNotFound, clean(id))
}
