package phrase

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestStandbys(t *testing.T) {
	for want, s := range map[string]*falconv1.Standbys{
		"":                                     nil,
		"0 of 1 standbys ready":                {Wanted: 1},
		"no standby: 12 MB of memory are free": {Wanted: 1, Why: "12 MB of memory are free"},
		"2 of 2 standbys ready, 800 MB of the host": {Wanted: 2, Ready: 2, ResidentMb: 800},
		"1 of 2 standbys ready, 400 MB of the host; full": {
			Wanted:     2,
			Ready:      1,
			ResidentMb: 400,
			Why:        "full",
		},
	} {
		if got := Standbys(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
