package tui

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/fleet"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// fleetEngines are so many scripted engines in this process, each with a job of 1,000 ranks, and
// hung ones that accept and never answer.
func fleetEngines(t testing.TB, n, hung int) []fleet.Target {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var out []fleet.Target
	for i := range n {
		e := enginetest.New(enginetest.Options{
			TP:      4,
			DP:      125,
			PP:      2,
			Healthy: i%7 != 0,
			Job:     fmt.Sprintf("job-%03d", i),
		})
		e.AdvanceTo(int64(40 + i%13))
		path := filepath.Join(dir, fmt.Sprintf("%d.sock", i))
		lis, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Serve(lis).Close)
		out = append(out, fleet.Target{
			Name:    fmt.Sprintf("prod-%03d", i),
			Address: path,
			Dial:    func() (*grpc.ClientConn, error) { return feed.Dial(path) },
		})
	}
	for i := range hung {
		out = append(out, fleet.Target{
			Name:    fmt.Sprintf("hung-%03d", i),
			Address: "mem",
			Dial:    hungEngine(t),
		})
	}
	return out
}

// hungEngine accepts connections, reads what comes, and answers nothing.
func hungEngine(t testing.TB) func() (*grpc.ClientConn, error) {
	lis := bufconn.Listen(1 << 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	t.Cleanup(func() {
		_ = lis.Close()
		<-ended
	})
	return func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///hung", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return lis.DialContext(ctx)
			}))
	}
}

// The list at 100 jobs of 1,000 ranks: rows, order and every cell again.
func BenchmarkFleetCompose100(b *testing.B) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			f := quietFleet(
				b,
				hundred(b, 100),
				Options{Theme: "dark"},
				size[0],
				size[1],
			)
			b.ReportAllocs()
			for b.Loop() {
				f.screen.dirty = true
				f.View()
			}
		})
	}
}

// realFleet is a program in real time over real connections, that only counts what it writes.
type realFleet struct {
	model *Fleet
	prog  *tea.Program
	out   *counter
	stop  func()
}

func startFleet(t testing.TB, targets []fleet.Target, w, h int) *realFleet {
	t.Helper()
	src := fleet.New(targets, nil, nil)
	profile := colorprofile.TrueColor
	f, err := NewFleet(src, Options{Theme: "dark", Profile: &profile})
	if err != nil {
		t.Fatal(err)
	}
	x := &realFleet{model: f, out: &counter{wrote: make(chan struct{}, 1)}}
	in, keys := io.Pipe()
	x.prog = newProgram(context.Background(), f, Terminal{
		In:  in,
		Out: x.out,
		Env: []string{"TERM=xterm-256color"},
	},
		tea.WithWindowSize(w, h), tea.WithColorProfile(profile), tea.WithoutSignals())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = x.prog.Run()
	}()
	x.stop = func() {
		x.prog.Kill()
		_ = keys.Close()
		<-ended
		src.Close()
	}
	for deadline := time.Now().Add(patience); !settledBut(src, "hung"); {
		if time.Now().After(deadline) {
			t.Fatal("the engines do not answer")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return x
}

// settledBut reports whether all engines but those of a kind have answered.
func settledBut(src *fleet.Fleet, kind string) bool {
	return !slices.ContainsFunc(src.Jobs(), func(j *fleet.Job) bool {
		return j.Name[:len(kind)] != kind && j.State.Received.IsZero()
	})
}

// From a key to the first byte of what it changes, on the list of 100 jobs of 1,000 ranks whose
// engines are pulled meanwhile, with ten more engines that hang.
func BenchmarkFleetKeyToScreen(b *testing.B) {
	x := startFleet(b, fleetEngines(b, 100, 10), 120, 40)
	defer x.stop()
	keys := []string{"down", "down", "up", "up"}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		select {
		case <-x.out.wrote:
		default:
		}
		start := time.Now()
		x.prog.Send(keyMsg(keys[i%len(keys)]))
		<-x.out.wrote
		took = append(took, time.Since(start))
		time.Sleep(25 * time.Millisecond) // the frame's last write, and some pulls
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// fleetBytes is what a console of 100 jobs and 100,000 ranks may hold.
const fleetBytes = 64 << 20

// What a console holds that shows 100 engines with 100,000 ranks in all: connections, the
// pictures and the screen; and that a visit leaves nothing behind.
func TestMemoryOfAFleet(t *testing.T) {
	drawsAlone(t)
	targets := fleetEngines(t, 100, 0)
	show := func() int64 {
		before := heap()
		src := fleet.New(targets, nil, nil)
		defer src.Close()
		for deadline := time.Now().Add(patience); !fleet.Settled(src.Jobs()); {
			if time.Now().After(deadline) {
				t.Fatal("the engines do not answer")
			}
			time.Sleep(20 * time.Millisecond)
		}
		f := quietFleet(t, src, Options{Theme: "dark", Now: time.Now}, 200, 60)
		f.Update(jobsMsg{})
		f.View()
		list := heap() - before
		for i := range 3 {
			f.table.Choose(fmt.Sprintf("prod-%03d", 30*i))
			f.Update(keyMsg("enter"))
			own := f.visit.model.src
			for range 10 {
				<-own.Changed()
				f.visit.model.Update(updateMsg{own.Latest()})
				f.View()
				if !own.Latest().Received.IsZero() {
					break
				}
			}
			_, last := f.Update(jobMsg{f.visit.number, leaveMsg{}})
			closeAll(f, last)
		}
		after := heap() - before
		runtime.KeepAlive(f)
		t.Logf(
			"a console of 100 jobs and 100,000 ranks holds %.1f MB (both ends of its connections, which are in this process, among it), after three visits %.1f MB",
			float64(list)/1e6, float64(after)/1e6,
		)
		if after-list > fleetBytes/4 {
			t.Errorf("visits leave %d bytes behind", after-list)
		}
		return list
	}
	show() // what the engines' side keeps is none of the console's
	if n := show(); n > fleetBytes {
		t.Errorf("it holds %d bytes, want at most %d", n, fleetBytes)
	}
}

// Engines that hang slow no key, whether the operator looks at the list or goes into one.
func TestHungEnginesSlowNoKey(t *testing.T) {
	src := fleet.New(fleetEngines(t, 1, 8), nil, nil)
	defer src.Close()
	f := quietFleet(t, src, Options{Theme: "dark", Now: time.Now}, 100, 30)
	until := time.Now().Add(patience)
	for src.Jobs()[0].State.Received.IsZero() ||
		src.Client("hung-007") == nil ||
		src.Client("hung-003") == nil {
		if time.Now().After(until) {
			t.Fatal("the one engine that answers is not shown")
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.Update(jobsMsg{})
	if !containsAll(stripped(f), "prod-000", "1 training", "hung-007") &&
		!containsAll(stripped(f), "prod-000", "1 slow", "hung-007") {
		t.Errorf("\n%s", stripped(f))
	}
	// far above what keys cost; one that waited for a pull would take 3 s
	const most = 2500 * time.Millisecond
	start := time.Now()
	f.table.Choose("hung-003")
	for range 5 {
		f.Update(keyMsg("j"))
		f.Update(keyMsg("k"))
		f.View()
		f.Update(keyMsg("enter"))
		if f.visit == nil {
			t.Fatalf("a hung engine's console can't be opened:\n%s", stripped(f))
		}
		f.Update(keyMsg("2"))
		f.View()
		v := f.visit
		f.Update(jobMsg{v.number, leaveMsg{}})
		defer v.close()
	}
	if took := time.Since(start); took > most {
		t.Errorf("35 keys took %s", took)
	}
}
