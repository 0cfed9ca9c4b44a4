// Package recovery is the fail-stop recovery of one job as a pure machine
// (FlashRecovery §III; LAB-AND-HOOK.md, "Suspend" and "Resume step"): signs of
// life, faults and acknowledgements go in; orders to suspend, launch and rejoin
// come out.
//
// It guarantees: same inputs in the same order, same outputs; every fault that
// is certain is handled or its recovery says why not; a rank has one owner, and
// never two generations are told to train; no order is given twice; every state
// has a deadline, and what follows it; a step to resume at is chosen from fresh
// words of parked processes only. Everything it needs to go on after a restart
// of the engine is in the recoveries that it hands out. Time comes in as an
// argument. It starts no goroutine, does no I/O and holds no lock.
package recovery
