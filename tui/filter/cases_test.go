package filter

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCases(t *testing.T) {
	now := time.Date(2026, 11, 25, 4, 0, 0, 0, time.UTC)
	ns := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	list := []*Case{
		{
			Text:    "INC-0003 network congestion",
			Class:   "network_congestion",
			State:   "open",
			Places:  []string{"n0-n2"},
			Nodes:   []string{"n0", "n2"},
			BeganNs: ns(time.Minute),
		},
		{
			Text:    "INC-0002 GPU degradation",
			Class:   "gpu_degradation",
			State:   "ended",
			Places:  []string{"n1.g0"},
			Nodes:   []string{"n1"},
			BeganNs: ns(3 * time.Hour),
			EndedNs: ns(2 * time.Hour),
		},
		{
			Text:    "INC-0001 CPU contention",
			Class:   "cpu_contention",
			State:   "ended",
			Places:  []string{"n12.g1"},
			Nodes:   []string{"n12"},
			BeganNs: ns(50 * time.Hour),
			EndedNs: ns(49 * time.Hour),
		},
	}
	for text, want := range map[string]string{
		"": "321", "state:open": "3", "state:ended": "21", "!state:open": "21", "class:gpu*": "2",
		"class:gpu*,cpu*": "21", "node:n1": "2", "node:n1*": "21",
		"device:n1.g0": "2", "device:n1": "2", "device:n0-n2": "3",
		"since:24h": "32", "since:2d": "32", "since:3d": "321", "since:2026-11-25": "32",
		"until:2026-11-25":                 "1",
		"until:2026-11-25T01:30 since:10h": "2", "gpu": "2",
		"inc-0001": "1", "congestion state:ended": "", "!n1.g0 !n0-n2": "1", "n2": "3",
	} {
		f, err := ParseCases(text, now, nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := ""
		for i, c := range list {
			if f.Match(c) {
				got += string(rune('3' - i))
			}
		}
		if got != want {
			t.Errorf("%q chooses %q, want %q", text, got, want)
		}
	}
	for text, why := range map[string]string{
		"cause:gpu":                    "there is no field",
		"state:closed":                 "takes open or ended",
		"since:":                       "lacks its value",
		"since:yesterday":              "takes a time ago",
		"(gpu)":                        "has no meaning",
		strings.Repeat("x", MaxText+1): "longer than",
	} {
		_, err := ParseCases(text, now, nil)
		if !errors.Is(err, ErrFilter) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", text, err, why)
		}
	}
}

func FuzzParseCases(f *testing.F) {
	f.Add("state:open !class:gpu* since:24h")
	f.Add("since:99999999999d until:0001-01-01")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseCases(text, time.Unix(1e9, 0), nil)
		if err != nil && !errors.Is(err, ErrFilter) {
			t.Fatal(err)
		}
		got.Match(&Case{Text: "x", Places: []string{"n1.g0"}})
	})
}
