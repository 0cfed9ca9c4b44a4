package engine

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/journal"
)

// beginClock begins the engine's time where the journal's ends. From here on
// cfg.Now gives it.
func (c *Config) beginClock(state *journalState) clock.Gap {
	source := c.Clock
	if source == nil && c.Now == nil {
		c.Now = time.Now
	}
	if source == nil {
		source = clock.Wall(c.Now)
	}
	steady, gap := clock.Resume(source, state.clock, state.NewestNs)
	c.steady, c.Now = steady, steady.Now
	return gap
}

// wallOffset is the wall clock minus the engine's time.
func (c *Config) wallOffset() time.Duration {
	if c.steady == nil {
		return 0
	}
	return c.steady.Offset()
}

// WallOffset is what is added to the engine's times to show them to people. It may be
// called from any goroutine.
func (s *shared) WallOffset() time.Duration { return s.cfg.wallOffset() }

// Time is the engine's time. It may be called from any goroutine.
func (s *shared) Time() time.Time { return s.cfg.Now() }

// markClock keeps in the journal how this engine's time goes on from the machine's
// boot clock.
func (s *shared) markClock(now time.Time) {
	s.batch.addRecords(record(now, kindClock, s.cfg.steady.Mark()))
}

// OffsetAfter is the wall clock minus the engine's time once a record was read, for who
// reads a journal in order and shows its times; before is the one until then.
func OffsetAfter(r journal.Record, before time.Duration) time.Duration {
	var mark clock.Mark
	if r.Kind != kindClock || json.Unmarshal(r.Body, &mark) != nil {
		return before
	}
	return time.Duration(mark.OffsetNs)
}

// logGap says what the engine took to have passed since the process before it.
func (s *shared) logGap(g clock.Gap) {
	switch g.Basis {
	case clock.ByWallBack:
		s.oplog.logf("clock", 2, "",
			"the wall clock is %s behind the journal's newest record: no time is taken to have passed since",
			-g.Said.Round(time.Second))
	case clock.ByWallMost:
		s.oplog.logf("clock", 2, "",
			"the wall clock says that %s have passed since the journal's newest record: %s are taken to have passed",
			g.Said.Round(time.Second), g.Elapsed)
	case clock.ByNothing, clock.ByBoot, clock.ByWall:
	}
}

// watchClock logs a step of the wall clock, once.
func (s *shared) watchClock(now time.Time) {
	if s.cfg.steady == nil {
		return
	}
	step, stepped := s.cfg.steady.Look()
	if !stepped {
		return
	}
	s.log.Warn(
		"the wall clock stepped; no decision depends on it",
		slog.Duration("by", step.By),
		slog.Duration("offset", step.Offset),
	)
	s.oplog.logf("clock", 2, "", "clock stepped by %s: %s", stepText(step.By), stepMeans)
	s.markClock(now)
}

const stepMeans = "the wall clock of the engine's machine was set; durations, deadlines and decisions do not depend on it"

// stepText is a step's size with its sign.
func stepText(by time.Duration) string {
	if by < 0 {
		return "−" + (-by).Round(100*time.Millisecond).String()
	}
	return "+" + by.Round(100*time.Millisecond).String()
}
