package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ackStream counts what is sent.
type ackStream struct {
	ctx  context.Context
	acks []uint64
	sent int
}

func (a *ackStream) Context() context.Context { return a.ctx }
func (a *ackStream) Send(f *falconv1.EngineFrame) error {
	if f.GetAck() != nil {
		a.acks = append(a.acks, f.GetAck().GetSeq())
	}
	a.sent++
	return nil
}
func (a *ackStream) Recv() (*falconv1.AgentFrame, error) { return nil, nil }

// Samples and telemetry are acknowledged together, every two seconds; what a decision hangs on
// at once, with all before it.
func TestAcknowledgementsOfSamplesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := NewSession(ctx, &falconv1.Hello{Node: "n0"})
		to := &ackStream{ctx: ctx}
		done := make(chan error, 1)
		go func() { done <- s.pump(to) }()
		take := func(f *falconv1.AgentFrame) {
			s.note(f)
			s.Ack(f.GetSeq())
			synctest.Wait()
		}
		seq := uint64(0)
		for range 200 { // 20 s
			seq++
			take(&falconv1.AgentFrame{
				Seq:  seq,
				Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{}},
			})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(to.acks); n < 9 || n > 11 {
			t.Errorf("%d acknowledgements in 20 s", n)
		}
		time.Sleep(ackEvery)
		synctest.Wait()
		if last := to.acks[len(to.acks)-1]; last != seq {
			t.Errorf("frame %d of %d is acknowledged at rest", last, seq)
		}
		take(&falconv1.AgentFrame{
			Seq:  seq + 1,
			Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{}},
		})
		take(&falconv1.AgentFrame{
			Seq:  seq + 2,
			Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{}},
		})
		take(&falconv1.AgentFrame{
			Seq:  seq + 3,
			Body: &falconv1.AgentFrame_Result{Result: &falconv1.CommandResult{}},
		})
		if last := to.acks[len(to.acks)-1]; last != seq+3 {
			t.Errorf("a result is frame %d, acknowledged up to %d", seq+3, last)
		}
		s.Send(&falconv1.EngineFrame{})
		synctest.Wait()
		if to.sent == len(to.acks) {
			t.Error("a command waits")
		}
		cancel()
		<-done
	})
}
