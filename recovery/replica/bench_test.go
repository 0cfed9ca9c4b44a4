package replica

import (
	"fmt"
	"testing"

	"github.com/failslow/falcon"
)

// large is a job of 18,432 ranks on nodes of eight, four nodes a rack, that
// has lost its first node.
func large() Query {
	q := Query{
		Layout:  falcon.Layout{TP: 8, DP: 144, PP: 16},
		ZeRO:    falcon.ZeRO{Stage: 1, Instances: 2},
		Holds:   map[falcon.Rank]falcon.RankHold{},
		Domains: map[falcon.Node]string{},
	}
	for r := range q.Layout.World() {
		n := falcon.Node(fmt.Sprintf("node-%04d", r/8))
		q.Domains[n] = fmt.Sprintf("rack-%03d", r/32)
		q.Placement = append(q.Placement, falcon.NewDevice(n, r%8))
		if r >= 8 {
			q.Holds[falcon.Rank(r)] = hold(
				uint64(q.shardOf(falcon.Rank(r))),
				41,
				42,
			)
		}
	}
	return q
}

func BenchmarkChoose18432(b *testing.B) {
	q := large()
	for b.Loop() {
		if c, err := Choose(q); err != nil || len(c.Moves) != 8 {
			b.Fatal(c, err)
		}
	}
}

func BenchmarkMap18432(b *testing.B) {
	q := large()
	for b.Loop() {
		if m, err := Map(q); err != nil || len(m) != 2303+576 {
			b.Fatal(len(m), err)
		}
	}
}
