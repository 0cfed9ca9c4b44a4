// Package device calls the CUDA runtime, cuBLAS and NCCL through their C
// interfaces, linked dynamically as any framework links them, so that a
// preloaded hook sees every call.
//
// A Queue is one compute stream: calls return when the work is enqueued, the
// first error sticks and is returned by Sync. A Queue and its communicators
// belong to one thread, which must be locked (NCCL's group state is per
// thread); only Comm.Abort and Comm.AsyncError may come from another. It
// starts no goroutines. The elementwise kernels are those of the emulated GPU
// (native/lab): on real silicon they would be CUDA code.
package device

/*
#cgo CFLAGS: -O3 -D_GNU_SOURCE -I${SRCDIR}/../../../native/lab/include
#cgo LDFLAGS: -L${SRCDIR}/../../../bin/lib -l:libnccl.so.2 -l:libcublas.so.12 -l:libcudart.so.12 -lm -ldl -Wl,-rpath,$ORIGIN/lib
#include "kernels.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// Errors of this package.
var (
	ErrDevice = errors.New("trainer: GPU call failed")
	ErrComm   = errors.New("trainer: communication failed")
)

func cudaErr(call string, code C.cudaError_t) error {
	if code == C.cudaSuccess {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrDevice, call, C.GoString(C.cudaGetErrorString(code)))
}

// Queue is a stream of one device, with a cuBLAS handle where it computes.
type Queue struct {
	stream C.cudaStream_t
	end    C.cudaEvent_t // behind the last enqueued work
	blas   C.cublasHandle_t
	err    error
}

// Open makes GPU index the calling thread's device and gives it a stream.
func Open(index int) (*Queue, error) {
	if err := cudaErr("cudaSetDevice", C.cudaSetDevice(C.int(index))); err != nil {
		return &Queue{err: err}, err
	}
	q := stream()
	q.cublas("cublasCreate", func() C.cublasStatus_t {
		return C.cublasCreate(&q.blas)
	})
	q.cublas("cublasSetStream", func() C.cublasStatus_t {
		return C.cublasSetStream(q.blas, q.stream)
	})
	return q, q.err
}

// Fork is another stream of q's device, for copies and communication only: it
// has no cuBLAS, its errors are its own, and so is its order. Close ends it.
func (q *Queue) Fork() *Queue { return stream() }

func stream() *Queue {
	var q Queue
	q.cuda("cudaStreamCreateWithFlags", func() C.cudaError_t {
		return C.cudaStreamCreateWithFlags(&q.stream, C.cudaStreamNonBlocking)
	})
	q.cuda("cudaEventCreateWithFlags", func() C.cudaError_t {
		return C.cudaEventCreateWithFlags(&q.end, C.cudaEventBlockingSync|C.cudaEventDisableTiming)
	})
	return &q
}

// Close gives a forked queue back when what is enqueued has ended, well or not.
func (q *Queue) Close() error {
	var err error
	if q.stream != nil {
		C.cudaStreamSynchronize(q.stream) // an error of the work was for Done
	}
	if q.end != nil {
		err = cudaErr("cudaEventDestroy", C.cudaEventDestroy(q.end))
	}
	if q.stream != nil {
		err = errors.Join(err, cudaErr("cudaStreamDestroy", C.cudaStreamDestroy(q.stream)))
	}
	q.stream, q.end = nil, nil
	return err
}

// Err is the first error of the queue's life that is known by now.
func (q *Queue) Err() error { return q.err }

// Mark sets the point that Done asks about: behind all enqueued so far.
func (q *Queue) Mark() {
	q.cuda("cudaEventRecord", func() C.cudaError_t {
		return C.cudaEventRecord(q.end, q.stream)
	})
}

// Done reports, without waiting, whether the work before Mark is done; the error
// is the first of the queue's life.
func (q *Queue) Done() (bool, error) {
	if q.err != nil {
		return false, q.err
	}
	code := C.cudaEventQuery(q.end)
	if code == C.cudaErrorNotReady {
		return false, nil
	}
	q.err = cudaErr("cudaEventQuery", code)
	q.cuda("cudaStreamSynchronize", func() C.cudaError_t { return C.cudaStreamSynchronize(q.stream) })
	return true, q.err
}

// Paced reports whether the GPU is emulated at a modelled pace.
func Paced() bool { return C.trainer_paced() != 0 }

// cuda issues a call, unless one before it has failed.
func (q *Queue) cuda(call string, issue func() C.cudaError_t) {
	if q.err == nil {
		q.err = cudaErr(call, issue())
	}
}

// cublas is cuda for calls of cuBLAS.
func (q *Queue) cublas(call string, issue func() C.cublasStatus_t) {
	if q.err != nil {
		return
	}
	if code := issue(); code != C.CUBLAS_STATUS_SUCCESS {
		q.err = fmt.Errorf("%w: %s: %s",
			ErrDevice, call, C.GoString(C.cublasGetStatusString(code)))
	}
}

func (q *Queue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// Sync waits until all enqueued work is done; it returns the first error of
// the queue's life. The long wait is on an event, asleep; the stream is asked
// behind it for what went wrong.
func (q *Queue) Sync() error {
	q.Mark()
	q.cuda("cudaEventSynchronize", func() C.cudaError_t { return C.cudaEventSynchronize(q.end) })
	q.cuda("cudaStreamSynchronize", func() C.cudaError_t { return C.cudaStreamSynchronize(q.stream) })
	return q.err
}

// drainTries bounds Recover: a stream reports each failed operation once.
const drainTries = 64

// Recover waits until nothing runs on the queue any more and forgets what
// failed on it: the communicators of what was enqueued must have been aborted.
// What the device's memory holds then is up to the caller to know. The error
// shows that the stream itself does not go on.
func (q *Queue) Recover() error {
	q.err = nil
	for range drainTries {
		if C.cudaStreamSynchronize(q.stream) == C.cudaSuccess {
			return nil
		}
	}
	q.err = cudaErr("cudaStreamSynchronize", C.cudaStreamSynchronize(q.stream))
	return q.err
}

// Memory is a range of device memory in bytes. It lives as long as the
// process.
type Memory struct {
	p     unsafe.Pointer
	bytes int
}

// At is the part of m of n bytes from byte off on.
func (m Memory) At(off, n int) Memory {
	if off < 0 || n < 0 || off+n > m.bytes {
		panic(fmt.Sprintf("device: range %d+%d beyond %d bytes", off, n, m.bytes))
	}
	return Memory{unsafe.Add(m.p, off), n}
}

// Floats is a range of device memory in float32 elements.
type Floats struct {
	p unsafe.Pointer
	n int
}

const floatBytes = 4

// Alloc reserves bytes of zeroed device memory.
func (q *Queue) Alloc(bytes int) Memory {
	m := Memory{bytes: bytes}
	q.fail(cudaErr("cudaMalloc", C.cudaMalloc(&m.p, C.size_t(max(bytes, 1)))))
	q.Zero(m)
	return m
}

// AllocFloats reserves n zeroed elements.
func (q *Queue) AllocFloats(n int) Floats {
	return Floats{q.Alloc(n * floatBytes).p, n}
}

// AllocHost reserves n zeroed elements of pinned host memory, for copies that
// run while the host goes on. It lives as long as the process.
func AllocHost[T any](q *Queue, n int) []T {
	var zero T
	var p unsafe.Pointer
	q.fail(cudaErr("cudaMallocHost", C.cudaMallocHost(&p, C.size_t(uintptr(max(n, 1))*unsafe.Sizeof(zero)))))
	if q.err != nil {
		return make([]T, n)
	}
	h := unsafe.Slice((*T)(p), n)
	clear(h)
	return h
}

// At is the part of f of n elements from element off on.
func (f Floats) At(off, n int) Floats {
	if off < 0 || n < 0 || off+n > f.n {
		panic(fmt.Sprintf("device: range %d+%d beyond %d elements", off, n, f.n))
	}
	return Floats{unsafe.Add(f.p, off*floatBytes), n}
}

// Len is the number of elements.
func (f Floats) Len() int { return f.n }

// Memory is the same range in bytes.
func (f Floats) Memory() Memory {
	return Memory{f.p, f.n * floatBytes}
}

func (f Floats) c() *C.float {
	return (*C.float)(f.p)
}

// Zero clears m.
func (q *Queue) Zero(m Memory) {
	if m.bytes > 0 {
		q.cuda("cudaMemsetAsync", func() C.cudaError_t {
			return C.cudaMemsetAsync(m.p, 0, C.size_t(m.bytes), q.stream)
		})
	}
}

// CopyIn enqueues a copy of pinned host memory to the device; h must stay
// untouched until the next Sync.
func CopyIn[T any](q *Queue, dst Memory, h []T) {
	q.copy(
		dst.p,
		unsafe.Pointer(unsafe.SliceData(h)),
		sized(dst, h),
		C.cudaMemcpyHostToDevice,
	)
}

// CopyOut enqueues a copy of device memory to pinned host memory; h may be
// read after the next Sync.
func CopyOut[T any](q *Queue, h []T, src Memory) {
	q.copy(
		unsafe.Pointer(unsafe.SliceData(h)),
		src.p,
		sized(src, h),
		C.cudaMemcpyDeviceToHost,
	)
}

// sized is the bytes of h, which must be those of m.
func sized[T any](m Memory, h []T) int {
	var zero T
	bytes := len(h) * int(unsafe.Sizeof(zero))
	if bytes != m.bytes {
		panic(fmt.Sprintf("device: copy of %d bytes to or from %d", bytes, m.bytes))
	}
	return bytes
}

func (q *Queue) copy(dst, src unsafe.Pointer, bytes int, kind uint32) {
	q.cuda("cudaMemcpyAsync", func() C.cudaError_t {
		return C.cudaMemcpyAsync(dst, src, C.size_t(bytes), kind, q.stream)
	})
}

// Matrix is a column-major view of device memory, transposed on reading when
// T is set. Rows and Cols are those after transposition.
type Matrix struct {
	Data       Floats
	Rows, Cols int
	T          bool
}

// Transpose is the same memory read the other way.
func (m Matrix) Transpose() Matrix {
	return Matrix{m.Data, m.Cols, m.Rows, !m.T}
}

func (m Matrix) stride() C.int {
	if m.T {
		return C.int(m.Cols)
	}
	return C.int(m.Rows)
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Gemm enqueues dst = a·b, or dst += a·b when add is set; dst is not transposed.
func (q *Queue) Gemm(dst, a, b Matrix, add bool) {
	if a.Rows != dst.Rows || b.Cols != dst.Cols || a.Cols != b.Rows {
		panic("device: shapes of a matrix product do not fit")
	}
	q.cublas("cublasSgemm", func() C.cublasStatus_t {
		return C.trainer_gemm(q.blas, flag(a.T), flag(b.T),
			C.int(dst.Rows), C.int(dst.Cols), C.int(a.Cols), a.Data.c(), a.stride(),
			b.Data.c(), b.stride(), C.float(flag(add)), dst.Data.c(), dst.stride())
	})
}

// Activate enqueues unit = relu(pre + bias), square = unit²; width×batch.
func (q *Queue) Activate(pre, bias, unit, square Floats, width, batch int) {
	q.cuda("activate", func() C.cudaError_t {
		return C.trainer_activate(
			q.stream,
			pre.c(),
			bias.c(),
			unit.c(),
			square.c(),
			C.int(width),
			C.int(batch),
		)
	})
}

// Join enqueues y = x + branch + bias; hidden×batch.
func (q *Queue) Join(y, x, branch, bias Floats, hidden, batch int) {
	q.cuda("join", func() C.cudaError_t {
		return C.trainer_join(
			q.stream,
			x.c(),
			branch.c(),
			bias.c(),
			y.c(),
			C.int(hidden),
			C.int(batch),
		)
	})
}

// ActivateBack turns the gradient of the squares into that before activation,
// in place, and adds both bias gradients; grad and unit are width×batch, out
// (the gradient of the layer's answer) hidden×batch.
func (q *Queue) ActivateBack(grad, unit, gradBias, out, gradOutBias Floats, width, hidden, batch int) {
	q.cuda("activate_back", func() C.cudaError_t {
		return C.trainer_activate_back(
			q.stream,
			grad.c(),
			unit.c(),
			gradBias.c(),
			C.int(width),
			out.c(),
			gradOutBias.c(),
			C.int(hidden),
			C.int(batch),
		)
	})
}

// Add enqueues x += y.
func (q *Queue) Add(x, y Floats) {
	q.cuda("add", func() C.cudaError_t {
		return C.trainer_add(q.stream, x.c(), y.c(), C.int(x.n))
	})
}

// Loss enqueues loss (one float64) += Σ|y − target|²/hidden, and its gradient.
func (q *Queue) Loss(y, target, grad Floats, loss Memory, hidden, batch int) {
	q.cuda("loss", func() C.cudaError_t {
		return C.trainer_loss(
			q.stream,
			y.c(),
			target.c(),
			grad.c(),
			(*C.double)(loss.p),
			C.int(hidden),
			C.int(batch),
		)
	})
}

// State is weights with their two moments, of one length.
type State struct{ Weight, First, Second Floats }

// At is the part of all three of n elements from element off on.
func (s State) At(off, n int) State {
	return State{s.Weight.At(off, n), s.First.At(off, n), s.Second.At(off, n)}
}

// Adam enqueues optimizer step number step (from 1): to becomes what follows
// from; they may be the same. The gradient is multiplied by scale first.
func (q *Queue) Adam(a model.Adam, step int64, scale float64, to, from State, grad Floats) {
	c1, c2 := a.Corrections(step)
	args := C.trainer_adam_args{
		weight:      from.Weight.c(),
		moment1:     from.First.c(),
		moment2:     from.Second.c(),
		grad:        grad.c(),
		weight_out:  to.Weight.c(),
		moment1_out: to.First.c(),
		moment2_out: to.Second.c(),
		n:           C.int64_t(from.Weight.n),
		scale:       C.float(scale),
		rate:        C.float(a.Rate),
		beta1:       C.float(a.Beta1),
		beta2:       C.float(a.Beta2),
		epsilon:     C.float(a.Epsilon),
		correct1:    C.float(c1),
		correct2:    C.float(c2),
	}
	q.cuda("adam", func() C.cudaError_t {
		return C.trainer_adam(q.stream, &args)
	})
}

// Spend enqueues nothing but modelled time for flops.
func (q *Queue) Spend(flops float64) {
	if flops > 0 {
		q.cuda("spend", func() C.cudaError_t {
			return C.trainer_spend(q.stream, C.double(flops))
		})
	}
}
