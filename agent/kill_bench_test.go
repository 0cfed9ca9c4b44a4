package agent

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// watchedDir is a fakeDir whose processes are real ones.
type watchedDir struct{ *fakeDir }

func (d watchedDir) Exit(pid int, _ ring.Header, ended func()) (Exit, error) {
	return watchExit(pid, ended, OldKernel{})
}

// endsShip notes when the end of a process is handed to the stream.
type endsShip struct{ ends chan time.Time }

func (s endsShip) Send(f *falconv1.AgentFrame) {
	if st := f.GetRank(); st != nil && !st.Alive {
		select {
		case s.ends <- time.Now():
		default: // told again, with how it ended
		}
	}
}

func (endsShip) Beat(time.Time, []*falconv1.RankBeat, []*falconv1.UnseenRank) {}
func (endsShip) Hears() bool {
	return true
}
func (endsShip) Renew() {}

func (endsShip) Ends() []*falconv1.RankState { return nil }

// BenchmarkKillToFrame is how long it takes from SIGKILL of a training process to
// its end being in the agent's stream; the network and the engine come on top.
func BenchmarkKillToFrame(b *testing.B) {
	dir := watchedDir{&fakeDir{
		path:  b.TempDir(),
		segs:  map[string]*fakeSegment{},
		exits: map[int]*fakeExit{},
	}}
	ship := endsShip{make(chan time.Time, 1)}
	cfg := Defaults()
	cfg.Node = "n1"
	cfg.ShmDir = dir.path
	a := New(cfg, Options{Now: time.Now, Directory: dir})
	a.Bind(ship)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	var took []time.Duration
	for b.Loop() {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		dir.add(cmd.Process.Pid, 0, "n1.g0")
		time.Sleep(2 * scanEvery) // the agent follows it now
		begun := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-ship.ends).Sub(begun))
		_ = cmd.Wait()
		time.Sleep(exitWait + scanEvery) // it releases the process
		select {
		case <-ship.ends:
		default:
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	ms := func(i int) float64 { return float64(took[i].Microseconds()) / 1000 }
	b.ReportMetric(ms(len(took)/2), "ms/p50")
	b.ReportMetric(ms(len(took)*99/100), "ms/p99")
	b.ReportMetric(ms(len(took)-1), "ms/max")
}
