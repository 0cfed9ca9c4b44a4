// Package outage plays the loss of one node of a job of up to 18,000 devices,
// and says how long each phase of its recovery takes and how that grows with
// the job (FlashRecovery §IV).
//
// # What is real, what is emulated, what is drawn
//
// Real and in force: the engine with its journal and its pure machines, the
// gRPC servers over loopback TCP with mutual TLS, the recovery machine with its
// default deadlines, the rank table's encoder and parser, the rendezvous store
// and its fence. Times of these are wall-clock and called measured.
//
// Emulated: agents are goroutines of this process, one stream each, eight ranks
// on a node; their ranks park at once and train by a clock. A lost node says
// nothing more, and nobody resets its connection. All agents share the cores of
// one machine with the engine, where in a cluster each has its own: the figures
// are upper bounds of what the engine's side costs. Detection runs on real
// heartbeats of emulated agents.
//
// Simulated: the start of the replaced node's container and processes is drawn
// from the distributions of Model, and the transfer of state follows its link
// model. Neither passes on the wall clock; both are shown apart.
//
// The baseline (Vanilla) connects clients to a store one by one and collects
// and broadcasts the rank table over loopback, which is measured, and restarts
// everything, which is simulated: a tail whose two parameters are fitted on two
// points of the paper's table II.
//
// A Cluster owns its goroutines; Close waits for all. The package must not be
// used by production code.
package outage
