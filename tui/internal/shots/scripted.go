package main

import (
	"context"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/fakeengine"
)

// start is when the scripted job began.
var start = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)

// oneState is a source that stands still. A picture asks nothing of it.
type oneState struct {
	tui.Source
	state *feed.State
}

func (s oneState) now() time.Time         { return s.state.Received }
func (s oneState) Latest() *feed.State    { return s.state }
func (oneState) Changed() <-chan struct{} { return nil }
func (oneState) Done() <-chan struct{}    { return nil }
func (oneState) Ask(feed.Want)            {}
func (oneState) Blur(bool)                {}

// scripted is the moment at which S2 waits for a person.
func scripted(big bool) (oneState, error) {
	o := fakeengine.Options{Start: start}
	if big {
		o.TP, o.DP, o.PP = 8, 1250, 10
	}
	e := fakeengine.New(o)
	e.AdvanceTo(fakeengine.Proposed + 2)
	snap, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{Rank: feed.WorstRank, Columns: 240, RunLengths: 128})
	if err != nil {
		return oneState{}, err
	}
	at := time.Unix(0, snap.AtUnixNs).UTC()
	return oneState{state: &feed.State{
		Snap: snap, Events: snap.Events, Conn: feed.Live, Since: at, Received: at, Memo: &feed.Memo{},
		Recoveries: &falconv1.RecoveriesReply{},
	}}, nil
}
