// Package replica is who holds which shard of a job's state: from whom a lost rank
// is restored and at which step (FlashRecovery §III-E; docs/recovery.md, "Resume
// step"), and, before anything fails, what would have no replica if a node, rack or
// switch were lost.
//
// Ranks share a shard when they have the same tensor-parallel and pipeline
// coordinates and, under ZeRO with N optimizer instances over d data-parallel
// ranks, the same data-parallel index modulo d/N. The paper's figure 6b is the
// case N = 2; N = 1 has no replica.
//
// It guarantees: a resume step is one at which every shard has a survivor whose
// checksum more than half of the shard's survivors at that step share; the same
// query has the same answer. It trusts its input: holds must be fresh,
// and those of ranks that parked inside the optimizer left out. It is pure
// arithmetic: no I/O, no time, no goroutine.
package replica
