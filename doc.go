// Package falcon is the vocabulary that every part of Falcon shares: the
// layout of a hybrid-parallel job, where its ranks live, what was measured,
// what was concluded and what is done about it.
//
// It guarantees values only: no goroutines, no locks, no I/O, no clocks, and
// no imports beyond the standard library. Everything here may be copied.
// Ranks are logical (a position in the layout); devices and nodes are
// physical and keep their name when a rank moves.
package falcon
