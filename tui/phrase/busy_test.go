package phrase

import (
	"fmt"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestBusy(t *testing.T) {
	for want, v := range map[string]*falconv1.RankView{
		"":                           nil,
		"GPU busy 0 %":               {Busy: 1},
		"GPU busy 100 %, SMs 41 %":   {Busy: 101, SmBusy: 42},
		"SMs 7 %":                    {Busy: 102, SmBusy: 8},
		"GPU busy 50 %, memory 61 %": {Busy: 51, Gauges: []uint32{0, 62}},
	} {
		if got := Busy(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

// Every gauge that a GPU can show is said.
func TestEveryGaugeIsSaid(t *testing.T) {
	var shown falcon.Gauges
	for i, g := range falcon.AllGauges() {
		shown.Set(g, float64(100+i))
	}
	got := Busy(&falconv1.RankView{Gauges: shown})
	for i, g := range falcon.AllGauges() {
		if want := fmt.Sprintf("%s %d %s", g.Name(), 100+i, g.Unit()); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
