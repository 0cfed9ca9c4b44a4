// Package history keeps what became of the incidents of one engine, over its jobs and
// days, and characterizes them as section 3 of the FALCON paper does: root causes
// (table 1), durations and slowdowns (figure 1), what jobs lost by them, and which GPUs,
// links and ports are named again and again.
//
// It guarantees that a ledger has a bound, whatever is added to it: incidents and jobs
// beyond it are folded into counts, the oldest first, so that no total changes. A ledger
// that was taken apart by Parts and put together by Take is the same. Reports depend on
// the ledger and the query alone.
//
// It is pure: time is an argument. It must not judge: causes and culprits are those of
// the verdicts. A culprit that was named often is not proven to be faulty.
package history
