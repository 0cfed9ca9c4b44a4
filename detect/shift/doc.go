// Package shift proves small lasting changes of a series of iteration times
// against the series' own noise.
//
// A Watch compares the newest points, from 5 to 128 of them, with the level of
// the points before, and with what the level was hours ago. How far off such a
// comparison is while nothing happens it learns from the series itself, for each
// number of points: correlated noise, weather and regular pauses are in it. The
// tail beyond what was seen is fitted (excesses over a high quantile, of all
// lengths together). A change is told where it exceeds what Config.Rate admits,
// is worth telling (Config.Floor), and lasts: nearly all its points are beyond
// the middle between the two levels.
//
// Nothing here reads a clock, starts a goroutine or takes a lock. Memory is fixed,
// about 16 KB a series, however long it is. Any input is accepted; what is no
// positive finite time counts as the one before. It must not decide what a change
// means: detect/bocd does.
package shift
