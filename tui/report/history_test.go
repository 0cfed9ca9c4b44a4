package report

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func pastReply() *falconv1.HistoryReply {
	const hour = int64(3600e9)
	q := &falconv1.Spread{N: 2, Mean: 90}
	for i := range 21 {
		q.Quantiles = append(q.Quantiles, float64(60+3*i))
	}
	return &falconv1.HistoryReply{
		AtUnixNs:   1_772_000_000e9,
		HalfLifeNs: 168 * hour,
		Incidents:  3,
		Folded:     1,
		DurationsS: q,
		Slowdowns: &falconv1.Spread{
			N:         1,
			Mean:      math.Inf(1),
			Quantiles: make([]float64, 21),
		},
		Past: []*falconv1.PastIncident{
			{
				Incident:    "INC-0002",
				Job:         1,
				OnsetUnixNs: 1_771_999_000e9,
				EndUnixNs:   1_771_999_060e9,
				HealthyMs:   100,
				SlowMs:      150,
				LostMs:      20_000,
				Counted:     true,
				Cause:       "gpu_degradation",
				Devices:     []string{"n1.g0"},
			},
			{
				Incident:    "INC-0001\x1b[2J",
				OnsetUnixNs: 1_771_000_000e9,
				EndUnixNs:   1_771_007_200e9,
				SlowMs:      150,
				LostMs:      500,
				Cause:       "network_congestion",
				Links:       []string{"n0-n1"},
				Nics:        []string{"n1.nic0"},
				Unnamed:     3,
			},
		},
		Causes: []*falconv1.CauseCount{
			{Cause: "network_congestion", Incidents: 2, Share: 2.0 / 3, MeanMs: 7.2e6, LostMs: 1000},
			{
				Cause:     "gpu_degradation",
				Incidents: 1,
				Share:     1.0 / 3,
				MeanMs:    60_000,
				LostMs:    20_000,
			},
		},
		FailStops: []*falconv1.FailStop{
			{
				Kind:   "node",
				Faults: 3,
				Share:  0.75,
				Ranks:  24,
				Nodes:  2,
				Most:   "n1",
				Times:  2,
				Over:   3,
				Trains: 2,
				DownMs: 95_000,
			},
			{Kind: "exit\x1b", Faults: 1, Share: 0.25, Ranks: 1, Nodes: 1, Most: "n0", Times: 1, Over: 1},
		},
		Paths: []*falconv1.PathRow{
			{Class: "intra-node", Bytes: 64e6, Paths: 8, Tests: 32, MeanMs: 0.41, Cov: 0.021},
			{
				Class:    "same rail",
				Bytes:    64e6,
				Paths:    4,
				Tests:    24,
				MeanMs:   3.2,
				Cov:      0.29,
				Worst:    "n0-n1",
				WorstCov: 0.4,
			},
			{Class: "cross rail", Bytes: 64e6, Paths: 1, Tests: 1, MeanMs: 4},
		},
		Table: []*falconv1.JobCauses{
			{
				Kind:     "a",
				Total:    392,
				Slowed:   6,
				Slowdown: 0.1179,
				Categories: []*falconv1.JobCategory{
					{Category: "no fail-slow", Jobs: 386},
					{Category: "CPU contention", Jobs: 4},
					{Category: "GPU degradation", Jobs: 2},
				},
			},
			{
				Total: 1,
				Categories: []*falconv1.JobCategory{
					{Category: "no fail-slow", Jobs: 1},
					{Category: "CPU contention"},
					{Category: "GPU degradation"},
				},
			},
		},
		Jobs: []*falconv1.PastJob{{
			Number:      1,
			Name:        "gpt|70b",
			World:       8,
			FirstUnixNs: 1_771_000_000e9,
			LastUnixNs:  1_772_000_000e9,
			Iterations:  9000,
			WatchedMs:   9e5,
			LostMs:      20_500,
			Incidents:   2,
			Category:    "multiple issues",
			Slowdown:    0.0233,
		}},
		Culprits: []*falconv1.Culprit{
			{
				Device:      "n1.g0",
				Times:       1,
				Jobs:        1,
				Score:       0.999,
				FirstUnixNs: 1_771_999_000e9,
				LastUnixNs:  1_771_999_000e9,
				Last:        "INC-0002",
				Lasts:       true,
				Causes:      []string{"gpu_degradation"},
			},
			{Link: "n0-n1", Times: 2, Score: 0.3, Last: "INC-0001"},
			{Nic: "n1.nic0", Times: 1, Score: 0.3, Last: "INC-0001"},
		},
	}
}

func goldenText(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s differs (%v):\n%s", name, err, got)
	}
}

// The history as text and as a document, with what another machine wrote made harmless.
func TestHistoryText(t *testing.T) {
	h := HistoryOf(pastReply())
	goldenText(t, "history.txt", h.Text())
	goldenText(t, "history.md", h.Markdown())
	b, err := json.Marshal(h)
	if err != nil || strings.Contains(string(b), "\\u001b") {
		t.Errorf("%s, %v", b, err)
	}
	if h.DurationsS.At(0.5) != 90 ||
		h.DurationsS.At(1) != 120 ||
		(Spread{}).At(0.5) != 0 {
		t.Errorf("quantiles of %+v", h.DurationsS)
	}
	empty := HistoryOf(&falconv1.HistoryReply{})
	text := empty.Text()
	if !strings.Contains(text, "0 incidents are over") || strings.Contains(text, "NaN") {
		t.Error(text)
	}
}
