package phrase

import (
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestTriage(t *testing.T) {
	now := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
	until := now.Add(100 * time.Minute).UnixNano()
	note := []*falconv1.TriageNote{{By: "lee", Text: "watch n1"}}
	for _, c := range []struct {
		v    *falconv1.Triage
		want string
	}{
		{nil, ""},
		{&falconv1.Triage{AckedBy: "dana", AckedUnixNs: now.UnixNano()}, "seen by dana at 03:00:00Z"},
		{
			&falconv1.Triage{
				Owner:              "lee",
				AckedBy:            "dana",
				SnoozedBy:          "dana",
				SnoozedUntilUnixNs: until,
				Quiet:              true,
			},
			"lee's, snoozed until 04:40:00Z by dana",
		},
		{
			&falconv1.Triage{AckedBy: "dana", SnoozedUntilUnixNs: until, Woke: "worse"},
			"its snooze has ended: the incident is worse",
		},
		{
			&falconv1.Triage{
				AckedBy:            "dana",
				AckedUnixNs:        now.UnixNano(),
				SnoozedUntilUnixNs: now.UnixNano(),
				Quiet:              true,
			},
			"seen by dana at 03:00:00Z",
		},
		{
			&falconv1.Triage{Owner: "lee", Notes: note, NoteCount: 3},
			"lee's, note by lee: watch n1 (newest of 3)",
		},
	} {
		if got := Triage(c.v, now, nil); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// An incident is measured against the level just before it; the healthy one is named where that
// is another.
func TestSlowdownIsSinceJustBefore(t *testing.T) {
	for _, c := range []struct {
		i    *falconv1.Incident
		want string
	}{
		{
			&falconv1.Incident{HealthyMs: 154, BeforeMs: 235, SlowMs: 353},
			"235 ms → 353 ms (+50%), healthy 154 ms",
		},
		{&falconv1.Incident{HealthyMs: 154, BeforeMs: 156, SlowMs: 353}, "154 ms → 353 ms (+129%)"},
		{&falconv1.Incident{HealthyMs: 154, SlowMs: 353}, "154 ms → 353 ms (+129%)"},
	} {
		if got := Slowdown(c.i); got != c.want {
			t.Errorf("%v: %q, want %q", c.i, got, c.want)
		}
	}
}
