// Package judge finds slow ranks and groups in a profile, a trace or a set of
// flight-recorder dumps, by the rules of the live detector.
//
// It guarantees: a window of calls is compared by detect/peer and explained by
// detect/cause, like a live profile. Information that a file lacks, such as hardware
// counters or the job's healthy past, is noted in the evidence and lowers the
// confidence. A rank that a file does not measure is never named. The same
// input gives the same report.
//
// Everything here is a pure function: no file is opened, no clock is read, no
// goroutine is started.
package judge
