// Package agent is the node daemon: it follows the training processes of one
// machine and speaks for them to the engine.
//
// It guarantees that training never waits for it: everything is read from
// shared memory, an absent engine fills a bounded spool, and the death of the
// agent leaves the processes as they are. Each rank's iterations come from the
// adapter's step marks where there are any (exact), else from the period of
// its communication calls; what the agent can't know it says (RankState's
// period reason, a reading's Err).
//
// It holds the job only by the engine's order, all ranks of the node or none,
// never beyond the order's life, and lets go when it ends itself; a pause that
// a killed agent left in force is taken back by the next one. Whether the
// engine is reachable meanwhile changes nothing of that. Iterations tell how
// long they were held (Sample.PausedMs), so that nobody takes it for slowness.
// What a survey says of a rank's calls is exact, or marked as not steady or not
// whole.
//
// A process that carries a placement out takes another rank: its samples,
// profiles, pauses and acknowledgements carry the one that it held at the time,
// told by iteration, and where that can't be known (before a placement that an
// agent finds when it starts) nothing is said. Rank numbers are not unique while
// ranks move, so processes are told apart by themselves. Training processes are
// started for a launch by the node's own configuration alone (package launch),
// and outlive the agent.
//
// A process's end is told at once, without waiting for a look, and again when the
// kernel says how it ended. An end in order is known by the process's own mark,
// also where no kernel reports the status or no agent looked: what is followed, and
// what ended without the engine's acknowledgement, is written down for the next
// life (notebook). An agent that stops hands its frames, its memory of commands and
// its readings to the next one (HandOver, TakeOver), so that the engine counts each
// frame once and no command is executed twice. Every beat says of each process how
// far it is, how long its hook has been silent, how many calls it has made and
// since when it waits for its peers, where its hook measures that. In a recovery the agent writes what the engine
// orders (suspend, rejoin, stop: all processes meant, or none) and tells what the
// processes say, park words before the outcome of the order; all of it stands in
// the processes' memory, so that an agent which is started anew goes on from
// there. A suspension is done when what lives is parked; whoever comes up to join
// later is suspended for it then. An old park word, of a process that has not
// obeyed the newest suspension, is not told. It kills nobody for that: it ends
// only processes of launches that failed. After a rejoin iterations go back by one
// step at most; the samples of those that are done again are sent again, and none
// is made of an iteration that a suspension fell into.
//
// One goroutine, that of Run, owns the processes, the command desk, the pause
// in force and every segment; it looks every drain_ms, and every millisecond or
// two while the job is held or recovers. A second one runs the probes, and one per process
// waits for its exit. Run ends them all before it returns. Nothing here judges
// what is slow.
package agent
