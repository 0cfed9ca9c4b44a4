// Package bocd finds the points where a series of iteration times changes its
// level, online, one observation at a time.
//
// Filter is Bayesian online change-point detection (FALCON §4.2 and §9.1,
// after Adams and MacKay): a posterior over the run length under a constant
// hazard, a Normal-Gamma prior and its Student-t predictive, kept in log
// space. Tracker is the production composition for one series: a robust scale
// from a warm-up, the filter, the verification of each alarm by medians, the
// baseline, and what to do with changes that an action caused. It also compares
// the series with what its level was when it began, so that slow drift and steps
// that are each below the threshold are found once they sum to more; and a
// change must exceed the threshold by the error of its own median. With
// VerifyAdaptive it also tells the changes below Verify that package shift proves,
// and those up to 18 % must be more than the series' own noise. With Rest, which the series
// of single ranks have, a tracker drops its filter while nothing moves and keeps the
// observations alone; it wakes in time for every change that Verify asks for.
//
// Nothing here reads a clock, starts a goroutine or takes a lock; a value is
// used by one goroutine at a time. No finite input makes a probability NaN or
// infinite, and memory is bounded: Filter by MaxRuns (unless pruning is off),
// Tracker by its history. Non-finite input is refused by ErrNotFinite and
// changes nothing.
package bocd
