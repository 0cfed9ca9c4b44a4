package history

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
)

// FailStop is what one kind of fail-stop fault has come to, in the recoveries that an engine keeps.
type FailStop struct {
	Kind   falcon.FaultKind
	Faults int
	Share  float64 // of all faults
	Ranks  int     // whose processes were lost, counted for each fault
	Nodes  int     // different ones
	Most   falcon.Node
	Times  int // that Most had such a fault; of several nodes the first by name
	Over   int // recoveries with such a fault that have ended
	Trains int // of these, those after which the job trained again
	// DownMs is the mean time from the first sign of a recovery's first fault until the job trained again,
	// of those after which it did.
	DownMs float64
}

// FailStops counts faults by kind, most first. What a person or an action asked for is no fault, and
// neither is one before sinceNs.
func FailStops(list []falcon.Recovery, sinceNs int64) []FailStop {
	type tally struct {
		FailStop
		nodes map[falcon.Node]int
		down  float64
	}
	kinds := map[falcon.FaultKind]*tally{}
	all := 0
	for i := range list {
		v := &list[i]
		met := map[falcon.FaultKind]bool{}
		var first int64
		for j := range v.Faults {
			f := &v.Faults[j]
			if f.AskedBy != "" || f.Action != "" || f.FirstNs < sinceNs {
				continue
			}
			t := kinds[f.Kind]
			if t == nil {
				t = &tally{
					FailStop: FailStop{Kind: f.Kind},
					nodes:    map[falcon.Node]int{},
				}
				kinds[f.Kind] = t
			}
			all++
			t.Faults++
			t.Ranks += len(f.Ranks)
			t.nodes[f.Node]++
			if met[f.Kind] = true; first == 0 || f.FirstNs < first {
				first = f.FirstNs
			}
		}
		if !v.State.Over() {
			continue
		}
		for k := range met {
			kinds[k].Over++
			if v.State == falcon.RecoveryResumed {
				kinds[k].Trains++
				kinds[k].down += float64(max(0, v.EndedNs-first)) / 1e6
			}
		}
	}
	out := make([]FailStop, 0, len(kinds))
	for _, t := range kinds {
		t.Share = float64(t.Faults) / float64(all)
		t.Nodes = len(t.nodes)
		for n, times := range t.nodes {
			if times > t.Times || times == t.Times && n < t.Most {
				t.Most, t.Times = n, times
			}
		}
		if t.Trains > 0 {
			t.DownMs = t.down / float64(t.Trains)
		}
		out = append(out, t.FailStop)
	}
	slices.SortFunc(out, func(a, b FailStop) int {
		return cmp.Or(cmp.Compare(b.Faults, a.Faults), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
