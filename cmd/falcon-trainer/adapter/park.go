package adapter

/*
#include "adapter.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/failslow/falcon"
)

// How a stay in Park ends without an order to rejoin.
var (
	ErrStopped = errors.New("trainer: ordered to end while it was parked")
	ErrNobody  = errors.New("trainer: parked, and no agent came to say how it goes on")
)

// Statuses of Park and of Rejoined. A rejoin that fails leaves what was held as
// it was.
const (
	ParkSuspended int32 = C.FALCON_PARK_SUSPENDED // suspended, or a peer died
	ParkJoin      int32 = C.FALCON_PARK_JOIN      // a replacement, holds nothing
	Rejoins       int32 = 0
	FailedGroups  int32 = -1 // the new groups did not come about
	FailedState   int32 = -2 // some rank did not get its state, or got another one than it should
	FailedStorage int32 = -3 // there is no checkpoint to go back to
	FailedOrder   int32 = -4 // the order can't be followed
)

// State declares how the optimizer is spread, what a rank's state takes to move,
// and the counts of micro-batches that a replica may be given: at least, at
// most (0 = no limit), and a multiple of. Bytes, and bytes per second.
func (h Hook) State(zero falcon.ZeRO, bytes, copyRate float64, least, most, multiple int) {
	C.trainer_job_state(
		C.int(zero.Stage),
		C.int(zero.Instances),
		C.uint64_t(bytes),
		C.uint64_t(copyRate),
		C.int(least),
		C.int(most),
		C.int(multiple),
	)
}

// Can declares what this process can do. A hook of before takes no declaration.
func (h Hook) Can(c falcon.Can) {
	var bits C.uint32_t
	for bit, has := range map[C.uint32_t]bool{
		C.FALCON_CAN_PARK:       c.Park,
		C.FALCON_CAN_SPLIT:      c.Split,
		C.FALCON_CAN_PLACE:      c.Place,
		C.FALCON_CAN_CHECKPOINT: c.Checkpoint,
	} {
		if has {
			bits |= bit
		}
	}
	C.trainer_job_can(bits, C.int(c.Versions))
}

// Checkpoint declares that storage holds a checkpoint from which a restart would
// begin with iteration i.
func (h Hook) Checkpoint(i int64) {
	C.trainer_job_checkpoint(C.int64_t(i))
}

// Parks reports whether there is a hook that can bring this process back into a
// job which lost a peer.
func (h Hook) Parks() bool { return C.trainer_job_parks() != 0 }

// Suspended is 0, or the generation of a suspension that this process has not
// obeyed: it must unwind to Park. Any thread may ask.
func (h Hook) Suspended() uint64 {
	return uint64(C.trainer_job_suspended())
}

// Park blocks, with all queues drained and all communicators given up, until
// the agent's order; hold is what this rank has. ErrStopped and ErrNobody are
// the other ends.
func (h Hook) Park(status int32, hold falcon.RankHold) (Rejoin, error) {
	var raw C.falcon_job_order
	steps := [2]C.int64_t{C.int64_t(hold.Steps[0]), C.int64_t(hold.Steps[1])}
	sums := [2]C.uint64_t{C.uint64_t(hold.Sums[0]), C.uint64_t(hold.Sums[1])}
	switch C.trainer_job_park(C.int(status), &steps[0], &sums[0], &raw) {
	case C.FALCON_PARK_REJOIN:
		n := min(int(raw.n), C.FALCON_JOB_VALUES_MAX)
		return decode(uint64(raw.id), unsafe.Slice((*int32)(unsafe.Pointer(&raw.values[0])), n))
	case C.FALCON_PARK_STOP:
		return Rejoin{}, ErrStopped
	}
	return Rejoin{}, ErrNobody
}

// Rejoined declares the outcome of rejoin id: this rank trains again from
// iteration i, or status is the reason why not. bytes is the state that it received.
func (h Hook) Rejoined(id uint64, i int64, status int32, groups, restore time.Duration, bytes int64) {
	ns := [2]C.uint64_t{C.uint64_t(groups.Nanoseconds()), C.uint64_t(restore.Nanoseconds())}
	C.trainer_job_rejoined(
		C.uint64_t(id),
		C.int64_t(i),
		C.int32_t(status),
		&ns[0],
		C.uint64_t(bytes),
	)
}

// ErrOrder is wrapped by every complaint about an order to rejoin.
var ErrOrder = errors.New("trainer: bad order to rejoin")

// Rejoin is the order by which parked processes go on: those that Moves does
// not name keep what they hold.
type Rejoin struct {
	Generation   uint64 // of the communicators to be made
	Resume       int64  // first iteration to train
	Checkpoint   bool   // everybody goes back to storage
	MicroBatches []int32
	Moves        map[falcon.Rank]falcon.Rank // from whom a rank gets its state, or FromCheckpoint
}

// decode reads the values of a REJOIN order as falcon_job.h lays them out.
func decode(id uint64, v []int32) (Rejoin, error) {
	o := Rejoin{Generation: id, Moves: map[falcon.Rank]falcon.Rank{}}
	bad := func(what string) (Rejoin, error) {
		return Rejoin{Generation: id}, fmt.Errorf("%w: %d values, %s", ErrOrder, len(v), what)
	}
	if len(v) < 5 || v[1] < 0 || v[2] < 0 {
		return bad("no iteration to resume at")
	}
	o.Checkpoint, o.Resume = v[0] == 1, int64(v[2])<<31|int64(v[1])
	splits, rest := int(v[3]), v[4:]
	if splits < 0 || splits >= len(rest) {
		return bad("micro-batches beyond them")
	}
	o.MicroBatches, rest = append([]int32(nil), rest[:splits]...), rest[splits:]
	moves, rest := int(rest[0]), rest[1:]
	if moves < 0 || moves > len(rest)/2 {
		return bad("moves beyond them")
	}
	for i := range moves {
		to, from := falcon.Rank(rest[2*i]), falcon.Rank(rest[2*i+1])
		if _, twice := o.Moves[to]; twice ||
			to < 0 ||
			to == from ||
			from < 0 && from != falcon.FromCheckpoint {
			return bad(fmt.Sprintf("rank %d can't get its state from %d, or is named twice", to, from))
		}
		o.Moves[to] = from
	}
	return o, nil
}
