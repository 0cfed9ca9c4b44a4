package page_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/page/grid"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/overview"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/page/ranks"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/widget"
)

func state(snap *falconv1.SnapshotReply) *page.State {
	return page.NewState(&feed.State{
		Snap:   snap,
		Events: snap.Events,
		Conn:   feed.Live,
	})
}

// job is a job of n ranks in one stage, all healthy.
func job(tp, dp, pp int) *falconv1.SnapshotReply {
	s := &falconv1.SnapshotReply{Job: &falconv1.Job{
		Tp:    int32(tp),
		Dp:    int32(dp),
		Pp:    int32(pp),
		World: int32(tp * dp * pp),
	}}
	for r := range tp * dp * pp {
		s.Ranks = append(s.Ranks, &falconv1.RankView{
			Rank:   int32(r),
			Device: fmt.Sprintf("n%d.g%d", r/8, r%8),
			Health: falconv1.RankHealth_RANK_HEALTH_OK,
			Ms:     100,
		})
	}
	return s
}

func draw(p page.Page, s *page.State, w, h int, profile colorprofile.Profile) string {
	th, err := themes.Load("dark")
	if err != nil {
		panic(err)
	}
	c := widget.NewCanvas(w, h, th.Palette(profile), false)
	p.Draw(c, c.Whole(), s)
	return ansi.Strip(c.String())
}

func TestOneSlowRankNeverVanishes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dp := rapid.IntRange(1, 600).Draw(t, "dp")
		pp := rapid.IntRange(1, 8).Draw(t, "pp")
		snap := job(4, dp, pp)
		bad := rapid.IntRange(0, len(snap.Ranks)-1).Draw(t, "bad")
		snap.Ranks[bad].Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
		p := ranks.New()
		s := state(snap)
		for range rapid.IntRange(0, 12).Draw(t, "zooms") {
			p.Act(key.ZoomOut, s, widget.Rect{W: 80, H: 19})
		}
		out := strings.Split(draw(p, s, 80, 19, colorprofile.TrueColor), "CURSOR")[0]
		if !strings.Contains(out, "✖") && !strings.Contains(out, "◆") {
			t.Fatalf("rank %d of %d is invisible:\n%s", bad, len(snap.Ranks), out)
		}
	})
}

func TestStatesHaveGlyphs(t *testing.T) {
	snap := job(1, 8, 1)
	for i, h := range []falconv1.RankHealth{2, 3, 4, 5} {
		snap.Ranks[i].Health = h
	}
	for _, p := range []page.Page{ranks.New(), grid.New()} {
		for _, profile := range []colorprofile.Profile{colorprofile.ASCII, colorprofile.TrueColor} {
			out := strings.Split(draw(p, state(snap), 100, 24, profile), "CURSOR")[0]
			for _, g := range []string{"▲", "✖", "?", "†", "●"} {
				if !strings.Contains(out, g) {
					t.Errorf("%T %s lacks %s:\n%s", p, profile, g, out)
				}
			}
		}
	}
}

func TestStepVisitsEveryAnomaly(t *testing.T) {
	snap := job(1, 16, 1)
	for _, r := range []int{3, 7, 12} {
		snap.Ranks[r].Health = falconv1.RankHealth_RANK_HEALTH_SLOW
	}
	s := state(snap)
	s.Select(5)
	var seen []int32
	for range 4 {
		s.Step(+1)
		seen = append(seen, s.Rank())
	}
	s.Step(-1)
	seen = append(seen, s.Rank())
	if got := fmt.Sprint(seen); got != "[7 12 3 7 3]" {
		t.Errorf("visited %s", got)
	}
}

func TestWorstPrefersTheCulprit(t *testing.T) {
	snap := job(1, 8, 1)
	snap.Ranks[1].Level = 6
	snap.Ranks[2].Health = falconv1.RankHealth_RANK_HEALTH_SLOW
	snap.Ranks[5].Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
	snap.Ranks[6].Health = falconv1.RankHealth_RANK_HEALTH_LOST
	if r := state(snap).Rank(); r != 5 {
		t.Errorf("follows rank %d", r)
	}
}

// With two incidents the worst rank may be another one's than that which NOW is about.
func TestTheChartIsAboutThePresentIncident(t *testing.T) {
	snap := job(1, 8, 1)
	snap.Series = &falconv1.Series{Rank: 1, Ms: []float32{1}}
	snap.Incidents = []*falconv1.Incident{
		{Id: "INC-0002", State: "located", Verdict: &falconv1.Verdict{Ranks: []int32{6}}},
		{Id: "INC-0001", State: "located", Verdict: &falconv1.Verdict{Ranks: []int32{1}}},
	}
	s := state(snap)
	if s.Rank() != 6 || s.Wanted() != 6 {
		t.Errorf("rank %d is shown, %d asked for", s.Rank(), s.Wanted())
	}
	s.Select(3)
	if s.Rank() != 3 || s.Wanted() != 3 {
		t.Errorf("the operator's rank 3 gives way to %d", s.Rank())
	}
	snap = proto.Clone(snap).(*falconv1.SnapshotReply)
	snap.Incidents[0].State = "closed"
	if s := state(snap); s.Rank() != 1 || s.Wanted() != feed.WorstRank {
		t.Errorf("after the incident rank %d is shown, %d asked for", s.Rank(), s.Wanted())
	}
}

func TestGridBlamesTheRightCell(t *testing.T) {
	snap := job(2, 4, 2)
	bad := 2*2 + 1 + 8 // tp 1, replica 2, stage 1
	snap.Ranks[bad].Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
	snap.Incidents = []*falconv1.Incident{{
		State:   "located",
		Verdict: &falconv1.Verdict{Cause: "network_congestion", Ranks: []int32{int32(bad)}},
	}}
	out := strings.Split(draw(grid.New(), state(snap), 80, 19, colorprofile.ASCII), "\n")
	if !strings.Contains(out[3], "L") ||
		strings.Contains(out[2], "L") ||
		!strings.Contains(out[4], "L") {
		t.Errorf("stage 1 and the column's margin must carry L:\n%s", strings.Join(out, "\n"))
	}
}

func TestPosteriorSteps(t *testing.T) {
	for p, want := range map[float64]uint8{1: 6, 0.1: 5, 1e-3: 3, 1e-6: 0, 1e-9: 0, 0: 0, 2: 6} {
		if got := posterior.Step(p); got != want {
			t.Errorf("Step(%g) = %d, want %d", p, got, want)
		}
	}
	if posterior.Step(math.NaN()) != 0 {
		t.Error("NaN has a colour")
	}
}

func TestHairlineShowsExactNumbers(t *testing.T) {
	snap := job(1, 2, 1)
	snap.Series = &falconv1.Series{
		FirstIteration: 100,
		BaselineMs:     100,
		Threshold:      0.9,
		Marks:          []*falconv1.Mark{{Iteration: 103, Kind: "onset"}},
	}
	for i := range 10 {
		snap.Series.Ms = append(snap.Series.Ms, float32(100+i))
		snap.Series.Probability = append(snap.Series.Probability, float32(i)/10)
		snap.Series.MapRunLength = append(snap.Series.MapRunLength, int32(i))
	}
	p := posterior.New()
	s := state(snap)
	r := widget.Rect{W: 80, H: 19}
	p.Act(key.Prev, s, r) // the mark
	if out := draw(
		p,
		s,
		80,
		19,
		colorprofile.ASCII,
	); !strings.Contains(out, "iteration 103 (hairline, G lets go)  103.0 ms") ||
		!strings.Contains(out, "onset") {
		t.Errorf("hairline on the mark:\n%s", out)
	}
	p.Act(key.Right, s, r)
	if out := draw(
		p,
		s,
		80,
		19,
		colorprofile.ASCII,
	); !strings.Contains(out, "iteration 104 (hairline, G lets go)  104.0 ms  +4%") ||
		!strings.Contains(out, "P(change just now) 0.400; likeliest stretch 4") {
		t.Errorf("hairline moved:\n%s", out)
	}
	p.Act(key.Last, s, r)
	if out := draw(p, s, 80, 19, colorprofile.ASCII); !strings.Contains(out, "iteration 109 (newest)") {
		t.Errorf("newest:\n%s", out)
	}
}

// Broken series and rank lists from the wire must not crash a page.
func TestPagesSurviveAnyNumbers(t *testing.T) {
	pages := []func() page.Page{
		func() page.Page { return overview.New() },
		func() page.Page { return ranks.New() },
		func() page.Page { return grid.New() },
		func() page.Page { return posterior.New() },
		func() page.Page { return ladder.New() },
		func() page.Page { return events.New() },
		func() page.Page { return validate.New() },
	}
	acts := []key.Action{
		key.Up, key.Down, key.Left, key.Right, key.First, key.Last, key.PageUp, key.PageDown,
		key.Next, key.Prev,
		key.ZoomIn, key.ZoomOut, key.Metric, key.Open, key.Pick, key.PickReplicas,
		key.PickPipeline, key.Unpick, key.TestKind,
		key.PickRange, key.PickSuspects, key.Order,
	}
	odd := rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 1e-300, 210})
	small := rapid.Int32Range(-3, 40)
	rapid.Check(t, func(t *rapid.T) {
		snap := &falconv1.SnapshotReply{
			Job: &falconv1.Job{
				Tp:          small.Draw(t, "tp"),
				Dp:          small.Draw(t, "dp"),
				Pp:          small.Draw(t, "pp"),
				World:       small.Draw(t, "world"),
				IterationMs: odd.Draw(t, "ms"),
			},
			Series: &falconv1.Series{
				RunLengths:     small.Draw(t, "lengths"),
				BaselineMs:     odd.Draw(t, "base"),
				Threshold:      odd.Draw(t, "threshold"),
				FirstIteration: int64(small.Draw(t, "first")),
			},
			Ladder: &falconv1.Ladder{
				Rungs: []*falconv1.RungView{
					{Rung: "S2", Applicable: true, GainMs: odd.Draw(t, "gain")},
					{},
				},
				ImpactMs: odd.Draw(t, "impact"),
			},
		}
		snap.Validation = &falconv1.Validation{
			Id:       "VAL-0001",
			State:    "done",
			Passes:   small.Draw(t, "passes"),
			PausedMs: odd.Draw(t, "held"),
		}
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			snap.Validation.Gemm = append(snap.Validation.Gemm, &falconv1.GemmResult{
				Device: "n0.g0",
				Ms:     odd.Draw(t, "gemm"),
				Ratio:  odd.Draw(t, "ratio"),
			})
			snap.Validation.Links = append(snap.Validation.Links, &falconv1.LinkResult{
				Ms:   odd.Draw(t, "link"),
				Pass: small.Draw(t, "pass"),
			})
			snap.Ranks = append(snap.Ranks, &falconv1.RankView{
				Rank:      small.Draw(t, "rank"),
				Health:    falconv1.RankHealth(small.Draw(t, "health")),
				Level:     small.Draw(t, "level"),
				Slowdown:  odd.Draw(t, "slow"),
				SelfRatio: odd.Draw(t, "self"),
				Ms:        odd.Draw(t, "rms"),
			})
			snap.Series.Ms = append(snap.Series.Ms, float32(odd.Draw(t, "sms")))
			snap.Series.Probability = append(snap.Series.Probability, float32(odd.Draw(t, "p")))
			snap.Series.MapRunLength = append(snap.Series.MapRunLength, small.Draw(t, "map"))
			snap.Series.Posterior = append(snap.Series.Posterior, float32(odd.Draw(t, "post")))
			snap.Events = append(snap.Events, &falconv1.EventLine{
				Seq:  uint64(len(snap.Events)) + 1,
				Text: "x",
			})
		}
		s := state(snap)
		w := rapid.IntRange(1, 130).Draw(t, "w")
		h := rapid.IntRange(1, 50).Draw(t, "h")
		p := pages[rapid.IntRange(0, len(pages)-1).Draw(t, "page")]()
		for range rapid.IntRange(0, 8).Draw(t, "acts") {
			p.Act(
				rapid.SampledFrom(acts).Draw(t, "act"),
				s,
				widget.Rect{W: w, H: h},
			)
			draw(p, s, w, h, colorprofile.ANSI256)
		}
		_ = s.FilterRanks("rank 1")
		draw(p, s, w, h, colorprofile.ASCII)
	})
}

// series is a job of two ranks whose iterations took ms, baseline 100 ms.
func series(ms ...float32) *page.State {
	snap := job(1, 2, 1)
	snap.Series = &falconv1.Series{BaselineMs: 100, Ms: ms}
	return state(snap)
}

func steadyWith(n int, at map[int]float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = 100
		if v, ok := at[i]; ok {
			out[i] = v
		}
	}
	return out
}

// A stray iteration must not flatten the others, a lasting change must show.
func TestScaleOfTheIterationTimes(t *testing.T) {
	for name, x := range map[string]struct {
		ms      []float32
		top     string
		clipped int
	}{
		"steady":          {steadyWith(60, nil), "100 ", 0},
		"one stray":       {steadyWith(60, map[int]float32{20: 1500}), "150 ", 1},
		"two strays":      {steadyWith(60, map[int]float32{20: 1500, 41: 900}), "150 ", 2},
		"newest stray":    {steadyWith(60, map[int]float32{59: 1500}), "150 ", 1},
		"short history":   {steadyWith(9, map[int]float32{4: 1500}), "150 ", 1},
		"just turned bad": {steadyWith(60, map[int]float32{57: 390, 58: 390, 59: 390}), "400 ", 0},
		"mild stray":      {steadyWith(60, map[int]float32{20: 190}), "200 ", 0},
		"below baseline":  {[]float32{40, 40, 40}, "100 ", 0},
	} {
		out := strings.Split(draw(posterior.New(), series(x.ms...), 80, 19, colorprofile.ASCII), "ALARM")[0]
		rows := strings.Split(out, "\n")
		if !strings.Contains(rows[1][:7], x.top) {
			t.Errorf("%s: the axis ends at %q, want %s", name, rows[1][:7], x.top)
		}
		if got := strings.Count(rows[1], "↑"); got != x.clipped {
			t.Errorf("%s: %d columns are marked as cut, want %d\n%s", name, got, x.clipped, out)
		}
		if got := strings.Contains(rows[0], "↑ up to"); got != (x.clipped > 0) {
			t.Errorf("%s: the title is %q", name, rows[0])
		}
	}
}

// The ranks of a job that has finished are gone, and nothing is wrong.
func TestAFinishedJobHasNoLostRanks(t *testing.T) {
	snap := job(1, 8, 1)
	for _, r := range snap.Ranks {
		r.Health = falconv1.RankHealth_RANK_HEALTH_LOST
	}
	for now, want := range map[string]string{"lost": "8 lost", string(falcon.JobFinished): "8 finished"} {
		snap := proto.Clone(snap).(*falconv1.SnapshotReply) // nobody changes one that is shown
		snap.Job.State = now
		s := state(snap)
		if s.Tally() != want ||
			len(s.Anomalies()) != map[string]int{"lost": 8, string(falcon.JobFinished): 0}[now] {
			t.Errorf("%s: tally %q, %d anomalies", now, s.Tally(), len(s.Anomalies()))
		}
		for _, p := range []page.Page{ranks.New(), grid.New()} {
			for _, profile := range []colorprofile.Profile{colorprofile.ASCII, colorprofile.TrueColor} {
				body := strings.Split(draw(p, s, 100, 24, profile), "CURSOR")[0]
				if got := strings.Contains(body, "†"); got != (now == "lost") {
					t.Errorf("%s %T: † drawn: %v\n%s", now, p, got, body)
				}
			}
		}
	}
}

func filterBy(t *testing.T, s *page.State, text string) {
	t.Helper()
	if err := s.FilterRanks(text); err != nil {
		t.Fatal(err)
	}
}

func TestRankFilter(t *testing.T) {
	snap := job(1, 24, 1) // n0 to n2 with eight GPUs each
	snap.Ranks[20].Health = falconv1.RankHealth_RANK_HEALTH_SLOW
	s := state(snap)
	for text, want := range map[string]string{
		"N1.": "[8 9 10 11 12 13 14 15]", "slow": "[20]", "rank 23": "[23]", "n9": "[]", "g3": "[3 11 19]",
	} {
		filterBy(t, s, text)
		if got := fmt.Sprint(s.Matched()); got != want {
			t.Errorf("%q matches %s, want %s", text, got, want)
		}
	}
	filterBy(t, s, "g3")
	s.Select(0)
	p := ranks.New()
	p.Act(key.Next, s, widget.Rect{W: 80, H: 19})
	p.Act(key.Next, s, widget.Rect{W: 80, H: 19})
	if s.Rank() != 11 {
		t.Errorf("n steps to rank %d", s.Rank())
	}
	s.Update(s.Feed)
	out := draw(p, s, 80, 19, colorprofile.TrueColor)
	if !strings.Contains(out, `filter "g3": 3 of 24`) ||
		!strings.Contains(out, "  11 n1.g3  ● ok") ||
		strings.Contains(out, "▲ slow   ") {
		t.Errorf("the filtered table must say what it hides:\n%s", out)
	}
	p.SetZoom(int(ranks.Detail))
	out = draw(p, s, 80, 19, colorprofile.TrueColor)
	if !strings.Contains(out, `filter "g3": 3 of 24`) ||
		!strings.Contains(out, "1 slow") ||
		strings.Contains(out, "▲20") {
		t.Errorf("the filtered map must say what it hides:\n%s", out)
	}
	if out := draw(overview.New(), s, 80, 19, colorprofile.TrueColor); !strings.Contains(out, "▲20") {
		t.Errorf("other pages are not filtered:\n%s", out)
	}
	filterBy(t, s, "")
	if out := draw(p, s, 80, 19, colorprofile.TrueColor); !strings.Contains(out, "▲20") {
		t.Errorf("the filter remains:\n%s", out)
	}
}

func TestEventsScrollAndFilter(t *testing.T) {
	snap := job(1, 1, 1)
	for i := range 50 {
		kind := "action"
		if i%10 == 0 {
			kind = "agent"
		}
		snap.Events = append(snap.Events, &falconv1.EventLine{
			Seq:  uint64(i + 1),
			Kind: kind,
			Text: fmt.Sprintf("line %d.", i),
		})
	}
	p := events.New()
	s := state(snap)
	r := widget.Rect{W: 80, H: 11}
	if out := draw(p, s, 80, 11, colorprofile.ASCII); !strings.Contains(out, "line 49.") ||
		strings.Contains(out, "line 39.") {
		t.Errorf("the newest ten:\n%s", out)
	}
	p.Act(key.First, s, r)
	if out := draw(p, s, 80, 11, colorprofile.ASCII); !strings.Contains(out, "line 0.") ||
		!strings.Contains(out, "40 newer below") {
		t.Errorf("the oldest ten:\n%s", out)
	}
	s.Filter = "agent"
	p.Act(key.Last, s, r)
	if out := draw(p, s, 80, 11, colorprofile.ASCII); !strings.Contains(out, "5 of 50") ||
		strings.Contains(out, "line 49.") {
		t.Errorf("filtered:\n%s", out)
	}
}

// Long events wrap; paging and both ends still show every one of them.
func TestLongEventsAreReadInFull(t *testing.T) {
	snap := job(1, 1, 1)
	for i := range 12 {
		snap.Events = append(snap.Events, &falconv1.EventLine{
			Seq: uint64(i + 1),
			Text: fmt.Sprintf("first%d. ", i) + strings.Repeat("word ", i*4) + fmt.Sprintf("last%d.",
				i),
		})
	}
	p := events.New()
	s := state(snap)
	r := widget.Rect{W: 80, H: 11}
	seen := ""
	p.Act(key.First, s, r)
	for range 8 {
		out := draw(p, s, r.W, r.H, colorprofile.ASCII)
		if strings.Contains(out, "…") {
			t.Errorf("an event is cut:\n%s", out)
		}
		seen += out
		p.Act(key.PageDown, s, r)
	}
	for i := range 12 {
		if !strings.Contains(seen, fmt.Sprintf("first%d.", i)) ||
			!strings.Contains(seen, fmt.Sprintf("last%d.", i)) {
			t.Errorf("event %d was never shown whole", i)
		}
	}
	if !strings.Contains(draw(p, s, r.W, r.H, colorprofile.ASCII), "last11.") {
		t.Error("paging on does not reach the newest")
	}
	for range 12 {
		p.Act(key.PageUp, s, r)
	}
	if out := draw(p, s, r.W, r.H, colorprofile.ASCII); !strings.Contains(out, "first0.") {
		t.Errorf("paging back does not reach the oldest:\n%s", out)
	}
}

func TestLadderStepsAndExplains(t *testing.T) {
	snap := job(1, 4, 2)
	snap.Ladder = &falconv1.Ladder{
		Incident: "INC-0001",
		Rungs: []*falconv1.RungView{
			{Rung: "S1", Applicable: true, Reason: "first reason", Current: true, BreakEven: -1},
			{Rung: "S2", Reason: "second reason", BreakEven: -1},
		},
	}
	p := ladder.New()
	s := state(snap)
	r := widget.Rect{W: 80, H: 19}
	if out := draw(p, s, 80, 19, colorprofile.ASCII); !strings.Contains(out, "first reason") {
		t.Errorf("starts on the rung in force:\n%s", out)
	}
	p.Act(key.Down, s, r)
	if out := draw(p, s, 80, 19, colorprofile.ASCII); !strings.Contains(out, "second reason") ||
		!strings.Contains(out, "not applicable") {
		t.Errorf("second rung:\n%s", out)
	}
}

// A validation that waits for its moment says for what.
func TestValidationThatWaits(t *testing.T) {
	got := validate.Outcome(&falconv1.Validation{
		Id:     "VAL-0002",
		By:     "ann",
		State:  "surveying",
		Reason: "waits: a profile window is in progress",
	})
	if !strings.HasSuffix(got, ". It waits: a profile window is in progress; X calls it off.") {
		t.Errorf("%q", got)
	}
}

// A placement is reported before it is taken: who changes places, which links
// leave which rings, when it is due, who decides.
func TestLadderTellsThePlacement(t *testing.T) {
	snap := job(1, 4, 2)
	snap.Ladder = &falconv1.Ladder{
		Incident: "INC-0001",
		Rungs: []*falconv1.RungView{
			{Rung: "S1", Applicable: true, BreakEven: -1},
			{
				Rung:        "S3",
				Applicable:  true,
				Reason:      "moves 2 nodes",
				OverheadMs:  2000,
				GainMs:      80,
				BreakEven:   25,
				PredictedMs: 220,
				ClockMs:     700,
				Approval:    "person",
				Next:        true,
				IfWrong:     "moved back",
				Preview: &falconv1.Preview{
					Swaps: []*falconv1.NodeSwap{{A: "n2", B: "n3"}},
					Left: []*falconv1.LinksOf{{
						Dimension: "dp",
						Links:     []string{"n2-n3"},
					}},
					Joined: []*falconv1.LinksOf{{
						Dimension: "pp",
						Links:     []string{"n2-n3"},
					}},
					MovedMb:  1200,
					CopyMs:   900,
					Stages:   []int32{1},
					Replicas: []int32{2},
					Splits:   []int32{9, 5, 9, 9},
				},
			},
		},
		Proposal: nil,
		Actions: []*falconv1.Action{{
			Rung:        "S3",
			State:       "kept",
			BeforeMs:    300,
			PredictedMs: 220,
			MeasuredMs:  222,
			StepMs:      []float64{12, 300, 200, 310},
			MovedMb:     1200,
		}},
	}
	p := ladder.New()
	s := state(snap)
	p.Act(key.Down, s, widget.Rect{W: 120, H: 34})
	out := draw(p, s, 120, 34, colorprofile.ASCII)
	for _, want := range []string{
		"n2 with n3", "DP no longer uses n2-n3", "PP then uses n2-n3", "1.2 GB", "Due once",
		"It waits for a person", "If wrong: moved back", "9 5 9 9", "pause 12", "restore 310",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}
