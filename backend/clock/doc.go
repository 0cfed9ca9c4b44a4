// Package clock gives a process a time that never steps.
//
// The wall clock is read once, when a clock begins; from then on time goes on by
// the machine's boot clock, which also counts while the machine is suspended. A
// Mark, which the engine keeps in its journal, lets the next process go on with
// the same time, so that durations over a restart are right as well.
//
// It guarantees that Now never goes back, within a process and over those that
// resume from its marks, and that a step of the wall clock is reported once and
// changes no time that was or will be given out. It must not correct its time by
// the wall clock: what a person is shown is corrected where it is shown, by Offset.
package clock
