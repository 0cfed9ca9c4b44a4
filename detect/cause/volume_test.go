package cause

import (
	"math"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// What a link carries is what a count of every message of every ring by hand gives.
func TestLinkVolumes(t *testing.T) {
	c := scene(t, func(j *jobtest.Job) {
		j.Link[falcon.NewLink("n2", "n3")] = 0.1
	})
	want := map[falcon.Link]float64{}
	all := 0.0
	count := func(a, b falcon.Rank, bytes float64) {
		if x, y := c.Placement[a].Node(), c.Placement[b].Node(); x != y {
			want[falcon.NewLink(x, y)] += bytes
			all += bytes
		}
	}
	for _, g := range c.Timing.Groups {
		n := len(g.Ranks)
		for range int(math.Round(g.CallsPerIt)) {
			for step := range 2 * (n - 1) { // of a ring: reduce, then gather
				for i := range g.Ranks {
					_ = step
					count(g.Ranks[i], g.Ranks[(i+1)%n], float64(g.Bytes)/float64(n))
				}
			}
		}
	}
	for _, p := range c.Timing.Pairs {
		count(p.From, p.To, float64(p.Bytes)*p.CallsPerIt)
	}
	got, total := workJudge{&c}.linkVolumes()
	if len(got) != len(want) || math.Abs(total-all) > 1e-6*all || all == 0 {
		t.Fatalf("%d links and %g bytes, want %d and %g", len(got), total, len(want), all)
	}
	for l, v := range want {
		if math.Abs(got[l]-v) > 1e-6*v {
			t.Errorf("%s carries %g, want %g", l, got[l], v)
		}
	}
	c.Tests = &Tests{}
	v := Judge(c)
	for _, l := range v.Links {
		said := false
		for _, e := range v.Evidence {
			said = said || strings.HasPrefix(e.Text, l.String()+" carries ")
		}
		if !said {
			t.Errorf("nothing says what %s carries: %+v", l, v.Evidence)
		}
	}
}

func TestBytesText(t *testing.T) {
	for v, want := range map[float64]string{12: "12 bytes", 3400: "3.4 kB", 1.2e9: "1.2 GB", 48e6: "48 MB"} {
		if got := bytesText(v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
