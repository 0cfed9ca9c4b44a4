// Package mitigate is the planner of one job as a pure machine (FALCON §5):
// incidents, iteration times, measured speeds, decisions and acknowledgements
// go in; the ladder S1 to S4, proposals, orders and launches come out.
//
// It guarantees: same inputs in the same order, same outputs; one action under
// way at a time; nothing is ordered that policy or a person has not approved;
// a rung is proposed when waiting has cost as much as taking it, so that the
// whole stays within twice the best choice in hindsight plus the overheads of
// the lower rungs taken; S2 and S3 are proposed for a gain that is both no less
// than the least one and more than what their model is wrong by about the present
// (up to DoubtMost, so that no model is so bad that it hides a large gain); every
// action is verified, and S2 and S3 are reverted
// when they did not help or when the fault clears; iterations in which a node that
// the incident names could not be heard measure no action, for ten minutes at
// most; a restart (S4) is launched
// only once all processes of before have ended, and goes back to the old nodes
// when the new ones don't come up. Everything it needs to go on after a restart
// of the engine is in the actions and impacts that it hands out. Time comes in
// as an argument. It starts no goroutine, does no I/O and holds no lock.
package mitigate
