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
// successful one, or nobody has said yet how it ended. A silent node, however its
// stream ended, a fatal device report and a silent hook are signs. While
// iterations begin, or ranks make calls, there is no fault: ranks exchange in
// lockstep, so that all of them live. A job that stalls, for two beats more than
// an iteration takes, is the second sign against a silent node where every node
// that is heard waits; a rank that is heard and does not wait explains the stall.
// An agent that said goodbye has time to come back. A job in which nothing moves
// and nobody is certain to be at fault is named, and a person decides.
//
// The machine distrusts itself first. Where most nodes are not heard, at its
// start, and while the engine is late, nobody is judged by silence and no
// deadline runs; afterwards all clocks start again.
//
// A finished job stays finished. Once a rank has ended with success and the job
// does not go on, ends that nobody could explain are taken for the same, and
// silence is no sign. Once all have, the job epoch is over, whatever is said of it.
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
