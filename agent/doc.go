// Package agent is the node daemon: it follows the training processes of one
// machine and connects them to the engine.
//
// Training never waits for it: everything is read from shared memory, an absent engine
// fills a bounded spool, and the death of the agent leaves the processes as they are.
// Each rank's iterations come from the adapter's step marks where there are any (exact),
// else from the period of its communication calls. What the agent can't know it reports
// as unknown, with the reason (RankState's period reason, a reading's Err).
//
// It holds the job only by the engine's order, all ranks of the node or none, never
// beyond the order's life, and releases it when it ends itself; a pause that a killed
// agent left in force is released by the next one. Whether the engine is reachable
// meanwhile changes nothing of that. Samples carry how long the rank was held
// (Sample.PausedMs), so that it is not counted as slowness. A survey of a rank's calls is
// exact, or marked as not steady or not whole.
//
// A process that carries a placement out takes another rank: its samples, profiles,
// pauses and acknowledgements carry the rank that it held in that iteration, and where
// that can't be known (before a placement that an agent finds when it starts) nothing is
// sent. Rank numbers are not unique while ranks move, so a process is identified by its
// file and its start. Training processes are started for a launch by the node's own
// configuration alone (package launch), and outlive the agent.
//
// A process's end is sent at once, and again when the kernel reports how it ended. An end
// in order is known by the process's own mark, also where no kernel reports the status or
// no agent was running: what is followed, and what ended without the engine's
// acknowledgement, is written down for the next life (notebook). An agent that stops hands
// its frames, its executed commands and its readings to the next one (HandOver,
// TakeOver), so that the engine counts each frame once and no command is executed twice.
// Every beat reports of each process its iteration, how long its hook has been silent, how
// many calls it has made and since when it waits for its peers, where its hook measures
// that.
//
// In a recovery the agent writes what the engine orders (suspend, rejoin, stop: to all
// processes meant, or to none) and sends what the processes report, park states before the
// outcome of the order. All of it is in the processes' memory, so that an agent which is
// restarted goes on from there. A suspension is done when all living processes are parked;
// one that comes up later to join is suspended then. The park state of a process that has
// not obeyed the newest suspension is out of date, and not sent. No process is killed for
// that: the agent ends only processes of launches that failed. After a rejoin iterations
// go back by one step at most; the samples of those that are done again are sent again,
// and none is made of an iteration that a suspension fell into.
//
// One goroutine, that of Run, owns the processes, the command executor, the pause in force
// and every segment; it polls every drain_ms, and every millisecond or two while the job
// is held or recovers. A second one reads the hardware, and one per process waits for its
// exit. Run ends them all before it returns. The agent must not judge what is slow.
package agent
