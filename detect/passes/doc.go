// Package passes plans and judges the active link tests of FALCON §4.4: which
// pairs of ranks exchange messages at the same time, and which of the measured
// times are slow.
//
// It guarantees that every edge of a ring, a tree or a list is tested exactly
// once, that no rank is in two pairs of a pass, and that the number of passes
// of a ring (2, or 3 with an odd number of members) and of a tree (4) does not
// grow with the group. Pairs that would share a network port within a pass are
// moved to extra passes, which are marked, because two exchanges on one port
// measure each other.
//
// It is pure: no clock, no goroutines, no I/O. It must not decide what to
// test, nor what a slow link means for a verdict: that is for packages detect
// and cause.
package passes
