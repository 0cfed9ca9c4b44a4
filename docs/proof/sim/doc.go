// Package sim is a test rig: it emulates whole training jobs at scale, so that the production
// detector and planner can be judged on runs that no machine at hand could
// train: FALCON's 64 GPUs of fig. 20 and table 7, and the 256 of Greyhound's.
// Nothing in it is measured on hardware; wherever a figure of it is shown it
// is called an emulation.
//
// # What is emulated, and what is not
//
// A Job is simulated by itself, without the planner's cost model: every
// replica's pipeline runs 1F1B op by op, each with its own noise; a transfer
// between stages begins when both ends are ready and takes the bandwidth of the
// very link; a gradient reduction is a ring of 2(k−1) steps, each step waiting
// for the neighbour's chunk over the very edge. Faults of a Trace (seeded, by
// the clock) slow GPUs and node pairs. The hook's and the agents' part is what
// the job hands out: iteration times, profile windows, counters, test results.
//
// The detector (package detect) and the planner (package mitigate) are those
// of production, joined as backend/engine joins them, without its journal and
// its wire. Orders take force at an iteration boundary a stated number of
// iterations after they were given, and cost what Costs says.
//
// Tensor-parallel ranks are lockstep inside their node: their traffic is part
// of the micro-batch time, and no call of theirs is profiled. Reductions do not
// overlap with the backward pass. Hosts are never slow.
//
// It guarantees the same run for the same scenario and seed. It starts no
// goroutine, reads no clock and does no I/O.
package sim
