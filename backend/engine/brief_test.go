package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func (b *bench) brief() *falconv1.SnapshotReply {
	b.t.Helper()
	r, err := Brief(context.Background(), b.engine, dana)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// A brief picture says what a whole one of the same moment says, whichever it is made of.
func TestBriefIsWhatTheWholePictureSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		a := b.proposed()
		time.Sleep(5 * time.Second)
		alone := b.brief()
		s, err := b.engine.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		whole := convert.Brief(s.Reply)
		beside := b.brief()
		if beside.GetRole() != dana.Role || beside.GetActor() != dana.Name {
			t.Errorf("role %q, actor %q", beside.GetRole(), beside.GetActor())
		}
		beside.Role, beside.Actor = "", ""
		if !proto.Equal(whole, beside) {
			t.Errorf("of a picture:\n%v\n%v", whole, beside)
		}
		alone.Role, alone.Actor, alone.Version = "", "", whole.Version
		if !proto.Equal(whole, alone) {
			t.Errorf("without one:\n%v\n%v", whole, alone)
		}
		if alone.GetLadder().GetProposal().GetId() != a.GetId() ||
			alone.GetBrief().GetWaiting() != 1 ||
			alone.GetBrief().GetLossPerMinuteGpuHours() <= 0 {
			t.Errorf("nothing is proposed: %v", alone)
		}
	})
}

// A console that lists jobs keeps no pictures coming: an engine that no one else looks at
// builds none.
func TestBriefBuildsNoPictures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.proposed()
		for range 100 {
			b.turn()
		}
		before := b.engine.views.snapshot.Load()
		at := b.brief().GetAtUnixNs()
		for range 50 {
			b.turn()
			b.brief()
		}
		if after := b.engine.views.snapshot.Load(); after != before {
			t.Errorf("a picture was built for a list")
		}
		if now := b.brief().GetAtUnixNs(); now-at < int64(time.Second) {
			t.Errorf("the brief picture stands still: %d ns on", now-at)
		}
	})
}
