package ship

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// spool holds numbered frames until the engine acknowledges them. It is
// bounded in frames and bytes: when full it drops the oldest samples, calls and
// telemetry, then turns the oldest profile into a refusal of the same number,
// and only then, counted apart, of anything else.
type spool struct {
	frames    []entry // ascending by seq
	next      uint64  // number of the next frame
	bytes     int
	framesMax int
	bytesMax  int
	dropped   uint64 // samples and telemetry
	lost      uint64 // anything else that was dropped
}

type entry struct {
	frame *falconv1.AgentFrame
	bytes int
	since time.Time // it was made
}

// keptLeast is the age from which on a frame says how old it is.
const keptLeast = time.Second

// newEntry is the entry of a frame that says by itself how old it is by now.
func newEntry(f *falconv1.AgentFrame, now time.Time) entry {
	kept := time.Duration(f.GetKeptMs()) * time.Millisecond
	f.KeptMs = 0
	return entry{frame: f, bytes: proto.Size(f), since: now.Add(-kept)}
}

// toSend is the entry's frame with its age.
func (e entry) toSend(now time.Time) *falconv1.AgentFrame {
	kept := now.Sub(e.since)
	if kept < keptLeast {
		return e.frame
	}
	return &falconv1.AgentFrame{
		Seq:    e.frame.GetSeq(),
		Body:   e.frame.GetBody(),
		KeptMs: uint64(kept.Milliseconds()),
	}
}

func newSpool(framesMax, bytesMax int) *spool {
	return &spool{next: 1, framesMax: framesMax, bytesMax: bytesMax}
}

// addFrame numbers the frame and keeps it. A newer state of a process replaces the
// one that still waits.
func (s *spool) addFrame(f *falconv1.AgentFrame, now time.Time) {
	s.supersede(f.GetRank())
	f.Seq = s.next
	s.next++
	e := newEntry(f, now)
	s.frames = append(s.frames, e)
	s.bytes += e.bytes
	for s.overLimits() && s.dropOne() {
	}
}

func (s *spool) overLimits() bool {
	return len(s.frames) > s.framesMax || (s.bytes > s.bytesMax && len(s.frames) > 1)
}

// dropOne drops one frame; it is false when there is none to drop.
func (s *spool) dropOne() bool {
	if i := s.oldestFrame(droppable); i >= 0 {
		s.removeAt(i)
		s.dropped++
		return true
	}
	if i := s.oldestFrame(func(f *falconv1.AgentFrame) bool {
		return len(f.GetProfile().GetRanks()) > 0
	}); i >= 0 && s.bytes > s.bytesMax {
		s.dropContent(i)
		s.lost++
		return true
	}
	if len(s.frames) == 0 {
		return false
	}
	s.removeAt(0)
	s.lost++
	return true
}

func (s *spool) oldestFrame(is func(*falconv1.AgentFrame) bool) int {
	for i, e := range s.frames {
		if is(e.frame) {
			return i
		}
	}
	return -1
}

func (s *spool) removeAt(i int) {
	s.bytes -= s.frames[i].bytes
	s.frames = append(s.frames[:i], s.frames[i+1:]...)
}

// dropContent replaces a profile by one that reports its content as gone.
func (s *spool) dropContent(i int) {
	old := s.frames[i].frame
	f := &falconv1.AgentFrame{
		Seq: old.Seq,
		Body: &falconv1.AgentFrame_Profile{Profile: &falconv1.Profile{
			Window: old.GetProfile().GetWindow(),
			Refused: fmt.Sprintf("the agent's spool of %d MiB was full before the profile could be sent",
				s.bytesMax>>20),
		}},
	}
	s.bytes += proto.Size(f) - s.frames[i].bytes
	s.frames[i].frame = f
	s.frames[i].bytes = proto.Size(f)
}

func (s *spool) supersede(r *falconv1.RankState) {
	if r == nil {
		return
	}
	i := s.oldestFrame(func(f *falconv1.AgentFrame) bool {
		old := f.GetRank()
		return old != nil && old.Pid == r.Pid && old.Alive == r.Alive
	})
	if i >= 0 {
		s.removeAt(i)
	}
}

// holdsEnd reports whether a frame with the end of the process waits.
func (s *spool) holdsEnd(st *falconv1.RankState) bool {
	return slices.ContainsFunc(s.frames, func(e entry) bool {
		r := e.frame.GetRank()
		return r != nil && !r.Alive && r.Pid == st.Pid
	})
}

// acknowledge forgets all frames up to seq.
func (s *spool) acknowledge(seq uint64) {
	n := 0
	for n < len(s.frames) && s.frames[n].frame.Seq <= seq {
		s.bytes -= s.frames[n].bytes
		n++
	}
	s.frames = append(s.frames[:0], s.frames[n:]...)
}

// resumeFrom prepares for an engine that has handled all frames up to acked. One
// that claims more than was ever sent knows another life of this agent: the
// numbers go on behind its claim, so that nothing is taken for a repeat.
func (s *spool) resumeFrom(acked uint64) {
	if acked < s.next {
		s.acknowledge(acked)
		return
	}
	s.next = acked + 1
	for i := range s.frames {
		f := proto.CloneOf(s.frames[i].frame)
		f.Seq = s.next
		s.frames[i].frame = f
		s.next++
	}
}

// frameAfter is the oldest frame with a number above seq, as it is to be sent now; nil when
// there is none.
func (s *spool) frameAfter(seq uint64, now time.Time) *falconv1.AgentFrame {
	lo := 0
	hi := len(s.frames)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.frames[mid].frame.Seq <= seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s.frames) {
		return nil
	}
	return s.frames[lo].toSend(now)
}

func droppable(f *falconv1.AgentFrame) bool {
	switch f.Body.(type) {
	case *falconv1.AgentFrame_Samples, *falconv1.AgentFrame_Telemetry, *falconv1.AgentFrame_Calls,
		*falconv1.AgentFrame_Peeked, *falconv1.AgentFrame_Kernel:
		return true
	}
	return false
}
