package agent

import (
	"time"
)

// Bounds of when standbys are kept.
const (
	spareAfter   = 20 * time.Second // a node that has held no rank for so long keeps standbys for all that it may be given
	unheardAfter = time.Minute      // standbys end where the engine, which orders launches, was not heard for so long
	warmUpMost   = 5 * time.Minute  // a rank without an iteration is still starting for so long
)

// keepStandbys keeps the node's standbys (package launch): while an engine is heard and the
// job has not finished. One is started only where no rank of the node starts or recovers.
func keepStandbys(a *Agent, now time.Time) {
	living := a.processes.living()
	if a.ship.Hears() || a.last.heard.IsZero() {
		a.last.heard = now
	}
	if len(living) > 0 || a.last.held.IsZero() {
		a.last.held = now
	}
	switch {
	case now.Sub(a.last.heard) > unheardAfter:
		a.launcher.EndStandbys("no engine is heard")
		return
	case len(living) == 0 && len(a.notes.endedWell) > 0:
		a.launcher.EndStandbys("the job has finished")
		return
	}
	spare := now.Sub(a.last.held) >= spareAfter
	calm := len(living) > 0 || spare
	for _, p := range living {
		calm = calm && !p.recovery.park.On && !p.starting(a.dir.MonoNs())
	}
	a.launcher.KeepStandbys(spare, calm && a.held == nil && !now.Before(a.pollSoonBy))
}

// starting reports whether a rank has not come to its first iteration yet.
func (p *process) starting(monoNs int64) bool {
	return p.status.Iteration < 0 && time.Duration(monoNs-p.header.StartMonoNs) < warmUpMost
}
