package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/agent/ship/shiptest"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// holdLife is far beyond what the test takes: what releases before it is not the
// deadline.
const holdLife = 55 * time.Second

func (n *node) pause(id, pause uint64, phase falconv1.PausePhase, cuts ...*falconv1.RankCut) {
	n.engine.Command(&falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(30 * time.Second).UnixNano(),
		Body: &falconv1.Command_Pause{Pause: &falconv1.PauseCommand{
			Pause:  pause,
			Phase:  phase,
			Cuts:   cuts,
			LifeMs: holdLife.Milliseconds(),
		}},
	})
}

// last is the newest result of a command.
func (n *node) last(id uint64) (out *falconv1.CommandResult) {
	for _, f := range n.engine.Frames() {
		if r := f.GetResult(); r != nil && r.Id == id {
			out = r
		}
	}
	return out
}

// hold stops the job: surveyed until every count is steady, then cut well
// ahead.
func (n *node) hold(t *testing.T, id uint64) {
	t.Helper()
	const margin = 200 // iterations, of a few ms each
	var cuts []*falconv1.RankCut
	shiptest.Until(t, "a steady survey", func() bool {
		n.pause(id, id, falconv1.PausePhase_PAUSE_PHASE_SURVEY)
		shiptest.Until(t, "the survey", func() bool {
			r := n.last(id)
			return r != nil && len(r.Pauses) == jobRanks
		})
		cuts = nil
		target := max(n.last(id).Pauses[0].Newest, n.last(id).Pauses[1].Newest) + margin
		for _, p := range n.last(id).Pauses {
			cut := &falconv1.RankCut{Rank: p.Rank, Iteration: target}
			for _, c := range p.Counts {
				if c.Steady {
					cut.Limits = append(cut.Limits, &falconv1.CommLimit{
						Comm:  c.Comm,
						Calls: c.Calls + uint64(target-p.Boundary)*c.PerIteration,
					})
				}
			}
			if len(p.Counts) == 0 || len(cut.Limits) < len(p.Counts) {
				id++
				return false
			}
			cuts = append(cuts, cut)
		}
		return true
	})
	n.pause(id+1, id, falconv1.PausePhase_PAUSE_PHASE_ARM, cuts...)
	began := time.Now()
	shiptest.Until(t, "all ranks quiet", func() bool {
		r := n.last(id + 1)
		if time.Since(began) > holdLife/2 {
			t.Fatalf("not quiet: %v, of the survey %v", r, n.last(id))
		}
		if r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_REFUSED {
			t.Fatalf("refused: %v", r)
		}
		for _, p := range r.GetPauses() {
			if p.State != falconv1.PauseState_PAUSE_STATE_QUIET {
				return false
			}
		}
		return len(r.GetPauses()) == jobRanks
	})
}

func (n *node) states(t *testing.T) (out []ring.Pause) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(n.dir, "falcon.live.*"))
	for _, path := range files {
		p, err := ring.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.Pause())
		_ = p.Close()
	}
	return out
}

// A daemon that is asked to end lets the job go first; the successor of one
// that was killed does so as soon as it finds the job.
func TestDaemonsEndLetsTheJobGo(t *testing.T) {
	n := newNode(t, endless)
	daemon := n.begin(t)
	n.hold(t, 100)
	checkInspect(t, n)
	_ = daemon.Process.Signal(syscall.SIGTERM)
	if err := daemon.Wait(); err != nil {
		t.Fatalf("the daemon did not end well on SIGTERM: %v", err)
	}
	n.free(t, ring.PauseReleased)

	daemon = start(t, nil, "--config", n.config)
	shiptest.Until(t, "iterations by the second daemon", n.beyond(n.newest()[0]+20))
	n.hold(t, 200)
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	for _, s := range n.states(t) {
		if s.State != ring.PauseQuiet {
			t.Fatalf("after the daemon's death: %+v", s)
		}
	}
	start(t, nil, "--config", n.config)
	n.free(t, ring.PauseReleased)
	shiptest.Until(t, "iterations by the third daemon", n.beyond(n.newest()[0]+20))
}

func (n *node) free(t *testing.T, want ring.PauseState) {
	t.Helper()
	shiptest.Until(t, "the job's release", func() bool {
		got := n.states(t)
		for _, s := range got {
			if s.State != want || s.Wanted != 0 {
				return false
			}
		}
		return len(got) == jobRanks
	})
}

// checkInspect looks at a held process as an operator does.
func checkInspect(t *testing.T, n *node) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(n.dir, "falcon.live.*"))
	cmd := exec.Command(os.Args[0], "inspect", files[0])
	cmd.Env = append(os.Environ(), asAgent+"=1")
	out, err := cmd.Output()
	if err != nil ||
		!bytes.Contains(out, []byte("is quiet")) ||
		!bytes.Contains(out, []byte("gate lets 0 more through")) ||
		!strings.Contains(string(out), "MiB for tests") {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("inspect:\n%s", out)
}
