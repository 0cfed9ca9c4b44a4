package ranks

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	packing "github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

var update = flag.Bool("update", false, "rewrite the golden views")

// job is a job with one of everything among many healthy ranks.
func job(tp, dp, pp int) *falconv1.SnapshotReply {
	world := tp * dp * pp
	s := &falconv1.SnapshotReply{Job: &falconv1.Job{
		Tp:    int32(tp),
		Dp:    int32(dp),
		Pp:    int32(pp),
		World: int32(world),
	}}
	views := make([]falconv1.RankView, world)
	for r := range views {
		v := &views[r]
		v.Rank = int32(r)
		v.Device = fmt.Sprintf("n%d.g%d", r/8, r%8)
		v.Health = falconv1.RankHealth_RANK_HEALTH_OK
		v.Ms = 210
		v.SelfRatio = 1
		v.SelfMs = 10
		v.WaitMs = 20
		v.SmClockMhz = 1980
		v.TemperatureC = uint32(58 + r%5)
		v.CnpPerS = 2
		s.Ranks = append(s.Ranks, v)
	}
	return s
}

// trouble gives some ranks of a job one trouble each, spread over all of it.
func trouble(s *falconv1.SnapshotReply) *falconv1.SnapshotReply {
	n := len(s.Ranks)
	at := func(share float64) *falconv1.RankView {
		return s.Ranks[int(share*float64(n-1))]
	}
	slow := at(0.371)
	slow.Health = falconv1.RankHealth_RANK_HEALTH_SLOW
	slow.Level = 3
	slow.Slowdown = 0.3
	slow.SelfRatio = 1.3
	bad := at(0.137)
	bad.Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
	bad.Level = 5
	bad.Slowdown = 1.1
	bad.SelfRatio = 2.1
	bad.SmClockMhz = 990
	bad.TemperatureC = 91
	at(0.523).Health = falconv1.RankHealth_RANK_HEALTH_STALE
	at(0.618).Health = falconv1.RankHealth_RANK_HEALTH_LOST
	fenced := at(0.777)
	fenced.Health = falconv1.RankHealth_RANK_HEALTH_LOST
	s.Recovery = &falconv1.Recovery{
		Id:    "REC-0001",
		State: "resumed",
		Ranks: []*falconv1.RankRecovery{{Rank: fenced.Rank, Stage: "fenced"}},
	}
	dumb := at(0.915)
	dumb.Ms = 0
	dumb.SelfRatio = 0
	dumb.SmClockMhz = 0
	dumb.TemperatureC = 0
	dumb.CnpPerS = -1
	return s
}

// state shows a snapshot as a feed publishes it.
func state(s *falconv1.SnapshotReply) *page.State {
	return page.NewState(&feed.State{Snap: s, Conn: feed.Live, Memo: &feed.Memo{}})
}

func palette(t testing.TB, p colorprofile.Profile) *themes.Palette {
	t.Helper()
	th, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	return th.Palette(p)
}

func canvas(t testing.TB, w, h int, p colorprofile.Profile, ascii bool) *widget.Canvas {
	t.Helper()
	return widget.NewCanvas(w, h, palette(t, p), ascii)
}

func drawn(t testing.TB, p *Page, s *page.State, w, h int) string {
	t.Helper()
	c := canvas(t, w, h, colorprofile.TrueColor, false)
	p.Draw(c, c.Whole(), s)
	return ansi.Strip(c.String())
}

var jobs = []struct {
	name       string
	tp, dp, pp int
}{{"8", 1, 4, 2}, {"2048", 8, 32, 8}, {"100000", 8, 1250, 10}}

// Every level of jobs of three sizes in every profile.
func TestGoldenLevels(t *testing.T) {
	var sums strings.Builder
	for _, j := range jobs {
		s := state(trouble(job(j.tp, j.dp, j.pp)))
		for level := auto; level < levels; level++ {
			for _, size := range [][2]int{{80, 19}, {200, 55}} {
				p := New()
				p.level = level
				for _, profile := range themes.Profiles {
					for _, ascii := range []bool{false, true} {
						c := canvas(t, size[0], size[1], profile, ascii)
						p.Draw(c, c.Whole(), s)
						name := fmt.Sprintf("%s-level%d-%dx%d-%s-ascii=%v",
							j.name, level, size[0], size[1], strings.ToLower(profile.String()),
							ascii)
						fmt.Fprintf(&sums, "%s %x\n", name, sha256.Sum256([]byte(c.String())))
						if size[0] == 80 &&
							(profile == colorprofile.TrueColor && !ascii ||
								profile == colorprofile.ASCII && !ascii && level == auto ||
								profile == colorprofile.TrueColor && ascii && level == auto) {
							golden(t, name+".txt", trim(ansi.Strip(c.String())))
						}
					}
				}
			}
		}
	}
	golden(t, "levels.sums", sums.String())
}

func trim(s string) string {
	rows := strings.Split(s, "\n")
	for i := range rows {
		rows[i] = strings.TrimRight(rows[i], " ")
	}
	return strings.Join(rows, "\n") + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./tui/page/ranks -update rewrites it); got:\n%s", path, got)
	}
}

// What a pixel shows is the worst of its ranks: against a plain second way of
// finding it, at any level, order, size and trouble.
func TestPixelsShowTheWorst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		snap := job(
			rapid.IntRange(1, 8).Draw(t, "tp"),
			rapid.IntRange(1, 40).Draw(t, "dp"),
			rapid.IntRange(1, 12).Draw(t, "pp"),
		)
		for range rapid.IntRange(0, 20).Draw(t, "troubles") {
			v := snap.Ranks[rapid.IntRange(0, len(snap.Ranks)-1).Draw(t, "rank")]
			v.Health = falconv1.RankHealth(rapid.IntRange(0, 5).Draw(t, "health"))
			v.SelfRatio = rapid.SampledFrom([]float64{0, 1, 1.05, 1.3, 1.6, 2.5}).Draw(t, "self")
		}
		s := state(snap)
		r := widget.Rect{
			W: rapid.IntRange(1, 120).Draw(t, "w"),
			H: rapid.IntRange(1, 40).Draw(t, "h"),
		}
		g := layoutMap(
			r,
			s,
			Level(rapid.IntRange(-1, int(Rank)).Draw(t, "level")),
			Order(rapid.IntRange(0, int(orders)-1).Draw(t, "order")),
			2,
		)
		pix := g.visibleRaster(s)
		want := map[int]roster.Code{}
		for rank, v := range s.Roster.Views() {
			item := int(g.place[rank])
			want[item] = max(want[item], s.Roster.Code(s.Metric, v))
		}
		for i, got := range pix.Pix {
			if w := page.Pixels[want[g.top*g.columns+i]]; got != w {
				t.Fatalf("item %d shows %d, its worst rank is %d", g.top*g.columns+i, got, w)
			}
		}
		seen, above, below := g.inSight(s.Roster.Critical)
		if seen+above+below != len(s.Roster.Critical) {
			t.Fatalf("%d + %d + %d of %d critical ranks", seen, above, below, len(s.Roster.Critical))
		}
	})
}

// Where a rank is drawn depends on no measurement.
func TestPlacesNeverMove(t *testing.T) {
	for _, j := range jobs[:2] {
		for level := Job; level < levels; level++ {
			for order := range orders {
				r := widget.Rect{W: 100, H: 30}
				calm := state(job(j.tp, j.dp, j.pp))
				wild := state(trouble(job(j.tp, j.dp, j.pp)))
				wild.Select(calm.Rank())
				a := layoutMap(r, calm, level, order, 2)
				b := layoutMap(r, wild, level, order, 2)
				if a.columns != b.columns ||
					a.top != b.top ||
					a.arrangement != b.arrangement {
					t.Errorf("%s level %d order %d: the map moved", j.name, level, order)
				}
			}
		}
	}
}

func TestOrders(t *testing.T) {
	snap := job(1, 4, 2)
	for i, v := range snap.Ranks { // n3 holds ranks 0 and 1, n0 holds 6 and 7
		v.Device = fmt.Sprintf("n%d.g%d", 3-i/2, i%2)
	}
	s := state(snap)
	for order, want := range map[Order]string{
		Topology: "[0 1 2 3 4 5 6 7]",
		Host:     "[6 7 4 5 2 3 0 1]",
		Number:   "[0 1 2 3 4 5 6 7]",
	} {
		if got := fmt.Sprint(arrangeRanks(s, Rank, order, 1, 1).first); got != want {
			t.Errorf("ranks %s: %s, want %s", orderNames[order], got, want)
		}
	}
	if got := fmt.Sprint(
		arrangeRanks(s, Node, Topology, 1, 1).first,
		arrangeRanks(s, Node, Host, 1, 1).first,
	); got != "[0 2 4 6] [6 4 2 0]" {
		t.Errorf("nodes begin with ranks %s", got)
	}
}

// The title counts what is critical and out of sight, and says where.
func TestTitleTellsWhatIsOutside(t *testing.T) {
	snap := job(8, 64, 8)
	for _, r := range []int{0, 4000, 4001} {
		snap.Ranks[r].Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
	}
	s := state(snap)
	p := New()
	p.level = Detail
	s.Select(0)
	if out := drawn(t, p, s, 120, 24); !strings.Contains(out, "1 crit in view, 2 outside ↓") {
		t.Errorf("at the top:\n%s", out)
	}
	s.Select(4000)
	if out := drawn(t, p, s, 120, 24); !strings.Contains(out, "2 crit in view, 1 outside ↑") {
		t.Errorf("at the bottom:\n%s", out)
	}
}

func TestEnterLooksNearer(t *testing.T) {
	s := state(trouble(job(8, 32, 8)))
	p := New()
	r := widget.Rect{W: 80, H: 19}
	p.level = Job
	for want := Stage; want <= Rank; want++ {
		if to := p.Act(key.Open, s, r); to != "" || p.level != want {
			t.Fatalf("at level %d instead of %d, to %q", p.level, want, to)
		}
	}
	if p.Act(key.Open, s, r) != key.Posterior {
		t.Error("a rank opens no posterior")
	}
	if s.Roster.Standing(s.Rank()) != roster.Culprit {
		t.Errorf("the cursor is at rank %d", s.Rank())
	}
}

func TestPicks(t *testing.T) {
	s, p := state(trouble(job(1, 32, 4))), New()
	r := widget.Rect{W: 80, H: 30}
	act := func(actions ...key.Action) string {
		for _, a := range actions {
			p.Act(a, s, r)
		}
		return fmt.Sprint(s.Picks())
	}
	if got := act(key.PickSuspects); got != "[17 47]" {
		t.Errorf("* picks %s", got)
	}
	s.Select(3)
	if got := act(key.Unpick, key.PickRange, key.Right, key.Right, key.PickRange); got != "[3 4 5]" {
		t.Errorf("V picks %s", got)
	}
	if got := act(key.Left, key.Pick); got != "[3 5]" {
		t.Errorf("space drops: %s", got)
	}
	p.level = Node
	s.Select(9)
	if got := act(key.Unpick, key.Pick); got != "[8 9 10 11 12 13 14 15]" {
		t.Errorf("space on a node picks %s", got)
	}
	s.Select(9)
	if out := drawn(t, p, s, 80, 30); !strings.Contains(out, "8 picked") {
		t.Errorf("picks are not reported:\n%s", out)
	}
}

// What is drawn at a cell is what a click on it selects.
func TestHitFindsTheCursor(t *testing.T) {
	for _, j := range jobs {
		s := state(trouble(job(j.tp, j.dp, j.pp)))
		r := widget.Rect{W: 120, H: 34}
		for level := auto; level < levels; level++ {
			p := New()
			p.level = level
			drawn(t, p, s, r.W, r.H)
			body := mapRectOf(r)
			shown := level
			if p.isTable(s) {
				body = shapeTable(r, s.Roster.World()).rows
				shown = Table
			}
			g := layoutMap(body, s, shown, Topology, 2)
			row, col := g.itemAt(s)/g.columns-g.top, g.itemAt(s)%g.columns
			x := body.X + g.gutter + col*g.cellW
			y := body.Y + row*g.cellH
			if !g.hasCells() {
				y = body.Y + row/2
			}
			if rank, ok := p.Hit(s, r, x, y); !ok || rank != s.Rank() {
				t.Errorf("%s level %d: a click on the cursor's cell selects rank %d instead of %d",
					j.name, level, rank, s.Rank())
			}
			if _, ok := p.Hit(s, r, r.W+5, y); ok {
				t.Errorf("%s level %d: a click beside the map selects", j.name, level)
			}
		}
	}
}

// A new picture costs a console nothing per rank once it has been derived.
func TestUpdateAllocatesNothingPerRank(t *testing.T) {
	a := &feed.State{Snap: trouble(job(8, 128, 8)), Memo: &feed.Memo{}}
	b := &feed.State{Snap: trouble(job(8, 128, 8)), Memo: &feed.Memo{}}
	s := page.NewState(a)
	s.Update(b)
	if n := testing.AllocsPerRun(50, func() {
		s.Update(a)
		s.Update(b)
	}); n > 60 {
		t.Errorf("%v allocations for two updates of 8,192 ranks", n)
	}
	c := canvas(t, 200, 55, colorprofile.TrueColor, false)
	p := New()
	p.Draw(c, c.Whole(), s)
	if n := testing.AllocsPerRun(20, func() {
		p.Draw(c, c.Whole(), s)
	}); n > 250 {
		t.Errorf("%v allocations for a drawing of 8,192 ranks", n)
	}
}

// packed are two snapshots of 100,000 ranks as columns, the second an iteration
// later and with a few ranks in other states.
func packed(b *testing.B) (snaps [2]*falconv1.SnapshotReply, tables [2]*packing.Table) {
	b.Helper()
	for i := range snaps {
		s := trouble(job(8, 1250, 10))
		for r, v := range s.Ranks {
			v.Iteration = int64(i)
			v.Ms += float64(i)
			v.WaitStep = 2 + int32(falcon.WaitRamp.Level(100*v.WaitMs/v.Ms)) // as an engine says
			v.TemperatureStep = 2
			v.ClockStep = 2
			v.CnpStep = 1
			if i > 0 && r%1667 == 0 {
				v.Health = falconv1.RankHealth_RANK_HEALTH_SLOW
				v.Level = 3
			}
		}
		tables[i], s.Ranks = packing.Of(len(s.Ranks), s.Ranks), nil
		snaps[i] = s
	}
	return snaps, tables
}

// All ranks to the pixels of a map, with the tables that the feed's side makes
// once for all consoles.
func BenchmarkAggregate100k(b *testing.B) {
	snaps, tables := packed(b)
	s := state(snaps[0])
	r := widget.Rect{W: 200, H: 50}
	b.ReportAllocs()
	for _, level := range []Level{Stage, Node, Rank} {
		b.Run(levelNames[level], func(b *testing.B) {
			g := layoutMap(r, s, level, Topology, 2)
			out := make([]uint8, g.columns*min(g.rows, g.total))
			for b.Loop() {
				clear(out)
				g.aggregate(
					roster.Make(snaps[1], tables[1]).Codes(roster.Self),
					int32(g.top*g.columns),
					out,
				)
			}
		})
	}
}

// The same with the codes that consoles share.
func BenchmarkAggregate100kShared(b *testing.B) {
	s := state(trouble(job(8, 1250, 10)))
	g := layoutMap(widget.Rect{W: 200, H: 50}, s, Node, Topology, 2)
	b.ReportAllocs()
	for b.Loop() {
		g.visibleRaster(s)
	}
}

func BenchmarkRanksPage100k(b *testing.B) {
	s := state(trouble(job(8, 1250, 10)))
	pal := palette(b, colorprofile.TrueColor)
	p := New()
	b.ReportAllocs()
	for b.Loop() {
		c := widget.NewCanvas(200, 55, pal, false)
		p.Draw(c, c.Whole(), s)
	}
}

func BenchmarkUpdate100k(b *testing.B) {
	x := &feed.State{Snap: trouble(job(8, 1250, 10)), Memo: &feed.Memo{}}
	y := &feed.State{Snap: trouble(job(8, 1250, 10)), Memo: &feed.Memo{}}
	s := page.NewState(x)
	s.Update(y)
	b.ReportAllocs()
	for b.Loop() {
		s.Update(x)
		s.Update(y)
	}
}

// What a filter of many ranks costs, sought aside by each text that was typed.
func BenchmarkFilter100k(b *testing.B) {
	snap := trouble(job(8, 1250, 10))
	fs := &feed.State{Snap: snap, Memo: &feed.Memo{}}
	page.Prepare(fs)
	for _, text := range []string{
		"stage:3 slow>10% host:n02* !is:stale", "host:n02*", "host:*9*2*", "slow>10%", "g3",
		"temp>80 | cnp>1000 | clock<1200",
	} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f, err := filter.Parse(text + " rank:0-" + strconv.Itoa(1<<20+i%64)) // all
				if err != nil {
					b.Fatal(err)
				}
				page.Prepare(fs, f)
			}
		})
	}
}

// Hit is the rank that is drawn at a cell of the page, the worst of several.
func (p *Page) Hit(s *page.State, r widget.Rect, x, y int) (rank int32, ok bool) {
	if s.Roster.World() == 0 {
		return 0, false
	}
	g, body := p.drawnGeometry(r, s)
	return g.worstRankAt(s, body, x, y)
}
