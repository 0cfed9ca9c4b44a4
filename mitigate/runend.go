package mitigate

import (
	"fmt"

	"github.com/failslow/falcon"
)

// What remains of the run decides whether a rung is worth its cost at all, and whether a slow replica is
// dropped or replaced: a replacement costs once, a drop in every iteration that is left. FALCON's ski
// rental (§5.2) knows no end of the run; this only takes rungs away from it.

// costDrop names what giving a replica up is expected to cost. Where it is not given, and once any
// restart was measured, it is the cost of a restart.
const costDrop falcon.Rung = "S4 drop"

// remaining is how many iterations the run still has; false where its length is not given.
func (pm *planMaker) remaining() (int64, bool) {
	at := pm.iterations.newestIndex()
	if pm.cfg.RunIterations <= 0 || at == falcon.NoIteration {
		return 0, false
	}
	return max(0, pm.cfg.RunIterations-1-at), true
}

// savedMs is what a rung saves in the iterations that are left, less its cost.
func (c candidate) savedMs(left int64) float64 {
	return float64(left)*c.gainMs - c.overheadMs
}

// weighRun takes away what can't pay for itself before the run ends, and of a drop and what puts another
// node in the replica's place the one that saves less until then.
func (pm *planMaker) weighRun(list []candidate) {
	left, known := pm.remaining()
	if !known {
		return
	}
	var drop, replace *candidate
	for i := range list {
		c := &list[i]
		if c.err != nil {
			continue
		}
		if c.savedMs(left) <= 0 {
			c.err = smallGain(fmt.Sprintf(
				"the run ends in %d iterations: it would save %.1f s until then and costs %.1f s",
				left, float64(left)*c.gainMs/1e3, c.overheadMs/1e3,
			))
			continue
		}
		switch {
		case c.rung != falcon.RungS4:
		case c.variant == falcon.VariantDrop:
			drop = c
		case replace == nil || c.savedMs(left) > replace.savedMs(left):
			replace = c
		}
	}
	if drop == nil || replace == nil {
		return
	}
	if drop.savedMs(left) <= replace.savedMs(left) {
		drop.err = smallGain(lessSaved(*replace, *drop, left))
		return
	}
	for i := range list {
		c := &list[i]
		if c.err == nil && c.rung == falcon.RungS4 && c.variant != falcon.VariantDrop {
			c.err = smallGain(lessSaved(*drop, *c, left))
		}
	}
}

func lessSaved(better, worse candidate, left int64) string {
	return fmt.Sprintf("in the %d iterations that the run still has, S4 (%s) saves %.1f s more",
		left, better.variant, (better.savedMs(left)-worse.savedMs(left))/1e3)
}
