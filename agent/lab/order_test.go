package lab

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func linesInto(t *testing.T, r *records, generation uint64, texts ...string) {
	t.Helper()
	for _, text := range texts {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if !l.isRelevant() {
			t.Errorf("%s was dropped", text)
		}
		r.addLine(generation, l)
	}
}

// A placement is reported by all ranks: the slowest one's steps count, and nobody
// may be on another side than the rest.
func TestSwapStory(t *testing.T) {
	r := newRecords(2)
	linesInto(t, r, 0,
		`{"swap":7,"rank":0,"step":"pause","state":"begin"}`,
		`{"swap":7,"rank":1,"step":"restore","state":"begin"}`,
		`{"swap":7,"rank":0,"step":"restore","state":"over","committed":true,"new_rank":1,"from_iteration":12,"step_ms":{"pause":1,"dump":20,"swap":30,"restore":20},"emulated_ms":60,"bytes":2000000}`,
		`{"swap":7,"rank":1,"step":"restore","state":"over","committed":true,"new_rank":0,"from_iteration":12,"step_ms":{"pause":2,"dump":21,"swap":31,"restore":20},"emulated_ms":62,"bytes":1000000}`,
		`{"swap":8,"rank":1,"step":"swap","state":"over","committed":false,"from_iteration":20,"step_ms":{"pause":2,"dump":21},"reason":"a copy was bad"}`,
	)
	got := r.orders.swapReports()
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	s := got[0]
	if s.TotalMs != 74 ||
		s.EmulatedMs != 62 ||
		s.ControlMs != 12 ||
		s.MovedMB != 3 ||
		s.Iteration != 12 ||
		s.StepMs["dump"] != 21 ||
		s.LastStep != "restore" {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.Applied, []int32{0, 1}) || len(s.Refused) != 0 {
		t.Errorf("applied %v, refused %v", s.Applied, s.Refused)
	}
	if s := got[1]; len(s.Applied) != 0 ||
		!slices.Equal(s.Refused, []int32{1}) ||
		s.Reason != "a copy was bad" {
		t.Errorf("%+v", s)
	}
}

// Iterations go on over generations; what an earlier one ran beyond its
// checkpoint is run again, and counts once.
func TestRecordsJoinGenerations(t *testing.T) {
	r := newRecords(2)
	row := func(i, end int64, rank int, ms float64) string {
		return fmt.Sprintf(`{"iteration":%d,"rank":%d,"ms":%g,"loss":%g,"end_unix_ns":%d,"cpu_ms":5}`,
			i, rank, ms, float64(10-i), end*1e6)
	}
	linesInto(
		t,
		r,
		0,
		row(0, 100, 0, 100),
		row(0, 101, 1, 100),
		row(1, 200, 0, 100),
		row(1, 201, 1, 101),
		`{"checkpoint":1,"rank":0,"order":3,"resume_iteration":2,"ms":40,"dump_ms":10,"store_ms":30}`,
		row(2, 300, 1, 100),
	) // never finished by all
	linesInto(
		t,
		r,
		2,
		`{"resume":2,"rank":1,"load_ms":25,"restore_ms":5}`,
		row(2, 1000, 0, 90),
		row(2, 1001, 1, 90),
		row(3, 1090, 0, 90),
	)
	if r.done != 3 ||
		len(r.rows) != 4 ||
		r.rows[2].Ms != 90 ||
		r.rows[2].Generation != 2 ||
		r.rows[1].Generation != 0 {
		t.Fatalf("done %d, rows %+v", r.done, r.rows)
	}
	linesInto(t, r, 0, row(3, 1200, 1, 500)) // a late line of a dead generation
	if r.done != 3 {
		t.Error("a dead generation finished an iteration")
	}
	if len(r.restarts) != 1 {
		t.Fatalf("%+v", r.restarts)
	}
	want := Restart{
		Generation:     2,
		FirstIteration: 2,
		Redone:         1,
		DumpMs:         10,
		StoreMs:        30,
		LoadMs:         25,
		RestoreMs:      5,
		DownMs:         710,
		LaunchMs:       640,
	}
	if r.restarts[0] != want {
		t.Errorf("%+v, want %+v", r.restarts[0], want)
	}
}

// A job left at a checkpoint may come back; one that has failed is over, unless
// the launch never ran.
func TestWhenTheJobIsOver(t *testing.T) {
	one := int64(1)
	for name, c := range map[string]struct {
		generation uint64
		ran        bool
		ends       []string
		over       bool
	}{
		"done":               {0, true, []string{endDone, endDone}, true},
		"left":               {0, true, []string{endCheckpointed, endCheckpointed}, false},
		"one died leaving":   {0, true, []string{endCheckpointed, "peer"}, true},
		"failed":             {1, true, []string{"peer", ""}, true},
		"launch failed":      {1, false, []string{"error", "peer"}, false},
		"first never ran":    {0, false, []string{"error", "peer"}, true},
		"second left itself": {3, true, []string{endCheckpointed, endCheckpointed}, false},
	} {
		l := &Lab{records: newRecords(2)}
		for i, end := range c.ends {
			l.ranks = append(l.ranks, &rankProcess{
				generation: c.generation,
				end:        end,
				exited:     true,
				pid:        i + 1,
			})
		}
		if c.ran {
			l.records.addLine(c.generation, line{Iteration: &one})
		}
		if got := l.jobEnded(); got != c.over {
			t.Errorf("%s: over is %v", name, got)
		}
	}
}

// Ranks that agents start for a user's own command find the files that the command names.
func TestOwnCommandKeepsItsFolder(t *testing.T) {
	l := parkingLab(t)
	l.place = &place{dir: t.TempDir()}
	if got := l.nodeLaunch(NodeSetup{}).Dir; got != "" {
		t.Errorf("the lab's trainer runs in %q", got)
	}
	l.opt.Train = &OwnTraining{
		Command: []string{"../python", "train.py"},
		Dir:     "/home/user",
		Store:   "127.0.0.1:1",
	}
	if got := l.nodeLaunch(NodeSetup{}).Dir; got != "/home/user" {
		t.Errorf("the user's command runs in %q", got)
	}
}
