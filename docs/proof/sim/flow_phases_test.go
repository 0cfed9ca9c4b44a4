package sim

import (
	"slices"

	"github.com/failslow/falcon"
)

// phase is iterations running in which neither faults nor actions changed.
type phase struct {
	faulty, acting bool
	ms             float64 // median, without the first ones
	plays          int
	last           Point
}

// settlePlays is how many iterations of a phase with an action, or after one, are
// left out: transitions. A fault begins between two iterations.
const settlePlays = 3

// phases cuts a run where faults come and go and actions take force and end. An
// action is whatever differs from the even split and from the places before the fault:
// those that ranks stay at after one are as good, as all nodes are alike.
func phases(r Result) []phase {
	var out []phase
	var ms []float64
	even, places := r.Points[0].Split, r.Points[0].Placement
	for i, p := range r.Points {
		if p.Faults == 0 {
			places = p.Placement
		}
		now := phase{
			faulty: p.Faults > 0,
			acting: !slices.Equal(p.Split, even) || !slices.Equal(p.Placement, places),
		}
		n := len(out) - 1
		changed := n < 0 || p.Faults != out[n].last.Faults || now.acting != out[n].acting ||
			!slices.Equal(p.Split, out[n].last.Split) || !slices.Equal(p.Placement, out[n].last.Placement)
		if changed {
			out, ms = append(out, now), nil
			n++
		}
		ms = append(ms, r.Points[i].Ms)
		out[n].last, out[n].plays = p, len(ms)
		skip := settlePlays
		if now.faulty && !now.acting {
			skip = 0
		}
		out[n].ms = falcon.Median(ms[min(skip, len(ms)-1):])
	}
	return out
}

// Least numbers of iterations of a phase that a share rests on; a fault is seen
// and acted on within a few.
const (
	phaseLeast = 8
	slowLeast  = 4
)

// cycle is one fault of a run: the healthy phases on both sides of it, the
// time until an action took force, and the last action's.
type cycle struct {
	before, slow, mitigated, after phase
	acted                          bool
}

// removed is the share of the slowdown that the action removed, against the
// healthy phases of the same run on both sides.
func (c cycle) removed() float64 {
	healthy := (c.before.ms + c.after.ms) / 2
	return (c.slow.ms - c.mitigated.ms) / (c.slow.ms - healthy)
}

// harmlessBelow is the slowdown below which a fault slows nothing: ranks that stayed at their
// new places after the one before have no traffic on the path.
const harmlessBelow = 1.02

// cycles finds a run's faults in its phases, and counts those that slow nothing. One whose
// neighbours are too short to compare with is left out.
func cycles(all []phase) (out []cycle, harmless int) {
	for i, p := range all {
		if !p.faulty || i == 0 || all[i-1].faulty {
			continue
		}
		c := cycle{before: healthyNear(all[:i], true), slow: p}
		k := i
		for ; k < len(all) && all[k].faulty; k++ {
			if all[k].acting && all[k].plays >= phaseLeast {
				c.mitigated, c.acted = all[k], true
			}
		}
		c.after = healthyNear(all[k:], false)
		if p.acting ||
			p.plays < slowLeast ||
			c.before.plays < phaseLeast ||
			c.after.plays < phaseLeast {
			continue
		}
		if !c.acted && p.ms < c.before.ms*harmlessBelow {
			harmless++
			continue
		}
		out = append(out, c)
	}
	return out, harmless
}

// firstFault is the share of the slowdown that an action removed under a run's first fault,
// against the healthy phase before it; an action that stays after the fault leaves none behind
// it. False: there was no action.
func firstFault(all []phase) (removed float64, acted bool) {
	for i, p := range all {
		if !p.faulty || p.acting {
			continue
		}
		healthy := healthyNear(all[:i], true)
		for k := i; k < len(all) && all[k].faulty; k++ {
			if all[k].acting && all[k].plays >= phaseLeast {
				return (p.ms - all[k].ms) / (p.ms - healthy.ms), true
			}
		}
		return 0, false
	}
	return 0, false
}

// healthyNear is the nearest phase without faults and actions: the last one, or
// the first one before the next fault.
func healthyNear(all []phase, last bool) phase {
	if last {
		for _, p := range slices.Backward(all) {
			if p.faulty {
				break
			}
			if !p.acting && p.plays >= phaseLeast {
				return p
			}
		}
		return phase{}
	}
	for _, p := range all {
		if p.faulty {
			break
		}
		if !p.acting && p.plays >= phaseLeast {
			return p
		}
	}
	return phase{}
}
