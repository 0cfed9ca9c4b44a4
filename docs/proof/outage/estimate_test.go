package outage

import (
	"math"
	"math/rand/v2"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// LogNormal is a distribution of seconds by its median and the standard
// deviation of its logarithm.
type LogNormal struct{ Median, Sigma float64 }

func (d LogNormal) draw(r *rand.Rand) float64 {
	return d.Median * math.Exp(d.Sigma*r.NormFloat64())
}

// Model is everything that is simulated. The defaults are assumptions, not
// measurements.
type Model struct {
	Container   LogNormal // create a container and start its runtime, one per node
	Import      LogNormal // start a process, import the framework and open its device
	StateBytes  uint64    // that one rank restores
	LinkBytesS  float64   // of a device's port, B/s
	LinkLatency float64   // s per transfer
}

// DefaultModel has a container of 25 s and imports of 30 s (medians), 10 GB of
// state per rank and ports of 200 Gb/s.
func DefaultModel() Model {
	return Model{
		Container:   LogNormal{25, 0.3},
		Import:      LogNormal{30, 0.2},
		StateBytes:  10e9,
		LinkBytesS:  25e9,
		LinkLatency: 50e-6,
	}
}

// draws is how often a simulated time is drawn; its median is shown.
const draws = 1001

// Replace is the median time in seconds until one new node's processes are up:
// its container, then the slowest of its imports.
func (m Model) Replace(seed uint64, ranks int) float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]float64, draws)
	for i := range all {
		slowest := 0.0
		for range ranks {
			slowest = max(slowest, m.Import.draw(r))
		}
		all[i] = m.Container.draw(r) + slowest
	}
	return falcon.Median(all)
}

// Restore is how many seconds the moves take: a port sends or receives one
// shard at a time, so that the busiest one decides.
func (m Model) Restore(moves []*falconv1.ShardMove) float64 {
	sends, most := map[int32]int{}, 0
	for _, v := range moves {
		sends[v.GetFrom()]++
		most = max(most, sends[v.GetFrom()])
	}
	return float64(most) * (m.LinkLatency + float64(m.StateBytes)/m.LinkBytesS)
}
