// Package jobtest is a synthetic training job for the detector's tests: it plays
// one iteration of a TP × DP × PP job (1F1B) at a time as a simulation of host
// enqueues, device queues and communication, with faults of GPUs, hosts, links
// and of the job's own work, and measures it as the hook would.
//
// It is emulation for tests only: nothing that ships imports it. It guarantees
// the same numbers for the same seed and calls, and that waits, transfers and
// self times follow from the faults by the schedule, not from what a detector
// is hoped to see.
package jobtest
