package agent

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/failslow/falcon/agent/ring"
)

// scan takes up new processes, clears away what dead ones left, and reports
// what changed.
func (a *Agent) scan() {
	a.launcher.Collect()
	live, stale, err := a.dir.Discover()
	if err != nil {
		if !a.blind { // once, not five times a second
			a.log.Warn("can't look for training processes", slog.Any("err", err))
		}
		a.blind = true
		return
	}
	a.blind = false
	here := map[string]bool{}
	for _, e := range stale {
		here[e.Path] = true
	}
	for _, e := range live {
		here[e.Path] = true
		if p := a.byPath[e.Path]; p != nil && !p.dead && e.StartMonoNs != p.header.StartMonoNs {
			a.supersede(p)
		}
		if a.byPath[e.Path] == nil && !a.ignored[e.Path] {
			a.adopt(e)
		}
	}
	a.notes.reckon(a)
	for path := range a.ignored {
		if !here[path] && !strings.HasSuffix(path, ring.EndedSuffix) {
			delete(a.ignored, path)
		}
	}
	for _, e := range stale {
		a.clear(e)
	}
	a.publish()
	a.notes.note(a)
}

// warnUnknown says once that a process's NCCL has functions that pass by the
// hook: calls of them are missing in everything that is said of this rank.
func (a *Agent) warnUnknown(p *process) {
	if p.warned || p.status.Coverage&ring.CoverUnknown == 0 {
		return
	}
	p.warned = true
	a.log.Warn("this NCCL has functions that the hook does not know: update Falcon", slog.String("process", p.String()))
}

// adopt opens one new process's memory when it is this node's.
func (a *Agent) adopt(e ring.Entry) {
	seg, err := a.dir.Open(e.Path)
	if errors.Is(err, ring.ErrNotReady) || errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		a.ignored[e.Path] = true
		a.log.Warn("ignored a file", slog.Any("err", err))
		return
	}
	if elsewhere(a.node, seg.Header().Device) {
		a.ignored[e.Path] = true // another node's, where several share a directory
		_ = seg.Close()
		return
	}
	exit, err := a.dir.Exit(e.PID, a.rouse)
	if err != nil { // it ended between the listing and now
		_ = seg.Close()
		return
	}
	p := newProcess(e.Path, seg, exit)
	p.born, _ = a.dir.Born(e.PID)
	p.uid, _ = a.dir.Owner(e.Path)
	a.notes.reunite(p)
	a.next.readOn(p)
	p.takeBack(a.log)
	a.catchUp(p)
	a.byPath[e.Path] = p
	a.log.Info("following a training process", slog.String("process", p.String()), slog.String("job", e.Job))
}

// clear removes a dead process's file, unless this agent still follows it or
// its hook still beats: then the process lives where this agent can't see it,
// as in another PID namespace.
func (a *Agent) clear(e ring.Entry) {
	if a.byPath[e.Path] != nil || a.ignored[e.Path] {
		return
	}
	if seg, err := a.dir.Open(e.Path); err == nil {
		silent := a.dir.MonoNs() - seg.Control().HeartbeatNs
		away := elsewhere(a.node, seg.Header().Device)
		_ = seg.Close()
		if silent < staleMin.Nanoseconds() || away {
			return
		}
	}
	a.remove(e)
}

func (a *Agent) remove(e ring.Entry) {
	if err := e.Remove(); err != nil {
		a.log.Warn("can't remove a dead process's file", slog.Any("err", err))
		a.ignored[e.Path] = true
	}
}

// drop lets go of a dead process and its file.
func (a *Agent) drop(p *process) {
	p.exit.Close()
	_ = p.seg.Close()
	delete(a.byPath, p.path)
	a.remove(ring.Entry{Path: p.path, PID: p.header.PID})
	a.remove(ring.Entry{Path: p.path + ring.EndedSuffix})
}

// supersede lets go of a process that started another program (exec), which has
// made a file of its own in the place of the old one.
func (a *Agent) supersede(p *process) {
	p.dead = true
	if st := p.ended(a.node, "started another program"); st != nil {
		a.ship.Send(rankFrame(st))
	}
	a.log.Info("a training process started another program", slog.String("process", p.String()))
	p.exit.Close()
	_ = p.seg.Close()
	delete(a.byPath, p.path)
}

// publish sends the state of every rank that changed.
func (a *Agent) publish() {
	for _, p := range a.processes() {
		if p.dead {
			continue
		}
		a.tell(p)
	}
	a.setPids()
}

// tell sends a process's state when it changed.
func (a *Agent) tell(p *process) {
	p.refresh()
	a.warnUnknown(p)
	if st := p.changed(a.node, a.nicOf); st != nil {
		a.ship.Send(rankFrame(st))
	}
}
