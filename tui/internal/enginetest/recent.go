package enginetest

import (
	"math"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// firstPid is the process of rank 0; the others count up.
const firstPid = 4200

// recent is the newest iterations of every rank of a small job, as the engine sends them. The
// ranks differ by a little noise: an iteration ends when its slowest rank does.
func (e *Engine) recent(n int32) *falconv1.Recent {
	world := e.opts.world()
	if n <= 0 || world >= 64 {
		return nil
	}
	out := &falconv1.Recent{
		LastIteration: e.iter,
		Columns:       n,
		Ms:            make([]float32, world*int(n)),
		Pids:          make([]int32, world),
	}
	for r := range world {
		out.Pids[r] = firstPid + int32(r)
		for c := range int(n) {
			if i := e.iter - int64(n) + 1 + int64(c); i >= 0 {
				out.Ms[r*int(n)+c] = float32(e.ms(i) * (1 + 0.002*math.Sin(float64(r)*1.7)))
			}
		}
	}
	return out
}
