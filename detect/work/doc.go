// Package work says how one iteration of a rank differs from its usual ones, by the
// calls that its host made: how many and how large they are, and where the host made
// none.
//
// Counts, sizes and gaps are compared with those of the same rank's usual iteration: one
// whose calls came as often in several iterations in a row. What is longer than usual
// before the first call is waiting for data, behind the last one a checkpoint or an
// evaluation without calls; a gap between two calls is a pause of the process, but where
// the host waits for the device anyway, at the usually longest gap. An iteration that is
// as usual gives nil, so that nothing is sent for it.
//
// A Tracker reads no clock, starts no goroutine, keeps at most callsMost calls and placesMost
// gaps of a process, and works on times of one clock of one machine. It names no culprit and
// compares no ranks.
package work
