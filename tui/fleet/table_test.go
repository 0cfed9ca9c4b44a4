package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
)

var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// made is a job by a picture.
func made(name string, snap *falconv1.SnapshotReply) *Job {
	if snap.Brief == nil {
		snap.Brief = &falconv1.Brief{Revision: falconv1.ConsoleRevision}
	}
	snap.AtUnixNs = start.UnixNano()
	return &Job{
		Name:     name,
		Revision: int(snap.Brief.Revision),
		State: &feed.State{
			Snap:     snap,
			Conn:     feed.Live,
			Since:    start,
			Received: start,
		},
	}
}

func jobOf(state string, world int32) *falconv1.Job {
	return &falconv1.Job{
		Name:      "j",
		State:     state,
		World:     world,
		Iteration: 100,
	}
}

func proposing(deadlineNs int64) *falconv1.Ladder {
	return &falconv1.Ladder{
		Incident: "INC-0001",
		Proposal: &falconv1.Action{
			Id:             "INC-0001/S2/1",
			Incident:       "INC-0001",
			Rung:           "S2",
			State:          "proposed",
			DeadlineUnixNs: deadlineNs,
		},
	}
}

// one of each class, with what makes it so.
func oneOfEach() []*Job {
	away := made("away", &falconv1.SnapshotReply{Job: jobOf("steady", 8)})
	away.State.Conn = feed.Lost
	away.State.Err = "gone"
	fresh := &Job{
		Name:  "connecting",
		State: &feed.State{Snap: &falconv1.SnapshotReply{}},
	}
	never := &Job{
		Name:  "never",
		State: &feed.State{Snap: &falconv1.SnapshotReply{}, Err: "refused"},
	}
	open := func(n int32, perMinute float64) *falconv1.Brief {
		return &falconv1.Brief{
			Revision:              1,
			Open:                  n,
			LossPerMinuteGpuHours: perMinute,
		}
	}
	return []*Job{
		made("finished", &falconv1.SnapshotReply{Job: jobOf("finished", 8)}),
		made("steady", &falconv1.SnapshotReply{Job: jobOf("steady", 8)}),
		made("learning", &falconv1.SnapshotReply{Job: jobOf("learning", 8)}),
		made("waiting", &falconv1.SnapshotReply{Job: jobOf("waiting for agents", 0)}),
		fresh, away, never,
		made("slow-little", &falconv1.SnapshotReply{
			Job:   jobOf("slow", 8),
			Brief: open(1, 0.01),
		}),
		made("slow-much", &falconv1.SnapshotReply{
			Job:   jobOf("slow", 8),
			Brief: open(1, 9),
		}),
		made("slow-asks", &falconv1.SnapshotReply{
			Job:    jobOf("slow", 8),
			Brief:  open(1, 0.01),
			Ladder: proposing(0),
		}),
		made("slow-auto", &falconv1.SnapshotReply{
			Job:    jobOf("steady", 8),
			Brief:  open(1, 0.01),
			Ladder: proposing(start.Add(40 * time.Second).UnixNano()),
		}),
		made("recovering", &falconv1.SnapshotReply{
			Job:      jobOf("recovering", 8),
			Recovery: &falconv1.Recovery{Id: "REC-0001", State: "replace"},
		}),
		made("restarting", &falconv1.SnapshotReply{Job: jobOf("restarting", 8)}),
		made("asked", &falconv1.SnapshotReply{
			Job:      jobOf("lost", 8),
			Recovery: &falconv1.Recovery{Id: "REC-0001", State: "proposed"},
		}),
		made("failed", &falconv1.SnapshotReply{
			Job: jobOf("lost", 8),
			Recovery: &falconv1.Recovery{
				Id:              "REC-0001",
				State:           "failed",
				BeforeIteration: 100,
			},
		}),
		made("over-it", &falconv1.SnapshotReply{
			Job: jobOf("steady", 8),
			Recovery: &falconv1.Recovery{
				Id:              "REC-0001",
				State:           "failed",
				BeforeIteration: 50,
			},
		}),
		made("hang", &falconv1.SnapshotReply{
			Job:  jobOf("steady", 8),
			Hang: &falconv1.Hang{SinceUnixNs: 1},
		}),
		made("lost", &falconv1.SnapshotReply{Job: jobOf("lost", 8)}),
	}
}

func names(rows []Row) string {
	var out []string
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

func TestWorstFirst(t *testing.T) {
	jobs := oneOfEach()
	const want = "asked failed hang lost recovering restarting slow-asks slow-auto slow-much slow-little never away connecting waiting learning over-it steady finished"
	for range 20 {
		rand.Shuffle(len(jobs), func(i, j int) {
			jobs[i], jobs[j] = jobs[j], jobs[i]
		})
		got := names((&Table{}).Rows(jobs, start))
		// both are away: nothing says which is worse
		got = strings.Replace(got, "away never", "never away", 1)
		if got != want {
			t.Fatalf("\n%s, want\n%s", got, want)
		}
	}
}

// A job that loses a little more than before stays where it is.
func TestRowsDoNotFlicker(t *testing.T) {
	slow := func(name string, perMinute float64) *Job {
		return made(name, &falconv1.SnapshotReply{
			Job: jobOf("slow", 8),
			Brief: &falconv1.Brief{
				Revision:              1,
				Open:                  1,
				LossPerMinuteGpuHours: perMinute,
			},
		})
	}
	for range 200 {
		a, b := 1+0.04*rand.Float64(), 1+0.04*rand.Float64()
		got := names((&Table{}).Rows([]*Job{slow("b", b), slow("a", a)}, start))
		if got != "a b" {
			t.Fatalf("%f and %f an hour: %s", 60*a, 60*b, got)
		}
	}
}

func TestOtherOrders(t *testing.T) {
	jobs := []*Job{
		made("b", &falconv1.SnapshotReply{
			Job:   jobOf("steady", 9),
			Brief: &falconv1.Brief{LostGpuHours: 1},
		}),
		made("a", &falconv1.SnapshotReply{
			Job:   jobOf("steady", 8),
			Brief: &falconv1.Brief{LostGpuHours: 2},
		}),
		made("c", &falconv1.SnapshotReply{
			Job:   jobOf("slow", 7),
			Brief: &falconv1.Brief{Open: 1},
		}),
	}
	jobs[0].State.Received = start.Add(-time.Minute)
	for order, want := range map[Order]string{
		ByWorst: "c a b",
		ByName:  "a b c",
		BySize:  "b a c",
		ByLost:  "a b c",
		ByNews:  "b c a",
	} {
		if got := names((&Table{Order: order}).Rows(jobs, start)); got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
}

// The cursor is on a job, wherever the job goes, and n finds those that wait.
func TestCursorStaysOnItsJob(t *testing.T) {
	jobs := oneOfEach()
	tab := &Table{}
	rows := tab.Rows(jobs, start)
	tab.Act(key.Down, rows, 5)
	name := tab.Chosen(rows).Name
	for range orders {
		tab.Act(key.Order, rows, 5)
		if rows = tab.Rows(jobs, start); tab.Chosen(rows).Name != name {
			t.Errorf("%s: the cursor went from %s to %s", tab.Order, name, tab.Chosen(rows).Name)
		}
		first := tab.window(rows, 5)
		if tab.Cursor(rows) < first || tab.Cursor(rows) >= first+5 {
			t.Errorf("%s: the cursor is in row %d, and rows from %d are shown",
				tab.Order, tab.Cursor(rows), first)
		}
	}
	var found []string
	for range 4 {
		tab.Act(key.Next, rows, 5)
		found = append(found, tab.Chosen(rows).Name)
	}
	want := []string{"asked", "slow-asks", "slow-auto"}
	if !slices.Equal(slices.Compact(slices.Sorted(slices.Values(found))), want) {
		t.Errorf("n leads to %v, want %v", found, want)
	}
	tab.Act(key.Prev, rows, 5)
	if got := tab.Chosen(rows).Name; got != found[2] {
		t.Errorf("N leads to %s, want %s", got, found[2])
	}
	if (&Table{}).Act(key.Next, rows[:0], 5) || (&Table{}).Chosen(rows[:0]) != nil {
		t.Error("there is a row among none")
	}
}

func TestWaits(t *testing.T) {
	at := start.Add(10 * time.Second) // the picture came ten seconds ago
	snap := &falconv1.SnapshotReply{
		Role:   "viewer",
		Job:    jobOf("slow", 8),
		Brief:  &falconv1.Brief{Revision: 1, Open: 4},
		Policy: &falconv1.Policy{},
		Ladder: proposing(start.Add(40 * time.Second).UnixNano()),
		Others: []*falconv1.Ladder{
			{
				Incident: "INC-0002",
				Proposal: &falconv1.Action{
					Incident:  "INC-0002",
					Rung:      "S4",
					State:     "proposed",
					Approvals: []*falconv1.Approval{{By: "li"}},
				},
			},
			{
				Incident: "INC-0003",
				Actions: []*falconv1.Action{{
					Incident:       "INC-0003",
					Rung:           "S3",
					State:          "approved",
					DeadlineUnixNs: start.Add(18 * time.Second).UnixNano(),
				}},
			},
			{
				Incident: "INC-0004",
				Actions:  []*falconv1.Action{{Incident: "INC-0004", Rung: "S3", State: "kept"}},
			},
		},
		Triage: []*falconv1.Triage{{Incident: "INC-0002", Owner: "dana"}},
	}
	texts := func() (out []string) {
		r := RowOf(made("a", snap), at)
		for _, w := range r.Waits {
			out = append(out, w.Text(), w.Terse())
		}
		return out
	}
	want := []string{
		"S3 for INC-0003 approved, acts in 8 s", "S3 INC-0003 in 8 s",
		"S2 for INC-0001 acts in 30 s", "S2 INC-0001 in 30 s",
		"S4 for INC-0002 waits for a second approver, dana's", "second approver: S4 INC-0002",
	}
	if got := texts(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	snap.Policy.Frozen, snap.Role = true, "approver" // nothing acts by itself
	want = []string{
		"S4 for INC-0002 waits for a second approver, dana's", "second approver: S4 INC-0002",
		"S3 for INC-0003 waits for you", "you: S3 INC-0003",
		"S2 for INC-0001 waits for you", "you: S2 INC-0001",
	}
	if got := texts(); !slices.Equal(got, want) {
		t.Errorf("frozen: %q", got)
	}
}

// Nothing waits in a job that has finished.
func TestFinishedJobsWaitForNobody(t *testing.T) {
	snap := &falconv1.SnapshotReply{
		Job:      jobOf("finished", 8),
		Recovery: &falconv1.Recovery{Id: "REC-0001", State: "proposed"},
		Ladder:   proposing(0),
	}
	if r := RowOf(made("a", snap), start); r.Class != Finished || r.NeedsPerson() {
		t.Errorf("%+v", r.Waits)
	}
}

func TestFilters(t *testing.T) {
	jobs := oneOfEach()
	jobs[1].State.Snap.Job.Name = "llama-70b"
	for text, want := range map[string]string{
		"":                                  "",
		"state:slow":                        "slow-asks slow-auto slow-much slow-little",
		"state:slow,recovering !is:waiting": "recovering restarting slow-much slow-little",
		"is:waiting":                        "asked slow-asks slow-auto",
		"is:mine":                           "",
		"is:trouble ranks<8":                "",
		"job:slow-*":                        "slow-asks slow-auto slow-much slow-little",
		"job:llama*":                        "steady",
		"70B":                               "steady",
		"REC-0001":                          "asked failed recovering",
		"open>0 !auto":                      "slow-asks slow-much slow-little",
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := names((&Table{Filter: f}).Rows(jobs, start))
		if got != want && text != "" {
			t.Errorf("%q leaves %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"state:bad":              "one of",
		"what:1":                 "no field",
		"slow>x":                 "compares with no number",
		"(slow":                  "never closed",
		strings.Repeat("x", 600): "longer",
	} {
		_, err := ParseFilter(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("state:slow (lost>1 | !is:seen) job:a*")
	rows := (&Table{}).Rows(oneOfEach(), start)
	f.Fuzz(func(t *testing.T, text string) {
		by, err := ParseFilter(text)
		if err != nil {
			return
		}
		for i := range rows {
			by.Match(&rows[i])
		}
	})
}

func TestLinesAndDocument(t *testing.T) {
	rows := (&Table{}).Rows(oneOfEach(), start.Add(time.Second))
	for i := range rows {
		l := rows[i].Line(start)
		if !strings.HasPrefix(l, rows[i].Name+": ") || strings.Contains(l, "\n") {
			t.Errorf("%q", l)
		}
	}
	if s := Summary(
		rows,
	); s != "18 jobs, 120 ranks, 4 stopped, 2 recovering, 4 slow, 2 away, 1 connecting, 1 waiting, 1 learning, 2 training, 1 finished; 3 wait for a person" {
		t.Error(s)
	}
	var out bytes.Buffer
	if err := WriteJSON(&out, rows); err != nil {
		t.Fatal(err)
	}
	var back []map[string]any
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != len(rows) {
		t.Fatalf("%v: %s", err, out.String())
	}
	for i, d := range back {
		if d["name"] != rows[i].Name ||
			d["state"] != rows[i].Class.String() ||
			(d["news_age_s"] == nil) != (rows[i].News < 0) {
			t.Errorf("%v of %s", d, rows[i].Name)
		}
	}
}

// A stream writes a line for each change and none for what stays.
func TestStreamTellsChangesOnly(t *testing.T) {
	same := made("same", &falconv1.SnapshotReply{Job: jobOf("steady", 8)})
	changing := made("other", &falconv1.SnapshotReply{Job: jobOf("steady", 8)})
	written := map[string]int{}
	for i := range 10 {
		changing.State.Snap.Job.Iteration += int64(i)
		if i == 5 {
			changing.State.Snap.Brief.Open = 1
		}
		for _, r := range (&Table{}).Rows([]*Job{same, changing}, start.Add(time.Duration(i)*time.Second)) {
			written[fmt.Sprint(r.Name, signOf(&r))]++
		}
	}
	if len(written) != 3 {
		t.Errorf("%d lines, want 3: %v", len(written), written)
	}
}
