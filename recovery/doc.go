// Package recovery is the fail-stop recovery of one job as a pure machine
// (FlashRecovery §III; docs/recovery.md): signs of life, faults and acknowledgements go
// in; orders to suspend, launch and rejoin come out.
//
// It guarantees: the same inputs in the same order have the same outputs; every fault
// that is certain is handled, or its recovery names the reason why not; a rank has one
// owner, and never two generations are ordered to train; no order is given with two
// contents; every state has a deadline, and a next step after it; the step to resume at
// is chosen only from what parked processes have just reported. Everything that it needs
// to go on after a restart of the engine is in the recoveries that it hands out, and in
// what agents report when they connect again. Time comes in as an argument. It starts no
// goroutine, does no I/O and holds no lock.
//
// Machine takes the inputs. Behind it are parts that own their fields: the packages
// liveness, progress, completion and attempt track what is reported; the detector finds
// faults in it; the operation is the recovery in progress; the workflow takes it from
// state to state, with the allocator for places and the approval for who may decide.
//
// Faults. The end of a process is one at once, unless it was ordered, was a success, or
// is unexplained so far. A silent node, however its stream ended, a fatal device report
// and a silent hook are signs. While iterations begin, or ranks make calls, there is no
// fault: ranks exchange in lockstep, so that all of them live. A job that stalls, for
// two beats more than an iteration takes, is the second sign against a silent node where
// every node that is heard waits; a rank that is heard and does not wait explains the
// stall. An agent that said goodbye has time to come back. A job in which nothing moves
// and nothing is certain to be faulty is reported, and a person decides.
//
// The machine distrusts itself first. Where half of the nodes or more are not heard, at its start, and
// while the engine is late, no node is judged by silence and no deadline runs;
// afterwards all clocks start again.
//
// A finished job stays finished. Once a rank has ended with success and the job does not
// go on, unexplained ends are taken for the same, and silence is no sign. Once all have,
// the job epoch is over, whatever is reported later. Where nothing is known but ends that
// nobody saw, as all agents were away, the job may have finished: a person decides.
//
// Replacement. A process that ended is replaced on its own device, InPlace times an hour
// for its node; otherwise, and for every other fault, all ranks of the node go to a
// spare. Survivors keep their processes. A fault in any state begins again at suspend
// with the next generation; processes that are starting go on starting, and obey one
// more suspension when they park.
//
// A return. A node that was given up for silence alone is taken back while nothing has taken its
// place, when it is heard again and its hooks beat; it is not ordered to end anything until then.
//
// Where that is not possible. No spare: it waits for one, then restarts the job with the
// replicas that are whole where policy allows that, else fails. No replica of a shard,
// or rejoins that fail: the checkpoint, in place. No checkpoint: it fails with that
// reason. No adapter: a whole restart, which a person approves when it may begin from
// nothing. An agent between two connections may start processes as it could before: a
// whole restart waits for it, at suspend, and gives its node up where it does not come
// back. A recovery that fails ends the processes that wait, so that they free their
// devices; the job is then stopped until its next epoch.
package recovery
