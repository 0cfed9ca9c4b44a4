// Package autopsy answers what happened to a job from whatever was left of it: logs, reports, tables,
// dumps and stacks, in any mixture.
//
// Readers (package read) turn files into facts; the judges here see facts alone. It guarantees that every
// claim of an answer has a fact with a file and a line, that a first cause is named before what followed
// from it, and that an answer says what would decide where the facts do not. It takes no clock, starts no
// goroutine and does no I/O. It must not name a rank, a host or a device that no fact names.
package autopsy
