package report

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var update = flag.Bool("update", false, "rewrite the golden reports")

// throttled is an answer about a GPU that throttled, was worked around, and
// recovered.
func throttled() *falconv1.IncidentsReply {
	chart := &falconv1.Series{Rank: 2, FirstIteration: 10, Threshold: 0.9}
	for i := int64(10); i < 200; i++ {
		ms := float32(210)
		p := float32(0.01)
		switch {
		case i >= 40 && i < 52:
			ms = 400
		case i >= 52 && i < 161:
			ms = 262
		}
		if i >= 40 && i < 44 || i >= 161 && i < 164 {
			p = 0.97
		}
		chart.Ms = append(chart.Ms, ms)
		chart.Probability = append(chart.Probability, p)
	}
	for _, m := range []Mark{
		{40, "onset"},
		{52, "applied"},
		{100, "jitter"},
		{161, "relief"},
		{168, "reverted"},
	} {
		chart.Marks = append(chart.Marks, &falconv1.Mark{
			Iteration: m.Iteration,
			Kind:      m.Kind,
		})
	}
	line := func(n uint64, kind, text string) *falconv1.EventLine {
		return &falconv1.EventLine{
			Record:    n,
			Hash:      strings.Repeat("0123456789abcdef", 4),
			AtUnixNs:  1_795_000_000_000_000_000 + int64(n)*1e9,
			Iteration: 40 + int64(n),
			Kind:      kind,
			Text:      text,
		}
	}
	decided := line(9, "audit", "maria approved INC-0001/S2/1")
	decided.Audit = &falconv1.Audit{
		Actor:    "maria",
		Role:     "approver",
		From:     "unix:1000",
		Verb:     "approve",
		About:    "INC-0001/S2/1",
		PlanHash: "9f2c41d0",
	}
	return &falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{{
			Id:                "INC-0001",
			State:             "closed",
			OnsetIteration:    40,
			DetectedIteration: 43,
			RelievedIteration: 161,
			HealthyMs:         210,
			SlowMs:            400,
			Probability:       0.98,
			Verdict: &falconv1.Verdict{
				Cause:      "gpu_degradation",
				Devices:    []string{"n1.g0"},
				Ranks:      []int32{2},
				Severity:   3,
				Confidence: 0.97,
				Evidence: []*falconv1.Evidence{
					{Kind: "counter", Text: "n1: no host pressure", Against: true},
					{Kind: "timing", Text: "rank 2: self time 2.01 x its peers"},
				},
			},
		}},
		Ladders: []*falconv1.Ladder{{
			Incident:     "INC-0001",
			LostGpuHours: 0.0123,
			Actions: []*falconv1.Action{{
				Id:            "INC-0001/S2/1",
				Rung:          "S2",
				State:         "reverted",
				PlanHash:      "9f2c41d0",
				MicroBatches:  []int32{9, 9, 5, 9},
				Previous:      []int32{8, 8, 8, 8},
				DecidedBy:     "maria",
				DecidedFrom:   "unix:1000",
				DecidedUnixNs: 1_795_000_009_000_000_000,
				Reason:        "cheap",
				JobEpoch:      1,
				PredictedMs:   262,
				MeasuredMs:    262.3,
				ErrorShare:    0.001,
				Why:           "the loss has reached the price",
				RevertReason:  "the fault has cleared",
			}},
		}},
		Events: []*falconv1.EventLine{
			line(3, "incident", "INC-0001: slow since iteration 40"),
			decided,
			line(12, "incident", "INC-0001 is closed"),
		},
		Chart:    chart,
		AtUnixNs: 1_795_000_100_000_000_000,
		EngineId: "e1",
		Job: &falconv1.Job{
			Name:     "gpt-lab",
			Tp:       1,
			Dp:       4,
			Pp:       2,
			World:    8,
			Epoch:    1,
			Emulated: true,
		},
	}
}

// lost is the same incident when a rank died while it lasted, told so late that
// its beginning is no longer held.
func lost() *falconv1.IncidentsReply {
	r := throttled()
	r.Incidents[0].OnsetUnixNs = 1_795_000_000_000_000_000
	r.Incidents[0].EndUnixNs = 1_795_000_090_000_000_000
	r.AtUnixNs = 1_795_000_100_000_000_000
	r.Triage = []*falconv1.Triage{{
		Incident:    "INC-0001",
		Owner:       "lee",
		AckedBy:     "dana",
		AckedUnixNs: 1_795_000_020_000_000_000,
		NoteCount:   1,
		Notes: []*falconv1.TriageNote{{
			By:     "dana",
			UnixNs: 1_795_000_020_000_000_000,
			Text:   "fan | of n1\x1b[31m",
		}},
	}}
	r.Incidents[0].OnsetIteration, r.Ladders[0].Actions[0].AppliedIteration = 2, 6
	r.Chart.Marks = append(r.Chart.Marks,
		&falconv1.Mark{Iteration: 2, Kind: "onset"},
		&falconv1.Mark{Iteration: 6, Kind: "applied"},
	)
	const began = 1_795_000_030_000_000_000
	r.Recoveries = []*falconv1.Recovery{{
		Id:          "REC-0001",
		State:       "resumed",
		Generation:  3,
		Attempts:    1,
		PlanHash:    "77aa",
		DecidedBy:   "maria",
		DecidedFrom: "unix:1000",
		Faults: []*falconv1.Fault{{
			Kind:     "exit",
			Node:     "n1",
			Device:   "n1.g0",
			Ranks:    []int32{2},
			Evidence: []string{"rank 2 (process 4713 on n1.g0) ended: signal 9"},
		}},
		Replaced:        map[int32]string{2: "n3.g0"},
		Survivors:       []int32{0, 1, 3, 4, 5, 6, 7},
		Fenced:          []string{"n1"},
		ResumeIteration: 92,
		BeforeIteration: 92,
		Moves:           []*falconv1.ShardMove{{Rank: 2, From: 0, Why: "in another failure domain"}},
		PhasesMs: map[string]float64{
			"detect":  41,
			"replace": 2410,
			"restore": math.NaN(),
		},
		PredictedMs:   map[string]float64{"replace": 2500, "restore": 100},
		StartedUnixNs: began,
		EndedUnixNs:   began + 3_211_000_000,
		NoReturn:      true,
	}, {
		Id:              "REC-0002",
		State:           "denied",
		ResumeIteration: -1,
		BeforeIteration: -1,
		DecidedBy:       "li",
		Reason:          "not | now",
		StartedUnixNs:   began,
		Faults: []*falconv1.Fault{{
			Kind:  "node",
			Node:  "n1",
			Ranks: []int32{2, 3},
		}},
	}}
	return r
}

func TestGoldenReports(t *testing.T) {
	for name, r := range map[string]*falconv1.IncidentsReply{"throttled": throttled(), "lost": lost()} {
		golden(t, name, Of(r)[0])
	}
}

func golden(t *testing.T, name string, s Incident) {
	t.Helper()
	js, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{name + ".md": s.Markdown(), name + ".json": string(js)} {
		path := "testdata/" + name
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if same := got == string(want) || sameJSON(got, string(want)); !same {
			t.Errorf("%s differs (go test ./tui/report -update rewrites it):\n%s", path, got)
		}
	}
}

// sameJSON reports whether two documents hold the same, in whatever order of keys.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil &&
		json.Unmarshal([]byte(b), &y) == nil &&
		reflect.DeepEqual(x, y)
}

// The curve in numbers is that of the iterations.
func TestStretches(t *testing.T) {
	got := Of(throttled())[0].Chart.Stretches()
	want := []Stretch{
		{10, 39, "before", 210},
		{40, 51, "onset", 400},
		{52, 160, "applied", 262},
		{161, 167, "relief", 210},
		{168, 199, "reverted", 210},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// A chart that begins after the onset doesn't call what it shows first "before".
func TestStretchesOfACutChart(t *testing.T) {
	got := Of(lost())[0].Chart.Stretches()[0]
	if got != (Stretch{10, 39, "applied", 210}) {
		t.Errorf("%+v", got)
	}
}

// Iterations of which no time is known are in no median, and a line that belongs to no iteration
// says so.
func TestUnknownIterations(t *testing.T) {
	odd := throttled()
	for i := range 20 {
		odd.Chart.Ms[i] = 0
	}
	odd.Events[0].Iteration = -1
	s := Of(odd)[0]
	if got := s.Chart.Stretches()[0]; got != (Stretch{10, 39, "before", 210}) {
		t.Errorf("%+v", got)
	}
	if md := s.Markdown(); strings.Contains(md, "| -1 |") {
		t.Error(md)
	}
}

// What an engine sends can't break a report.
func TestOddAnswers(t *testing.T) {
	odd := throttled()
	odd.Chart.Ms[3], odd.Chart.Ms[4] = float32(math.NaN()), float32(math.Inf(1))
	odd.Chart.Probability = odd.Chart.Probability[:5]
	odd.Chart.Marks = append(odd.Chart.Marks,
		&falconv1.Mark{Iteration: -5, Kind: "onset"},
		&falconv1.Mark{Iteration: 1 << 60, Kind: "\x1b[2J"},
	)
	for _, r := range []*falconv1.IncidentsReply{odd, {Incidents: []*falconv1.Incident{{}}}} {
		s := Of(r)[0]
		js, err := s.JSON()
		if err != nil || !json.Valid(js) || strings.Contains(s.Markdown(), "\x1b") {
			t.Errorf("%v: %s", err, js)
		}
	}
	if len(Of(&falconv1.IncidentsReply{})) != 0 {
		t.Error("a report of nothing")
	}
}
