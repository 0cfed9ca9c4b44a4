package agent

import (
	"log/slog"
	"time"
)

// Start takes over what earlier lives of the agent left, before any command.
// Run does it by itself; an owner that drives the agent calls it once.
func (a *Agent) Start(now time.Time) {
	a.notes.resumeFollowed(a)
	if err := a.launcher.CheckRecord(); err != nil {
		a.log.Error("this node will refuse to start processes", slog.Any("err", err))
	}
	a.pollProcesses(now) // before any command, which may be one that a killed predecessor left
	a.importCommands(now)
	a.publish(a)
}

// Tick does one turn of the loop at once, for an owner that schedules the agent
// by itself in place of Run, as a simulation does: it takes what has arrived,
// looks at what is due, and returns the time to the next turn. Work that Run
// leaves to goroutines has ended when Turn returns.
func (a *Agent) Tick(now time.Time) time.Duration {
	a.noticeStop(now)
	for a.takeInput(now) {
		a.working.Wait()
	}
	a.tick(now)
	a.working.Wait()
	return a.tickInterval(now)
}

// takeInput handles one thing that has arrived; false when nothing waits. The
// order is fixed: a welcome comes before the commands of its stream.
func (a *Agent) takeInput(now time.Time) bool {
	select {
	case w := <-a.welcomes:
		a.acceptWelcome(w)
		return true
	default:
	}
	select {
	case c := <-a.inbox:
		a.executor.Execute(c, now)
		a.pollProcesses(now)
		return true
	default:
	}
	select {
	case q := <-a.questions.asks:
		a.pollProcesses(now)
		a.answerAsk(q)
		return true
	default:
	}
	select {
	case q := <-a.questions.peeks:
		a.noteSigns(a.processes.living(), a.dir.MonoNs())
		a.questions.answerPeek(q, func() []string {
			return a.processes.callLines(a.proc, a.dir.MonoNs())
		}, a.ship.Send)
		return true
	default:
	}
	select {
	case <-a.wakeup:
		a.pollProcesses(now)
		return true
	default:
		return false
	}
}

// Halt ends an agent that Turn has driven, as the end of Run does.
func (a *Agent) Halt(now time.Time) {
	a.working.Wait()
	a.closeProcesses(now)
}
