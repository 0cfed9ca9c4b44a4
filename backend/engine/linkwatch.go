package engine

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/recovery"
)

// Before the engine takes an agent for silent it looks at itself: at how long
// frames waited for it, and at how late its own ticks come.

// Bounds of the engine's own lateness, and of clocks.
const (
	lateLeast  = 250 * time.Millisecond // frames that waited for less are not late, however short the beats
	lateTick   = time.Second            // beyond its period
	skewMost   = 2 * time.Second        // of a node's clock, before it is worth a line
	skewBack   = time.Second            // and within which it is said to agree again
	skewWindow = 4                      // beats; the one that travelled least counts
	keptMsMost = 1e9                    // 11 days
)

// linkWatch is what the engine knows of how well agents reach it: whether it
// is late itself, how streams ended, and how far the nodes' clocks are off.
type linkWatch struct {
	beat  time.Duration // how often agents are asked to be heard
	rec   Recoverer
	oplog *operatorLog

	came    time.Time            // the frame that is being taken
	ticked  time.Time            // newest tick
	lagged  time.Time            // when it last reported that the engine is late
	goodbye map[falcon.Node]bool // agents that have ended their present stream in order
	clocks  map[falcon.Node]*skew
}

func newLinkWatch(beat time.Duration, rec Recoverer, l *operatorLog) *linkWatch {
	return &linkWatch{
		beat:    beat,
		rec:     rec,
		oplog:   l,
		goodbye: map[falcon.Node]bool{},
		clocks:  map[falcon.Node]*skew{},
	}
}

func (w *linkWatch) leaves(n falcon.Node) {
	w.goodbye[n] = true
}

func (w *linkWatch) attached(n falcon.Node) {
	delete(w.goodbye, n)
	delete(w.clocks, n)
}

func (w *linkWatch) skewMs(n falcon.Node) float64 {
	s := w.clocks[n]
	if s == nil || s.smallestOffset().Abs() <= skewMost {
		return 0
	}
	return float64(s.smallestOffset().Microseconds()) / 1000
}

// skew is how far a node's clock is ahead, by its newest beats. A beat that
// travels makes it look behind.
type skew struct {
	newest [skewWindow]time.Duration
	beats  int
	logged bool
}

func (s *skew) addBeat(d time.Duration) {
	s.newest[s.beats%skewWindow] = d
	s.beats++
}

// smallestOffset is that of the beat with the shortest way; 0 before there are enough.
func (s *skew) smallestOffset() time.Duration {
	if s.beats < skewWindow {
		return 0
	}
	most := s.newest[0]
	for _, d := range s.newest {
		most = max(most, d)
	}
	return most
}

// noteWait looks at how long a frame has waited for the engine.
func (w *linkWatch) noteWait(a arrival, now time.Time) {
	if w.came = a.at; a.at.IsZero() {
		w.came = now
	}
	if now.Sub(w.came) > max(w.beat/4, lateLeast) {
		w.reportLag(now)
	}
}

// noteTick looks at how late a tick of the engine comes.
func (w *linkWatch) noteTick(now time.Time) {
	if last := w.ticked; !last.IsZero() && now.Sub(last) > tickPeriod+lateTick {
		w.reportLag(now)
	}
	w.ticked = now
}

// reportLag keeps the recovery machine from judging nodes until the engine has caught up.
func (w *linkWatch) reportLag(now time.Time) {
	if now.Sub(w.lagged) >= tickPeriod || now.Before(w.lagged) {
		w.lagged = now
		w.rec.Step(now, recovery.Late{})
	}
}

// agentGone reports how an agent's stream ended. A stream that breaks although the agent was just
// heard was reset; one that the agent was not heard on has timed out.
func (w *linkWatch) agentGone(n *fleet.Node, s *fleet.Session, now time.Time) {
	how := recovery.TimedOut
	if w.goodbye[n.Name] {
		how = recovery.Goodbye
		w.oplog.nodeSays(now, agentsStopped, n.Name)
	} else {
		w.oplog.nodeSays(now, agentsGone, n.Name)
	}
	switch {
	case how == recovery.Goodbye:
	case endedHere(context.Cause(s.Context())):
		how = recovery.Closed
	case n.Age(now) < 2*w.beat:
		how = recovery.Reset
	}
	w.rec.Step(now, recovery.Node{Node: n.Name, How: how})
}

// endedHere reports whether a stream was ended by this side: its own reasons are
// neither the end of the stream nor an error of the transport.
func endedHere(cause error) bool {
	if cause == nil ||
		errors.Is(cause, io.EOF) ||
		errors.Is(cause, context.Canceled) {
		return false
	}
	s, transport := status.FromError(cause)
	return !transport || s.Code() == codes.OK
}

// backlogFor is how long after a stream's begin what comes may have waited for it.
const backlogFor = 5 * time.Second

// made is when an agent made the frame that is being taken, zero where that is not known:
// agents before KeptRevision do not say how long they kept it.
func (w *linkWatch) made(n *fleet.Node, f frame, attached time.Time) time.Time {
	kept := time.Duration(min(f.GetKeptMs(), keptMsMost)) * time.Millisecond
	if n.Hello.GetProtocol() < falconv1.KeptRevision && w.came.Sub(attached) < backlogFor {
		return time.Time{}
	}
	return w.came.Add(-kept)
}

// begun is when a rank's newest iteration began by the beat that is being taken, zero where
// that is not known.
func (w *linkWatch) begun(n *fleet.Node, b *falconv1.RankBeat, attached time.Time) time.Time {
	if n.Hello.GetProtocol() < falconv1.KeptRevision {
		return w.made(n, nil, attached)
	}
	ms := finite(b.GetBegunMs(), msMost)
	if ms <= 0 {
		return time.Time{}
	}
	return w.came.Add(-time.Duration(ms * float64(time.Millisecond)))
}

// compareClock compares a node's wall clock with that of the engine, which is offset
// from the engine's time.
func (w *linkWatch) compareClock(n falcon.Node, atNs int64, offset time.Duration) {
	if atNs <= 0 || atNs == math.MaxInt64 {
		return
	}
	s := w.clocks[n]
	if s == nil {
		s = &skew{}
		w.clocks[n] = s
	}
	s.addBeat(time.Unix(0, atNs).Sub(w.came.Add(offset)))
	switch size := s.smallestOffset(); {
	case !s.logged && size.Abs() > skewMost:
		s.logged = true
		where := "ahead of"
		if size < 0 {
			where = "behind"
		}
		w.oplog.logf("agent", 1, string(n),
			"the clock of node %s is %.1f s %s the engine's: have it synchronized (chrony or ntpd); times in its records are off by that",
			clean(string(n)), size.Abs().Seconds(), where)
	case s.logged && size.Abs() <= skewBack:
		s.logged = false
		w.oplog.logf("agent", 0, string(n), "the clock of node %s agrees with the engine's again",
			clean(string(n)))
	}
}

// endedRecord keeps the ranks that ended with success: an engine that starts
// between the ends of two ranks must not miss the first.
type endedRecord struct {
	JobEpoch uint64        `json:"job_epoch"`
	Ranks    []falcon.Rank `json:"ranks"`
}

func (v *endedRecord) addRanks(x endedRecord) {
	if x.JobEpoch != v.JobEpoch {
		*v = endedRecord{JobEpoch: x.JobEpoch}
	}
	v.Ranks = append(v.Ranks, x.Ranks...)
}

// ranksOf lists them where they are of this job epoch.
func (v *endedRecord) ranksOf(epoch uint64) []falcon.Rank {
	if v.JobEpoch != epoch {
		return nil
	}
	return v.Ranks
}
