/* Finding the CUDA runtime once, and putting the hook's own threads on the right device. */
#include "cuda.h"

#include <pthread.h>

static falcon_cuda_api api;
static _Atomic bool found;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;

#define FIND(field, name) api.field = (__typeof__(api.field))falcon_cuda(name)

static bool find_all(void) {
  FIND(event_create, "cudaEventCreateWithFlags");
  FIND(event_record, "cudaEventRecord");
  FIND(event_query, "cudaEventQuery");
  FIND(event_elapsed, "cudaEventElapsedTime");
  FIND(capturing, "cudaStreamIsCapturing");
  FIND(get_device, "cudaGetDevice");
  FIND(set_device, "cudaSetDevice");
  FIND(last_error, "cudaGetLastError");
  FIND(exchange_mode, "cudaThreadExchangeStreamCaptureMode");
  FIND(alloc, "cudaMalloc");
  FIND(free_info, "cudaMemGetInfo");
  FIND(fill, "cudaMemsetAsync");
  FIND(stream_create, "cudaStreamCreateWithFlags");
  FIND(stream_query, "cudaStreamQuery");
  FIND(stream_sync, "cudaStreamSynchronize");
  return api.event_create && api.event_record && api.event_query && api.event_elapsed && api.capturing && api.get_device && api.set_device;
}

const falcon_cuda_api *falcon_cuda_find(void) {
  if (atomic_load_explicit(&found, memory_order_acquire)) return &api;
  pthread_mutex_lock(&finding);
  bool ok = atomic_load(&found) || find_all();
  if (ok) atomic_store_explicit(&found, true, memory_order_release);
  pthread_mutex_unlock(&finding);
  return ok ? &api : NULL;
}

bool falcon_cuda_fine(int rc) {
  if (rc && api.last_error) api.last_error();
  return !rc;
}

/* On any other device than the training's we would make a context, and take
 * hundreds of megabytes of its memory: so nothing is touched before it is known,
 * and the device comes before the mode, whose change alone makes a context. */
int falcon_cuda_enter(void) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  int device = -1, mode = CUDA_CAPTURE_RELAXED;
  if (!cuda) return -1;
  for (uint32_t i = 0; i < FALCON_COMMS_MAX && device < 0; i++)
    if (__atomic_load_n(&falcon_hook.comms[i].state, __ATOMIC_RELAXED) == FALCON_COMM_LIVE) device = falcon_comm_device(i);
  if (device < 0 || !falcon_cuda_fine(cuda->set_device(device))) return -1;
  if (cuda->exchange_mode) falcon_cuda_fine(cuda->exchange_mode(&mode));
  return device;
}
