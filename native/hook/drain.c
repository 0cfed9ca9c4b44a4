/*
 * Have the streams drained? One event of ours per stream, recorded again behind
 * each call that passes an armed gate, on the thread that made the call and
 * while the stream is surely alive; the side thread asks only the events. So a
 * stream that the program destroyed is never touched.
 */
#include "cuda.h"
#include "pause.h"

#include <pthread.h>

/* cudaErrorStreamCaptureUnsupported and those that follow it. */
#define CUDA_CAPTURE_ERRORS 900
#define CUDA_CAPTURE_ERRORS_END 910

#define STREAMS 32u /* of one order; a job with more can't be asked */

static struct {
  pthread_mutex_t mu;     /* guards stream and n, for a few loads and stores */
  pthread_mutex_t making; /* guards the making of the events */
  void *event[STREAMS];
  void *stream[STREAMS];
  uint32_t n;
  int device;
  _Atomic bool ready;
} drain = {.mu = PTHREAD_MUTEX_INITIALIZER, .making = PTHREAD_MUTEX_INITIALIZER};

bool falcon_drain_ready(void) { return atomic_load_explicit(&drain.ready, memory_order_acquire); }

bool falcon_drain_prepare(int device) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  if (falcon_drain_ready()) return true;
  if (!cuda || device < 0) return false;
  pthread_mutex_lock(&drain.making);
  bool ok = true;
  for (uint32_t i = 0; ok && i < STREAMS; i++)
    ok = drain.event[i] || falcon_cuda_fine(cuda->event_create(&drain.event[i], CUDA_NO_TIMING));
  drain.device = device;
  if (ok) atomic_store_explicit(&drain.ready, true, memory_order_release);
  pthread_mutex_unlock(&drain.making);
  return ok;
}

void falcon_drain_reset(void) {
  pthread_mutex_lock(&drain.mu);
  drain.n = 0;
  pthread_mutex_unlock(&drain.mu);
}

void falcon_drain_forked(void) {
  pthread_mutex_init(&drain.mu, NULL);
  pthread_mutex_init(&drain.making, NULL);
}

static void *event_of(void *stream) {
  void *event = NULL;
  pthread_mutex_lock(&drain.mu);
  for (uint32_t i = 0; i < drain.n && !event; i++)
    if (drain.stream[i] == stream) event = drain.event[i];
  if (!event && drain.n < STREAMS) {
    drain.stream[drain.n] = stream;
    event = drain.event[drain.n++];
  }
  pthread_mutex_unlock(&drain.mu);
  return event;
}

static bool on_device(uint32_t comm) {
  int32_t d = comm < FALCON_COMMS_MAX ? __atomic_load_n(&falcon_hook.comms[comm].device, __ATOMIC_RELAXED) : -1;
  return d < 0 || d == drain.device;
}

bool falcon_drain_here(void) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  int device = -1;
  return cuda && falcon_drain_ready() && falcon_cuda_fine(cuda->get_device(&device)) && device == drain.device;
}

/* Before the events exist nothing is noted: the calls of the iterations that
 * pass before the cut come by on the same streams again. */
uint32_t falcon_drain_note(uint32_t comm, void *stream) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  int capture = 0;
  if (!cuda || !falcon_drain_ready()) return FALCON_REASON_NONE;
  int rc = cuda->capturing(stream, &capture);
  if (capture || (rc >= CUDA_CAPTURE_ERRORS && rc < CUDA_CAPTURE_ERRORS_END)) {
    falcon_cuda_fine(rc);
    return FALCON_REASON_CAPTURE;
  }
  if (!falcon_cuda_fine(rc)) return FALCON_REASON_NO_CUDA;
  void *event = on_device(comm) ? event_of(stream) : NULL;
  return event && falcon_cuda_fine(cuda->event_record(event, stream)) ? FALCON_REASON_NONE : FALCON_REASON_NO_CUDA;
}

enum falcon_drain falcon_drain_ask(void) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  if (!cuda || !falcon_drain_ready()) return DRAIN_BROKEN;
  pthread_mutex_lock(&drain.mu);
  uint32_t n = drain.n;
  pthread_mutex_unlock(&drain.mu);
  for (uint32_t i = 0; i < n; i++) {
    int rc = cuda->event_query(drain.event[i]);
    if (rc) falcon_cuda_fine(rc);
    if (rc) return rc == CUDA_NOT_READY ? DRAIN_RUNNING : DRAIN_BROKEN;
  }
  return DRAIN_DONE;
}
