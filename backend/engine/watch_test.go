package engine

import (
	"context"
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
				b.det.again = append(b.det.again, detect.Recurrence{Device: "n0.g0", Times: 2})
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
			if v := r.GetRanks()[rank]; v.GetSlowSteps() != want || v.GetFailing() != (want > 10) {
				t.Errorf("rank %d: %d slow steps, failing %v", rank, v.GetSlowSteps(), v.GetFailing())
			}
		}
		again := r.GetRecurring()
		if len(again) != recurringMax {
			t.Fatalf("%d of %d are told again", len(again), recurringMax)
		}
		if d := again[0]; d.GetDevice() != "n1.g0" || d.GetLink() != "" || d.GetTimes() != 3 || d.GetJobs() != 2 || d.GetLastUnixNs()-d.GetFirstUnixNs() != time.Minute.Nanoseconds() {
			t.Errorf("the device: %v", d)
		}
		if l := again[1]; l.GetDevice() != "" || l.GetLink() != "n0-n1" {
			t.Errorf("the link: %v", l)
		}
	})
}
