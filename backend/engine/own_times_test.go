package engine

import (
	"testing"

	"github.com/failslow/falcon"
)

// A time that nothing was compared with, of a validation that was cut short, is no
// link's healthy time.
func TestOwnTimesOfACutValidation(t *testing.T) {
	way := func(to falcon.Device, base float64) falcon.LinkResult {
		return falcon.LinkResult{FromDevice: "n0.g0", ToDevice: to, Bytes: 8, Ms: 5, BaseMs: base}
	}
	m := &journalState{tests: []validationRecord{
		{Validation: falcon.Validation{State: falcon.ValidationFailed, Links: []falcon.LinkResult{way("n1.g0", 0), way("n2.g0", 5)}}},
		{Validation: falcon.Validation{State: falcon.ValidationDone, Links: []falcon.LinkResult{way("n3.g0", 0)}}},
	}}
	own := m.ownTimes()
	for to, want := range map[falcon.Device]bool{"n1.g0": false, "n2.g0": true, "n3.g0": true} {
		if _, known := own("n0.g0", to, 8); known != want {
			t.Errorf("n0 to %s: known %v, wants %v", to, known, want)
		}
	}
}
