// Package topology solves S3: which node holds which block of ranks, so that
// an iteration takes least time (FALCON §5.3). The unit is the node, as
// tensor-parallel groups stay inside one; the nodes are those in use.
//
// It guarantees: the plan is a permutation of the nodes; its predicted time
// with the best split of micro-batches behind it is the least found, ties
// broken by bytes moved, then swaps, then the nodes' order; that is the least
// of all where the nodes that differ from the healthy ones have at most
// exactMost placements, elsewhere the best of a bounded search; same input,
// same answer to the byte; no plan that gains less than asked. It is pure
// arithmetic and must stay free of I/O, time and goroutines.
package topology
