package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

var (
	small = widget.Rect{W: 80, H: 19}
	large = widget.Rect{W: 120, H: 35}
)

// stateOf is a job of n ranks, two a node.
func stateOf(n int32, v *falconv1.Validation, older ...*falconv1.Validation) *page.State {
	snap := &falconv1.SnapshotReply{
		Job:        &falconv1.Job{World: n, Dp: n},
		Validation: v,
		AtUnixNs:   int64(time.Hour),
	}
	for r := range n {
		snap.Ranks = append(snap.Ranks, &falconv1.RankView{Rank: r, Device: dev(r)})
	}
	return page.NewState(&feed.State{Snap: snap, Validations: older})
}

func dev(r int32) string {
	return fmt.Sprintf("n%d.g%d", r/2, r%2)
}

func link(from, to int32, ratio float64) *falconv1.LinkResult {
	l := &falconv1.LinkResult{
		From:       from,
		To:         to,
		FromDevice: dev(from),
		ToDevice:   dev(to),
		Ms:         2 * ratio,
		BaseMs:     2,
		Ratio:      ratio,
		Slow:       ratio > Limit,
		Basis:      "class",
		Class:      "same rail",
	}
	if from/2 != to/2 {
		l.Link = fmt.Sprintf("n%d-n%d", min(from, to)/2, max(from, to)/2)
	}
	return l
}

func draw(t testing.TB, p *Page, s *page.State, r widget.Rect) string {
	t.Helper()
	theme, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	c := widget.NewCanvas(r.W, r.H, theme.Palette(colorprofile.ASCII), false)
	p.Draw(c, c.Whole(), s)
	return ansi.Strip(c.String())
}

func wants(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in:\n%s", part, out)
		}
	}
}

func ring(n int32, slow [2]int32, ratio float64) *falconv1.Validation {
	v := &falconv1.Validation{
		Id:         "VAL-0007",
		State:      "done",
		By:         "maria",
		Passes:     2,
		PassesDone: 2,
	}
	for r := range n {
		for _, to := range []int32{(r + 1) % n, (r + n - 1) % n} {
			x := 1.0
			if [2]int32{r, to} == slow {
				x = ratio
			}
			v.Links = append(v.Links, link(r, to, x))
		}
	}
	return v
}

func TestMatrixShowsTheWorstOfEachPair(t *testing.T) {
	s := stateOf(8, ring(8, [2]int32{3, 4}, 1.86))
	p := New()
	out := draw(t, p, s, small)
	wants(t, out, "from\\to", "✖1.86", "n1", "n3")
	p.Act(key.Results, s, small)
	wants(
		t,
		draw(t, p, s, small),
		"n1 → n2 3.7 ms, 1.86× of 2.0 ms (median of its class) SLOW",
		"n2 → n1 2.0 ms, 1.00×",
	)
	p.Act(key.Metric, s, small)
	wants(t, draw(t, p, s, small), "r3 → r4 3.7 ms, 1.86× of 2.0 ms")
	p.Act(key.Metric, s, small)
	wants(t, draw(t, p, s, small), "n1.g1 → n2.g0")
	wants(t, draw(t, p, s, large), "from\\to", "n1.g1 → n2.g0")
}

func TestGPUsAreMeasuredAgainstTheMedian(t *testing.T) {
	v := &falconv1.Validation{Id: "VAL-0001", State: "done"}
	for r := range int32(4) {
		g := &falconv1.GemmResult{
			Rank:     r,
			Device:   dev(r),
			Ms:       6,
			MedianMs: 6,
			Ratio:    1,
		}
		if r == 2 {
			g.Ms = 12
			g.Ratio = 2
			g.Slow = true
		}
		v.Gemm = append(v.Gemm, g)
	}
	out := draw(t, New(), stateOf(4, v), small)
	wants(t, out, "GEMM median 6.0 ms  ╎ slow beyond 1.2 ×", "12.0 ms  2.00× SLOW")
	if n := strings.Count(out, "╎"); n != 5 {
		t.Errorf("the limit is drawn %d times, want head and each of 4 bars:\n%s", n, out)
	}
}

func TestAValidationIsSeenRunning(t *testing.T) {
	at := int64(time.Hour)
	v := &falconv1.Validation{
		Id:         "VAL-0002",
		State:      "testing",
		Passes:     3,
		PassesDone: 1,
		Now: &falconv1.ValidationNow{
			Step:           "pass",
			Pass:           1,
			Pairs:          []*falconv1.RankPair{{A: 0, B: 2}, {A: 1, B: 3}},
			HeldUnixNs:     at - int64(420*time.Millisecond),
			DeadlineUnixNs: at + int64(8*time.Second),
		},
	}
	s := stateOf(4, v)
	wants(
		t,
		draw(t, New(), s, small),
		"pass 2 of 3",
		"job held 420 ms",
		"at most 8 s more",
		"1 of 3 passes done",
		"2 pairs talk now: n0.g0↔n1.g0  n0.g1↔n1.g1",
	)
	v.Now = &falconv1.ValidationNow{Step: "gemm", Ranks: []int32{1, 3}}
	wants(t, draw(t, New(), s, small), "GEMM on the GPUs", "awaited: ranks 1, 3")
}

func TestOlderValidationsAreBrowsed(t *testing.T) {
	older := &falconv1.Validation{
		Id:     "VAL-0001",
		State:  "failed",
		Reason: "an agent was lost",
	}
	s := stateOf(4, ring(4, [2]int32{0, 1}, 1))
	p := New()
	s.Feed.Validations = []*falconv1.Validation{s.Snap().Validation, older}
	wants(t, draw(t, p, s, small), "VAL-0007 done  2 of 2")
	p.Act(key.Older, s, small)
	wants(t, draw(t, p, s, small), "VAL-0001 failed  1 of 2", "an agent was lost")
	p.Act(key.Older, s, small)
	p.Act(key.Newer, s, small)
	wants(t, draw(t, p, s, small), "VAL-0007 done")
	s.LookAt("VAL-0001")
	wants(t, draw(t, p, s, small), "VAL-0001 failed")
}

func TestLinksArePickedSuspiciousFirst(t *testing.T) {
	s := stateOf(8, ring(8, [2]int32{3, 4}, 1.86))
	p := New()
	s.Snap().Incidents = []*falconv1.Incident{{
		Id:      "INC-0003",
		State:   "located",
		Verdict: &falconv1.Verdict{Links: []string{"n0-n3"}},
	}}
	p.Act(key.Links, s, small)
	out := draw(t, p, s, small)
	wants(t, out, "TEST LINKS", "n0-n3            ▲ suspicious: named by INC-0003",
		"n1-n2            ▲ suspicious: 1.86× in VAL-0007")
	if strings.Index(out, "n0-n3") > strings.Index(out, "n0-n1") &&
		strings.Contains(out, "n0-n1") {
		t.Errorf("suspicious links are not first:\n%s", out)
	}
	p.Act(key.Pick, s, small)
	p.Act(key.Down, s, small)
	p.Act(key.Pick, s, small)
	if got := p.Links(); !slices.Equal(got, []string{"n0-n3", "n1-n2"}) {
		t.Errorf("picked %v", got)
	}
	p.Act(key.Links, s, small)
	if got := p.Links(); len(got) != 0 {
		t.Errorf("links are tested while ranks are picked: %v", got)
	}
}

// Pairs are those of the picked ranks' nodes; too many are not listed.
func TestPairsAreThoseOfThePickedRanks(t *testing.T) {
	s := stateOf(400, nil)
	p := New()
	list, more := p.candidates(s)
	if len(list) != 0 || more == "" {
		t.Errorf("%d pairs of 200 nodes, %q", len(list), more)
	}
	for _, r := range []int32{0, 1, 5, 300} {
		s.Pick(r)
	}
	if list, _ = p.candidates(s); len(list) != 3 || list[0].link != "n0-n2" {
		t.Errorf("pairs of n0, n2 and n150: %v", list)
	}
}

// The matrix agrees with a plain search over all results.
func TestMatrixAgainstAPlainSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &falconv1.Validation{}
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			from := rapid.Int32Range(0, 9).Draw(t, "from")
			to := rapid.Int32Range(0, 9).Draw(t, "to")
			v.Links = append(v.Links, link(
				from,
				to,
				rapid.SampledFrom([]float64{0, 1, 1.1, 1.3, 2}).Draw(t, "ratio"),
			))
		}
		m := newMatrix(v, false)
		for i, a := range m.names {
			for j, b := range m.names {
				worst := -1.0
				for _, l := range v.Links {
					if strings.HasPrefix(l.FromDevice, a+".") &&
						strings.HasPrefix(l.ToDevice, b+".") {
						worst = max(worst, l.Ratio)
					}
				}
				got := -1.0
				if list := m.cells[[2]int{i, j}]; len(list) > 0 {
					got = list[0].Ratio
				}
				if got != worst {
					t.Fatalf("%s to %s: %v, want %v", a, b, got, worst)
				}
			}
		}
	})
}
