// Package cause joins what peers say (detect/peer) with what hardware counters
// say into one verdict with a confidence.
//
// It guarantees: a verdict names only ranks that were measured slow, the links
// of groups whose transfer was, or none. Counters and tests explain a culprit,
// they never make one; of the links of a slow group a test names the slow one.
// A software power cap alone is no cause, as it is the normal state under load.
// Where timing and counters disagree or counters are missing the confidence
// falls, and "unknown" with the evidence is an answer.
//
// A counter proves only what changed or what its peers do not have: hosts are
// compared with the others and with their own past, ports with their own past
// or the same port of other nodes; a clock that was as low before, one of an
// idle GPU, and a port that never had a link prove nothing. Differences are
// taken between looks that could read the same fields.
//
// How the confidence is composed: the proofs are taken as independent, so it
// is 1 − Π(1 − p) over the weights of the proofs that hold (weights.go), times
// againstFactor for each line of evidence against, times the share of ranks
// that were measured, less half the share of calls whose timings were lost; never above confidenceMost.
//
// How links are named, by the most direct proof: those that a test of a slow
// group's links found slow; else the one that is left when the links of healthy
// groups are subtracted; else those whose two ends both have a port with
// congestion counters far over its own past and over the median port. A test
// that finds no link slow takes the names back and lowers the confidence.
//
// How the severity is formed, by the table in the notes on FALCON: three columns
// are graded 1 to 4 each, and the worst counts. The delay as a share of the
// healthy time: below 15 %, from 15 %, from 30 %, above 60 %. The congested
// links: up to one, two or three, four or more, all of several. The slow
// GPUs: none, one, two or three, four or more. So one GPU at half clock that
// slows the job by 90 % has severity 4 for its delay, not 2 for its number.
//
// Verdicts are pure functions of a Case. A History keeps the last counter
// readings, bounded, for one goroutine; it reads no clock.
package cause
