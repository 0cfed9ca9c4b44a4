package phrase

import (
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

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
