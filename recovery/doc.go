// Package recovery is the fail-stop recovery of one job as a pure machine
// (FlashRecovery §III; LAB-AND-HOOK.md, "Suspend" and "Resume step"): signs of
// life, faults and acknowledgements go in; orders to suspend, launch and rejoin
// come out.
//
// It guarantees: same inputs in the same order, same outputs; every fault that
// is certain is handled or its recovery says why not; a rank has one owner, and
// never two generations are told to train; no order is given with two contents;
// every state has a deadline, and what follows it; a step to resume at is chosen
// from fresh words of parked processes only. Everything it needs to go on after
// a restart of the engine is in the recoveries that it hands out, and in what
// agents tell anew. Time comes in as an argument. It starts no goroutine, does
// no I/O and holds no lock.
//
// What is a fault. A process's end is one at once, unless it is an ordered or a
// successful one. A silent node, a fatal device report and a silent hook are
// signs: each needs a second one (a reset connection, an ended process, a device
// report, a job that stalls for two beats more than an iteration takes), or
// policy. Silence of most nodes at once is the console's own. A job in which all
// live and nothing moves is named, and a person decides. Time in which the
// machine itself was not asked counts as nobody's silence.
//
// What is made anew. A process that ended, on its own device, InPlace times an
// hour for its node; else, and for every other fault, all ranks of the node on a
// spare. Survivors keep their processes. A fault in any state begins again at
// suspend with the next generation; processes that are starting go on starting,
// and obey one more suspension when they park.
//
// Where it can't be done. No spare: it waits for one, then restarts the job with
// the replicas that are whole where policy allows that, else fails. No replica of
// a shard, or rejoins that fail: the checkpoint, in place. No checkpoint: it
// fails, and says so. No adapter: a whole restart, which a person approves when
// it may begin from nothing. An agent between two connections can start processes
// as it could before: a whole restart waits for it, at suspend, and gives its node
// up where it does not come back. A recovery that fails ends what waits, so that
// nothing holds its devices for nothing; the job then stands until its next
// epoch.
package recovery
