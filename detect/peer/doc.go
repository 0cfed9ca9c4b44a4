// Package peer compares the ranks and groups of one profile window by medians:
// who is slower than those that do the same work, which communication group
// takes longer than its kind, and whether all ranks slowed together (FALCON
// §4.3).
//
// It guarantees: the same profiles in any order give the same result; no clock
// of one node is compared with another node's, as members of a collective end
// together (transfer = the least duration over the members, wait = own
// duration − transfer) and calls are joined by (communicator, ordinal). A rank
// that was not measured is never accused, and a value that is not a positive
// finite number counts as not measured.
//
// The culprit of a computation fault is never "who waits least": under a
// pipeline the slow replica's other stages are late too. Waits only show that
// a replica is waited for; the rank is found by self time against the ranks that do
// the same work (falcon.Layout.Alike): never against those of another stage.
//
// Two kinds of lateness without a fault are known: a rank with fewer
// micro-batches spreads the work of once an iteration over fewer of them, and
// the links of a replica of which a rank is slow, or was not measured, wait for
// that rank.
//
// With Rules.Small the culprit of a small slowdown is sought: ranks, groups and pairs
// must then also stand out of what all differ from their own healthy past by, at one
// false accusation in 1,000 windows of normal noise (chance.go).
//
// Where communication hides behind computation, gaps between calls are no measure
// of it: ranks that are ahead compute on while they wait, their gaps shrink, and a
// GPU that is 6 % slower seems to compute four times as long. Overlap is seen where
// calls run at once, where gaps hardly exist, or where after a longer call the next
// one comes that much sooner. A rank's ratio is then at most the one to its own
// healthy past, or, where it has none, what it comes late by in one collective.
// Without gaps (Result.Hidden) its time is the part of an iteration in which it
// does not wait for others to enter a call; transfers are in it, so nothing is said
// about all ranks together.
//
// A window costs time in proportion to its calls, not to the square of the ranks
// (BenchmarkJudgeWide).
//
// Everything here is a pure function; nothing is kept between calls except
// what the caller holds in a Healthy or a Watch.
package peer
