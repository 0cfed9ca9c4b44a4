package phrase

import (
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
)

// An incident that is back says which time it is, and in how long.
func TestAgain(t *testing.T) {
	for _, c := range []struct {
		times  int32
		first  int64 // ns
		newest int64
		want   string
	}{
		{0, 0, 5e9, ""},
		{1, 0, 5e9, ""},
		{2, 0, 5e9, "2nd time"},
		{3, 10e9, 135e9, "3rd time in 2 min"},
		{11, 10e9, 50e9, "11th time in 40 s"},
		{21, 10e9, 50e9, "21st time in 40 s"},
	} {
		i := &falconv1.Incident{
			Id:               "INC-0001",
			State:            "located",
			Times:            c.times,
			FirstOnsetUnixNs: c.first,
			OnsetUnixNs:      c.newest,
		}
		if got := Again(i); got != c.want {
			t.Errorf("%d times: %q, not %q", c.times, got, c.want)
		}
		for _, text := range []string{
			Incident(i),
			IncidentLogged(i),
			Statement(&statements.Statement{Kind: statements.Incident, Incident: i}, time.Unix(200, 0)),
		} {
			if strings.Contains(text, "time in") != strings.Contains(c.want, "time in") {
				t.Errorf("%d times: %q", c.times, text)
			}
		}
	}
}

func TestSince(t *testing.T) {
	berlin := time.FixedZone("CEST", 2*3600)
	at := time.Date(2026, 5, 1, 3, 10, 5, 0, time.UTC)
	for _, c := range []struct {
		lasts, ago time.Duration
		zone       *time.Location
		want       string
	}{
		{0, 8 * time.Minute, nil, "03:10:05Z (8 min)"},
		{0, 40 * time.Second, berlin, "05:10:05 CEST (40 s)"},
		{200 * time.Minute, 30 * time.Hour, nil, "1 May 03:10Z (3 h 20 min)"},
		{0, 51 * time.Hour, berlin, "1 May 05:10 CEST (2 days 3 h)"},
		{0, -time.Second, nil, "03:10:05Z (0 s)"}, // its clock is behind the engine's
	} {
		i := &falconv1.Incident{OnsetUnixNs: at.UnixNano()}
		if c.lasts > 0 {
			i.EndUnixNs = at.Add(c.lasts).UnixNano()
		}
		if got := Since(i, at.Add(c.ago), c.zone); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := Since(&falconv1.Incident{}, at, nil); got != "" {
		t.Errorf("%q of a time that is not known", got)
	}
}
