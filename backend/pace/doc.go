// Package pace keeps a job's iteration times for charts: the newest ones as they were, and
// what a journal keeps of them, so that a chart has its past after a recovery, a restart of the
// job and a restart of the engine.
//
// It guarantees a bound on memory and on what is to be journalled: at most PointsMost points
// every Every, whatever the pace of the job. Iterations that the job ran again replace the
// older ones. It takes time as an argument, starts no goroutine and does no I/O. No verdict may
// rest on what it holds: journalled times are means of several iterations, rounded to 0.1 %.
package pace
