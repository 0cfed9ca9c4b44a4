package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// A rank that computes slowly without slowing the iteration, as its replica
// has less to do, is found by the watch and reported with its GPU.
func TestWatchFindsAHiddenFailingRank(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.job.MicroBatches = []int{9, 9, 5, 9}
	w.describe()
	w.run(60)
	w.job.Clock["n1.g0"] = 0.62
	w.run(400) // a minute after the healthy profile
	wantOpen(t, w, gpu("n1.g0"))
	if q, _ := w.m.Rank(2); !q.Failing || q.SlowSteps < 3 {
		t.Errorf("rank 2: %+v", q)
	}
	if !strings.Contains(w.out.String(), "watch: n1.g0 (rank 2) computed up to") {
		t.Errorf("nothing told by the watch\n%s", w.out.String())
	}
	w.clearFaults()
	w.run(80)
	wantOpen(t, w)
}

// One slow window is transient: a note, no incident.
func TestWatchCallsAShortTroubleTransient(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.job.MicroBatches = []int{9, 9, 5, 9}
	w.describe()
	for w.request == nil || w.request.Why != "How do the ranks compute?" {
		w.run(1)
	}
	w.job.Clock["n1.g0"] = 0.62
	w.run(2)
	w.clearFaults()
	w.run(20)
	if len(w.all) > 0 || !strings.Contains(w.out.String(), "for 2 steps, then no longer: transient") {
		t.Errorf("incidents %v\n%s", w.all, w.out.String())
	}
}

func TestWatchIsPeriodicAndCanBeOff(t *testing.T) {
	for _, tt := range []struct {
		every   int64
		spacing time.Duration
		want    int64
	}{{0, -1, 3}, {100, -1, 6}, {-1, -1, 0}, {0, 0, 1}, {0, 40 * time.Second, 2}} {
		// 700 iterations take 98 s
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
		w.m = New(Config{Watch: WatchConfig{Every: tt.every, Spacing: tt.spacing}})
		w.describe()
		w.run(700)
		got := strings.Count(w.out.String(), "How do the ranks compute?")
		if int64(got) != tt.want {
			t.Errorf("every %d, %s: %d looks in 700 iterations, want %d", tt.every, tt.spacing, got, tt.want)
		}
		if len(w.all) > 0 {
			t.Errorf("incidents of a healthy job: %v", w.all)
		}
	}
}

// Below 80 % of the best throughput without an onset an incident opens; below
// a peak that the operator knows the ranks are looked at.
func TestThroughputAlarm(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.m = New(Config{Tracker: deaf()})
	w.describe()
	w.run(40)
	w.job.Clock["n1.g0"] = 0.6
	w.run(60)
	wantOpen(t, w, gpu("n1.g0"))
	if at := w.all[0].OnsetIteration; at != 40 {
		t.Errorf("onset %d, want 40\n%s", at, w.out.String())
	}

	w = newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.m = New(Config{PeakIterationMs: 100})
	w.describe()
	w.run(80)
	if out := w.out.String(); len(w.all) > 0 ||
		!strings.Contains(out, "of the peak throughput (100.0 ms)") ||
		strings.Count(out, "throughput:") != 1 {
		t.Errorf("incidents %v\n%s", w.all, out)
	}
}

// deaf verifies no change: what is left is the alarm.
func deaf() bocd.TrackerConfig {
	cfg := bocd.DefaultTrackerConfig()
	cfg.Verify = 50
	return cfg
}

// The culprits of past incidents are listed with a new verdict and in consoles.
func TestRecurringCulprits(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.step(Culprits{Past: []Named{
		{
			Job:      "a",
			Incident: "INC-0004",
			At:       w.now.Add(-50 * time.Hour),
			Device:   "n1.g0",
			Cause:    falcon.CauseGPU,
		},
		{
			Job:      "b",
			Incident: "INC-0001",
			At:       w.now.Add(-5 * time.Hour),
			Device:   "n1.g0",
			Cause:    falcon.CauseGPU,
		},
		{
			Job:      "b",
			Incident: "INC-0001",
			At:       w.now.Add(-5 * time.Hour),
			Device:   "n1.g0",
			Cause:    falcon.CauseGPU,
		},
		{Job: "b", Incident: "INC-0002", At: w.now.Add(-5 * time.Hour), Link: falcon.NewLink("n0", "n1")},
		{},
	}})
	w.run(40)
	w.job.Clock["n1.g0"] = 0.5
	w.run(20)
	if out := w.out.String(); !strings.Contains(out,
		"n1.g0 was named 2 times before in the last 3 days, last by INC-0001 of job b") {
		t.Errorf("recurrence not told\n%s", out)
	}
	got := w.m.culprits.recurring()
	if len(got) != 1 ||
		got[0].Device != "n1.g0" ||
		got[0].Times != 3 ||
		got[0].Jobs != 3 {
		t.Errorf("recurring %+v, want n1.g0 three times in three jobs", got)
	}
}

// The job that was the present one when a culprit was named is an earlier one
// after a restart of the job.
func TestCulpritsOfAnEarlierEpoch(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.step(Culprits{Past: []Named{{
		Incident: "INC-0001",
		At:       w.now.Add(-time.Hour),
		Device:   "n1.g0",
	}}})
	twice := func(jobs int) {
		t.Helper()
		got := w.m.culprits.recurring()
		if len(got) != 1 || got[0].Times != 2 || got[0].Jobs != jobs {
			t.Errorf("recurring %+v, want n1.g0 twice in %d jobs", got, jobs)
		}
	}
	w.step(Culprits{Past: []Named{{
		Incident: "INC-0002",
		At:       w.now,
		Device:   "n1.g0",
	}}})
	twice(1)
	w.epoch++
	w.describe()
	twice(1)
	job := w.m.culprits.jobName(w.m.culprits.past[0])
	if job != fmt.Sprintf("epoch %d", w.epoch-1) {
		t.Errorf("INC-0001 was named in job %q", job)
	}
	w.step(Culprits{Past: []Named{{
		Incident: "INC-0003",
		At:       w.now,
		Device:   "n1.g0",
	}}})
	if got := w.m.culprits.recurring(); len(got) != 1 || got[0].Times != 3 || got[0].Jobs != 2 {
		t.Errorf("recurring %+v, want n1.g0 three times in two jobs", got)
	}
}

func TestPastCulpritsAreBounded(t *testing.T) {
	m := New(Config{})
	for i := range 3 * pastMost {
		m.Step(time.Unix(int64(i), 0), Culprits{Past: []Named{{
			Job:      "a",
			Incident: time.Unix(int64(i), 0).String(),
			Device:   "n0.g0",
		}}})
	}
	if len(m.culprits.past) != pastMost {
		t.Errorf("%d kept, want %d", len(m.culprits.past), pastMost)
	}
}

// Two windows running show a group slow; one of a job without incidents between them breaks the run.
func TestSlowGroupsOfTwoWindowsRunning(t *testing.T) {
	var rw rankWatcher
	group := peer.Group{Dimension: falcon.DimDP, Op: falcon.OpAllReduce, Bytes: 8}
	group.Ranks = []falcon.Rank{0, 1}
	slow := []peer.Group{group}
	if again := rw.slowAgain(10, slow); len(again) > 0 {
		t.Errorf("by one window: %v", again)
	}
	if again := rw.slowAgain(20, slow); len(again) != 1 || again[0].since != 10 {
		t.Errorf("by two: %v", again)
	}
	rw.forgetGroups()
	if again := rw.slowAgain(900, slow); len(again) > 0 {
		t.Errorf("long after: %v", again)
	}
}
