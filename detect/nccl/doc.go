// Package nccl says whom the members of a communicator send to, given NCCL's choice of
// algorithm and where the members live.
//
// It guarantees that edges are between members alone, and that the pairs of nodes are
// those that NCCL uses for the algorithm. Where the algorithm's paths do not follow from
// the members' places (CollNet, NVLS, PAT) or a place is not known it has no edges: nothing
// is to be tested or blamed then. It is pure: no clock, no I/O. It must not choose an
// algorithm.
//
// # What NCCL does
//
// Nodes have the order of their first rank in the communicator. Rings visit the nodes in that
// order: the last rank of a node sends to the first of the next. Trees are over nodes: two
// binary trees, each with half of a message, where a leaf of one is inside the other. Within a
// node a chain hangs on the rank that sends to other nodes, the head. NVLS trees are the same two
// trees over heads, without chains. Channels share the data; each has a head of its own.
//
// The order of a node's ranks is NCCL's, by its look at the hardware. Assumed is that of the
// communicator, rotated by one from channel to channel, as on nodes with a port per GPU.
package nccl
