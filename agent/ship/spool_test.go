package ship

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var t0 = time.Unix(1_800_000_000, 0)

func resultFrame(id uint64) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: &falconv1.CommandResult{Id: id}}}
}

func rankFrame(rank int32, alive bool, period uint32) *falconv1.AgentFrame {
	return stateFrame(rank+100, rank, alive, period)
}

func stateFrame(pid, rank int32, alive bool, period uint32) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
		Pid:    pid,
		Rank:   rank,
		Alive:  alive,
		Period: period,
	}}}
}

func profileFrame(window uint64, calls int) *falconv1.AgentFrame {
	p := &falconv1.RankProfile{Calls: make([]*falconv1.CallTiming, calls)}
	for i := range p.Calls {
		p.Calls[i] = &falconv1.CallTiming{
			Comm:       1,
			Ordinal:    uint64(i),
			DurationMs: 1,
		}
	}
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Profile{
			Profile: &falconv1.Profile{Window: window, Ranks: []*falconv1.RankProfile{p}},
		},
	}
}

func TestNewerRankStateReplacesTheWaitingOne(t *testing.T) {
	s := newSpool(10, BytesMax)
	s.addFrame(rankFrame(1, true, 0), t0)
	s.addFrame(rankFrame(2, true, 0), t0)
	s.addFrame(rankFrame(1, true, 44), t0)
	s.addFrame(rankFrame(1, false, 44), t0) // an end never replaces a life
	if len(s.frames) != 3 || s.frames[1].frame.GetRank().Period != 44 {
		t.Fatalf("spool holds %v", s.frames)
	}
	s.addFrame(stateFrame(102, 1, true, 0), t0) // the process of rank 2 takes rank 1
	if len(s.frames) != 3 ||
		s.frames[0].frame.GetRank().Pid != 101 ||
		s.frames[2].frame.GetRank().Rank != 1 {
		t.Fatalf("spool holds %v", s.frames)
	}
}

func TestFullOfProfilesRefusesTheOldest(t *testing.T) {
	s := newSpool(100, 64<<10)
	s.addFrame(profileFrame(1, 1000), t0)
	s.addFrame(profileFrame(2, 1000), t0)
	s.addFrame(profileFrame(3, 1000), t0)
	first := s.frames[0].frame.GetProfile()
	if first.Window != 1 || first.Refused == "" || s.lost == 0 {
		t.Fatalf("the oldest profile is %v, lost %d", first, s.lost)
	}
	last := s.frames[len(s.frames)-1].frame.GetProfile()
	if last.Window != 3 || len(last.Ranks) != 1 {
		t.Fatalf("the newest profile is %v", last)
	}
}

func TestFullOfResultsIsCounted(t *testing.T) {
	s := newSpool(4, BytesMax)
	for id := range uint64(7) {
		s.addFrame(resultFrame(id), t0)
	}
	if len(s.frames) != 4 || s.lost != 3 || s.dropped != 0 {
		t.Fatalf("frames %d, lost %d, dropped %d", len(s.frames), s.lost, s.dropped)
	}
}

// An engine that claims more than was sent must not swallow what comes next.
func TestResumeBehindAnUnknownClaim(t *testing.T) {
	s := newSpool(10, BytesMax)
	s.addFrame(sampleFrame(0), t0)
	s.addFrame(sampleFrame(1), t0)
	s.resumeFrom(500)
	f := s.frameAfter(500, t0)
	if f == nil || f.Seq != 501 || f.GetSamples().Samples[0].Iteration != 0 {
		t.Fatalf("next frame is %v", f)
	}
	s.addFrame(sampleFrame(2), t0)
	if s.frames[2].frame.Seq != 503 {
		t.Fatalf("the newest has number %d", s.frames[2].frame.Seq)
	}
}

// Whatever happens: numbers ascend, bounds hold, bytes add up, and nothing is
// missing uncounted. (A profile may count twice: emptied, then let go.)
func TestSpoolInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSpool(rapid.IntRange(1, 12).Draw(t, "frames"), rapid.IntRange(50, 4000).Draw(t, "bytes"))
		added := uint64(0)
		acked := uint64(0)
		profiles := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"sample": func(*rapid.T) {
				s.addFrame(sampleFrame(1), t0)
				added++
			},
			"result": func(*rapid.T) {
				s.addFrame(resultFrame(9), t0)
				added++
			},
			"profile": func(t *rapid.T) {
				s.addFrame(profileFrame(1, rapid.IntRange(1, 50).Draw(t, "calls")), t0)
				added++
				profiles++
			},
			"ack": func(t *rapid.T) {
				upTo := rapid.Uint64Range(0, s.next-1).Draw(t, "seq")
				before := len(s.frames)
				s.acknowledge(upTo)
				acked += uint64(before - len(s.frames))
			},
			"": func(t *rapid.T) {
				checkSpool(t, s, added-acked, profiles)
			},
		})
	})
}

func checkSpool(t *rapid.T, s *spool, kept, profiles uint64) {
	bytes := 0
	last := uint64(0)
	for _, e := range s.frames {
		if e.frame.Seq <= last || e.frame.Seq >= s.next {
			t.Fatalf("number %d after %d, next %d", e.frame.Seq, last, s.next)
		}
		if e.bytes != proto.Size(e.frame) {
			t.Fatalf("frame of %d bytes is counted as %d", proto.Size(e.frame), e.bytes)
		}
		last = e.frame.Seq
		bytes += e.bytes
	}
	if bytes != s.bytes || (s.overLimits() && len(s.frames) > 1) {
		t.Fatalf("%d bytes are counted as %d; full: %v", bytes, s.bytes, s.overLimits())
	}
	missing := kept - uint64(len(s.frames))
	counted := s.dropped + s.lost
	if missing > counted || counted > missing+profiles {
		t.Fatalf("%d missing, %d dropped, %d lost, %d profiles", missing, s.dropped, s.lost, profiles)
	}
}

// A frame that waited says how long, on every stream again, and across an agent's lives.
func TestAFrameSaysHowLongItWaited(t *testing.T) {
	s := newSpool(10, BytesMax)
	s.addFrame(sampleFrame(0), t0)
	s.addFrame(sampleFrame(1), t0.Add(70*time.Second))
	old := sampleFrame(2)
	old.KeptMs = 60_000
	s.addFrame(old, t0.Add(71*time.Second))
	for after, want := range map[time.Duration]uint64{
		999 * time.Millisecond: 0,
		time.Second:            1000,
		71 * time.Second:       71_000,
		-time.Hour:             0,
	} {
		f := s.frameAfter(0, t0.Add(after))
		if f.GetKeptMs() != want || f.GetSeq() != 1 || f.GetSamples() == nil {
			t.Errorf("%v later: %v", after, f)
		}
	}
	if f := s.frameAfter(1, t0.Add(71*time.Second)); f.GetKeptMs() != 1000 {
		t.Errorf("the second: %v", f)
	}
	if f := s.frameAfter(2, t0.Add(71*time.Second)); f.GetKeptMs() != 60_000 {
		t.Errorf("one that was old already: %v", f)
	}
	now := t0.Add(80 * time.Second)
	sh := &Shipper{cfg: Config{Now: func() time.Time { return now }, Hello: &falconv1.Hello{Boot: "b"}}, spool: s}
	h := sh.Handover()
	next := newSpool(10, BytesMax)
	next.continueFrom(h, t0)
	if f := next.frameAfter(0, t0.Add(5*time.Second)); f.GetKeptMs() != 85_000 {
		t.Errorf("in the agent's next life: %v", f)
	}
}
