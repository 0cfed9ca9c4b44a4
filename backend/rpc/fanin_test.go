package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// A thousand agents attach over TLS and send; every one is welcomed and
// acknowledged, and a console still gets its picture.
func TestFanIn(t *testing.T) {
	agents := 1000
	if testing.Short() {
		agents = 100
	}
	s := newSite(t)
	f := make([]auth.Files, agents)
	for i := range f {
		f[i] = s.issue(auth.RoleAgent, fmt.Sprint("n", i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, agents)
	atOnce := make(chan struct{}, 32)
	for i := range agents {
		conn := s.dial(f[i])
		wg.Go(func() {
			atOnce <- struct{}{}
			err := oneAgent(ctx, conn, fmt.Sprint("n", i), int32(i), int32(agents))
			<-atOnce
			if err != nil {
				errs <- fmt.Errorf("agent %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	r, err := falconv1.NewConsoleClient(s.dialSocket()).Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1})
	if err != nil ||
		len(r.GetNodes()) != agents ||
		int(r.GetJob().GetWorld()) != agents {
		t.Errorf("snapshot: %d nodes, job %v, %v", len(r.GetNodes()), r.GetJob(), err)
	}
}

// oneAgent attaches, describes its rank, sends ten iterations and waits for
// the acknowledgement of the last.
func oneAgent(ctx context.Context, cc *grpc.ClientConn, node string, rank, world int32) error {
	st, err := falconv1.NewFleetClient(cc).Attach(ctx)
	if err != nil {
		return err
	}
	if err := st.Send(hello(node)); err != nil {
		return err
	}
	state := &falconv1.RankState{
		Rank:         rank,
		Device:       node + ".g0",
		Pid:          7,
		Alive:        true,
		Tp:           1,
		Dp:           world,
		Pp:           1,
		World:        world,
		MicroBatches: 4,
	}
	if err := st.Send(&falconv1.AgentFrame{
		Seq:  1,
		Body: &falconv1.AgentFrame_Rank{Rank: state},
	}); err != nil {
		return err
	}
	const iterations = 10
	for i := range int64(iterations) {
		sample := &falconv1.Sample{Rank: rank, Iteration: i, Ms: 100}
		frame := &falconv1.AgentFrame{
			Seq: uint64(i) + 2,
			Body: &falconv1.AgentFrame_Samples{
				Samples: &falconv1.Samples{Samples: []*falconv1.Sample{sample}},
			},
		}
		if err := st.Send(frame); err != nil {
			return err
		}
	}
	for {
		e, err := st.Recv()
		if err != nil {
			return err
		}
		if e.GetAck().GetSeq() == iterations+1 {
			return nil
		}
	}
}
