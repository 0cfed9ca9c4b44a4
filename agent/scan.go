package agent

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// scanDirectory takes up new processes, clears away what dead ones left, and reports
// what changed.
func (a *Agent) scanDirectory() {
	a.launcher.Collect()
	a.found.keepFolder(a.log)
	listing, err := a.dir.Discover()
	if err != nil {
		if !a.found.fails { // once, not five times a second
			a.log.Warn("can't look for training processes", slog.Any("err", err))
		}
		a.found.fails = true
		return
	}
	a.found.fails = false
	here := map[string]bool{}
	for _, e := range slices.Concat(listing.Stale, listing.Unproven, listing.Live) {
		here[e.Path] = true
	}
	a.found.user.settle(a.now(), a.processes.living(), listing.Live)
	for _, e := range listing.Live {
		p := a.processes.processAt(e.Path)
		if p != nil && !p.dead && e.StartMonoNs != p.header.StartMonoNs {
			a.supersede(p)
		}
		if a.processes.processAt(e.Path) == nil && !a.found.ignored[e.Path] {
			a.adoptProcess(e)
		}
	}
	a.notes.reportUnseenEnds(a)
	for path := range a.found.ignored {
		if !here[path] && !strings.HasSuffix(path, ring.EndedSuffix) {
			delete(a.found.ignored, path)
			delete(a.found.refused, path)
		}
	}
	for _, e := range listing.Stale {
		a.removeStale(e)
	}
	a.unseen.takeFiles(listing, a.found.refused, a.log)
	a.unseen.scanProcesses(a.now(), listing.Live)
	a.sendChangedStates()
	a.notes.saveFollowed(a.now(), a)
	a.noteOutputs(a.now(), a.processes.living(), a.log)
	for _, end := range a.questions.takeWords(a.processes) {
		a.sendEnd(end)
	}
}

// keepFolder makes the agent's own folder again where somebody has removed it: a launch
// would fail without it.
func (f *findings) keepFolder(log *slog.Logger) {
	repaired, err := f.own.keep()
	for _, what := range repaired {
		if !f.ownBad {
			log.Warn("the agent's own folder", slog.String("what", what))
		}
	}
	if err != nil && !f.ownBad {
		log.Error("the agent has no folder of its own: launches will fail", slog.Any("err", err))
	}
	f.ownBad = err != nil
}

// warnUnknown says once that a process's NCCL has functions that pass by the
// hook: calls of them are missing in everything that is said of this rank.
func (a *Agent) warnUnknown(p *process) {
	if p.warned || p.status.Coverage&ring.CoverUnknown == 0 {
		return
	}
	p.warned = true
	a.log.Warn(
		"this NCCL has functions that the hook does not know: update Falcon",
		slog.String("process", p.String()),
	)
}

// warnMesh logs once that a process declares a mesh that is none.
func (a *Agent) warnMesh(p *process) {
	if p.status.Mesh == p.refusedMesh || p.status.Mesh == "" {
		return
	}
	p.refusedMesh = p.status.Mesh
	if _, err := falcon.ParseMesh(p.status.Mesh); err != nil {
		a.log.Warn(
			"the job declares a layout that can't be used",
			slog.String("process", p.String()),
			slog.Any("err", err),
		)
	}
}

// adoptProcess opens one new process's memory when it is this node's and the job's, and
// the process is proven to be its maker.
func (a *Agent) adoptProcess(e ring.Entry) {
	seg, err := a.dir.Open(e.Path)
	if errors.Is(err, ring.ErrNotReady) || errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		a.found.refuseFile(e, falcon.UnprovenDamaged)
		a.log.Warn("ignored a file", slog.Any("err", err))
		return
	}
	if elsewhere(a.node, seg.Header().Device) {
		a.found.ignored[e.Path] = true // another node's, where several share a directory
		_ = seg.Close()
		return
	}
	uid, _ := a.dir.Owner(e.Path)
	if a.found.user.isForeign(uid) {
		a.found.refuseFile(e, falcon.UnprovenUser)
		_ = seg.Close()
		return
	}
	exit, err := a.dir.Exit(e.PID, seg.Header(), a.wake)
	if err != nil { // it ended between the listing and now, or the file is another one
		_ = seg.Close()
		return
	}
	p := newProcess(e.Path, seg, exit)
	p.header.PID = e.PID
	p.uid = uid
	p.stored = a.stored
	a.stored.searchSoon()
	p.born, _ = a.dir.Born(e.PID)
	a.notes.followAgain(p)
	a.next.resumeMarks(p)
	p.releaseLeftoverPause(a.log)
	a.suspendLateJoiner(p)
	a.processes.addProcess(p)
	a.found.elastic.takeUp(p)
	a.log.Info(
		"following a training process",
		slog.String("process", p.String()),
		slog.String("job", e.Job),
	)
}

// refuseFile leaves a file alone whose process is proven, and notes why.
func (f *findings) refuseFile(e ring.Entry, why falcon.UnprovenReason) {
	f.ignored[e.Path] = true
	f.refused[e.Path] = falcon.Unproven{
		Reason:  why,
		Rank:    -1,
		PID:     e.PID,
		Path:    e.Path,
		User:    e.UID,
		JobUser: f.user.uid,
	}
}

// removeStale removes a dead process's file, unless this agent still follows it or
// its hook still beats: then the process lives where this agent can't see it,
// as in another PID namespace.
func (a *Agent) removeStale(e ring.Entry) {
	if a.processes.processAt(e.Path) != nil || a.found.ignored[e.Path] {
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
	a.removeFile(e)
}

func (a *Agent) removeFile(e ring.Entry) {
	if err := e.Remove(); err != nil {
		a.log.Warn("can't remove a dead process's file", slog.Any("err", err))
		a.found.ignored[e.Path] = true
	}
}

// dropProcess drops a dead process and its file.
func (a *Agent) dropProcess(p *process) {
	p.exit.Close()
	_ = p.seg.Close()
	a.processes.remove(p)
	a.removeFile(ring.Entry{Path: p.path, PID: p.header.PID})
	a.removeFile(ring.Entry{Path: p.path + ring.EndedSuffix})
}

// supersede drops a process that started another program (exec), which has replaced the
// file by its own.
func (a *Agent) supersede(p *process) {
	p.dead = true
	if st := p.endedState(a.node, "started another program"); st != nil {
		a.ship.Send(rankFrame(st))
	}
	a.log.Info("a training process started another program", slog.String("process", p.String()))
	p.exit.Close()
	_ = p.seg.Close()
	a.processes.remove(p)
}

// sendChangedStates sends the state of every rank that changed.
func (a *Agent) sendChangedStates() {
	for _, p := range a.processes.allProcesses() {
		if p.dead {
			continue
		}
		a.sendState(p)
	}
	a.updatePids()
}

// sendState sends a process's state when it changed.
func (a *Agent) sendState(p *process) {
	p.refresh()
	a.warnUnknown(p)
	a.warnMesh(p)
	if st := p.changedState(a.node, a.nicOf); st != nil {
		a.ship.Send(rankFrame(st))
	}
}
