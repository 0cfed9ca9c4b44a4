package cluster

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent"
	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/ring"
)

// watch is the kernel's word on one process's end.
type watch struct {
	p     *proc
	gone  chan struct{}
	ended func()
}

func (w *watch) Gone() <-chan struct{} { return w.gone }
func (w *watch) How() (string, bool) {
	return w.p.how, w.p.c.setup.exitInfo && !w.p.alive && w.p.how != ""
}
func (w *watch) Close() {}

// Signal ends the process; a stopped one takes SIGTERM only when it goes on.
func (w *watch) Signal(sig unix.Signal) error {
	if !w.p.alive {
		return os.ErrProcessDone
	}
	if sig == unix.SIGKILL || !w.p.still() {
		how := fmt.Sprintf("killed by signal %d (%s)", sig, unix.SignalName(sig))
		w.p.c.after(time.Millisecond, func() { w.p.kill(how) })
	}
	return nil
}

func (w *watch) end() {
	select {
	case <-w.gone:
	default:
		close(w.gone)
		w.ended()
		w.p.n.poke()
	}
}

// poke has the node's agent look at once.
func (n *node) poke() {
	if n.agent != nil {
		n.agent.wake(time.Millisecond)
	}
}

// directory is a node's view of its processes.
type directory struct{ n *node }

func (d directory) Discover() (ring.Listing, error) {
	var out ring.Listing
	for _, p := range d.n.procs {
		e := ring.Entry{
			Path:        p.path,
			Job:         "sim",
			PID:         p.pid,
			UID:         os.Getuid(),
			StartMonoNs: p.monoAt(p.born),
		}
		switch {
		case !p.shown:
		case p.alive:
			out.Live = append(out.Live, e)
		default:
			if _, err := os.Lstat(p.path); err != nil {
				p.shown = false
				continue
			}
			out.Stale = append(out.Stale, e)
		}
	}
	return out, nil
}

func (d directory) Open(path string) (agent.Segment, error) {
	for _, p := range slices.Backward(d.n.procs) {
		if p.path == path {
			return p, nil
		}
	}
	return nil, os.ErrNotExist
}

func (d directory) Exit(pid int, _ ring.Header, ended func()) (agent.Exit, error) {
	for _, p := range d.n.procs {
		if p.pid == pid && p.alive {
			w := &watch{p: p, gone: make(chan struct{}), ended: ended}
			p.watches = append(p.watches, w)
			return w, nil
		}
	}
	return nil, fmt.Errorf("no process %d", pid)
}

func (d directory) Born(pid int) (uint64, bool) {
	if p := d.n.holder(pid); p != nil && p.alive {
		return p.start, true
	}
	return 0, false
}

func (d directory) Ends(made ring.Header) (gone, known bool) {
	_, runs := d.Born(made.PID)
	return !runs, true
}

func (d directory) Namespace() uint64 { return 0 }

func (d directory) Owner(string) (int, error) { return os.Getuid(), nil }

// Ended are the last words of processes whose end no agent has taken up: they
// lie in files.
func (d directory) Ended() ([]ring.Ended, map[string]error, error) {
	var out []ring.Ended
	for _, p := range d.n.procs {
		path := p.path + ring.EndedSuffix
		if !p.spoke {
			continue
		}
		if _, err := os.Lstat(path); err != nil {
			p.spoke = false // an agent took it
			continue
		}
		out = append(out, ring.Ended{
			Path:           path,
			UID:            os.Getuid(),
			Header:         p.Header(),
			End:            p.Control().Ended,
			Rank:           p.rank,
			Place:          p.place.Order,
			PlaceIteration: p.place.Iteration,
			Generation:     p.gen,
			GenNow:         p.ctl.GenerationNow,
			Iteration:      p.ctl.Iteration,
			StepTag:        p.step,
			TP:             p.ctl.TP,
			DP:             p.ctl.DP,
			PP:             p.ctl.PP,
			Committed:      p.Control().Committed(),
			Rejoined:       p.rejoinedWell(),
		})
	}
	return out, nil, nil
}

func (d directory) MonoNs() int64 {
	return d.n.clock.mono(d.n.c.now).Nanoseconds()
}

// machine starts processes on a node.
type machine struct{ n *node }

func (m machine) Start(s launch.Spec) (launch.Proc, error) {
	env := map[string]string{}
	for _, kv := range s.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	rank, _ := strconv.Atoi(env["RANK"])
	gen, _ := strconv.ParseUint(env["FALCON_GENERATION"], 10, 64)
	p := m.n.c.newProc(m.n, rank, falcon.Device(env["FALCON_DEVICE"]), gen)
	p.mark = "FALCON_LAUNCH=" + env["FALCON_LAUNCH"]
	c := m.n.c
	c.log("%s: started rank %d as pid %d, generation %d (join %s, resume %s)",
		m.n.name, rank, p.pid, gen, env["FALCON_JOIN"], env["FALCON_RESUME"])
	c.judge.started(p)
	var ready func()
	ready = func() {
		switch {
		case !p.alive:
			return
		case p.n.paused:
			c.after(awhile, ready)
			return
		}
		p.show()
		if env["FALCON_JOIN"] == "1" {
			p.stand(gen, ring.ParkJoin, -1)
			return
		}
		resume := int64(0)
		if env["FALCON_RESUME"] == "1" && c.job.checkpoint > 0 {
			resume = c.job.checkpoint
		}
		c.job.join(p, gen, resume, true)
	}
	c.after(c.between(importLeast, importMost), ready)
	return launch.Proc{PID: p.pid, Start: p.start}, nil
}

// find is the process that is meant: another one with its number is not.
func (m machine) find(x launch.Proc) *proc {
	if p := m.n.holder(x.PID); p != nil && p.start == x.Start {
		return p
	}
	return nil
}

// Ended never says how: the launcher then learns it as of a process that an
// earlier agent has started.
func (m machine) Ended(x launch.Proc) (string, bool) {
	p := m.find(x)
	return "", p == nil || !p.alive
}

func (m machine) Kill(x launch.Proc) {
	if p := m.find(x); p != nil {
		p.kill("killed by signal 9 (SIGKILL)")
	}
}

func (m machine) Place() string { return "simulated" }

func (m machine) Find(assignment string) (launch.Proc, bool) {
	for _, p := range m.n.procs {
		if p.mark == assignment && p.alive {
			return launch.Proc{PID: p.pid, Start: p.start}, true
		}
	}
	return launch.Proc{}, false
}
