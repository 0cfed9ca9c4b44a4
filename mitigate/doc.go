// Package mitigate is the planner of one job as a pure machine (FALCON §5):
// incidents, iteration times, measured speeds, decisions and acknowledgements
// go in; the ladder S1 to S4, proposals, orders and launches come out.
//
// It guarantees:
//   - Same inputs in the same order, same outputs. Time comes in as an argument;
//     there is no goroutine, no I/O and no lock.
//   - One action is under way at a time, and nothing is ordered that policy or a
//     person has not approved.
//   - A rung is proposed when waiting has cost as much as taking it. The whole
//     cost stays within twice the best choice in hindsight plus the overheads of
//     the lower rungs taken.
//   - S2 and S3 are proposed only for a gain that is at least the configured one
//     and exceeds the model's present error. The error counts up to DoubtMost, so
//     that no model is so wrong that it hides a large gain.
//   - Every action is verified. S2 and S3 are reverted when they did not help or
//     when the fault clears, but for ranks at whose new places the job trains as
//     fast as before the fault (S3): they stay. Iterations in which a node that the incident names
//     could not be heard measure no action, for at most ten minutes.
//   - A restart (S4) is launched only once all processes of the generation before
//     have ended, and goes back to the old nodes when the new ones don't come up.
//   - Everything it needs after a restart of the engine is in the actions and
//     impacts that it hands out.
//
// Planner routes inputs and makes the moves that are due. Its parts own their
// state, and each knows only those before it: clock, policy, iterations, output,
// job, incidents, the pending order, the ledger of costs, the cache of plans, the
// measured overheads, the profile with its cost model, the maker of plans, the
// limits on proposals, the verification of actions and their execution. It must
// not talk to agents: it hands out what is to be sent.
package mitigate
