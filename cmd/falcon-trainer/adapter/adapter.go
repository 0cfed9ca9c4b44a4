// Package adapter is the trainer's side of falcon_job.h: it reports the job's progress to
// a preloaded hook and asks it for orders.
//
// The functions are looked up at run time, so that the trainer also runs
// without the hook; each call is then empty and Poll answers 0. Nothing here
// blocks but Park, and it starts no goroutines. Calls belong to the training
// thread, but for Suspended.
package adapter

/*
#cgo CFLAGS: -D_GNU_SOURCE -I${SRCDIR}/../../../native/include
#cgo LDFLAGS: -ldl
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

// Version is that of the hook's interface which this adapter was made for.
const Version = C.FALCON_JOB_VERSION

// ErrGone is returned where an order is not, or no longer, in the mailbox.
var ErrGone = errors.New("trainer: order is gone")

// Statuses of Ack: 0 means applied, anything else refused on all ranks alike.
const (
	Applied       int32 = 0
	RefusedStale  int32 = 1 // made for an earlier job epoch
	RefusedValues int32 = 2 // can't be a split of the global batch
	RefusedKind   int32 = 3 // this trainer can't do it
	RefusedGone   int32 = 4 // some rank no longer held the voted order
	RolledBack    int32 = 5 // a placement failed on some rank and was undone on all
	NotWritten    int32 = 6 // some rank could not write its part of a checkpoint
)

// Hook is the adapter of one rank.
type Hook struct {
	marks bool
}

// Find looks the hook up. With marks off the iterations are not marked, and
// the agent must infer them from the calls.
func Find(marks bool) Hook {
	C.trainer_job_find(1)
	return Hook{marks: marks}
}

// None is no adapter: the hook sees the calls alone, and the end.
func None() Hook {
	C.trainer_job_find(0)
	return Hook{}
}

// Describe declares the layout and the micro-batches per iteration of this rank.
func (h Hook) Describe(l falcon.Layout, microBatches int) {
	C.trainer_job_describe(
		C.int(l.TP),
		C.int(l.DP),
		C.int(l.PP),
		C.int(microBatches),
	)
}

// BeginIteration marks the start of iteration i.
func (h Hook) BeginIteration(i int64) {
	if h.marks {
		C.trainer_job_begin_iteration(C.int64_t(i))
	}
}

// BeginOptimizer marks that all ranks have finished the gradients of i: a
// world-wide reduction has been read by the host.
func (h Hook) BeginOptimizer(i int64) {
	if h.marks {
		C.trainer_job_begin_optimizer(C.int64_t(i))
	}
}

// EndOptimizer marks that the update is done on the device; next is i+1.
func (h Hook) EndOptimizer(next int64) {
	if h.marks {
		C.trainer_job_end_optimizer(C.int64_t(next))
	}
}

// Finish declares that the job has ended well, so that the hook takes its file
// back: Go's exit runs none of its destructors.
func (h Hook) Finish() {
	C.trainer_job_finish()
}

// Paused is how long the hook has held this process's calls so far.
func (h Hook) Paused() time.Duration {
	return time.Duration(C.trainer_job_paused_ns())
}

// Poll is the id of the newest order that this rank has prepared, 0 for none.
func (h Hook) Poll(i int64) uint64 {
	return uint64(C.trainer_job_poll(C.int64_t(i)))
}

// Fetch copies the order with this id out of the mailbox.
func (h Hook) Fetch(id uint64) (falcon.Order, error) {
	var raw C.falcon_job_order
	if C.trainer_job_fetch(C.uint64_t(id), &raw) != 0 {
		return falcon.Order{}, fmt.Errorf("%w: %d", ErrGone, id)
	}
	n := min(int(raw.n), C.FALCON_JOB_VALUES_MAX)
	values := append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(&raw.values[0])), n)...)
	o := falcon.Order{
		Epoch: uint64(raw.epoch),
		ID:    uint64(raw.id),
		Kind:  kindName(uint32(raw.kind)),
	}
	switch o.Kind {
	case falcon.OrderPlacement:
		o.Blocks = values
	case falcon.OrderCheckpoint:
		o.Leave = len(values) > 0 && values[0] != 0
	default:
		o.MicroBatches = values
	}
	return o, nil
}

// kindName maps enum falcon_order_kind.
func kindName(kind uint32) falcon.OrderKind {
	switch kind {
	case C.FALCON_ORDER_MICROBATCHES:
		return falcon.OrderMicroBatches
	case C.FALCON_ORDER_PLACEMENT:
		return falcon.OrderPlacement
	case C.FALCON_ORDER_CHECKPOINT:
		return falcon.OrderCheckpoint
	case C.FALCON_ORDER_STOP:
		return falcon.OrderStop
	}
	return falcon.OrderKind(fmt.Sprintf("kind %d", kind))
}

// Place reports that from iteration i on this process holds rank: a placement
// was carried out, in these times (pause, dump, swap, restore), and brought it
// so many bytes. It comes before the order's Ack.
func (h Hook) Place(id uint64, i int64, rank falcon.Rank, steps [4]time.Duration, bytes int64) {
	var ns [4]C.uint64_t
	for k, d := range steps {
		ns[k] = C.uint64_t(d.Nanoseconds())
	}
	C.trainer_job_place(
		C.uint64_t(id),
		C.int64_t(i),
		C.int(rank),
		&ns[0],
		C.uint64_t(bytes),
	)
}

// Ack reports the voted order as holding from iteration i on, or refused. Of a
// checkpoint, i is the iteration with which a restart begins.
func (h Hook) Ack(id uint64, i int64, status int32) {
	C.trainer_job_ack(C.uint64_t(id), C.int64_t(i), C.int32_t(status))
}
