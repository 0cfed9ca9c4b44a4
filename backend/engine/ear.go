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
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/recovery"
)

// Before the engine takes an agent for silent it looks at itself: at how long
// words waited for it, and at how late its own ticks come.

// Bounds of the engine's own lateness, and of clocks.
const (
	lateLeast  = 250 * time.Millisecond // words that waited for less are not late, however short the beats
	lateTick   = time.Second            // beyond its period
	skewMost   = 2 * time.Second        // of a node's clock, before it is worth a line
	skewBack   = time.Second            // and within which it is said to agree again
	skewWindow = 4                      // beats; the one that travelled least counts
)

// ear is what the engine knows of how well it hears its agents.
type ear struct {
	came    time.Time            // the word that is being taken
	ticked  time.Time            // newest tick
	lagged  time.Time            // when it last said that it is late
	goodbye map[falcon.Node]bool // agents that have said so on their present stream
	clocks  map[falcon.Node]*skew
}

func newEar() ear {
	return ear{goodbye: map[falcon.Node]bool{}, clocks: map[falcon.Node]*skew{}}
}

func (v *ear) leaves(n falcon.Node) { v.goodbye[n] = true }

func (v *ear) attached(n falcon.Node) {
	delete(v.goodbye, n)
	delete(v.clocks, n)
}

func (v *ear) skewMs(n falcon.Node) float64 {
	s := v.clocks[n]
	if s == nil || s.size().Abs() <= skewMost {
		return 0
	}
	return float64(s.size().Microseconds()) / 1000
}

// skew is how far a node's clock is ahead, by its newest beats. A beat that
// travels makes it look behind.
type skew struct {
	newest [skewWindow]time.Duration
	beats  int
	told   bool
}

func (s *skew) add(d time.Duration) {
	s.newest[s.beats%skewWindow] = d
	s.beats++
}

// size is what the beat says that travelled least; 0 before there are enough.
func (s *skew) size() time.Duration {
	if s.beats < skewWindow {
		return 0
	}
	most := s.newest[0]
	for _, d := range s.newest {
		most = max(most, d)
	}
	return most
}

// waited looks at how long a word has waited for the engine.
func (e *Engine) waited(a arrival, now time.Time) {
	if e.ear.came = a.at; a.at.IsZero() {
		e.ear.came = now
	}
	if now.Sub(e.ear.came) > max(e.cfg.beat()/4, lateLeast) {
		e.lag(now)
	}
}

// ticked looks at how late a tick of the engine comes.
func (e *Engine) ticked(now time.Time) {
	if last := e.ear.ticked; !last.IsZero() && now.Sub(last) > tickPeriod+lateTick {
		e.lag(now)
	}
	e.ear.ticked = now
}

// lag has the recovery machine judge nobody until the engine has caught up.
func (e *Engine) lag(now time.Time) {
	if now.Sub(e.ear.lagged) >= tickPeriod || now.Before(e.ear.lagged) {
		e.ear.lagged = now
		e.rec.Step(now, recovery.Late{})
	}
}

// gone tells how an agent went. A stream that breaks although the agent was just
// heard was reset; one that nobody was heard on has timed out.
func (e *Engine) gone(n *fleet.Node, s *fleet.Session, now time.Time) {
	how, name := recovery.TimedOut, clean(string(n.Name))
	if e.ear.goodbye[n.Name] {
		how = recovery.Goodbye
		e.oplog.logf("agent", 0, "the agent of node %s stopped in order", name)
	} else {
		e.oplog.logf("agent", 2, "the agent of node %s is gone", name)
	}
	switch {
	case how == recovery.Goodbye:
	case endedHere(context.Cause(s.Context())):
		how = recovery.Closed
	case n.Age(now) < 2*e.cfg.beat():
		how = recovery.Reset
	}
	e.rec.Step(now, recovery.Node{Node: n.Name, How: how})
}

// endedHere reports whether a stream was ended by this side: its own reasons are
// neither the end of the stream nor an error of the transport.
func endedHere(cause error) bool {
	if cause == nil || errors.Is(cause, io.EOF) || errors.Is(cause, context.Canceled) {
		return false
	}
	s, transport := status.FromError(cause)
	return !transport || s.Code() == codes.OK
}

// clock compares a node's clock with the engine's own.
func (e *Engine) clock(n falcon.Node, atNs int64) {
	if atNs <= 0 || atNs == math.MaxInt64 {
		return
	}
	s := e.ear.clocks[n]
	if s == nil {
		s = &skew{}
		e.ear.clocks[n] = s
	}
	s.add(time.Unix(0, atNs).Sub(e.ear.came))
	switch size := s.size(); {
	case !s.told && size.Abs() > skewMost:
		s.told = true
		where := "ahead of"
		if size < 0 {
			where = "behind"
		}
		e.oplog.logf("agent", 1, "the clock of node %s is %.1f s %s the console's: have it synchronized (chrony or ntpd); times in its records are off by that", clean(string(n)), size.Abs().Seconds(), where)
	case s.told && size.Abs() <= skewBack:
		s.told = false
		e.oplog.logf("agent", 0, "the clock of node %s agrees with the console's again", clean(string(n)))
	}
}

// endedRecord keeps the ranks that ended with success: an engine that starts
// between the ends of two ranks must not miss the first.
type endedRecord struct {
	JobEpoch uint64        `json:"job_epoch"`
	Ranks    []falcon.Rank `json:"ranks"`
}

func (v *endedRecord) add(x endedRecord) {
	if x.JobEpoch != v.JobEpoch {
		*v = endedRecord{JobEpoch: x.JobEpoch}
	}
	v.Ranks = append(v.Ranks, x.Ranks...)
}

// of lists them where they are of this job epoch.
func (v *endedRecord) of(epoch uint64) []falcon.Rank {
	if v.JobEpoch != epoch {
		return nil
	}
	return v.Ranks
}
