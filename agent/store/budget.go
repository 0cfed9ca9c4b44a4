package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Bounds of what clients of one node can make their proxy hold.
const (
	DefaultBudget   = 64 << 20 // bytes of requests, answers and waits in flight
	free            = 4 << 10  // of one client's request or answer, that is not counted
	firstRequestMax = 30 * time.Second
	oneRequestMax   = 10 * time.Second
)

// ErrFull is returned where the proxy's budget is in use.
var ErrFull = errors.New("store: full")

// budget counts what all clients of a proxy hold.
type budget struct {
	limit int64
	used  atomic.Int64
}

// bill is what one request and its answer are charged. One goroutine uses it; all
// methods of a nil bill do nothing.
type bill struct {
	b    *budget
	held int // memory that is counted
	paid int // of the budget
}

// chargeBytes counts n more bytes.
func (b *bill) chargeBytes(n int) error {
	if b == nil {
		return nil
	}
	b.held += n
	need := b.held - free - b.paid
	if need <= 0 {
		return nil
	}
	if used := b.b.used.Add(int64(need)); used > b.b.limit {
		b.b.used.Add(-int64(need))
		return fmt.Errorf(
			"%w: requests and answers of this node's clients hold %d bytes, and %d more do not fit",
			ErrFull, used-int64(need), need,
		)
	}
	b.paid += need
	return nil
}

// refundBytes counts n bytes less. What was paid stays paid until the bill is settled.
func (b *bill) refundBytes(n int) {
	if b != nil {
		b.held -= n
	}
}

// refundAll gives everything back.
func (b *bill) refundAll() {
	if b == nil {
		return
	}
	b.b.used.Add(-int64(b.paid))
	b.held, b.paid = 0, 0
}
