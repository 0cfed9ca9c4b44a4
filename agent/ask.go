package agent

import (
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Ask has the node's newest calls reported; it never blocks. Of several at once the newest counts.
func (a *Agent) Ask(q *falconv1.Ask) {
	select {
	case <-a.questions.asks:
	default:
	}
	select {
	case a.questions.asks <- q:
	default:
	}
}

// answerAsk reports where the processes stand in their calls, read now.
func (a *Agent) answerAsk(q *falconv1.Ask) {
	mono := a.dir.MonoNs()
	out := &falconv1.Calls{Ask: q.GetId()}
	for _, p := range a.processes.withRanks(nil) {
		out.Ranks = append(out.Ranks, p.rankCalls(a.proc, mono, int(q.GetCalls())))
	}
	a.ship.Send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Calls{Calls: out}})
}

// rankCalls is where one process stands. Its sign of life is read after its calls, so that
// it never waits for a call that the report lacks.
func (p *process) rankCalls(proc string, monoNs int64, most int) *falconv1.RankCalls {
	p.comms.readTable(p.seg)
	out := p.tail.Report(p.comms.list, monoNs, most)
	b := p.beat(proc, monoNs)
	out.Rank = b.Rank
	out.Pid = b.Pid
	out.Total = b.Calls
	out.HookAgeMs = b.HookAgeMs
	out.WaitingMs = b.WaitingMs
	out.WaitingKnown = b.WaitingKnown
	return out
}
