// Package cost predicts what an iteration of a hybrid-parallel job takes on a
// given placement: the 1F1B schedule is simulated per stage, with every
// transfer over the link that the placement puts it on, because the closed
// formula (m + p − 1)·max(t) overestimates by a fifth when stages differ; then
// each data-parallel ring sums its gradients over its slowest edge. It also
// says what traffic crosses nodes (FALCON, appendix 9.2), and calibrates
// itself from a job's measured profile.
//
// It guarantees arithmetic only, in milliseconds and 10⁶ bytes: same input,
// same answer to the bit, and times per replica that never decrease with its
// micro-batches. What it leaves out is stated where it is left out: links are
// not shared by transfers, and communication does not overlap with computation
// of the same rank. It must stay free of I/O, time and goroutines.
package cost
