// Package period finds the iteration in a rank's sequence of communication
// calls, without knowing the framework (FALCON §4.2).
//
// Agreement at a lag is averaged over the distinct call classes (operation,
// communicator, size class), so that a call made once an iteration weighs as
// much as one made in every micro-batch, and is normalised by the overlap, so
// that three repeats suffice. The period is the smallest lag with agreement
// of at least Config.Agreement. A sequence of one single class has no order to
// compare; there the times between calls are compared instead, and where these
// are even each call counts as an iteration.
//
// Extra steps between iterations (evaluations, checkpoints) are no part of the
// period, and no iterations: what is learned is the block of calls that comes
// over and over between them, and an extra step counts to the iteration in
// which its calls fall. They come at most every third iteration or so. That can be
// seen where an iteration has a message of at most 64 bytes and such steps bring no
// kind of call (operation, communicator) of their own, or where the iteration
// reduces the job's gradients and all that comes between is small (isStep).
// docs/job.md has the rule and where calls do not show it.
//
// Infer works on a whole sequence, Tracker on a live one with bounded memory
// and bounded work per call. Nothing here reads a clock, starts a goroutine or
// takes a lock; a Tracker is used by one goroutine at a time.
package period
