package agent

import (
	"time"

	"github.com/failslow/falcon/agent/launch"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of when standbys are kept.
const (
	// a node that has held no rank for so long keeps standbys for all that it may be given
	spareAfter = 20 * time.Second
	// standbys end where the engine, which orders launches, was not heard for so long
	unheardAfter = time.Minute
	warmUpMost   = 5 * time.Minute // a rank without an iteration is still starting for so long
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

// standbysMessage is what the engine is sent of a node's standbys; nil where none is wanted.
func standbysMessage(s launch.Standbys) *falconv1.Standbys {
	if s.Wanted == 0 && s.Why == "" {
		return nil
	}
	return &falconv1.Standbys{
		Wanted:     int32(s.Wanted),
		Ready:      int32(s.Ready),
		ResidentMb: int64(s.ResidentMb),
		Why:        s.Why,
	}
}

// joinScanEvery is the time between two looks for a process that is to join: the whole job
// waits for it.
const joinScanEvery = 10 * time.Millisecond

// scanForJoiners looks for processes that have come up since the last scan.
func scanForJoiners(a *Agent, now time.Time) {
	if now.Sub(a.last.scanned) >= joinScanEvery {
		a.last.scanned = now
		a.scanDirectory()
	}
}
