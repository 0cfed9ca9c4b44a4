package agent

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// rouse has the loop look at once, for a process's end or an order's outcome; it
// never blocks.
func (a *Agent) rouse() {
	select {
	case a.roused <- struct{}{}:
	default:
	}
}

// beats are the signs of life of the node's processes, read now: a look is at
// most a drain old, and the age of a hook's beat must not grow by that.
func (a *Agent) beats() []*falconv1.RankBeat {
	mono := a.dir.MonoNs()
	var out []*falconv1.RankBeat
	for _, p := range a.local(nil) {
		out = append(out, p.beat(mono))
	}
	return out
}

// beat is one process's sign of life. A hook that has not beaten so far is as
// old as its process.
func (p *process) beat(monoNs int64) *falconv1.RankBeat {
	st := p.seg.Control()
	last := max(st.HeartbeatNs, p.header.StartMonoNs)
	return &falconv1.RankBeat{
		Rank: int32(p.rank), Pid: int32(p.header.PID), Iteration: max(st.Iteration, -1), StepTag: max(st.StepTag, -1),
		HookAgeMs: float64(max(monoNs-last, 0)) / float64(time.Millisecond), Generation: st.GenerationNow,
	}
}
