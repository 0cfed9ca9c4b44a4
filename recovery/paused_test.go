package recovery

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// A node has only paused where nothing but its silence spoke against it, once, and it is heard since.
func TestOnlyPaused(t *testing.T) {
	m, now := hears(3)
	fault := func(change func(*falcon.Fault)) *falcon.Recovery {
		f := falcon.Fault{
			Kind:       falcon.FaultNode,
			Node:       "n1",
			Silent:     true,
			DetectedNs: now.UnixNano(),
		}
		change(&f)
		return &falcon.Recovery{State: falcon.RecoveryResumed, Faults: []falcon.Fault{f}}
	}
	silent := fault(func(*falcon.Fault) {})
	for name, c := range map[string]struct {
		recs []*falcon.Recovery
		want bool
	}{
		"no recovery":   {},
		"silence":       {[]*falcon.Recovery{silent}, true},
		"silence twice": {recs: []*falcon.Recovery{silent, silent}},
		"silence long ago": {[]*falcon.Recovery{fault(func(f *falcon.Fault) {
			f.DetectedNs -= int64(time.Hour)
		}), silent}, true},
		"a person's word": {recs: []*falcon.Recovery{fault(func(f *falcon.Fault) {
			f.Silent, f.AskedBy = false, "op"
		})}},
		"a frozen process": {recs: []*falcon.Recovery{fault(func(f *falcon.Fault) {
			f.Kind = falcon.FaultFrozen
		})}},
		"a device, too": {recs: []*falcon.Recovery{silent, fault(func(f *falcon.Fault) {
			f.Kind = falcon.FaultDevice
			f.Silent = false
		})}},
		"silence of another": {recs: []*falcon.Recovery{fault(func(f *falcon.Fault) { f.Node = "n2" })}},
	} {
		m.hist.recs = c.recs
		if m.OnlyPaused(now, "n1", 10*time.Second) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
	m.hist.recs = []*falcon.Recovery{silent}
	m.Step(now, Node{Node: "n1", How: Reset})
	if m.OnlyPaused(now, "n1", 0) {
		t.Error("its agent is gone")
	}
	m.Step(now.Add(time.Second), Node{Node: "n1", Alive: true})
	if m.OnlyPaused(now.Add(time.Second), "n1", 10*time.Second) {
		t.Error("it is back for a moment only")
	}
	m.Step(now, Device{
		Device: "n1.g0",
		Fatal:  true,
		Code:   79,
		Text:   "off the bus",
	})
	if m.OnlyPaused(now, "n1", 0) {
		t.Error("a device of it has failed")
	}
}
