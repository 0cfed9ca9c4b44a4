package engine

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// A time that nothing was compared with, of a validation that was cut short, is no
// link's healthy time.
func TestOwnTimesOfACutValidation(t *testing.T) {
	way := func(to falcon.Device, base float64) falcon.LinkResult {
		return falcon.LinkResult{
			FromDevice: "n0.g0",
			ToDevice:   to,
			Bytes:      8,
			Ms:         5,
			BaseMs:     base,
		}
	}
	m := &journalState{tests: []validationRecord{
		{
			Validation: falcon.Validation{
				State: falcon.ValidationFailed,
				Links: []falcon.LinkResult{way("n1.g0", 0), way("n2.g0", 5)},
			},
		},
		{
			Validation: falcon.Validation{
				State: falcon.ValidationDone,
				Links: []falcon.LinkResult{way("n3.g0", 0)},
			},
		},
	}}
	own := m.ownTimes(time.Unix(0, 0))
	for to, want := range map[falcon.Device]bool{"n1.g0": false, "n2.g0": true, "n3.g0": true} {
		if got := own("n0.g0", to, 8); got.Known != want {
			t.Errorf("n0 to %s: %+v, wants known %v", to, got, want)
		}
	}
}

// A time that was judged goes before a lesser one that was not; one that is too
// short, slow, or of yesterday, is none.
func TestWhichOwnTimeCounts(t *testing.T) {
	now := time.Unix(0, 0).Add(48 * time.Hour)
	way := falcon.LinkResult{
		FromDevice: "n0.g0",
		ToDevice:   "n1.g0",
		Bytes:      8,
		Ms:         5,
		BaseMs:     5,
	}
	list := func(age time.Duration, id string, change func(*falcon.LinkResult)) validationRecord {
		l := way
		change(&l)
		return validationRecord{Validation: falcon.Validation{
			ID:    id,
			State: falcon.ValidationDone,
			AtNs:  now.Add(-age).UnixNano(),
			Links: []falcon.LinkResult{l},
		}}
	}
	m := &journalState{tests: []validationRecord{
		list(25*time.Hour, "VAL-0001", func(l *falcon.LinkResult) { l.Ms = 1 }),
		list(time.Hour, "VAL-0002", func(l *falcon.LinkResult) {
			l.Ms = 2
			l.BaseMs = 0
			l.Unjudged = falcon.NothingToCompare
		}),
		list(time.Hour, "VAL-0003", func(l *falcon.LinkResult) {
			l.Ms = 1
			l.Unjudged = falcon.TooShort
		}),
		list(time.Hour, "VAL-0004", func(l *falcon.LinkResult) { l.Slow = true }),
	}}
	ask := func() passes.Earlier { return m.ownTimes(now)("n0.g0", "n1.g0", 8) }
	if got := ask(); got != (passes.Earlier{Ms: 2, From: "VAL-0002", Known: true}) {
		t.Errorf("without one that was judged: %+v", got)
	}
	m.tests = append(m.tests,
		list(time.Hour, "VAL-0005", func(*falcon.LinkResult) {}),
		list(time.Hour, "VAL-0006", func(l *falcon.LinkResult) { l.Ms = 6 }),
	)
	if got := ask(); got != (passes.Earlier{Ms: 5, From: "VAL-0005", Fine: true, Known: true}) {
		t.Errorf("with two that were judged: %+v", got)
	}
	if got := m.ownTimes(now)("n0.g0", "n1.g0", 9); got.Known {
		t.Errorf("of another size: %+v", got)
	}
}
