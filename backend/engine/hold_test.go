package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// The job is held while it is tested: the order to let go does not wait for a
// journal that takes its time with the line about why.
func TestSlowJournalHoldsNobody(t *testing.T) {
	inBubble(t, func(b *bench) {
		slow := false
		b.fault = func(point string) error {
			if slow && point == PointBeforeWrite {
				time.Sleep(5 * time.Second)
			}
			return nil
		}
		b.start()
		b.until(6)
		states[falcon.ValidationTesting](&b.job.agents[1].hold)
		if _, err := b.validate(allTests); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			b.turn()
		}
		if b.job.agents[0].hold.arm == nil {
			t.Fatal("nothing is held")
		}
		b.inLoop(func() { slow = true })
		b.rankWith(func(s *falconv1.RankState) {
			s.Alive, s.Exit = false, "signal: killed"
		})
		time.Sleep(time.Second)
		synctest.Wait()
		for _, a := range b.job.agents {
			a.poll(b.job)
			if a.hold.arm != nil || a.hold.letGo != 1 {
				t.Errorf("agent %s holds: %v, was ordered to let go %d times",
					a.node, a.hold.arm != nil, a.hold.letGo)
			}
		}
		for range 300 {
			b.turn()
		}
		over(t, b.newest(), falcon.ValidationTesting, "rank 3 on node n1 has ended")
	})
}

// A journal that takes longer than the order would live: what comes of it is
// late for the agents, and no rank is held.
func TestJournalSlowerThanTheOrder(t *testing.T) {
	inBubble(t, func(b *bench) {
		slow := false
		b.fault = func(point string) error {
			if slow && point == PointBeforeWrite {
				slow = false
				time.Sleep(15 * time.Second)
			}
			return nil
		}
		b.start()
		b.until(6)
		if _, err := b.validate(allTests); err != nil {
			t.Fatal(err)
		}
		b.inLoop(func() { slow = true }) // the next record is the one before the order to hold
		at := b.job.iteration
		b.turn()
		if at == b.job.iteration || b.job.agents[0].hold.arm != nil {
			t.Error("held before the order is durable")
		}
		for range 250 {
			b.turn()
		}
		v := b.newest()
		state := falcon.ValidationState(v.GetState())
		if !state.Over() || state == falcon.ValidationDone || slow {
			t.Errorf("%v", v)
		}
		b.free()
		b.onceEach()
	})
}

// The engine is killed at every point of a validation and started again: each
// validation in the journal has an end, and the job goes on.
func TestKilledInAValidation(t *testing.T) {
	for _, point := range []string{PointBeforeWrite, PointAfterWrite, PointAfterSend} {
		for nth := 1; killedTesting(t, point, nth); nth++ {
			if nth > 200 {
				t.Fatal("the story does not end")
			}
		}
	}
}

func killedTesting(t *testing.T, point string, nth int) (struck bool) {
	t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
		inBubble(t, func(b *bench) {
			seen, armed := 0, false
			b.fault = func(at string) error {
				if at != point || struck || !armed {
					return nil
				}
				if seen++; seen == nth {
					struck = true
					return errors.New("killed")
				}
				return nil
			}
			b.start()
			b.until(6)
			b.inLoop(func() { armed = true })
			_, _ = b.validate(allTests)
			for range 30 {
				if b.turn(); b.dead() {
					_ = b.halt()
					b.start()
				}
			}
			b.free()
			b.onceEach()
			if err := b.halt(); err != nil {
				t.Fatal(err)
			}
			m := newJournalState()
			for _, r := range b.records()[kindValidation] {
				if err := m.apply(r); err != nil {
					t.Fatal(err)
				}
			}
			for _, v := range m.tests {
				if !v.Validation.State.Over() ||
					v.Validation.State == falcon.ValidationFailed &&
						!strings.Contains(v.Validation.Reason, "started again") {
					t.Errorf("%s is %s: %s", v.Validation.ID, v.Validation.State, v.Validation.Reason)
				}
			}
		})
	})
	return struck
}

// A rank that is started again is another process, which is not held: the
// others are let go although the first one's end was not reported.
func TestRankStartedAgainEndsTheHold(t *testing.T) {
	inEach(t, func(b *bench, at falcon.ValidationState, _ string) {
		b.job.agents[1].hold.obey()
		b.rankWith(func(s *falconv1.RankState) { s.Pid += 1000 })
		if at == falcon.ValidationResuming {
			b.job.agents[1].expire()
			time.Sleep(15 * time.Second)
		}
		v := b.settleTests()
		over(b.t, v, at, "rank 3 on node n1 was started again")
		b.free()
	})
}

// Validations that a clock dates into the future, or long ago, do not count as
// done in the last hour.
func TestClockThatWasWrong(t *testing.T) {
	for _, years := range []time.Duration{-1, 1} {
		inBubble(t, func(b *bench) {
			b.tests = Validation{Auto: true, PerHour: 1, CoolDown: 1}
			b.start()
			b.until(6)
			at := time.Now().Add(years * 365 * 24 * time.Hour)
			b.inLoop(func() {
				v := falcon.Validation{
					ID:    "VAL-0001",
					State: falcon.ValidationDone,
					AtNs:  at.UnixNano(),
				}
				b.engine.batch.addRecords(record(at, kindValidation, validationRecord{
					Validation: v,
					Role:       itself.Role,
				}))
			})
			b.inLoop(func() {
				b.det.ready.Asks = append(b.det.ready.Asks, *gemmAsk())
			})
			b.until(b.job.iteration + 15)
			n := len(b.det.tests)
			if n != 1 ||
				b.det.tests[0].State != falcon.ValidationDone ||
				b.det.tests[0].ID != "VAL-0002" {
				t.Errorf("%d years off: %+v", years, b.det.tests)
			}
		})
	}
}

// No hook holds longer than a minute, whatever its agent says.
func TestHoldsThatCannotBe(t *testing.T) {
	for in, want := range map[float64]float64{480: 480, 60_000: 60_000, 1e8: 0, -1: 0, math.Inf(1): 0} {
		p := cleanPause(&falconv1.RankPause{
			HeldMs:   in,
			QuietMs:  in,
			Newest:   5,
			Boundary: 5,
		})
		if p.GetHeldMs() != want || p.GetQuietMs() != want {
			t.Errorf("held %v and quiet after %v count as %v and %v", in, in, p.GetHeldMs(), p.GetQuietMs())
		}
	}
}
