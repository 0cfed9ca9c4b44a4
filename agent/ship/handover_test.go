package ship

import (
	"errors"
	"testing"

	"github.com/failslow/falcon/agent/ship/shiptest"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Shippers follow each other, each cut off in the middle; the engine takes every
// frame once and in order, and is told goodbye each time it hears the end.
func TestShippersFollowEachOther(t *testing.T) {
	for _, revision := range []uint32{0, falconv1.ProtocolRevision} { // an engine of before, and of now
		followEachOther(t, revision)
	}
}

func followEachOther(t *testing.T, revision uint32) {
	e := shiptest.NewEngine(t)
	e.Speak(revision)
	e.Start()
	var from *Handover
	const lives, frames = 6, 20
	for life := range lives {
		s := open(t, e, func(c *Config) { c.From = from })
		if life%2 == 1 {
			e.CutAfter(7)
		}
		for i := range frames {
			s.Send(sampleFrame(int64(life*frames + i)))
		}
		s.Close()
		h := s.Handover()
		err := h.Check()
		if err != nil || h.Boot != "b1" || h.Next != uint64((life+1)*frames+1) {
			t.Fatalf("%+v, %v", h, err)
		}
		from = &h
	}
	s := open(t, e, func(c *Config) { c.From = from })
	shiptest.Until(t, "acknowledgement of all", empty(s))
	s.Close()
	next := int64(0)
	for _, f := range e.Frames() {
		if f.Seq == 0 {
			continue
		}
		if f.Seq != uint64(next+1) || f.GetSamples().GetSamples()[0].GetIteration() != next {
			t.Fatalf("frame %d came where iteration %d was due", f.Seq, next)
		}
		next++
	}
	if next != lives*frames {
		t.Fatalf("%d frames of %d", next, lives*frames)
	}
	all := e.Frames()
	if revision > 0 && all[len(all)-1].GetGoodbye().GetReason() == "" {
		t.Fatalf("the last frame is %v, not a goodbye", all[len(all)-1])
	}
}

// Without a stream nothing can be said, and everything is handed over.
func TestHandoverWithoutAnEngine(t *testing.T) {
	e := shiptest.NewEngine(t) // never started
	s := open(t, e, nil)
	for i := range 3 {
		s.Send(sampleFrame(int64(i)))
	}
	s.Close()
	if h := s.Handover(); len(h.Frames) != 3 || h.Next != 4 || h.Check() != nil {
		t.Fatalf("%+v", h)
	}
}

func TestImpossibleHandovers(t *testing.T) {
	frame := func(seq uint64) *falconv1.AgentFrame {
		f := sampleFrame(1)
		f.Seq = seq
		return f
	}
	for name, h := range map[string]Handover{
		"no boot":   {Next: 5},
		"no number": {Boot: "b"},
		"not numbered": {
			Boot:   "b",
			Next:   5,
			Frames: []*falconv1.AgentFrame{frame(0)},
		},
		"twice": {
			Boot:   "b",
			Next:   5,
			Frames: []*falconv1.AgentFrame{frame(2), frame(2)},
		},
		"ahead": {
			Boot:   "b",
			Next:   5,
			Frames: []*falconv1.AgentFrame{frame(5)},
		},
		"empty": {
			Boot:   "b",
			Next:   5,
			Frames: []*falconv1.AgentFrame{{Seq: 2}},
		},
	} {
		if err := h.Check(); !errors.Is(err, ErrHandover) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := shiptest.NewEngine(t)
	f := e.Agent()
	_, err := Open(Config{
		Address:  e.Address(),
		CertFile: f.Cert,
		KeyFile:  f.Key,
		CAFile:   f.CA,
		Hello:    &falconv1.Hello{Boot: "b2"},
		From:     &Handover{Boot: "b1", Next: 1},
	})
	if !errors.Is(err, ErrHandover) {
		t.Errorf("another boot: %v", err)
	}
}
