package agent

import (
	"testing"

	"github.com/failslow/falcon/agent/ring"
)

func TestBeatsSayWhetherAProcessWaits(t *testing.T) {
	s := &fakeSegment{}
	p := newProcess("x", s, nil)
	for _, c := range []struct {
		coverage uint32
		since    int64
		known    bool
		ms       float64
	}{
		{ring.CoverInit, 3e9, false, 0}, // a hook that does not measure it
		{ring.CoverInit | ring.CoverWaiting, 0, true, 0},
		{ring.CoverInit | ring.CoverWaiting, 3e9, true, 4000},
		{ring.CoverInit | ring.CoverWaiting, 9e9, true, 0}, // written after the clock was read
	} {
		s.control.Coverage = c.coverage
		s.control.WaitingSinceNs = c.since
		b := p.rankBeat(7e9)
		if b.WaitingKnown != c.known || b.WaitingMs != c.ms {
			t.Errorf("%+v: known %v, %v ms", c, b.WaitingKnown, b.WaitingMs)
		}
	}
}

// Calls only grow: a slot that goes to another communicator starts from 0.
func TestCallsOverAllCommunicators(t *testing.T) {
	s := &fakeSegment{}
	p := newProcess("x", s, nil)
	s.comms = []ring.Comm{{Slot: 0, Generation: 1, Calls: 5, State: ring.CommLive}, {
		Slot:       1,
		Generation: 1,
		Calls:      7,
		State:      ring.CommGone,
	}}
	if b := p.rankBeat(1); b.Calls != 12 {
		t.Fatalf("%d calls", b.Calls)
	}
	s.comms[1] = ring.Comm{
		Slot:       1,
		Generation: 2,
		Calls:      1,
		State:      ring.CommLive,
	}
	if b := p.rankBeat(1); b.Calls != 13 {
		t.Fatalf("%d calls", b.Calls)
	}
	s.comms = s.comms[:1] // being written
	if b := p.rankBeat(1); b.Calls != 13 {
		t.Fatalf("%d calls", b.Calls)
	}
}
