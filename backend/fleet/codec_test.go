package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func encoded(t testing.TB, f *falconv1.AgentFrame) []byte {
	t.Helper()
	b, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func comms(n int) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Seq: 7,
		Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{Comms: filled(n, func() *falconv1.Comm {
			return &falconv1.Comm{}
		})}},
	}
}

func filled[T any](n int, one func() T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = one()
	}
	return out
}

// profile is the largest frame that an honest agent sends.
func profile(calls int) *falconv1.AgentFrame {
	p := &falconv1.RankProfile{Calls: filled(calls, func() *falconv1.CallTiming {
		return &falconv1.CallTiming{Comm: 1, Ordinal: 2, DurationMs: 1}
	})}
	return &falconv1.AgentFrame{
		Seq: 7,
		Body: &falconv1.AgentFrame_Profile{
			Profile: &falconv1.Profile{Window: 3, Ranks: []*falconv1.RankProfile{p}},
		},
	}
}

// What an agent may claim in one frame is bounded before it is decoded.
func TestFramesBeyondTheirBoundsAreNotDecoded(t *testing.T) {
	name := &falconv1.AgentFrame{
		Seq:  7,
		Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{Device: strings.Repeat("x", 300)}},
	}
	beat := &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{Ranks: filled(5000, func() *falconv1.RankBeat {
			return &falconv1.RankBeat{}
		})}},
	}
	twice := append(encoded(t, comms(200)), encoded(t, comms(200))...)
	var joined falconv1.AgentFrame
	if err := decodeFrame(twice, &joined, ShedNothing); err != nil || !refused(&joined) {
		t.Errorf("a state in two parts: %v, %d communicators", err, len(joined.GetRank().GetComms()))
	}
	for what, c := range map[string]struct {
		frame *falconv1.AgentFrame
		taken bool
	}{
		"100,000 communicators": {comms(100_000), false},
		"257 communicators":     {comms(257), false},
		"256 communicators":     {comms(256), true},
		"a long name":           {name, false},
		"5,000 ranks' beats":    {beat, false},
		"24,000 timings":        {profile(24_000), true},
		"200,000 timings":       {profile(200_000), false},
	} {
		var got falconv1.AgentFrame
		if err := decodeFrame(encoded(t, c.frame), &got, ShedNothing); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if (got.GetBody() != nil) != c.taken ||
			refused(&got) == c.taken ||
			got.GetSeq() != c.frame.GetSeq() {
			t.Errorf("%s: taken %v, refused %v, frame %d",
				what, got.GetBody() != nil, refused(&got), got.GetSeq())
		}
	}
}

// A frame is refused at the cost of its bytes: nothing is allocated for what it
// claims.
func TestRefusedFramesCostNothing(t *testing.T) {
	b := encoded(t, comms(100_000))
	var f falconv1.AgentFrame
	got := testing.AllocsPerRun(10, func() {
		if err := decodeFrame(b, &f, ShedNothing); err != nil {
			t.Fatal(err)
		}
	})
	if got > 4 {
		t.Errorf("%v allocations", got)
	}
}

func TestShortOfMemoryLeavesOutInOrder(t *testing.T) {
	frames := []*falconv1.AgentFrame{
		profile(2),
		{
			Seq: 7,
			Body: &falconv1.AgentFrame_Telemetry{
				Telemetry: &falconv1.Telemetry{Host: &falconv1.Host{StealShare: 1}},
			},
		},
		{
			Seq: 7,
			Body: &falconv1.AgentFrame_Samples{
				Samples: &falconv1.Samples{Samples: []*falconv1.Sample{{Ms: 5}}},
			},
		},
		comms(2),
	}
	for shed := ShedNothing; shed <= ShedSamples; shed++ {
		for i, f := range frames {
			var got falconv1.AgentFrame
			if err := decodeFrame(encoded(t, f), &got, shed); err != nil {
				t.Fatal(err)
			}
			whole := proto.Equal(f, &got)
			if whole != (i >= int(shed)) ||
				got.GetSeq() != 7 ||
				got.GetBody() == nil ||
				refused(&got) {
				t.Errorf("level %d, frame %d: whole %v, %v", shed, i, whole, &got)
			}
		}
	}
}

func TestCodecBoundsRequests(t *testing.T) {
	c := NewCodec(nil)
	take := func(n int) error {
		b, err := proto.Marshal(&falconv1.RenewRequest{Csr: make([]byte, n)})
		if err != nil {
			t.Fatal(err)
		}
		return c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &falconv1.RenewRequest{})
	}
	if err := take(1 << 10); err != nil {
		t.Error(err)
	}
	if err := take(1 << 20); !errors.Is(err, errRequestSize) {
		t.Errorf("1 MiB: %v", err)
	}
}

// An agent that goes on sending what is refused is sent away; the others' means
// are their own.
func TestRefusalsEndTheStream(t *testing.T) {
	b := NewBudgets(Limits{Refused: 3})
	bad := &falconv1.AgentFrame{Seq: 1}
	bad.ProtoReflect().SetUnknown(refusedMark)
	s := session("n1", "b1")
	for i := range 3 {
		if err := b.of("n1").admit(s, bad); err != nil {
			t.Fatalf("refusal %d: %v", i, err)
		}
	}
	if err := b.of("n1").admit(session("n1", "b2"), bad); !errors.Is(err, ErrBudget) {
		t.Errorf("after a reconnect: %v", err)
	}
	if err := b.of("n2").admit(session("n2", "b1"), bad); err != nil {
		t.Errorf("another node: %v", err)
	}
	newer := (&falconv1.AgentFrame{Seq: 9})
	if b.of("n1").admit(s, newer) != nil {
		t.Error("a body that this engine does not know counts as refused")
	}
}

// What the engine has not taken is bounded for all agents together, and what
// it takes makes room.
func TestWaitingFramesAreBounded(t *testing.T) {
	b := NewBudgets(Limits{Waiting: 10 << 10})
	r := NewRegistry()
	s := session("n1", "b1")
	if _, _, err := r.Attach(s, at); err != nil {
		t.Fatal(err)
	}
	f := &falconv1.AgentFrame{
		Seq: 1,
		Body: &falconv1.AgentFrame_Telemetry{
			Telemetry: &falconv1.Telemetry{Host: &falconv1.Host{Err: strings.Repeat("x", 1000)}},
		},
	}
	for range 2 {
		if err := b.of("n1").admit(s, f); err != nil {
			t.Fatal(err)
		}
	}
	if b.waiting.TryAcquire(1 << 10) {
		t.Fatal("the third frame has room")
	}
	done := make(chan error, 1)
	go func() { done <- b.of("n1").admit(s, f) }()
	r.Take(s, 1, at)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.held.drop()
	r.Take(s, 2, at)
	r.Take(s, 3, at)
	if !b.waiting.TryAcquire(10 << 10) {
		t.Error("taken frames still hold memory")
	}
}

// A session that ends while it waits for room hears why it has ended.
func TestWaitEndsWithTheSession(t *testing.T) {
	b := NewBudgets(Limits{Waiting: 1 << 10})
	s := session("n1", "b1")
	f := &falconv1.AgentFrame{Seq: 1}
	if err := b.of("n1").admit(s, f); err != nil {
		t.Fatal(err)
	}
	s.End(ErrSuperseded)
	if err := b.of("n1").admit(s, f); !errors.Is(err, ErrSuperseded) {
		t.Errorf("ended: %v", err)
	}
}

// The scale and the decoder agree on what a message is, whatever the bytes.
func FuzzFrame(f *testing.F) {
	for _, m := range []*falconv1.AgentFrame{
		comms(3),
		profile(3),
		{
			Seq: 1,
			Body: &falconv1.AgentFrame_Result{
				Result: &falconv1.CommandResult{Ranks: []*falconv1.RankAck{{StepMs: []float64{1, 2}}}},
			},
		},
	} {
		f.Add(encoded(f, m), uint8(0))
	}
	f.Add([]byte{8, 5, 66, 4, 82, 2, 8, 1}, uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, shed uint8) {
		var plain, got falconv1.AgentFrame
		plainErr := decoding.Unmarshal(b, &plain)
		err := decodeFrame(b, &got, Shed(shed%4))
		if plainErr == nil && err != nil {
			t.Fatalf("only the bounded decoder fails: %v", err)
		}
		if plainErr == nil && got.GetSeq() != plain.GetSeq() {
			t.Fatalf("frame %d became %d", plain.GetSeq(), got.GetSeq())
		}
		if len(got.GetRank().GetComms()) > lists["falcon.v1.RankState.comms"] {
			t.Fatal("more communicators than one frame may hold")
		}
	})
}

func BenchmarkWithin(b *testing.B) {
	for _, n := range []int{8, 24_000} {
		raw := encoded(b, profile(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if !within(raw) {
					b.Fatal("refused")
				}
			}
		})
	}
}
