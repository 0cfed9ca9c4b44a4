// Package engine is the one goroutine that owns the pure machines: it feeds
// them what agents and operators say, makes durable what they decide, and
// only then sends it.
//
// It guarantees the order feed → Ready → persist (one transaction for a whole
// batch) → send and publish → Advance; that a command keeps its (epoch, id)
// over any restart, so that agents execute it at most once; that a frame is
// acknowledged to its agent only after what it led to is durable; and that no
// slow agent or console delays the loop.
//
// One plan is in progress at a time: while a validation holds the job, orders
// and profile windows wait for its end, and none begins while an order is being
// agreed on. What an operator asks for meanwhile is promised, comes first, and
// begins within askPatience or is refused with the reason. An order to a held
// job waits for no record but its own. What a stopped engine may have held is let go by the next one.
//
// Run's caller owns the goroutine; everything else goes through channels of
// named bounds. Samples are never persisted. It must not judge: what is slow
// and what to do about it is for packages detect and mitigate.
package engine
