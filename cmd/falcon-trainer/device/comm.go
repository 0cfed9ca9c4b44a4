package device

/*
#include <stdlib.h>
#include "kernels.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// UniqueIDBytes is the size of an NCCL unique id.
const UniqueIDBytes = C.NCCL_UNIQUE_ID_BYTES

func ncclErr(call string, code C.ncclResult_t) error {
	if code == C.ncclSuccess {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrComm, call, C.GoString(C.ncclGetErrorString(code)))
}

// nccl issues a call on c, unless one before it has failed or c is a group of one.
func (q *Queue) nccl(c *Comm, call string, issue func() C.ncclResult_t) {
	if c != nil && q.err == nil {
		q.err = ncclErr(call+" "+c.Name, issue())
	}
}

// UniqueID makes the id that the members of a new communicator share.
func UniqueID() ([]byte, error) {
	var id C.ncclUniqueId
	err := ncclErr("ncclGetUniqueId", C.ncclGetUniqueId(&id))
	return C.GoBytes(unsafe.Pointer(&id), UniqueIDBytes), err
}

// Comm is an NCCL communicator. A nil Comm is a group of one, where
// collectives change nothing.
type Comm struct {
	c    C.ncclComm_t
	Name string
	Size int
}

// Connect joins the communicator called name as rank of size; it blocks until
// all members have come. id has UniqueIDBytes.
func Connect(name string, id []byte, size, rank int) (*Comm, error) {
	c, code := initComm(name, id, size, rank, 1)
	return c, ncclErr("ncclCommInitRankConfig "+name, code)
}

// Begin is Connect without waiting: the communicator may be used once Ready
// reports it, and aborted at any time.
func Begin(name string, id []byte, size, rank int) (*Comm, error) {
	c, code := initComm(name, id, size, rank, 0)
	if code == C.ncclInProgress {
		return c, nil
	}
	return c, ncclErr("ncclCommInitRankConfig "+name, code)
}

func initComm(name string, id []byte, size, rank, blocking int) (*Comm, C.ncclResult_t) {
	label := C.CString(name)
	defer C.free(unsafe.Pointer(label))
	c := &Comm{Name: name, Size: size}
	code := C.trainer_comm_init(
		&c.c,
		C.int(size),
		unsafe.Pointer(unsafe.SliceData(id)),
		C.int(rank),
		label,
		C.int(blocking),
	)
	return c, code
}

// Ready reports whether all members have come to a communicator from Begin.
func (c *Comm) Ready() (bool, error) {
	var state C.ncclResult_t
	err := ncclErr("ncclCommGetAsyncError", C.ncclCommGetAsyncError(c.c, &state))
	if err != nil || state == C.ncclInProgress {
		return false, err
	}
	return true, ncclErr(c.Name+" communicator", state)
}

// Emulate makes sends and receives on c take as long as factor times their
// bytes would: the state of an emulated GPU is larger than what is moved. Both
// sides must do so. On real hardware it does nothing.
func (c *Comm) Emulate(factor float64) {
	C.trainer_comm_scale(c.c, C.double(factor))
}

// AsyncError reports what went wrong on the communicator in the background.
func (c *Comm) AsyncError() error {
	_, err := c.Ready()
	return err
}

// Abort breaks off whatever runs on the communicator, from any thread.
func (c *Comm) Abort() {
	C.ncclCommAbort(c.c)
}

// Close destroys the communicator after its work is done.
func (c *Comm) Close() error {
	return ncclErr("ncclCommDestroy", C.ncclCommDestroy(c.c))
}

// Group issues the communication of issue as one operation.
func (q *Queue) Group(issue func()) {
	if q.err != nil {
		return
	}
	q.fail(ncclErr("ncclGroupStart", C.ncclGroupStart()))
	issue()
	q.fail(ncclErr("ncclGroupEnd", C.ncclGroupEnd()))
}

// SumFloats replaces x by its sum over the group.
func (q *Queue) SumFloats(c *Comm, x Floats) {
	q.allReduce(c, x.p, x.n, C.ncclFloat32, C.ncclSum)
}

// SumDoubles replaces n float64 at m by their sums over the group.
func (q *Queue) SumDoubles(c *Comm, m Memory, n int) {
	q.allReduce(c, m.p, n, C.ncclFloat64, C.ncclSum)
}

// MinUint64 replaces n uint64 at m by their least over the group.
func (q *Queue) MinUint64(c *Comm, m Memory, n int) {
	q.allReduce(c, m.p, n, C.ncclUint64, C.ncclMin)
}

func (q *Queue) allReduce(c *Comm, p unsafe.Pointer, n int, t C.ncclDataType_t, op C.ncclRedOp_t) {
	q.nccl(c, "ncclAllReduce", func() C.ncclResult_t {
		return C.ncclAllReduce(p, p, C.size_t(n), t, op, c.c, q.stream)
	})
}

// ReduceScatterFloats leaves in dst this member's part of the sum of src over
// the group; dst may be that part of src.
func (q *Queue) ReduceScatterFloats(c *Comm, dst, src Floats) {
	q.nccl(c, "ncclReduceScatter", func() C.ncclResult_t {
		return C.ncclReduceScatter(
			src.p,
			dst.p,
			C.size_t(dst.n),
			C.ncclFloat32,
			C.ncclSum,
			c.c,
			q.stream,
		)
	})
}

// GatherFloats fills dst with the src of every member, in the order of their
// ranks; src may be this member's part of dst.
func (q *Queue) GatherFloats(c *Comm, dst, src Floats) {
	q.gather(c, dst.p, src.p, src.n, C.ncclFloat32)
}

// GatherBytes fills dst with the src of every member, in the order of their
// ranks; dst has Size times the bytes of src.
func (q *Queue) GatherBytes(c *Comm, dst, src Memory) {
	q.gather(c, dst.p, src.p, src.bytes, C.ncclUint8)
}

func (q *Queue) gather(c *Comm, dst, src unsafe.Pointer, n int, t C.ncclDataType_t) {
	q.nccl(c, "ncclAllGather", func() C.ncclResult_t {
		return C.ncclAllGather(src, dst, C.size_t(n), t, c.c, q.stream)
	})
}

// Send enqueues x for rank peer of c.
func (q *Queue) Send(c *Comm, x Floats, peer int) {
	q.send(c, x.p, x.n, C.ncclFloat32, peer)
}

// SendBytes enqueues m for rank peer of c.
func (q *Queue) SendBytes(c *Comm, m Memory, peer int) {
	q.send(c, m.p, m.bytes, C.ncclUint8, peer)
}

func (q *Queue) send(c *Comm, p unsafe.Pointer, n int, t C.ncclDataType_t, peer int) {
	q.nccl(c, "ncclSend", func() C.ncclResult_t {
		return C.ncclSend(p, C.size_t(n), t, C.int(peer), c.c, q.stream)
	})
}

// Recv enqueues the arrival of x from rank peer of c.
func (q *Queue) Recv(c *Comm, x Floats, peer int) {
	q.recv(c, x.p, x.n, C.ncclFloat32, peer)
}

// RecvBytes enqueues the arrival of m from rank peer of c.
func (q *Queue) RecvBytes(c *Comm, m Memory, peer int) {
	q.recv(c, m.p, m.bytes, C.ncclUint8, peer)
}

func (q *Queue) recv(c *Comm, p unsafe.Pointer, n int, t C.ncclDataType_t, peer int) {
	q.nccl(c, "ncclRecv", func() C.ncclResult_t {
		return C.ncclRecv(p, C.size_t(n), t, C.int(peer), c.c, q.stream)
	})
}
