package phrase

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Busy says how busy a rank's GPU is and what its gauges show, as far as it is known: "GPU busy
// 100 %, SMs 41 %, power 640 W". The first counts a collective that waits for its peers, the second
// does not.
func Busy(v *falconv1.RankView) string {
	var parts []string
	if p, ok := falcon.Percent(v.GetBusy()).Value(); ok {
		parts = append(parts, fmt.Sprintf("GPU busy %d %%", p))
	}
	if p, ok := falcon.Percent(v.GetSmBusy()).Value(); ok {
		parts = append(parts, fmt.Sprintf("SMs %d %%", p))
	}
	for _, g := range falcon.AllGauges() {
		if x, ok := falcon.Gauges(v.GetGauges()).Value(g); ok {
			parts = append(parts, fmt.Sprintf("%s %d %s", g.Name(), x, g.Unit()))
		}
	}
	return strings.Join(parts, ", ")
}
