package phrase

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestBusy(t *testing.T) {
	for want, v := range map[string]*falconv1.RankView{
		"":                         nil,
		"GPU busy 0 %":             {Busy: 1},
		"GPU busy 100 %, SMs 41 %": {Busy: 101, SmBusy: 42},
		"SMs 7 %":                  {Busy: 102, SmBusy: 8},
	} {
		if got := Busy(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
