// Package learn is what an engine that has started must know before it acts on the nodes that
// kept running without it. Its journal may be older than they are: brought back from a copy,
// rolled back with its disk, emptied, or another engine's.
//
// It guarantees that the learning ends once every node that is known to hold ranks was heard, or
// a wait is over, that all numbers of the outcome are at least as high as any that was reported,
// and that an engine which others have left ends: of two that both run, the one that was started
// later goes on. A single node never ends an engine whose other nodes follow it.
//
// The machine is pure: it takes time and reports as arguments. It must not send anything, and
// must not decide what is ordered afterwards.
package learn
