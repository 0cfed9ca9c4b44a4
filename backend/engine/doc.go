// Package engine is the one goroutine that owns the pure machines: it feeds
// them what agents and operators say, makes durable what they decide, and
// only then sends it.
//
// It guarantees the order feed → Ready → persist (one transaction for a whole
// batch) → send and publish → Advance; that a command keeps its (epoch, id)
// over any restart, so that agents execute it at most once; that a frame is
// acknowledged to its agent only after what it led to is durable; and that no
// slow agent or console delays the loop.
//
// Who holds a rank changes in one piece with the outcome of a placement, in the
// record of which it is durable; what agents say of their new ranks before is
// kept beside the picture, and no sample counts for another process's rank. A
// restart is a sequence of phases, each durable before anything is sent for it:
// the processes leave with a checkpoint, all have ended, nodes start others by
// the command of their own configuration, all ranks are at work as a new job
// epoch. Each phase has a bound; what does not come within it ends with the
// reason. Processes are identified by node, pid and launch, never by rank.
//
// One plan is in progress at a time: while a validation holds the job, orders
// and profile windows wait for its end, and none begins while an order is being
// agreed on. What an operator asks for meanwhile is promised, comes first, and
// begins within askPatience or is refused with the reason. An order to a held
// job waits for no record but its own. What a stopped engine may have held is
// let go by the next one.
//
// A recovery from a fail-stop fault comes before all of that: it ends tests and
// profile windows, withdraws orders that no rank has acknowledged, and holds the
// job's description still until the epoch that it leads to. What a fenced node
// or process says of the job is refused, whatever it believes itself, until
// a person lifts the node's fence.
//
// The engine looks at itself before it takes an agent for silent: how long frames
// waited for it and how late its ticks come goes to the recovery machine, with how
// each stream ended. Commands carry what is left of their lives, which agents
// count by their own clocks; a clock that differs is named. The ends of ranks with
// success are durable: a finished job is not recovered after a restart.
//
// A disk that does not take a batch (full, read-only, failing) does not end the
// engine: the batch waits as one piece with all that was to follow it, and is
// written again with the same ids. Until then no frame is taken or acknowledged
// and nothing is decided or sent; what reads is answered, what decides is
// refused, and the job's alarm gives the reason. Once the journal's records are many a
// snapshot of memory takes their place, while nothing is being done with the
// job; memory folded from a snapshot is the memory that it was made from.
// Records that this engine can't read end its start: none is passed over.
//
// Run's caller owns the goroutine; everything else goes through channels of
// named bounds. Samples are never persisted. A policy that an approver sets
// holds over restarts until the configured one changes; a freeze holds even
// then. It must not judge: what is slow and what to do about it is for packages
// detect and mitigate.
package engine
