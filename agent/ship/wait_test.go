package ship

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// sentAt is a stream that notes what is sent and when.
type sentAt struct {
	grpc.ClientStream
	begun time.Time
	list  []string
}

func (s *sentAt) Send(f *falconv1.AgentFrame) error {
	kind := fmt.Sprintf("%T", f.GetBody())[len("*falconv1.AgentFrame_"):]
	s.list = append(s.list, fmt.Sprintf("%s %d", kind, time.Since(s.begun).Milliseconds()))
	return nil
}

func (s *sentAt) Recv() (*falconv1.EngineFrame, error) { select {} }

// Telemetry waits for a frame of another kind, for half a second at most, and goes before it: the
// order of frames stays. Nothing else waits.
func TestTelemetryGoesWithOtherFrames(t *testing.T) {
	telemetry := func() *falconv1.AgentFrame {
		return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{}}}
	}
	ms := func(n int) { time.Sleep(time.Duration(n) * time.Millisecond); synctest.Wait() }
	for name, c := range map[string]struct {
		play func(*Shipper)
		want []string
	}{
		"alone":          {func(s *Shipper) { s.Send(telemetry()); ms(900) }, []string{"Telemetry 500"}},
		"two, alone":     {func(s *Shipper) { s.Send(telemetry()); ms(300); s.Send(telemetry()); ms(900) }, []string{"Telemetry 500", "Telemetry 500"}},
		"with samples":   {func(s *Shipper) { s.Send(telemetry()); ms(100); s.Send(sampleFrame(0)) }, []string{"Telemetry 100", "Samples 100"}},
		"behind samples": {func(s *Shipper) { s.Send(sampleFrame(0)); ms(100); s.Send(telemetry()); ms(900) }, []string{"Samples 0", "Telemetry 600"}},
		"with a beat":    {func(s *Shipper) { s.Send(telemetry()); ms(200); s.Beat(time.Now(), nil, nil) }, []string{"Beat 200", "Telemetry 200"}},
		"a beat alone":   {func(s *Shipper) { s.Beat(time.Now(), nil, nil) }, []string{"Beat 0"}},
		"again":          {func(s *Shipper) { s.Send(telemetry()); ms(600); s.Send(telemetry()); ms(900) }, []string{"Telemetry 500", "Telemetry 1100"}},
		"at the end":     {func(s *Shipper) { s.Send(telemetry()); ms(100) }, []string{"Telemetry 100", "Goodbye 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := newShipper(Config{Hello: &falconv1.Hello{}})
				if err != nil {
					t.Fatal(err)
				}
				s.connected = true
				st := &sentAt{begun: time.Now()}
				ended := make(chan error, 1)
				go func() { ended <- s.sendFrames(context.Background(), st, 0) }()
				synctest.Wait()
				c.play(s)
				synctest.Wait()
				want := c.want
				if name != "at the end" {
					got := slices.Clone(st.list)
					if !slices.Equal(got, want) {
						t.Errorf("%v, want %v", got, want)
					}
				}
				s.mu.Lock()
				s.closing = true
				s.mu.Unlock()
				s.notifyWriter()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if name == "at the end" && !slices.Equal(st.list, want) {
					t.Errorf("%v, want %v", st.list, want)
				}
			})
		})
	}
}
