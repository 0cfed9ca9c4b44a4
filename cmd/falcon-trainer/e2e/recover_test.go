package e2e

import (
	"fmt"
	"testing"

	"github.com/failslow/falcon"
)

// recoverJobs hold their shards in different ways: everybody all of a stage's
// slice, or in two instances a half each.
var recoverJobs = []struct {
	name   string
	layout falcon.Layout
	slices int
	more   []string
}{
	{"plain", falcon.Layout{TP: 2, DP: 2, PP: 2}, 1, nil},
	{"zero", falcon.Layout{TP: 1, DP: 4, PP: 2}, 2, []string{"--zero=1", "--zero-instances=2"}},
}

const recoverIterations = 10

func recoverArgs(l falcon.Layout, more ...string) []string {
	return job(l.TP, l.DP, l.PP, 4, recoverIterations, more...)
}

// One rank dies at each point of an iteration: its process alone is made anew,
// and the weights and samples are those of a run without a fault.
func TestARankDiesAtEachPoint(t *testing.T) {
	need(t)
	for _, j := range recoverJobs {
		args := recoverArgs(j.layout, j.more...)
		want := unharmed(t, j.layout, args)
		for i, point := range []string{"forward", "backward", "before-barrier", "mid-update", "after-update", "gather"} {
			rank := (3*i + 1) % j.layout.World()
			t.Run(fmt.Sprintf("%s/%s-%d", j.name, point, rank), func(t *testing.T) {
				c := muster(t, j.layout, j.slices, append(args, fmt.Sprintf("--fault=%s@%d:%d", point, 3+i%3, rank))...)
				c.run(1)
				c.same(want)
				if len(c.gone) != 1 || len(c.resumed) != 1 || c.gone[0].rank != rank {
					t.Errorf("%d processes went, resumed at %v", len(c.gone), c.resumed)
				}
			})
		}
	}
}
