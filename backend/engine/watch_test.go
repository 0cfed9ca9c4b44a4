package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
)

// Consoles are shown for how long a rank has been slow by the step, and who is
// named again and again.
func TestSnapshotShowsTheWatch(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		b.until(3)
		first := time.Now().Add(-time.Hour)
		b.inLoop(func() {
			b.det.steps = map[falcon.Rank]int{1: 3, 2: 12}
			b.det.again = []detect.Recurrence{
				{Device: "n1.g0", Times: 3, Jobs: 2, First: first, Last: first.Add(time.Minute)},
				{Link: falcon.NewLink("n0", "n1"), Times: 2, Jobs: 1, First: first, Last: first},
			}
			for range recurringMax {
				b.det.again = append(b.det.again, detect.Recurrence{
					Device: "n0.g0",
					Times:  2,
				})
			}
		})
		b.turn()
		time.Sleep(time.Second) // older pictures may be shown for so long
		s, err := b.engine.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		r := s.For(tester, nil)
		for rank, want := range []int32{0, 3, 12, 0} {
			v := s.Ranks.Views()[rank]
			if v.GetSlowSteps() != want || v.GetFailing() != (want > 10) {
				t.Errorf("rank %d: %d slow steps, failing %v", rank, v.GetSlowSteps(), v.GetFailing())
			}
		}
		again := r.GetRecurring()
		if len(again) != recurringMax {
			t.Fatalf("%d of %d are listed again", len(again), recurringMax)
		}
		d := again[0]
		if d.GetDevice() != "n1.g0" ||
			d.GetLink() != "" ||
			d.GetTimes() != 3 ||
			d.GetJobs() != 2 ||
			d.GetLastUnixNs()-d.GetFirstUnixNs() != time.Minute.Nanoseconds() {
			t.Errorf("the device: %v", d)
		}
		if l := again[1]; l.GetDevice() != "" || l.GetLink() != "n0-n1" {
			t.Errorf("the link: %v", l)
		}
	})
}

// A restarted detector gets whom the incidents that are over have named, of
// earlier jobs too; one that goes on comes back as itself, and is not counted
// twice.
func TestCulpritsOfIncidentsThatAreOver(t *testing.T) {
	m := newJournalState()
	write := func(id string, state falcon.IncidentState, v falcon.Verdict) {
		if err := m.apply(record(
			time.Unix(int64(len(m.incidents)), 0),
			kindIncident,
			falcon.Incident{ID: id, State: state, Verdict: v},
		)); err != nil {
			t.Fatal(err)
		}
	}
	gpu := falcon.Verdict{
		Cause:   falcon.CauseGPU,
		Devices: []falcon.Device{"n1.g0", "n1.g1"},
	}
	link := falcon.Verdict{
		Cause: falcon.CauseNetwork,
		Links: []falcon.Link{falcon.NewLink("n0", "n1")},
	}
	m.setJob(jobRecord{Epoch: 1})
	write("INC-0001", falcon.IncidentLocated, gpu)
	m.setJob(jobRecord{Epoch: 2})
	write("INC-0001", falcon.IncidentClosed, gpu) // closed in the next job, opened in the last
	write("INC-0002", falcon.IncidentClosed, link)
	write("INC-0003", falcon.IncidentRelieved, gpu)
	write("INC-0004", falcon.IncidentLocated, link)
	write("INC-0005", falcon.IncidentClosed, falcon.Verdict{Cause: falcon.CauseUnknown})
	want := []detect.Named{
		{Job: "epoch 1", Incident: "INC-0001", At: time.Unix(0, 0), Device: "n1.g0", Cause: falcon.CauseGPU},
		{Job: "epoch 1", Incident: "INC-0001", At: time.Unix(0, 0), Device: "n1.g1", Cause: falcon.CauseGPU},
		{
			Incident: "INC-0002",
			At:       time.Unix(1, 0),
			Link:     falcon.NewLink("n0", "n1"),
			Cause:    falcon.CauseNetwork,
		},
	}
	if got := m.named(); !slices.Equal(got, want) {
		t.Errorf("named\n%v, want\n%v", got, want)
	}
}
