package feed

import (
	"context"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// recoveriesLoop pulls recoveries, older validations and the history while they are wanted, slowly:
// what is in progress comes with every snapshot.
func (f *Feed) recoveriesLoop(ctx context.Context) {
	defer f.wg.Done()
	var history time.Time // when it was pulled last
	timer := time.NewTimer(RecoverPeriod)
	defer timer.Stop()
	for ctx.Err() == nil {
		if f.want.Load().Recoveries && pace(f.pace.Load()) == awake {
			f.pullRecoveries(ctx)
		}
		if f.want.Load().Tests && pace(f.pace.Load()) == awake {
			f.pullValidations(ctx)
		}
		now := f.now()
		if f.want.Load().History &&
			pace(f.pace.Load()) == awake &&
			now.Sub(history) >= HistoryPeriod {
			history = now
			f.pullHistory(ctx)
		}
		timer.Reset(RecoverPeriod)
		select {
		case <-ctx.Done():
		case <-f.again:
		case <-timer.C:
		}
	}
}

func (f *Feed) recoverNow() {
	Signal(f.again)
}

// pullRecoveries asks for what could be lost only while nothing is being
// recovered: the answer would be about a job that is about to change.
func (f *Feed) pullRecoveries(ctx context.Context) {
	q := &falconv1.RecoveriesRequest{Map: !Recovering(f.Latest().Snap.GetRecovery())}
	ctx, cancel := context.WithTimeout(ctx, PullTimeout)
	defer cancel()
	reply, err := f.client.Recoveries(ctx, q)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.state.RecoveriesErr = Reason(err)
	} else {
		clean.Message(reply)
		f.state.Recoveries, f.state.RecoveriesErr = reply, ""
	}
	f.publish()
}

// pullValidations keeps what it has where the engine does not answer.
func (f *Feed) pullValidations(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, PullTimeout)
	defer cancel()
	reply, err := f.client.Incidents(ctx, &falconv1.IncidentsRequest{OnlyValidations: true})
	if err != nil {
		return
	}
	clean.Message(reply)
	f.mu.Lock()
	defer f.mu.Unlock()
	if sameValidations(f.state.Validations, reply.Validations) {
		return
	}
	f.state.Validations = reply.Validations
	f.publish()
}

// pullHistory keeps what it has where the engine does not answer.
func (f *Feed) pullHistory(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, PullTimeout)
	defer cancel()
	reply, err := f.client.History(ctx, &falconv1.HistoryRequest{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.state.HistoryErr = Reason(err)
	} else {
		clean.Message(reply)
		f.state.History, f.state.HistoryErr = reply, ""
	}
	f.publish()
}

func sameValidations(a, b []*falconv1.Validation) bool {
	return len(a) == len(b) && slices.EqualFunc(a, b, func(x, y *falconv1.Validation) bool {
		return x.GetId() == y.GetId() && x.GetState() == y.GetState()
	})
}

// Recovering reports whether a recovery is under way.
func Recovering(r *falconv1.Recovery) bool {
	return r.GetState() != "" && !falcon.RecoveryState(r.GetState()).Over()
}
