package validate

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// beginTests runs once all ranks are quiet.
func (m *Machine) beginTests(now time.Time) {
	m.v.State = falcon.ValidationTesting
	m.quietAt = now
	m.addDurations()
	m.out.addNote(m.v.ID, 0, "%s: the job is held at iteration %d (attempt %d, quiet after %.0f ms)",
		m.v.ID, m.v.Iteration, m.v.Attempts, m.v.QuietMs)
	m.tests.begin()
	m.nextStep(now)
}

// nextStep sends the next round that has something to do, or releases the job.
func (m *Machine) nextStep(now time.Time) {
	for m.tests.more() {
		left := m.lifeEnds.Sub(now) - reserveLife
		if left <= 0 && m.tests.confirming() {
			break // everything was measured once
		}
		if left <= 0 {
			_, _, done := m.tests.results()
			m.fail(now, fmt.Sprintf(
				"the order's %s were over after %d of %d passes: raise validation.life or test less",
				m.cfg.OrderLife(), done, m.v.Passes,
			))
			return
		}
		life := min(left, testLife)
		m.deadline = now.Add(life + reserveLife/2)
		if tests := m.tests.startStep(life); len(tests) > 0 {
			m.sendTests(tests, now.Add(life))
			return
		}
		m.tests.endStep()
	}
	m.release(now)
}

// sendTests sends each node its part.
func (m *Machine) sendTests(tests []*falconv1.RankTest, deadline time.Time) {
	for _, n := range m.roster.nodes {
		c := &falconv1.TestCommand{Pause: m.pause}
		for _, t := range tests {
			if m.roster.nodeOf(falcon.Rank(t.GetRank())) == n {
				c.Tests = append(c.Tests, t)
			}
		}
		if len(c.GetTests()) > 0 {
			m.out.send(Command{Node: n, Deadline: deadline, Test: c})
		}
	}
}

// testAnswer takes a node's results.
func (m *Machine) testAnswer(now time.Time, c Command, r *falconv1.CommandResult) {
	if m.v.State != falcon.ValidationTesting ||
		!m.tests.running() ||
		isAccepted(r) {
		return
	}
	if m.tests.record(c.Test, r) {
		m.tests.endStep()
		m.nextStep(now)
	}
}
