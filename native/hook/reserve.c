/*
 * What the active tests will need, reserved at the first communicator of the
 * process and kept: $FALCON_TEST_MB of device memory where 1 GiB of the GPU stays
 * free (default 0 = none and no call of CUDA at all; falcon-agent run asks for
 * 64), two streams, events, and cuBLAS's handle where a libcublas is loaded. What fails here is missing later, and the test refused.
 */
#include "pause.h"
#include "probe.h"

#include <stdlib.h>

#define DEFAULT_MB 0
#define MAX_MB 4096
#define ROOM_BYTES ((size_t)1 << 30) /* of the GPU that stay free */
#define CUBLAS_SHARE 8u /* a part of the workspace, for cuBLAS itself */
#define EVENT_TIMED 0u

falcon_workspace falcon_work;
static _Atomic bool ready;

bool falcon_work_ready(void) { return atomic_load_explicit(&ready, memory_order_acquire); }

static size_t wanted_bytes(void) {
  const char *mb = getenv("FALCON_TEST_MB");
  char *end = NULL;
  long v = mb && *mb ? strtol(mb, &end, 10) : DEFAULT_MB;
  if ((end && *end) || v < 0) v = DEFAULT_MB;
  return (size_t)(v < MAX_MB ? v : MAX_MB) << 20;
}

static bool make_streams(const falcon_cuda_api *cuda) {
  if (!cuda->stream_create || !cuda->stream_query || !cuda->stream_sync || !cuda->alloc || !cuda->free_info || !cuda->fill) return false;
  return falcon_cuda_fine(cuda->stream_create(&falcon_work.sends, CUDA_NON_BLOCKING)) &&
         falcon_cuda_fine(cuda->stream_create(&falcon_work.computes, CUDA_NON_BLOCKING));
}

static bool make_events(const falcon_cuda_api *cuda) {
  bool ok = true;
  for (uint32_t i = 0; ok && i <= PROBE_REPEATS_MAX; i++) ok = falcon_cuda_fine(cuda->event_create(&falcon_work.event[i], EVENT_TIMED));
  return ok;
}

/* A libcublas that comes only later is not used: its handle takes memory. */
static void make_cublas(void) {
  int (*create)(void **) = (int (*)(void **))falcon_cublas("cublasCreate_v2");
  int (*stream)(void *, void *) = (int (*)(void *, void *))falcon_cublas("cublasSetStream_v2");
  int (*workspace)(void *, void *, size_t) = (int (*)(void *, void *, size_t))falcon_cublas("cublasSetWorkspace_v2");
  void *handle = NULL;
  if (!create || !stream || !falcon_cublas("cublasSgemm_v2") || create(&handle) || stream(handle, falcon_work.computes)) return;
  size_t share = falcon_work.bytes / CUBLAS_SHARE;
  if (workspace && !workspace(handle, falcon_work.memory + falcon_work.bytes - share, share)) falcon_work.cublas_bytes = share;
  falcon_work.cublas = handle;
}

/* A GPU that is nearly full belongs to the program: what we took could be what it lacks later. */
static bool is_roomy(const falcon_cuda_api *cuda, size_t bytes) {
  size_t free_bytes = 0, total = 0;
  return !cuda->free_info || (falcon_cuda_fine(cuda->free_info(&free_bytes, &total)) && free_bytes >= bytes + ROOM_BYTES);
}

static bool reserve(const falcon_cuda_api *cuda, size_t bytes) {
  void *p = NULL;
  if (!is_roomy(cuda, bytes)) return false;
  if (!falcon_cuda_fine(cuda->get_device(&falcon_work.device)) || !make_streams(cuda) || !make_events(cuda)) return false;
  if (!falcon_cuda_fine(cuda->alloc(&p, bytes)) || !p) return false;
  falcon_work.memory = p;
  falcon_work.bytes = bytes;
  make_cublas();
  falcon_drain_prepare(falcon_work.device);
  return true;
}

/* With NCCL_COMM_ID every unique id leads to the one root that it names, and with
 * NCCL_COMM_BLOCKING=1 nothing could end an init whose peer never comes. Read
 * here, on a thread of the program's that uses NCCL anyway. */
static bool bound(void) {
  const char *id = getenv("NCCL_COMM_ID"), *blocking = getenv("NCCL_COMM_BLOCKING");
  return (id && *id) || (blocking && strtol(blocking, NULL, 0) == 1);
}

/* In relaxed capture mode: another thread may capture a graph meanwhile. */
FALCON_COLD void falcon_reserve_tests(void) {
  static _Atomic bool once;
  if (atomic_exchange(&once, true)) return;
  falcon_work.bound = bound();
  size_t bytes = wanted_bytes();
  const falcon_cuda_api *cuda = bytes ? falcon_cuda_find() : NULL;
  int mode = CUDA_CAPTURE_RELAXED;
  if (!cuda) return;
  bool swapped = cuda->exchange_mode && falcon_cuda_fine(cuda->exchange_mode(&mode));
  bool ok = reserve(cuda, bytes);
  if (swapped) falcon_cuda_fine(cuda->exchange_mode(&mode));
  if (!ok) return;
  atomic_store_explicit(&ready, true, memory_order_release);
  __atomic_store_n(&falcon_hook.control->test_workspace, (uint64_t)bytes, __ATOMIC_RELEASE);
}
