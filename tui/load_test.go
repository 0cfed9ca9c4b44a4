package tui

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// sessionBytes is what one console may hold at 100,000 ranks.
const sessionBytes = 64 << 20

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// loaded is a console at 120×40 that has drawn every page.
func loaded(t testing.TB, src feed.Source) *Model {
	t.Helper()
	profile := colorprofile.TrueColor
	m, err := New(src, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     newClock().now,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	for _, p := range key.Pages {
		m.work.showPage(p)
		m.screen.dirty = true
		m.View()
	}
	return m
}

// watchUntil gives the console every picture until the engine's present iteration.
func watchUntil(t testing.TB, m *Model, src feed.Source, iteration int64) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s := src.Latest()
		m.Update(updateMsg{s})
		m.View()
		if s.Snap.GetJob().GetIteration() >= iteration {
			return
		}
		select {
		case <-src.Changed():
		case <-deadline:
			t.Fatalf("iteration %d did not come", iteration)
		}
	}
}

// A console of its own, and one more session of a hub, after a few pictures of
// 100,000 ranks of which some change each time.
func TestMemoryOfASession(t *testing.T) {
	drawsAlone(t)
	if testing.Short() {
		t.Skip("pulls 100,000 ranks over and over")
	}
	o := huge
	o.Flicker = 60
	e := enginetest.New(o)
	e.AdvanceTo(firstIteration)
	srv := e.ServeInMemory()
	defer srv.Close()
	cc, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	client := falconv1.NewConsoleClient(cc)
	pass := func(m *Model, src feed.Source) {
		for range 3 {
			e.Advance(1)
			watchUntil(t, m, src, e.Iteration())
		}
	}
	warm := feed.New(client, nil) // what the engine's side keeps is none of the console's
	pass(loaded(t, warm), warm)
	warm.Close()

	before := heap()
	f := feed.New(client, nil)
	m := loaded(t, f)
	pass(m, f)
	alone := heap() - before
	runtime.KeepAlive(m)
	f.Close()

	hub := feed.NewHub(client, nil)
	defer hub.Close()
	first := hub.Session(client)
	one := loaded(t, first)
	pass(one, first)
	before = heap()
	const more = 2
	var sessions []*feed.Session
	var models []*Model
	for range more {
		s := hub.Session(client)
		sessions, models = append(sessions, s), append(models, loaded(t, s))
		pass(models[len(models)-1], s)
	}
	for i, s := range sessions { // all on the same picture, as they are while they run
		watchUntil(t, models[i], s, e.Iteration())
	}
	watchUntil(t, one, first, e.Iteration())
	each := (heap() - before) / more
	runtime.KeepAlive(models)
	runtime.KeepAlive(one)
	t.Logf("a console of its own holds %.1f MB, one more session of a hub %d kB",
		float64(alone)/1e6, each/1000)
	if alone > sessionBytes || each > sessionBytes/8 {
		t.Errorf("a console of its own holds %d bytes, one more session of a hub %d; want at most %d and %d",
			alone, each, sessionBytes, sessionBytes/8)
	}
}

// prepared are two pictures of 100,000 ranks, an iteration apart, as a feed
// hands them over: ranks as columns, the second as changes since the first.
func prepared(b *testing.B) (*enginetest.Engine, [2]*feed.State) {
	b.Helper()
	o := huge
	o.Flicker = 60
	e := enginetest.New(o)
	e.AdvanceTo(firstIteration)
	var states [2]*feed.State
	for i := range states {
		e.Advance(1)
		states[i] = pictureOf(b, e, feed.Want{
			Rank:       -1,
			Columns:    120,
			RunLengths: 64,
		})
		states[i].Columns = columns.Of(len(states[i].Snap.Ranks), states[i].Snap.Ranks)
		states[i].Snap.Ranks = nil
		states[i].Memo = &feed.Memo{}
		page.Prepare(states[i], filter.Filter{})
	}
	return e, states
}

// What the event loop does for one new picture, the page not counted: it must
// be far below the 50 ms that a key may wait.
func BenchmarkUpdate100k(b *testing.B) {
	_, states := prepared(b)
	src := newScript()
	src.latest.Store(states[0])
	m := loaded(b, src)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Update(updateMsg{states[i%2]})
	}
}

// What the feed's side computes once for all sessions.
func BenchmarkPrepare100k(b *testing.B) {
	_, states := prepared(b)
	b.ReportAllocs()
	for b.Loop() {
		states[1].Memo = &feed.Memo{}
		page.Prepare(states[1], filter.Filter{})
	}
}

// A whole picture: update and every cell of each page again.
func BenchmarkCompose100k(b *testing.B) {
	_, states := prepared(b)
	for _, size := range [][2]int{{120, 40}, {200, 60}} {
		for _, p := range []key.Scope{key.Overview, key.Ranks, key.Grid} {
			b.Run(string(p)+" "+sizeName(size), func(b *testing.B) {
				src := newScript()
				src.latest.Store(states[0])
				m := loaded(b, src)
				m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				m.work.showPage(p)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					m.Update(updateMsg{states[i%2]})
					m.screen.dirty, m.screen.keepPage = true, false
					m.View()
				}
			})
		}
	}
}

func sizeName(s [2]int) string {
	return map[[2]int]string{{120, 40}: "120x40", {200, 60}: "200x60"}[s]
}

// From a key to the first byte of what it changes, in a real program at
// 100,000 ranks, without a network.
func BenchmarkKeyToScreen(b *testing.B) {
	e := enginetest.New(huge)
	e.AdvanceTo(firstIteration)
	x := startReal(b, e, key.Ranks, 120, 40)
	defer x.stop()
	x.first()
	keys := []string{"right", "left"}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		x.prog.Send(keyMsg(keys[i%2]))
		<-x.out.wrote
		took = append(took, time.Since(start))
		time.Sleep(5 * time.Millisecond) // the frame's last write
		select {
		case <-x.out.wrote:
		default:
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// The charts of a run of a day, of 100,000 ranks.
func BenchmarkComposeCharts100k(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			m := loaded(b, &still{state: stateAt(b, huge, firstIteration, 0, wide)})
			m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			snap := m.work.live.Snap()
			for i := range 24 * 60 * 60 {
				at := time.Unix(0, snap.GetAtUnixNs()).Add(time.Duration(i-24*60*60) * time.Second)
				for k := range page.Measures {
					m.work.live.Course.Of(k).AddSpread(
						at,
						100,
						150+float64(i%50),
						210,
					)
				}
			}
			m.work.showPage(key.Posterior)
			m.Update(keyMsg("m"))
			b.ReportAllocs()
			for b.Loop() {
				m.screen.dirty = true
				m.View()
			}
		})
	}
}
