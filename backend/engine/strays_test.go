package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
)

// An engine with a job of generation 6 on n0 and n1, and memory alone.
func jobOfSix() *Engine {
	e := bareEngine(newJournalState())
	e.state.job = jobRecord{
		Epoch:     3,
		Processes: []string{"n0/100", "n1/200/g6"},
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 1},
		Placement: falcon.Placement{"n0.g0", "n1.g0"},
		Rejoined:  6,
	}
	return e
}

// The order of a launch reaches a node only when its rank was made elsewhere.
func TestALateLaunchTakesNoRank(t *testing.T) {
	e := jobOfSix()
	for _, c := range []struct {
		what  string
		node  falcon.Node
		state *falconv1.RankState
		stray bool
	}{
		{
			"of an older launch",
			"n3",
			&falconv1.RankState{Rank: 1, Pid: 300, Generation: 5, Alive: true},
			true,
		},
		{
			"of the same launch on another node",
			"n3",
			&falconv1.RankState{Rank: 1, Pid: 300, Generation: 6, Alive: true},
			true,
		},
		{"the job's own", "n1", &falconv1.RankState{Rank: 1, Pid: 200, Generation: 6, Alive: true}, false},
		{"started by hand", "n3", &falconv1.RankState{Rank: 1, Pid: 300, Alive: true}, false},
		{
			"of a newer launch",
			"n3",
			&falconv1.RankState{Rank: 1, Pid: 300, Generation: 7, Alive: true},
			false,
		},
		{"ended", "n3", &falconv1.RankState{Rank: 1, Pid: 300, Generation: 5}, false},
		{
			"the job's own under its rank before a placement",
			"n1",
			&falconv1.RankState{Rank: 0, Pid: 200, Generation: 6, Alive: true},
			false,
		},
	} {
		got := e.cluster.isStray(c.node, falcon.Rank(c.state.GetRank()), c.state)
		if got != c.stray {
			t.Errorf("a process %s: stray %t", c.what, got)
		}
	}
}

// A lifted fence admits those again that the job still has.
func TestALiftedFenceKeepsTheReplacedQuiet(t *testing.T) {
	f := newFences()
	f.apply(
		fenceRecord{
			Generation: 6,
			Nodes:      []falcon.Node{"n1"},
			Processes:  []string{"n1/100", "n1/200/g6"},
		},
		nil,
	)
	f.apply(fenceRecord{Lifted: "n1"}, []string{"n0/100", "n1/200/g6"})
	if f.nodeFenced("n1") || !f.processFenced("n1/100") || f.processFenced("n1/200/g6") {
		t.Errorf("nodes %v, processes %v", f.nodes, f.names)
	}
}

// A node that still runs what was replaced, or of which it is not known what it
// runs, stays fenced.
func TestAFenceIsLiftedOnEvidence(t *testing.T) {
	e := jobOfSix()
	at := time.Unix(1_700_000_000, 0)
	e.state.fences.apply(
		fenceRecord{
			Generation: 6,
			Nodes:      []falcon.Node{"n2"},
			Processes:  []string{"n2/77"},
		},
		nil,
	)
	if why := e.cluster.leftRunning(at, "n2"); !strings.Contains(why, "is not heard") {
		t.Errorf("a node that was never heard: %q", why)
	}
	n, _, err := e.nodes.Attach(fleet.NewSession(t.Context(), &falconv1.Hello{Node: "n2", Boot: "b"}), at)
	if err != nil {
		t.Fatal(err)
	}
	if why := e.cluster.leftRunning(at, "n2"); !strings.Contains(why, "is not heard") {
		t.Errorf("a node without a beat: %q", why)
	}
	n.Beat = &falconv1.Beat{Ranks: []*falconv1.RankBeat{{Pid: 77}}}
	if why := e.cluster.leftRunning(
		at,
		"n2",
	); !strings.Contains(why, "process 77 on node n2 was replaced and still runs") {
		t.Errorf("a node that runs what was replaced: %q", why)
	}
	n.Beat = &falconv1.Beat{Ranks: []*falconv1.RankBeat{{Pid: 78}}}
	if why := e.cluster.leftRunning(at, "n2"); why != "" {
		t.Errorf("a node that runs something else: %q", why)
	}
	if why := e.cluster.leftRunning(at.Add(time.Minute), "n2"); !strings.Contains(why, "is not heard") {
		t.Errorf("a node that has fallen silent: %q", why)
	}
}

// A process of a launch that the recovery in progress has not ordered is of after the journal was copied,
// where its generation was in the journal at the start. Of later ones this engine knows better.
func TestALaunchOfAfterTheJournalWasCopied(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		found, launched, claimed, newest uint64
	}{
		"launched since":                  {7, 0, 7, 8},
		"its own launch":                  {7, 7, 7, 7},
		"of an earlier one":               {7, 0, 6, 7},
		"begun since the start":           {6, 0, 7, 7},
		"of one that was never given out": {7, 0, 8, 7},
	} {
		e := jobOfSix()
		e.learner.found = c.found
		v := falcon.Recovery{
			ID:       "REC-0001",
			State:    falcon.RecoverySuspend,
			JobEpoch: 3,
		}
		v.Placement = falcon.Placement{"n0.g0", "n2.g0"}
		v.Generation = 7
		v.Launched = map[falcon.Rank]uint64{1: c.launched}
		e.state.setRecovery(v)
		e.recoveries.takeForeignLaunch(at, "n3", 1, &falconv1.RankState{
			Rank:       1,
			Pid:        300,
			Generation: c.claimed,
			Alive:      true,
			Park:       &falconv1.Park{Joining: true},
		})
		if got := e.cluster.newestGeneration(); got != c.newest {
			t.Errorf("%s: the newest generation is %d, want %d", name, got, c.newest)
		}
	}
}

// A process that its agent has not reported again has ended only where the agent has beaten since: one
// that was stopped as its stream began has reported nothing.
func TestAProcessRunsUntilItsAgentHasListedWhatLives(t *testing.T) {
	e := jobOfSix()
	at := time.Unix(1_700_000_000, 0)
	home := e.state.job.Placement[1:]
	n, _, err := e.nodes.Attach(fleet.NewSession(t.Context(), &falconv1.Hello{Node: "n1", Boot: "b"}), at)
	if err != nil {
		t.Fatal(err)
	}
	e.cluster.attached["n1"] = at
	for beats := range relistBeats {
		r, running := e.cluster.stillRunning(at.Add(time.Minute), home)
		if r != 0 || !running {
			t.Errorf("after %d beats: rank %d, %t", beats, r, running)
		}
		n.TakeBeat(&falconv1.Beat{})
	}
	if _, running := e.cluster.stillRunning(at.Add(reportWait-1), home); !running {
		t.Error("it had no time to report")
	}
	if _, running := e.cluster.stillRunning(at.Add(reportWait), home); running {
		t.Error("it has listed all that live")
	}
}

// An order made for the job epoch that a recovery is about to end is not sent: the
// ranks would vote for what the planner gives up.
func TestAnOrderOfAnEndingEpochWaits(t *testing.T) {
	e := jobOfSix()
	now := time.Unix(1_700_000_000, 0)
	o := &order{orderRecord: orderRecord{Order: falcon.Order{
		Epoch: 3,
		ID:    2,
		Kind:  falcon.OrderCheckpoint,
		Leave: true,
	}}}
	if !e.arbiter.present(now).mayOrder(o.Order.Epoch, o.heavy()) {
		t.Fatal("nothing is in the way of it")
	}
	e.state.recoveries = []falcon.Recovery{{
		ID:                "REC-0001",
		State:             falcon.RecoveryResumed,
		JobEpoch:          3,
		RecoveryExecution: falcon.RecoveryExecution{Generation: 7},
	}}
	if e.arbiter.present(now).mayOrder(o.Order.Epoch, o.heavy()) {
		t.Error("the recovery has succeeded, and its epoch has not begun")
	}
	e.state.recoveries, e.state.job.Epoch = nil, 4
	if e.arbiter.present(now).mayOrder(o.Order.Epoch, o.heavy()) {
		t.Error("it was made for the epoch before")
	}
}
