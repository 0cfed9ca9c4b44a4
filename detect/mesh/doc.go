// Package mesh infers how a job's ranks factor into dimensions (falcon.Mesh) from its
// communicators: who is in them, and what they carry in an iteration.
//
// It guarantees that a mesh it returns explains every communicator that carries more
// than scalars, and that no two of its units communicate inside a micro-batch as far as
// the calls show. Where the calls fit two meshes, or none, it returns ErrUnsure with
// the reason, and no mesh. The same input gives the same answer, whatever its order. It
// must not use names of communicators or ranks' places on nodes, and does no I/O.
//
// # Rules
//
// Communicators with equal members count as one, and those with equal distances
// between their members are a family, which must hold every rank once.
//
//   - pp: sends and receives between neighbours, in both directions
//   - cp: sends in one direction around a ring, or all-gathers and reduce-scatters
//     whose ranks reduce their gradients together
//   - ep: all-to-all, also as sends to all members including the sender itself
//   - fsdp: nearly two all-gathers for each reduce-scatter (in forward and backward)
//   - tp: many calls of one size, several times as many as the gradient's
//   - dp, edp: the gradient: several times fewer calls than what is inside the
//     micro-batches; with fsdp one all-reduce for each reduce-scatter (HSDP)
package mesh
