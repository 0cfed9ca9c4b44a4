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
// One goroutine, that of Run, owns the processes, the command desk and every
// segment; a second one runs the probes, and one per process waits for its
// exit. Run ends them all before it returns. Nothing here judges what is slow.
package agent
