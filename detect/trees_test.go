package detect

import (
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// In a job whose all-reduces are trees a slow link that no ring has is named by a test of the
// trees' links. A detector that takes the job for rings does not find it.
func TestTreeLinksAreTested(t *testing.T) {
	for _, trees := range []bool{true, false} {
		w := newWorld(falcon.Layout{TP: 1, DP: 8, PP: 1}, 8, 8, 5)
		w.m = New(Config{Validate: ValidateConfig{Trees: trees}})
		w.job.Trees, w.job.Hiccup = true, 0
		w.describe()
		w.run(30)
		members := w.job.Layout.Groups(falcon.DimDP)[0].Ranks
		ring := passes.RingEdges(members)
		only := slices.DeleteFunc(passes.TreeEdges(members), func(e passes.Pair) bool { return slices.Contains(ring, e) })
		if len(only) == 0 {
			t.Fatal("the trees have no link of their own")
		}
		l := falcon.NewLink(w.job.Placement[only[0][0]].Node(), w.job.Placement[only[0][1]].Node())
		w.job.Link[l] = 0.02
		w.run(60)
		named := len(w.all) == 1 && slices.Equal(w.all[0].Verdict.Links, []falcon.Link{l})
		if named != trees {
			t.Errorf("taken for trees: %v; %s named: %v\n%s", trees, l, named, w.out.String())
		}
	}
}
