package enginetest

import (
	"context"
	"sync/atomic"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// historian answers what is asked of the past; embedded, as the Engine is large.
type historian struct {
	falconv1.UnimplementedConsoleServer
	reply atomic.Pointer[falconv1.HistoryReply] // nil = nothing is past
}

// History is that of two jobs before the story's.
func (h *historian) History(context.Context, *falconv1.HistoryRequest) (*falconv1.HistoryReply, error) {
	if r := h.reply.Load(); r != nil {
		return r, nil
	}
	return &falconv1.HistoryReply{HalfLifeNs: int64(7 * 24 * time.Hour)}, nil
}

// straight are the quantiles of a straight line between two values.
func straight(n int32, from, to float64) *falconv1.Spread {
	s := &falconv1.Spread{N: n, Mean: (from + to) / 2}
	for i := range 21 {
		s.Quantiles = append(s.Quantiles, from+(to-from)*float64(i)/20)
	}
	return s
}

// pastCulprits are named by a history that ends at a moment.
func pastCulprits(at time.Time, hostile string) []*falconv1.Culprit {
	ago := func(d time.Duration) int64 { return at.Add(-d).UnixNano() }
	return []*falconv1.Culprit{
		{
			Device:      "n1.g0" + hostile,
			Times:       3,
			Jobs:        2,
			Score:       2.41,
			FirstUnixNs: ago(200 * time.Hour),
			LastUnixNs:  ago(5 * time.Minute),
			Last:        "INC-0907",
			Causes:      []string{"gpu_degradation"},
		},
		{
			Link:        "n0-n2" + hostile,
			Times:       2,
			Jobs:        1,
			Score:       1.2,
			FirstUnixNs: ago(90 * time.Hour),
			LastUnixNs:  ago(26 * time.Hour),
			Last:        "INC-0904",
			Causes:      []string{"network_congestion"},
		},
		{
			Nic:         "n2.nic1" + hostile,
			Times:       1,
			Jobs:        1,
			Score:       0.12,
			FirstUnixNs: ago(500 * time.Hour),
			LastUnixNs:  ago(500 * time.Hour),
			Last:        "INC-0901",
			Causes:      []string{"network_congestion"},
		},
	}
}

// historyAt is a history that ends at a moment.
func historyAt(at time.Time, hostile string) *falconv1.HistoryReply {
	ago := func(d time.Duration) int64 { return at.Add(-d).UnixNano() }
	past := func(id string, began, lasted time.Duration, slow float64, cause string) *falconv1.PastIncident {
		return &falconv1.PastIncident{
			Incident:    id,
			Job:         1,
			Epoch:       2,
			OnsetUnixNs: ago(began),
			EndUnixNs:   ago(began - lasted),
			HealthyMs:   HealthyMs,
			SlowMs:      HealthyMs * (1 + slow),
			LostMs:      lasted.Seconds() * 1e3 * slow / (1 + slow),
			Counted:     true,
			Cause:       cause,
		}
	}
	r := &falconv1.HistoryReply{
		AtUnixNs:   at.UnixNano(),
		HalfLifeNs: int64(7 * 24 * time.Hour),
		Incidents:  7,
		Folded:     1,
		Past: []*falconv1.PastIncident{
			past("INC-0907", 5*time.Minute, 4*time.Minute, 0.9, "gpu_degradation"),
			past("INC-0906", 3*time.Hour, 72*time.Minute, 0.35, "network_congestion"),
			past("INC-0905", 20*time.Hour, 30*time.Second, 0.2, "cpu_contention"),
			past("INC-0904", 26*time.Hour, 24*time.Minute, 0.4, "network_congestion"),
			past("INC-0903", 90*time.Hour, 10*time.Minute, 0.12, "gpu_degradation"),
			past("INC-0901", 500*time.Hour, 9*time.Hour, 3.1, "network_congestion"),
		},
		Causes: []*falconv1.CauseCount{
			{
				Cause:      "network_congestion",
				Incidents:  4,
				Share:      4.0 / 7,
				MeanMs:     9.5e6,
				LostMs:     2.6e7,
				MeanLostMs: 6.5e6,
			},
			{
				Cause:      "gpu_degradation",
				Incidents:  2,
				Share:      2.0 / 7,
				MeanMs:     4.2e5,
				LostMs:     1.9e5,
				MeanLostMs: 9.5e4,
			},
			{
				Cause:      "cpu_contention",
				Incidents:  1,
				Share:      1.0 / 7,
				MeanMs:     3e4,
				LostMs:     5e3,
				MeanLostMs: 5e3,
			},
		},
		DurationsS: straight(6, 30, 32400),
		Slowdowns:  straight(6, 0.12, 3.1),
		Culprits:   pastCulprits(at, hostile),
	}
	r.Past[0].Devices = []string{"n1.g0" + hostile}
	r.Past[1].Links = []string{"n0-n2"}
	r.Past[1].Nics = []string{"n0.nic0", "n2.nic1"}
	r.Past[3].Links = []string{"n0-n2"}
	r.Past[4].Devices = []string{"n1.g0"}
	r.Past[5].Nics = []string{"n2.nic1"}
	return r
}
