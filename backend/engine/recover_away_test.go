package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
)

// leave breaks an agent's stream; its processes, and what it has to say, stay.
func (a *fakeAgent) leave() {
	a.stream.cancel()
	a.stream = nil
}

// restartsWhole begins a job without adapter and without checkpoint that loses a
// rank: its whole restart waits for an approver.
func restartsWhole(t *testing.T) *bench {
	b := suffer(t, outages()[0])
	for _, a := range b.job.agents {
		a.crew.blunt = true
		a.crew.declares = func(s *falconv1.RankState) { s.Can = nil }
	}
	return b
}

// proposes runs the job until a recovery waits for an approver.
func (b *bench) proposes() {
	b.t.Helper()
	for range 300 {
		b.turn()
		b.each(b)
		list := b.recoveries()
		if len(list) > 0 &&
			list[0].State == falcon.RecoveryProposed &&
			list[0].Reason != "" {
			return
		}
	}
	b.t.Fatalf("nothing is proposed: %+v", b.recoveries())
}

// A whole restart that is approved while an agent is between two connections
// waits for the agent, says so, and goes on when it is back.
func TestApprovedWhileAnAgentIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restartsWhole(t)
		b.start()
		b.proposes()
		away := b.job.agents[0]
		away.leave()
		b.playTurns(15) // the engine looks once a second
		b.approveRecovery()
		b.playTurns(15)
		v := b.recoveries()[0]
		if v.State.Over() ||
			!strings.Contains(v.Reason, "waits up to 1m0s for the agent of node n0") ||
			v.NoReturn {
			t.Fatalf("while the agent is away: %s, no return %v, reason %q", v.State, v.NoReturn, v.Reason)
		}
		b.attach(away)
		b.playTurns(60)
		v = b.recoveries()[0]
		if v.State != falcon.RecoveryResumed ||
			!v.Whole ||
			len(v.Fenced) > 0 ||
			strings.Contains(v.Reason, "waits") ||
			v.DecidedBy != "tester" {
			t.Errorf("after the agent was back: %s by %s, fenced %v, reason %q",
				v.State, v.DecidedBy, v.Fenced, v.Reason)
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// An agent that stays away is given up: its node is replaced where there is a
// spare, and where there is none the recovery says what to do.
func TestApprovedWhileAnAgentIsGone(t *testing.T) {
	for _, spare := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := restartsWhole(t)
			if !spare {
				b.job.agents = b.job.agents[:2]
			}
			b.recovery = recovery.Config{AgentWait: 4 * time.Second, SpareWait: 4 * time.Second}
			b.start()
			b.proposes()
			b.job.agents[0].leave()
			b.job.agents[0].crew.gone = true
			b.playTurns(15)
			b.approveRecovery()
			b.playTurns(300)
			v := b.recoveries()[0]
			switch {
			case spare &&
				(v.State != falcon.RecoveryResumed || len(v.Fenced) != 1 || v.Replaced[0] != "n2.g0"):
				t.Errorf("with a spare: %s, fenced %v, replaced %v, reason %q",
					v.State, v.Fenced, v.Replaced, v.Reason)
			case !spare &&
				(v.State != falcon.RecoveryFailed ||
					!strings.Contains(v.Reason, "no spare is left for node n0; bring one")):
				t.Errorf("without a spare: %s, reason %q", v.State, v.Reason)
			}
			if err := b.halt(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The engine is killed at every point of a restart that waits for an agent:
// what was approved goes on, by the approval that was given.
func TestKilledWhileAnAgentIsAwaited(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, k *killing) {
		b := restartsWhole(t)
		b.start()
		b.proposes()
		away := b.job.agents[0]
		away.leave()
		b.playTurns(15)
		k.on(b)
		b.engine.cfg.Fault = b.fault
		b.approveRecovery()
		for turn := range 200 {
			b.turn()
			if b.dead() {
				_ = b.halt()
				for !b.start() {
				}
				if turn < 20 {
					away.leave()
				}
			}
			if turn == 20 && away.stream == nil {
				b.attach(away)
			}
			if turn > 1 && !b.dead() {
				b.approveRecovery() // an approval that got lost with the engine is given again
			}
		}
		v := b.recoveries()[0]
		if v.State != falcon.RecoveryResumed || v.DecidedBy != "tester" {
			t.Errorf("%s by %s, reason %q", v.State, v.DecidedBy, v.Reason)
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// Replicas that are to stay are not counted out because an agent of theirs is
// between two connections.
func TestFewerReplicasWhileAnAgentIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := dwindle(t)
		b.policy.Recovery.Approval = falcon.ApprovalPerson
		b.start()
		b.proposes()
		b.approveRecovery()
		b.playTurns(5)
		b.proposes()
		stays := b.job.agents[0]
		hash := b.recoveries()[0].PlanHash
		stays.leave()
		b.playTurns(15)
		if v := b.recoveries()[0]; v.State != falcon.RecoveryProposed || v.PlanHash != hash {
			t.Fatalf("while the agent is away: %s, plan %s instead of %s, reason %q",
				v.State, v.PlanHash, hash, v.Reason)
		}
		b.approveRecovery()
		b.playTurns(10)
		if v := b.recoveries()[0]; v.State.Over() ||
			!strings.Contains(v.Reason, "it goes on with 2 of 4 replicas: no spare came; it waits up to") {
			t.Fatalf("approved while the agent is away: %s, reason %q", v.State, v.Reason)
		}
		b.attach(stays)
		b.playTurns(60)
		checkFewer(b)
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}
