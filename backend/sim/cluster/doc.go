// Package cluster plays the whole system under one seed: the real engine with
// its machines and its journal, the real agents with their spools, executors and
// launchers, and an emulated job of ranks, on an emulated network, with a clock
// of its own for every node. Everything happens on one goroutine in an order
// that the seed alone decides, so that a run repeats to the bit: its trace has a
// hash, and two runs of one seed have the same.
//
// It guarantees that what it asserts is taken from the emulated job itself and
// never from what the engine believes: which processes live, which iterations
// begin, who holds which step. It must not help the engine: a fault that a real
// cluster could have is played as it would come.
//
// All of it is test code. A failing seed prints its story, shrunk, and the
// command that plays it again:
//
//	go test ./backend/sim/cluster -run TestSeeds -first SEED -seeds 1 -v
package cluster
