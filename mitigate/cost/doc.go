// Package cost predicts iteration times of a pipeline-parallel replica from
// its per-stage micro-batch times, by simulating the 1F1B schedule instead of
// by formula: when stages differ the closed formula (m + p − 1)·max(t)
// overestimates by a fifth.
//
// It guarantees arithmetic only, in milliseconds. It must stay free of I/O,
// time and goroutines.
package cost
