// Package topology solves S3: which node holds which block of ranks, so that
// an iteration takes least time (FALCON §5.3). The unit is the node, as
// tensor-parallel groups stay inside one; the nodes are those in use. Where
// nodes hold several tensor-parallel groups and no order of nodes does as well,
// single groups are exchanged between them (groups.go).
//
// It guarantees: the plan is a permutation of the nodes, or of the groups; its
// predicted time with the best split of micro-batches behind it is the least found,
// ties broken by bytes moved, then swaps, then the nodes' order; that is the least
// of all where the nodes that differ from the healthy ones have at most
// exactMost placements, elsewhere the best of a bounded search, as it is for
// groups; same input, same answer to the byte; no plan that gains less than asked,
// and no exchange of groups that gains no more than asked over whole nodes. Groups of
// other dimensions (context, expert, sharding) are never torn apart. It is pure
// arithmetic and must stay free of I/O, time and goroutines.
package topology
