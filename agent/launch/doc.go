// Package launch starts the training processes of one node, by the command of
// the node's own configuration.
//
// It guarantees that nothing from outside of the node names what is executed: a
// plan is which ranks, on which devices, of which generation, and the words of
// the command that stand for them are replaced inside arguments, never by a
// shell. A rank is started at most once per generation, across restarts of the
// agent too: what is about to be started and what was is written down first, in
// a file of the agent's own, and a process that a killed agent had no time to
// write down is found by its environment. While an older process runs, a new
// launch is refused, but for one that never came as far as a communicator, which
// is ended. A launch that joins (FALCON_JOIN=1: its processes park at once) starts
// the ranks that it names alone and leaves those of earlier generations as they
// are; only a process with one of its ranks or devices is in its way.
//
// Where the configuration asks for standbys, processes wait that have imported what the
// script needs and hold nothing of the job. One becomes a rank by one order, over a socket
// that nobody else has; what has not said that it took it runs nothing, and is gone before
// an ordinary process is started in its place. They end with the Launcher's process, and
// none is kept where memory is short or not known.
//
// Processes lead sessions of their own and outlive the agent; while it lives it
// collects them. The package starts no goroutines and takes no locks: a Launcher
// belongs to one goroutine. It must not decide when a job is started, and ends
// only processes that it started itself; what else is left of a job that is
// started again whole, its agent ends.
package launch
