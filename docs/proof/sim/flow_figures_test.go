package sim

import (
	"fmt"

	"github.com/failslow/falcon"
)

// cellsOf13 are one node of 8 GPUs, one of them slow, with 2, 4 and 8 replicas.
func cellsOf13() (out []cell) {
	paper := map[int]float64{2: 0.553, 4: 0.778, 8: 0.649}
	for _, dp := range []int{2, 4, 8} {
		for _, s := range severityNames {
			out = append(out, cell{
				figure:    "13",
				name:      fmt.Sprintf("%d replicas, %s", dp, s.name),
				target:    s.target,
				paper:     paper[dp],
				paperText: "mean of three",
				shape: shapeOf(
					"13",
					falcon.Layout{TP: 1, DP: dp, PP: 8 / dp},
					8,
					16,
				),
				faults: slowDevices(1),
			})
		}
	}
	return out
}

// cellsOf14 are four replicas of two stages; in 1, 2 and 3 of them the first stage's GPU is slow.
func cellsOf14() (out []cell) {
	for k := 1; k <= 3; k++ {
		c := cell{
			figure: "14",
			name:   fmt.Sprintf("%d of 4 replicas slow", k),
			target: 1.9,
			shape:  shapeOf("14", falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 16),
		}
		ranks := []int{0, 1, 2}[:k]
		c.faults = slowDevices(ranks...)
		if k == 1 {
			c.paper, c.paperText = 0.797, "1.9 to 1.2 ×"
		}
		out = append(out, c)
	}
	return out
}

// cellsOf15 are 16 GPUs with a port of their own each, and so each a node of its
// own for S3; one path is congested, in the ring of the first stage.
func cellsOf15() (out []cell) {
	paper := map[int]float64{4: 0.537, 8: 0.248}
	pair := map[int][2]int{4: {1, 2}, 8: {0, 1}}
	for _, pp := range []int{4, 8} {
		for _, s := range severityNames {
			out = append(out, cell{
				figure:    "15",
				name:      fmt.Sprintf("%d stages, %s", pp, s.name),
				target:    s.target,
				paper:     paper[pp],
				paperText: "mean of three",
				shape: shapeOf(
					"15",
					falcon.Layout{TP: 1, DP: 16 / pp, PP: pp},
					1,
					8,
				),
				faults: slowPairs(pair[pp]),
			})
		}
	}
	return out
}

// cellsOf16 are 4 replicas of 4 stages; 1, 2 and 3 congested paths, in as many stages' rings.
func cellsOf16() (out []cell) {
	for _, c := range []struct {
		pairs         [][2]int
		target, paper float64
		text          string
	}{
		{[][2]int{{5, 6}}, 1.6, 0.5, "1.6 to 1.3 ×"},
		{[][2]int{{5, 6}, {9, 10}}, 1.7, 0.57, "1.7 to 1.3 ×"},
		{[][2]int{{5, 6}, {9, 10}, {1, 2}}, 1.9, 0.22, "1.9 to 1.7 ×"},
	} {
		out = append(out, cell{
			figure:    "16",
			name:      fmt.Sprintf("%d congested paths", len(c.pairs)),
			target:    c.target,
			paper:     c.paper,
			paperText: c.text,
			shape:     shapeOf("16", falcon.Layout{TP: 1, DP: 4, PP: 4}, 1, 8),
			faults:    slowPairs(c.pairs...),
		})
	}
	return out
}

// cellsOnTwoNodes are figure 15 on 2 nodes of 8 GPUs, as its text says. Replicas
// lie one after another, so that the rings cross the nodes' paths; all of those
// are congested.
func cellsOnTwoNodes() (out []cell) {
	for _, pp := range []int{4, 8} {
		mesh, err := falcon.NewMesh(
			falcon.Dim{Name: falcon.DimPP, Size: pp},
			falcon.Dim{Name: falcon.DimDP, Size: 16 / pp},
		)
		if err != nil {
			panic(err)
		}
		for _, s := range severityNames {
			out = append(out, cell{
				figure:    "15 on 2 × 8",
				name:      fmt.Sprintf("%d stages, %s", pp, s.name),
				target:    s.target,
				paper:     map[int]float64{4: 0.537, 8: 0.248}[pp],
				paperText: "mean of three",
				shape:     shapeOf("15", falcon.LayoutOf(mesh), 8, 8),
				faults:    slowPairs([2]int{0, 1}),
			})
		}
	}
	return out
}

// seedTrial is one seed of a cell.
type seedTrial struct {
	seed     uint64
	cycles   []cycle
	actions  []falcon.Action
	missed   int    // faults on which nothing was done
	harmless int    // faults that slowed nothing, as ranks had stayed where one before had put them
	why      string // the planner's first reason for that

	first      float64 // removed of the first fault: see firstFault
	actedFirst bool
}

// removed is the median over the seed's faults. One on which nothing was done
// counts as nothing removed.
func (s seedTrial) removed() float64 {
	var v []float64
	for _, c := range s.cycles {
		if c.acted {
			v = append(v, c.removed())
		} else {
			v = append(v, 0)
		}
	}
	return falcon.Median(v)
}

// planShare is the share that the seed's last plan removes without noise.
func (c cell) planShare(p Point, times float64) float64 {
	return c.shareOf(times, c.shape.plainMs(c.at(times), p.Placement, p.Split))
}

// shareOf is the share of the slowdown that is gone at so many ms, without noise.
func (c cell) shareOf(times, ms float64) float64 {
	healthy, slow := c.shape.plainMs(nil, nil, nil), c.shape.plainMs(c.at(times), nil, nil)
	return (slow - ms) / (slow - healthy)
}
