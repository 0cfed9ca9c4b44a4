// Package microbatch solves S2 exactly: how many micro-batches each
// data-parallel replica gets so that the slowest replica is as fast as it can
// be (FALCON §5.3, eq. 1), with the pipeline's fill and drain counted in.
//
// It guarantees: the minimum of max_i T_i(m_i) over all integer splits that
// meet the bounds, ties broken by one stated rule, the same answer for the
// same input. The cost is O(D log) for D replicas. It is pure arithmetic and
// must stay free of I/O, time and goroutines.
package microbatch
