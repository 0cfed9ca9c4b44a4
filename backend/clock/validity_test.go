package clock

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestValidityTime(t *testing.T) {
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{
		NotBefore: at.Add(-time.Hour),
		NotAfter:  at.Add(time.Hour),
	}
	years := 10 * 365 * 24 * time.Hour
	for _, tt := range []struct {
		name         string
		leaf         *x509.Certificate
		wall, steady time.Time
		want         time.Time
	}{
		{"no step", leaf, at, at, at},
		{"expired, and no step", leaf, at.Add(2 * time.Hour), at.Add(2 * time.Hour), at.Add(2 * time.Hour)},
		{"stepped ahead", leaf, at.Add(years), at, at},
		{"stepped back", leaf, at.Add(-years), at, at},
		{"began with a wrong clock that was set right", leaf, at, at.Add(-years), at},
		{"stepped within its life", leaf, at.Add(30 * time.Minute), at, at.Add(30 * time.Minute)},
		{"both wrong", leaf, at.Add(years), at.Add(-years), at.Add(years)},
		{"no certificate of our own", nil, at.Add(years), at, at.Add(years)},
	} {
		got := validityTime(tt.leaf, tt.wall, tt.steady)
		if !got.Equal(tt.want) {
			t.Errorf("%s: judged at %v, want %v", tt.name, got, tt.want)
		}
	}
}
