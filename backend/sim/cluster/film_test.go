package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/feed"
)

var updateFilms = flag.Bool("update-films", false, "rewrite the golden films")

// looks per second of a console that is looked at.
const consoleEvery = 200 * time.Millisecond

// scene is a story that is filmed: what the job is, what happens to it, and for how long one looks.
type scene struct {
	name  string
	setup func(*setup)
	at    map[time.Duration]func(*Cluster)
	until time.Duration
}

// trains is when the jobs of all scenes have trained for a while.
const trains = 20 * time.Second

// filmed is the job of all scenes: eight replicas on four nodes.
func filmed(s *setup) {
	s.nodes = 4
	s.perNode = 2
	s.spares = 0
	s.layout = falcon.Layout{TP: 1, DP: 8, PP: 1}
	s.iteration = 500 * time.Millisecond
	s.iterations = 1 << 30
	s.spread = 300 * time.Millisecond
	s.exitInfo = true
	s.drainMs = 200
	s.snapshotBytes = 0
	s.autoTests = false
	s.alone = true
	s.hosted = false
	s.reuse = false
	s.fresh()
}

// fresh are nodes without history: their clocks are right, and they run the present version.
func (s *setup) fresh() {
	n := s.nodes + s.spares
	s.skews, s.old = make([]time.Duration, n), make([]bool, n)
}

// slows has a GPU take so many times as long from now on.
func slows(d falcon.Device, times float64) func(*Cluster) {
	return func(c *Cluster) { c.job.slow[d] = times }
}

var scenes = []scene{
	{
		name:  "climb",
		until: 150 * time.Second,
		setup: func(s *setup) {
			s.spares = 2
			s.fresh()
			s.overheads = map[falcon.Rung]float64{falcon.RungS4: 6000}
			s.policy = &falcon.Policy{
				Mode:  falcon.ModeAuto,
				Cap:   falcon.RungS4,
				Owner: "lab",
				Rungs: map[falcon.Rung]falcon.RungPolicy{
					falcon.RungS2: {Countdown: 3},
					falcon.RungS4: {Countdown: 20},
				},
			}
		},
		at: map[time.Duration]func(*Cluster){
			trains:                  slows("n1.g0", 1.5),
			trains + 60*time.Second: slows("n3.g1", 3),
		},
	},
	{
		name:  "node-loss",
		until: 50 * time.Second,
		setup: func(s *setup) {
			s.policy = &falcon.Policy{Mode: falcon.ModeApprove}
		},
		at: map[time.Duration]func(*Cluster){
			trains: func(c *Cluster) { c.nodes["n2"].die(false) },
		},
	},
	{
		name:  "scancel",
		until: 35 * time.Second,
		setup: func(s *setup) {
			s.policy = &falcon.Policy{Mode: falcon.ModeApprove}
		},
		at: map[time.Duration]func(*Cluster){
			trains: func(c *Cluster) {
				for _, n := range c.order {
					for _, p := range n.procs {
						c.after(c.between(
							0,
							300*time.Millisecond,
						), func() { p.kill("killed by signal 15 (SIGTERM)") })
					}
				}
			},
		},
	},
	{
		name:  "hang",
		until: 60 * time.Second,
		setup: func(s *setup) {
			s.policy = &falcon.Policy{Mode: falcon.ModeApprove}
		},
		at: map[time.Duration]func(*Cluster){
			trains: func(c *Cluster) {
				c.job.stayer = 5
				c.job.stays = 25 * time.Second
			},
		},
	},
	{
		name:  "fence",
		until: 65 * time.Second,
		setup: func(s *setup) {
			s.spares = 1
			s.fresh()
			s.overheads = map[falcon.Rung]float64{"S4 fence": 3000, falcon.RungS4: 30_000}
			never := falcon.RungPolicy{Approval: falcon.ApprovalNever}
			s.policy = &falcon.Policy{
				Mode:  falcon.ModeAuto,
				Cap:   falcon.RungS4,
				Owner: "lab",
				Rungs: map[falcon.Rung]falcon.RungPolicy{
					falcon.RungS2: never,
					falcon.RungS3: never,
					falcon.RungS4: {Countdown: 10},
				},
			}
		},
		at: map[time.Duration]func(*Cluster){trains: slows("n1.g0", 3)},
	},
}

// What the console says first is filmed second by second, on the real engine and agents.
func TestFilms(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for size, got := range s.shoot(t) {
				compareFilm(t, s.name+"-"+size+".txt", got)
			}
		})
	}
}

// shoot plays a scene and returns a film for each size of a terminal.
func (s scene) shoot(t *testing.T) map[string]string {
	t.Helper()
	c, err := newCluster(1, func(x *setup) {
		filmed(x)
		s.setup(x)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.oracle = newOracle(c)
	for at, do := range s.at {
		c.after(at, func() { do(c) })
	}
	cam := &camera{
		t:     t,
		c:     c,
		sizes: [][2]int{{80, 24}, {120, 40}},
		films: map[string]*strings.Builder{},
	}
	c.after(consoleEvery, cam.look)
	c.run(s.until)
	if len(c.bad) > 0 {
		t.Error(c.bad)
		tell(t, c, *linesShown)
	}
	for what, text := range c.oracle.false {
		t.Errorf("%s: %s", what, text)
	}
	if *frames {
		tell(t, c, linesKept)
	}
	films := map[string]string{}
	for size, b := range cam.films {
		films[size] = b.String()
	}
	return films
}

// camera is a console that looks at the engine as one on a terminal does, and is read once a second.
type camera struct {
	t     *testing.T
	c     *Cluster
	sizes [][2]int
	films map[string]*strings.Builder
	state *feed.State
}

func (m *camera) look() {
	m.c.after(consoleEvery, m.look)
	m.pull()
	if m.state == nil || m.c.now%time.Second != 0 {
		return
	}
	for _, size := range m.sizes {
		name := fmt.Sprintf("%dx%d", size[0], size[1])
		if m.films[name] == nil {
			m.films[name] = &strings.Builder{}
		}
		m.films[name].WriteString(frame(m.draw(size[0], size[1]), m.c.now))
	}
}

// pull takes what a console would be sent now.
func (m *camera) pull() {
	m.c.host.turn(false) // what has arrived is taken first, however the calls below are scheduled
	var snap *falconv1.SnapshotReply
	who := engine.Actor{Name: "maria", Role: "approver", From: "sim"}
	err := m.c.host.call(func(ctx context.Context, e *engine.Engine) error {
		s, err := e.Latest(ctx)
		if err != nil {
			return err
		}
		series, err := e.Series(ctx, s.Worst, 120, 0)
		if err != nil {
			return err
		}
		snap = s.For(who, series)
		snap.Ranks = s.Ranks.Views()
		return nil
	})
	if err != nil {
		m.t.Errorf("at %v: %v", m.c.now, err)
		return
	}
	m.state = &feed.State{
		Snap:     snap,
		Events:   snap.Events,
		Conn:     feed.Live,
		Since:    m.now(),
		Received: m.now(),
		Memo:     &feed.Memo{},
	}
}

func (m *camera) now() time.Time {
	return epoch.Add(m.c.now)
}

// draw is the whole screen.
func (m *camera) draw(w, h int) []string {
	profile := colorprofile.ASCII
	console, err := tui.New(
		picture{state: m.state},
		tui.Options{Theme: "dark", Profile: &profile, Now: m.now},
	)
	if err != nil {
		m.t.Fatal(err)
	}
	console.Update(tea.WindowSizeMsg{Width: w, Height: h})
	return strings.Split(ansi.Strip(console.View().Content), "\n")
}

// frame is what is read first: the header, what NOW says and what is below it, and the bar.
func frame(screen []string, at time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "t=%ds\n", int(at.Seconds()))
	for _, row := range []string{screen[0], screen[1], screen[3], screen[4], screen[len(screen)-3]} {
		b.WriteString("  " + strings.TrimRight(row, " ") + "\n")
	}
	return b.String()
}

// picture is a source that stands still.
type picture struct {
	feed.Source // what is not answered here is not asked for
	state       *feed.State
}

func (p picture) Latest() *feed.State { return p.state }
func (p picture) Ask(feed.Want)       {}

func compareFilm(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "films", name)
	if *updateFilms {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g := strings.Split(got, "\nt=")
	w := strings.Split(string(want), "\nt=")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s differs (-update-films rewrites it):\nt=%s\nwas\nt=%s",
				path, g[i], strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
		}
	}
	t.Fatalf("%s differs (-update-films rewrites it): it is longer", path)
}
