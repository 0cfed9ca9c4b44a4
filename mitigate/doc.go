// Package mitigate is the planner of one job as a pure machine (FALCON §5):
// incidents, iteration times, measured speeds, decisions and acknowledgements
// go in; the ladder, proposals and orders come out.
//
// It guarantees: same inputs in the same order, same outputs; one action in
// flight at a time; nothing is ordered that policy or a person has not
// approved; every action is verified, and reverted when it did not help or
// when the fault clears. Time comes in as an argument. It starts no goroutine,
// does no I/O and holds no lock.
package mitigate
