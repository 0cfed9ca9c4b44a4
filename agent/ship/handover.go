package ship

import (
	"errors"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Handover is what is left of a Shipper that was closed: with it another one goes
// on as the same boot of the agent, so that the engine counts every frame once.
type Handover struct {
	Boot          string // Hello.boot of the streams so far; the next Hello must have it too
	Next          uint64 // number of the next frame
	Dropped, Lost uint64
	Frames        []*falconv1.AgentFrame // not acknowledged, ascending, each with its age
}

// ErrHandover is returned for a Handover that no Shipper has made.
var ErrHandover = errors.New("ship: the frames that were handed over have impossible numbers")

// Check is nil where the numbers can be.
func (h Handover) Check() error {
	last := uint64(0)
	for _, f := range h.Frames {
		if f.GetSeq() <= last || f.GetSeq() >= h.Next || f.GetBody() == nil {
			return ErrHandover
		}
		last = f.GetSeq()
	}
	if h.Next == 0 || h.Boot == "" {
		return ErrHandover
	}
	return nil
}

// Handover is complete after Close.
func (s *Shipper) Handover() Handover {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Handover{
		Boot:    s.cfg.Hello.GetBoot(),
		Next:    s.spool.next,
		Dropped: s.spool.dropped,
		Lost:    s.spool.lost,
	}
	now := s.cfg.Now()
	for _, e := range s.spool.frames {
		if e.frame.GetPeeked() == nil { // text of logs, which no one waits for by then, is written to no file
			h.Frames = append(h.Frames, e.toSend(now))
		}
	}
	return h
}

// continueFrom begins where another spool has ended.
func (s *spool) continueFrom(h Handover, now time.Time) {
	s.next = h.Next
	s.dropped = h.Dropped
	s.lost = h.Lost
	for _, f := range h.Frames {
		e := newEntry(f, now)
		s.frames = append(s.frames, e)
		s.bytes += e.bytes
	}
	for s.overLimits() && s.dropOne() {
	}
}
