package ranks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// Below 64 ranks the page opens as a table, from 64 on as a map; each leads to the other.
func TestTableBelow64Ranks(t *testing.T) {
	r := widget.Rect{W: 120, H: 35}
	for _, c := range []struct {
		dp    int
		table bool
	}{{1, true}, {8, true}, {63, true}, {64, false}, {256, false}} {
		s, p := state(job(1, c.dp, 1)), New()
		isTable := func() bool {
			return strings.Contains(drawn(t, p, s, r.W, r.H), "rank device")
		}
		if isTable() != c.table {
			t.Errorf("%d ranks: table %v", c.dp, !c.table)
		}
		if n, tests := p.Near(s); (n > 0) != c.table || tests != c.table {
			t.Errorf("%d ranks: %d iterations and tests %v are wanted", c.dp, n, tests)
		}
		p.level = Table
		if !isTable() {
			t.Errorf("%d ranks: no table", c.dp)
		}
		p.Act(key.ZoomOut, s, r)
		if isTable() {
			t.Errorf("%d ranks: zooming out of the table leads to no map", c.dp)
		}
		p.Act(key.ZoomIn, s, r)
		if !isTable() {
			t.Errorf("%d ranks: zooming in leads to no table", c.dp)
		}
	}
}

// Every rank has its row, in reach of the cursor, at every size; a click on a row chooses it.
func TestTableRowsAreInReach(t *testing.T) {
	for _, n := range []int{1, 5, 24, 63} {
		for _, size := range [][2]int{{60, 11}, {80, 19}, {120, 35}, {200, 55}} {
			s := state(job(1, n, 1))
			p := New()
			r := widget.Rect{
				W: size[0],
				H: size[1],
			}
			s.Select(0)
			var seen []int32
			for range n {
				c := canvas(t, r.W, r.H, colorprofile.TrueColor, false)
				p.Draw(c, c.Whole(), s)
				x, y, ok := c.Targets().Focused()
				if !ok {
					t.Fatalf("%d ranks at %v: rank %d is not on screen", n, size, s.Rank())
				}
				at := c.Targets().At(x, y)
				if at.N != int64(s.Rank()) || at.Kind != widget.TargetRank {
					t.Errorf("%d ranks at %v: a click on rank %d chooses %v", n, size, s.Rank(), at)
				}
				seen = append(seen, s.Rank())
				p.Act(key.Down, s, r)
			}
			if len(slices.Compact(seen)) != n {
				t.Errorf("%d ranks at %v: j leads over %v", n, size, seen)
			}
		}
	}
}

// recentOf makes what the engine sends of a few ranks.
func recentOf(n int, ranks ...[]float32) *falconv1.Recent {
	out := &falconv1.Recent{Columns: int32(n), LastIteration: int64(n)}
	for _, r := range ranks {
		out.Ms = append(out.Ms, r...)
	}
	return out
}

func TestSparkline(t *testing.T) {
	r := recentOf(6, []float32{1, 2, 3, 4, 5, 6}, []float32{0, 0, 9, 0, 7, 0})
	for _, c := range []struct {
		rank       int32
		per, cells int
		want       string
	}{
		{0, 1, 6, "[1 2 3 4 5 6]"},
		{0, 2, 3, "[2 4 6]"},
		{0, 4, 2, "[2 6]"},
		{0, 1, 3, "[4 5 6]"},
		{0, 2, 4, "[NaN 2 4 6]"},
		{1, 1, 6, "[NaN NaN 9 NaN 7 NaN]"},
		{1, 3, 2, "[9 7]"},
		{2, 1, 2, "[NaN NaN]"},
		{-0, 60, 1, "[6]"},
	} {
		got := fmt.Sprint(sparkValues(r, c.rank, c.per, c.cells))
		if got != c.want {
			t.Errorf("rank %d, %d in each of %d cells: %s instead of %s", c.rank, c.per, c.cells, got, c.want)
		}
	}
	if got := fmt.Sprint(sparkValues(nil, 0, 1, 2)); got != "[NaN NaN]" {
		t.Errorf("of nothing: %s", got)
	}
}

// slowestOf is the simple second way: from the newest on, cell by cell.
func slowestOf(own []float32, per, cells int) []float64 {
	out := make([]float64, cells)
	for i := range out {
		hi := len(own) - (cells-1-i)*per
		part := own[max(0, min(hi-per, len(own))):max(0, hi)]
		out[i] = math.NaN()
		if m := slices.Max(append([]float32{0}, part...)); m > 0 {
			out[i] = float64(m)
		}
	}
	return out
}

func TestSparklineAgainstSimple(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		n := 1 + rng.IntN(64)
		own := make([]float32, n)
		for i := range own {
			if rng.IntN(4) > 0 {
				own[i] = 100 * rng.Float32()
			}
		}
		per, cells := 1+rng.IntN(5), 1+rng.IntN(64)
		got := fmt.Sprint(sparkValues(recentOf(n, own), 0, per, cells))
		want := fmt.Sprint(slowestOf(own, per, cells))
		if got != want {
			t.Fatalf("%v, %d in each of %d cells: %s instead of %s", own, per, cells, got, want)
		}
	}
}

// What comes from the wire draws, whatever it holds.
func TestTableOfBrokenSeries(t *testing.T) {
	snap := job(1, 4, 1)
	for _, r := range []*falconv1.Recent{
		nil,
		{},
		{Columns: 60},
		{Columns: -1, Ms: []float32{1}},
		{Columns: 1 << 30, Ms: []float32{1, 2}},
		{Columns: 1, Ms: []float32{float32(math.NaN()), float32(math.Inf(1)), -3, 1e30}, Pids: []int32{-1}},
	} {
		snap.Recent = r
		s := page.NewState(&feed.State{
			Snap: snap,
			Conn: feed.Live,
			Memo: &feed.Memo{},
		})
		for _, w := range []int{60, 80, 120, 200} {
			drawn(t, New(), s, w, 40)
		}
	}
}

// The details name the process, the agent, the neighbours, the past and the tests of a rank.
func TestDetailsOfARank(t *testing.T) {
	snap := job(1, 4, 1)
	snap.Recent = &falconv1.Recent{Pids: []int32{41, 42, 43, 44}}
	snap.Nodes = []*falconv1.NodeView{{Node: "n0", Connected: true, AgeMs: 40}}
	snap.Culprits = []*falconv1.Culprit{{
		Device: "n0.g1",
		Last:   "INC-0001",
		Times:  1,
	}}
	snap.Validation = &falconv1.Validation{
		Id:    "VAL-0003",
		State: "done",
		Gemm: []*falconv1.GemmResult{
			{Rank: 1, Ms: 12, Ratio: 2.1, Slow: true},
			{Rank: 2, Ms: 6, Ratio: 1, Unjudged: "one run"},
		},
		Links: []*falconv1.LinkResult{{From: 1, To: 2, Slow: true}, {
			From: 2,
			To:   1,
		}},
	}
	s := state(snap)
	for _, c := range []struct {
		rank int32
		want []string
	}{
		{
			1,
			[]string{
				"pid 42", "agent on n0 heard 40.0 ms ago", "same node: ranks 0, 2-3",
				"named: culprit of INC-0001", "tested: VAL-0003", "2.10× the median, slow",
				"1 of its 2 links slow",
			},
		},
		{2, []string{"pid 43", "named: not so far", "not judged: one run"}},
		{3, []string{"tested: not since this engine began to list tests"}},
	} {
		var text []string
		for _, l := range page.AboutRank(s, c.rank, 400) {
			text = append(text, l.Text)
		}
		for _, want := range c.want {
			if got := strings.Join(text, "\n"); !strings.Contains(got, want) {
				t.Errorf("rank %d: %q lacks %q", c.rank, got, want)
			}
		}
	}
}
