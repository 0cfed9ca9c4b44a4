package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// What --since, --half-life and --limit take, and the sentence for what they do not.
func TestHistoryRequest(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		since, half string
		limit       int32
		want        time.Time
		wrong       string
	}{
		{"", "7d", 100, time.Time{}, ""},
		{"36h", "1.5d", 1, now.Add(-36 * time.Hour), ""},
		{"7d", "36h", 512, now.AddDate(0, 0, -7), ""},
		{"2026-03-01", "7d", 100, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), ""},
		{"99999d", "7d", 100, time.Time{}, "--since"},
		{"-3d", "7d", 100, time.Time{}, "--since"},
		{"NaNd", "7d", 100, time.Time{}, "--since"},
		{"", "0s", 100, time.Time{}, "--half-life"},
		{"", "a week", 100, time.Time{}, "--half-life"},
		{"", "7d", 0, time.Time{}, "--limit"},
		{"", "7d", 513, time.Time{}, "--limit"},
		{"50000d", "7d", 1, time.Time{}, "--since"},
	} {
		q, err := historyRequest(tt.since, tt.half, tt.limit, now)
		if tt.wrong != "" {
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		want := int64(0)
		if !tt.want.IsZero() {
			want = tt.want.UnixNano()
		}
		if err != nil || q.GetSinceUnixNs() != want || q.GetLimit() != tt.limit {
			t.Errorf("%+v: %v, %v", tt, q, err)
		}
	}
}
