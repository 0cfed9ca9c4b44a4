package detect

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// displacedLine is a machine with one incident of a link that carries nothing now,
// has looked healthy for long enough, and is being tested.
func displacedLine() (*Machine, *incidentState) {
	m := New(DefaultConfig())
	at := falcon.Placement{"n0.g0", "n1.g0"}
	m.Step(time.Unix(1, 0), Job{
		Epoch:     1,
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 1},
		Placement: at,
	})
	s := newIncident(falcon.Incident{
		ID:             "INC-0001",
		State:          falcon.IncidentLocated,
		OnsetIteration: 4,
		Verdict: falcon.Verdict{
			Cause: falcon.CauseNetwork,
			Links: []falcon.Link{falcon.NewLink("n0", "n1")},
		},
	}, 0)
	s.move = moveState{done: true, links: linkRelief{asked: true}}
	s.relief = reliefState{streak: 3, healthyAt: 8}
	s.actions.inForce[falcon.RungS3] = true
	m.incidents.list = append(m.incidents.list, s)
	return m, s
}

func way(from, to falcon.Device, err string) falcon.LinkResult {
	l := falcon.LinkResult{FromDevice: from, ToDevice: to, Err: err}
	if err == "" {
		l.Ms = 2
		l.BaseMs = 2
		l.Basis = "class"
		l.Ratio = 1
	}
	return l
}

// A test clears a link only when it ended and both directions were measured: the
// other one may be the slow one.
func TestHalfATestClearsNoLink(t *testing.T) {
	there := way("n0.g0", "n1.g0", "")
	back := way("n1.g0", "n0.g0", "")
	for name, c := range map[string]struct {
		state falcon.ValidationState
		links []falcon.LinkResult
		over  bool
	}{
		"whole":         {falcon.ValidationDone, []falcon.LinkResult{there, back}, true},
		"one direction": {falcon.ValidationDone, []falcon.LinkResult{there}, false},
		"one gave no time": {
			falcon.ValidationDone,
			[]falcon.LinkResult{there, way("n1.g0", "n0.g0", "no result")},
			false,
		},
		"cut short": {falcon.ValidationFailed, []falcon.LinkResult{there, back}, false},
	} {
		m, s := displacedLine()
		m.linkWatch.judgeTest(s, falcon.Validation{
			Ask:    falcon.ValidationAsk{Incident: s.ID},
			State:  c.state,
			Links:  c.links,
			Reason: "the agent of n1 is away",
		})
		if s.Open() == c.over {
			t.Errorf("%s: the incident is %s", name, s.State)
		}
		if !c.over && s.move.links.refusals != 1 {
			t.Errorf("%s: %d tests brought nothing", name, s.move.links.refusals)
		}
	}
}

// Silence is the job's progress without a node, for some time: neither alone.
func TestSilentNodes(t *testing.T) {
	m, _ := displacedLine()
	start := time.Unix(1, 0)
	say := func(after time.Duration, r falcon.Rank, iteration int64) {
		m.Step(start.Add(after), Samples{Samples: []falcon.Sample{{
			Rank:      r,
			Iteration: iteration,
			Ms:        10,
		}}})
	}
	say(0, 0, 1)
	say(0, 1, 1)
	say(silentFor-1, 0, 100)
	if n := m.samples.silentNodes(); len(n) != 0 {
		t.Errorf("agents ship in batches, and %v are silent", n)
	}
	say(silentFor, 0, 101)
	if n := m.samples.silentNodes(); len(n) != 1 || n[0] != "n1" {
		t.Errorf("silent are %v", n)
	}
	say(silentFor, 1, 101)
	m.Tick(start.Add(time.Hour)) // the job does not train: all of it is silent, no rank more than others
	if n := m.samples.silentNodes(); len(n) != 0 {
		t.Errorf("silent are %v", n)
	}
}
