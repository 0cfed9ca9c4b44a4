// Package shift proves small lasting changes of a series of iteration times
// against the noise of the series.
//
// A Watch compares the newest 5 to 128 points with the level of the points before,
// and with the level hours ago. It learns from the series how much such comparisons
// differ without a change, for each number of points, including correlated noise,
// drifts and regular pauses. The tail is fitted by the excesses over a high
// quantile, of all lengths together. A change is reported if it exceeds the
// threshold for Config.Rate, is at least Config.Floor, and lasts: nearly all its
// points are beyond the midpoint of the two levels. One that comes after 16 points, but
// before the noise is known, is proven once it is, some 100 points later. Of the first 32
// points of a level only a change of 4 % or more is proven.
//
// Nothing here reads a clock, starts a goroutine or takes a lock. Memory is fixed,
// about 16 KB per series. Any input is accepted; a value that is not a positive
// finite time counts as the value before. Package bocd decides what a change means.
package shift
