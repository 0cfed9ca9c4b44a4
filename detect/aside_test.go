package detect

import (
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// handedOut is a machine whose window of four ranks is complete and compared aside, and the
// comparison.
func handedOut(t *testing.T) (*Machine, Comparison, *jobtest.Job) {
	t.Helper()
	job := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 1}, 4, 8, 1)
	m := New(Config{CompareAside: 4})
	m.Step(time.Unix(1, 0), Job{
		Epoch:        1,
		Layout:       job.Layout,
		Placement:    job.Placement,
		Comms:        job.Comms,
		MicroBatches: []int32{8, 8, 8, 8},
	})
	m.profile.request(2, "a test")
	var parts []falcon.RankProfile
	for r := range 4 {
		parts = append(parts, falcon.RankProfile{
			Rank:         falcon.Rank(r),
			Window:       m.profile.windowID,
			Iterations:   2,
			MicroBatches: 8,
			SelfMs:       10,
		})
	}
	m.Advance()
	m.Step(time.Unix(2, 0), Profiled{Window: m.profile.windowID, Profiles: parts})
	r := m.Ready()
	if r.Compare == nil || !m.profile.inFlight() || r.Empty() {
		t.Fatalf("%+v: nothing is handed out", r)
	}
	m.Advance()
	if m.Ready().Compare != nil {
		t.Fatal("handed out twice")
	}
	return m, *r.Compare, job
}

// A window whose comparison is under way ends once, with the comparison's result: parts that
// come again, and a result that comes twice, change nothing.
func TestComparedAsideOnce(t *testing.T) {
	m, c, _ := handedOut(t)
	m.Step(time.Unix(3, 0), Profiled{
		Window: c.Window,
		Profiles: []falcon.RankProfile{{
			Rank:         0,
			Window:       c.Window,
			Iterations:   2,
			MicroBatches: 8,
			SelfMs:       99,
		}},
	})
	m.Step(time.Unix(3, 0), Profiled{Window: c.Window, Refused: "late"})
	m.Tick(time.Unix(20, 0))
	if !m.profile.inFlight() || m.profile.haveLast {
		t.Fatal("the window ended before its comparison")
	}
	m.Step(time.Unix(21, 0), c.Run())
	if m.profile.inFlight() ||
		!m.profile.haveLast ||
		m.profile.last.Ranks[0].SelfMs != 10 {
		t.Fatalf("in flight %v, known %v", m.profile.inFlight(), m.profile.haveLast)
	}
	m.profile.haveLast = false
	m.Step(time.Unix(22, 0), c.Run())
	if m.profile.haveLast {
		t.Fatal("the result counted twice")
	}
}

// What was compared for processes, or places, that are no more counts for nothing.
func TestComparedTooLate(t *testing.T) {
	for name, change := range map[string]func(*Machine, *jobtest.Job){
		"epoch": func(m *Machine, job *jobtest.Job) {
			m.Step(time.Unix(3, 0), Job{
				Epoch:        2,
				Layout:       job.Layout,
				Placement:    job.Placement,
				Comms:        job.Comms,
				MicroBatches: []int32{8, 8, 8, 8},
			})
		},
		"placement": func(m *Machine, job *jobtest.Job) {
			now := falcon.Placement{job.Placement[1], job.Placement[0], job.Placement[2], job.Placement[3]}
			m.Step(
				time.Unix(3, 0),
				Acted{Rung: falcon.RungS3, Iteration: 5, Placement: now},
			)
		},
		"time": func(m *Machine, _ *jobtest.Job) {
			m.Tick(time.Unix(2, 0).Add(compareMost + time.Second))
		},
	} {
		m, c, job := handedOut(t)
		change(m, job)
		if m.profile.inFlight() {
			t.Errorf("%s: the window is awaited still", name)
		}
		announced := m.Ready().Notes
		if name == "time" &&
			(len(announced) == 0 || !strings.Contains(announced[len(announced)-1].Text, "not compared in time")) {
			t.Errorf("%s: %+v", name, announced)
		}
		m.Step(time.Unix(200, 0), c.Run())
		if m.profile.haveLast {
			t.Errorf("%s: the result counts", name)
		}
	}
}
