package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery/restart"
)

// restartBench is a job that leaves node n1 for the spare n2 from iteration 20 on.
func restartBench(t *testing.T) *bench {
	b := newBench(t)
	b.job.spare()
	b.script = &fakePlanner{
		kind: falcon.OrderCheckpoint,
		at:   20,
		to:   falcon.Placement{"n0.g0", "n0.g1", "n2.g0", "n2.g1"},
	}
	return b
}

func checkRestarted(b *bench) {
	b.t.Helper()
	checkPicture(b)
	if a := b.script.action; a == nil || a.State != falcon.ActionKept {
		b.t.Errorf("action %+v", a)
	}
	for _, a := range b.job.agents {
		want := map[string]int{"n0": 1, "n2": 1}[a.node]
		if a.place.started != want {
			b.t.Errorf("node %s started processes %d times, want %d", a.node, a.place.started, want)
		}
	}
	b.inLoop(func() {
		e := b.engine
		if e.state.job.Epoch != 2 ||
			e.state.restart.Phase != restart.Over ||
			e.status.current(time.Now()) == "restarting" {
			b.t.Errorf("job epoch %d, phase %q, state %q",
				e.state.job.Epoch, e.state.restart.Phase, e.status.current(time.Now()))
		}
	})
}

func TestJobIsRestartedOnASpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restartBench(t)
		b.start()
		states, spare := map[string]bool{}, b.job.agents[2]
		for b.job.iteration < 60 {
			if b.turn(); b.job.iteration == 18 { // away while the launch is sent
				spare.stream.cancel()
				spare.stream = nil
			}
			if b.job.waits && spare.stream == nil && states["restarting"] {
				b.attach(spare)
			}
			b.inLoop(func() {
				v := b.engine.views.jobView(time.Now())
				states[v.GetState()] = true
				if (v.GetRestart() != "") != (v.GetState() == "restarting") {
					t.Errorf("state %q with restart %q", v.GetState(), v.GetRestart())
				}
			})
		}
		checkRestarted(b)
		if states["finished"] || states["lost"] || !states["restarting"] {
			t.Errorf("states on the way: %v", states)
		}
		var job mitigate.Job
		for _, in := range b.script.heard {
			switch in := in.(type) {
			case mitigate.Job:
				job = in
			case mitigate.Committed:
				if in.Resume != in.Iteration {
					t.Errorf("resumes at %d, the checkpoint is of %d", in.Resume, in.Iteration)
				}
			}
		}
		if len(job.Spares) != 1 ||
			job.Spares[0] != "n1" ||
			!job.CanLaunch ||
			!job.Can.Checkpoint {
			t.Errorf("the planner knows %+v", job)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

func TestKilledInARestart(t *testing.T) {
	killEverywhere(t, restartBench, checkRestarted)
}

// A node that will not start processes ends the launch with its reason, once
// what others have started is gone.
func TestLaunchThatANodeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restartBench(t)
		b.job.agents[2].place.refuse = "no command is configured"
		b.start()
		for range 40 {
			b.turn()
		}
		v := b.restartView()
		if v.GetState() != "restarting" ||
			!strings.Contains(v.GetRestart(), "launch 1 has failed (node n2: no command is configured)") {
			t.Errorf("state %q, %q", v.GetState(), v.GetRestart())
		}
		n0 := b.job.agents[0]
		for _, r := range n0.ranks {
			s := b.job.rankState("n0", r)
			s.GetRank().Alive = false
			n0.send(s)
		}
		for range 5 {
			b.turn()
		}
		if a := b.script.action; a.State != falcon.ActionFailed ||
			a.Reason != "node n2: no command is configured" {
			t.Errorf("action %+v", a)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// launching is that job as its launch waits for the spare, which does not get it.
func launching(t *testing.T) *bench {
	b := restartBench(t)
	launchOn(b)
	return b
}

func launchOn(b *bench) {
	b.start()
	spare := b.job.agents[2]
	for !b.job.waits {
		if b.turn(); b.job.iteration == 18 {
			spare.stream.cancel()
			spare.stream = nil
		}
	}
	for range 20 {
		b.turn()
	}
}

// A rank that ends fails its launch at once, and what the others have started is
// ordered to end.
func TestLaunchThatARankEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := launching(t)
		if v := b.restartView(); !strings.Contains(v.GetRestart(), "launch 1 waits for rank 2 on n2") {
			t.Fatalf("restart %q", v.GetRestart())
		}
		_, err := b.engine.Recover(context.Background(), tester, &falconv1.RecoverRequest{
			Verb:   verbRenew,
			Rank:   1,
			Reason: "leaks",
		})
		if synctest.Wait(); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "the job is restarting") {
			t.Errorf("a rank replaced in the midst of a restart: %v", err)
		}
		s := b.job.rankState("n0", 0)
		s.GetRank().Alive, s.GetRank().Exit = false, "killed by signal 9 (SIGKILL)"
		b.job.agents[0].send(s)
		for range 5 {
			b.turn()
		}
		if v := b.restartView(); !strings.Contains(v.GetRestart(),
			"launch 1 has failed (rank 0 on n0 has ended (killed by signal 9 (SIGKILL)))") {
			t.Errorf("restart %q", v.GetRestart())
		}
		b.inLoop(func() {
			r := b.engine.state.restart
			if r.Stop == nil ||
				r.Stop.Generation != 2 ||
				len(r.Stop.Commands) != 2 {
				t.Errorf("stop %+v", r.Stop)
			}
		})
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// The answers to a checkpoint's order can be lost with the agents, and the engine
// be killed before it knows the outcome: the first vote holds.
func TestVotesOutliveAgentsAndEngine(t *testing.T) {
	for name, killed := range map[string]bool{"answers lost": false, "engine killed too": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := restartBench(t)
				for _, a := range b.job.agents {
					a.place.mute = true
				}
				b.start()
				for b.job.committed == 0 {
					b.turn()
				}
				b.turn()
				if killed {
					if err := b.halt(); err != nil {
						t.Error(err)
					}
					b.start()
				}
				for range 1200 {
					if b.turn(); b.job.iteration >= 60 {
						break
					}
				}
				checkRestarted(b)
				if err := b.halt(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A launch that was not seen to come up, and whose ranks have all ended well, is
// the job that has finished: nothing is started again, also by an engine that was
// killed between the ends, and whose agents report nothing twice.
func TestLaunchThatRanToItsEnd(t *testing.T) {
	for name, killed := range map[string]bool{"one engine": false, "killed between the ends": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ranToItsEnd(t, launching(t), killed)
			})
		})
	}
}

func ranToItsEnd(t *testing.T, b *bench, killed bool) {
	spare := b.job.agents[2]
	again := func() {
		if err := b.halt(); err != nil {
			t.Error(err)
		}
		b.start()
		b.turn()
	}
	end := func(a *fakeAgent, r int32) {
		s := b.job.rankState(a.node, r)
		s.GetRank().Alive, s.GetRank().Exit, s.GetRank().Device = false,
			falconv1.ExitedNormally,
			string(b.script.to[r])
		a.send(s)
	}
	b.job.kept.generation = 1
	end(b.job.agents[0], 0)
	end(b.job.agents[0], 1)
	b.turn()
	spare.place.refuse = "rank 2 ended before it had made a communicator"
	if killed {
		for _, a := range b.job.agents {
			a.ranks = nil
		}
		again()
	}
	b.attach(spare)
	b.turn()
	end(spare, 2)
	end(spare, 3)
	for range 20 {
		b.turn()
	}
	check := func() {
		if v := b.restartView(); v.GetState() != "finished" || v.GetRestart() != "" {
			t.Errorf("state %q, %q", v.GetState(), v.GetRestart())
		}
		b.inLoop(func() {
			e := b.engine
			if e.state.job.Epoch != 2 ||
				e.state.restart.Phase != restart.Over ||
				e.state.restart.Failed != "" {
				t.Errorf("job epoch %d, restart %+v", e.state.job.Epoch, e.state.restart)
			}
		})
	}
	check()
	if killed {
		spare.ranks = nil
		again()
		check()
	}
	if err := b.halt(); err != nil {
		t.Error(err)
	}
}

func (b *bench) restartView() (v *falconv1.Job) {
	b.inLoop(func() { v = b.engine.views.jobView(time.Now()) })
	return v
}

// A process that does not end keeps the job from being launched twice.
func TestProcessThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restartBench(t)
		b.job.kept.stays = 1
		b.start()
		for range 60 {
			b.turn()
		}
		if v := b.restartView(); !strings.Contains(v.GetRestart(), "waiting for rank 3 on n1 to end") {
			t.Errorf("restart %q", v.GetRestart())
		}
		time.Sleep(restart.LeaveWait)
		b.turn()
		if a := b.script.action; a.State != falcon.ActionFailed ||
			!strings.Contains(a.Reason, "rank 3 on n1 has not ended 2m0s after the checkpoint") {
			t.Errorf("action %+v", a)
		}
		for _, a := range b.job.agents {
			if a.place.started != 0 {
				t.Errorf("node %s started processes", a.node)
			}
		}
		b.exitWell(1, 3) // too late for the restart: nothing was started in its place
		for range 5 {
			b.turn()
		}
		if v := b.restartView(); v.GetState() != string(falcon.JobLost) {
			t.Errorf("a job that left for a restart that never came is %q", v.GetState())
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// exitWell has a rank end with success.
func (b *bench) exitWell(agent int, r int32) {
	s := b.job.rankState(b.job.agents[agent].node, r)
	s.GetRank().Alive, s.GetRank().Exit = false, falconv1.ExitedNormally
	b.job.agents[agent].send(s)
}

// byHandBench has an operator take S4 with the planner that is shipped.
func byHandBench(t *testing.T) *bench {
	b := newBench(t)
	b.job.spare()
	never := falcon.RungPolicy{Approval: falcon.ApprovalNever}
	b.policy.Rungs = map[falcon.Rung]falcon.RungPolicy{
		falcon.RungS2: never,
		falcon.RungS3: never,
	}
	asked := false
	b.each = func(b *bench) {
		if asked || b.job.iteration < 25 {
			return
		}
		a, err := b.engine.Decide(context.Background(), tester, &falconv1.DecideRequest{
			Incident: "INC-0001",
			Rung:     "S4",
			Variant:  "replace",
			Approve:  true,
			Reason:   "worn out",
		})
		switch {
		case err == nil:
			asked = true
			if a.GetVariant() != "replace" ||
				a.GetDecidedFrom() != tester.From ||
				a.GetDecidedUnixNs() == 0 ||
				a.GetJobEpoch() != 1 {
				b.t.Errorf("decided: %v", a)
			}
		case errors.Is(err, ErrStopped), b.dead():
		case strings.Contains(err.Error(), "decided"),
			strings.Contains(err.Error(), string(falcon.ActionDispatched)):
			asked = true // it was durable before the engine died
		default:
			b.t.Logf("iteration %d: %v", b.job.iteration, err)
		}
	}
	return b
}

func TestKilledInARestartByHand(t *testing.T) {
	killEverywhere(t, byHandBench, func(b *bench) {
		checkPicture(b)
		for _, a := range b.job.agents {
			want := map[string]int{"n0": 1, "n2": 1}[a.node]
			if a.place.started != want {
				b.t.Errorf("node %s started processes %d times, want %d", a.node, a.place.started, want)
			}
		}
		b.inLoop(func() {
			m := b.engine.state
			if len(m.actions) != 1 ||
				m.actions[0].Rung != falcon.RungS4 ||
				m.actions[0].State != falcon.ActionKept ||
				m.actions[0].DecidedBy != "tester" {
				b.t.Errorf("actions in the journal: %+v", m.actions)
			}
			if m.job.Epoch != 2 || m.restart.Phase != restart.Over {
				b.t.Errorf("job epoch %d, phase %s", m.job.Epoch, m.restart.Phase)
			}
		})
	})
}
