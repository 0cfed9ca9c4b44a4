/* Events: a modelled time each, so that elapsed times are exact. */
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda_internal.h"
#include "include/falcon_lab_launch.h"

static pthread_mutex_t refs_mu = PTHREAD_MUTEX_INITIALIZER;

/* A GPU ends the kernels of an aborted communicator, and their events are as good as others. Here they
 * carry the error, for those who wait for them, until the device has told it: an allocator that keeps an
 * event for later must not stumble over it then. */
static _Atomic uint64_t era;

void events_forgive(void) { atomic_fetch_add(&era, 1); }

static int error_of_locked(const struct CUevent_st *e) { return e->era == atomic_load(&era) ? e->failed : 0; }

static int valid(cudaEvent_t e) { return e && e->magic == EVENT_MAGIC; }

static void event_hold(cudaEvent_t e) {
  pthread_mutex_lock(&refs_mu);
  e->refs++;
  pthread_mutex_unlock(&refs_mu);
}

void event_release(cudaEvent_t e) {
  pthread_mutex_lock(&refs_mu);
  int last = --e->refs == 0;
  pthread_mutex_unlock(&refs_mu);
  if (!last) return;
  pthread_mutex_destroy(&e->mu);
  pthread_cond_destroy(&e->cond);
  free(e);
}

void event_fire(cudaEvent_t e, uint64_t seq, int64_t time_ns, int failed) {
  pthread_mutex_lock(&e->mu);
  if (seq > e->done) {
    e->done = seq;
    e->time_ns = time_ns;
    e->failed = failed;
    e->era = atomic_load(&era);
  }
  pthread_cond_broadcast(&e->cond);
  pthread_mutex_unlock(&e->mu);
}

int64_t event_await(cudaEvent_t e, uint64_t seq, int *failed) {
  pthread_mutex_lock(&e->mu);
  while (e->done < seq) pthread_cond_wait(&e->cond, &e->mu);
  int64_t t = e->time_ns;
  *failed = error_of_locked(e);
  pthread_mutex_unlock(&e->mu);
  return t;
}

LAB_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  if (!event || flags > 7) return cuda_fail(cudaErrorInvalidValue);
  cudaEvent_t e = calloc(1, sizeof *e);
  if (!e) return cuda_fail(cudaErrorMemoryAllocation);
  e->magic = EVENT_MAGIC;
  e->flags = flags;
  e->refs = 1;
  pthread_mutex_init(&e->mu, NULL);
  pthread_cond_init(&e->cond, NULL);
  *event = e;
  return cudaSuccess;
}

LAB_API cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

LAB_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!valid(event)) return cuda_fail(cudaErrorInvalidResourceHandle);
  event_release(event);
  return cudaSuccess;
}

static cudaError_t push_event(cudaStream_t s, cudaEvent_t e, enum item_kind kind, uint64_t seq) {
  item *it = item_new(kind);
  if (!it) return cudaErrorMemoryAllocation;
  event_hold(e);
  it->event = e;
  it->seq = seq;
  return stream_push(s, it);
}

LAB_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  cudaStream_t s = valid(event) ? stream_acquire(stream) : NULL;
  if (!s) return cuda_fail(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&event->mu);
  uint64_t seq = ++event->recorded;
  pthread_mutex_unlock(&event->mu);
  cudaError_t rc = push_event(s, event, ITEM_RECORD, seq);
  stream_release(s);
  return cuda_fail(rc);
}

LAB_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}

LAB_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)flags;
  cudaStream_t s = valid(event) ? stream_acquire(stream) : NULL;
  if (!s) return cuda_fail(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&event->mu);
  uint64_t seq = event->recorded;
  pthread_mutex_unlock(&event->mu);
  cudaError_t rc = seq ? push_event(s, event, ITEM_WAIT_EVENT, seq) : cudaSuccess;
  stream_release(s);
  return cuda_fail(rc);
}

LAB_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!valid(event)) return cuda_fail(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&event->mu);
  cudaError_t rc = event->done < event->recorded ? cudaErrorNotReady : (cudaError_t)error_of_locked(event);
  pthread_mutex_unlock(&event->mu);
  return cuda_fail(rc);
}

LAB_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!valid(event)) return cuda_fail(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&event->mu);
  uint64_t seq = event->recorded;
  int blocked = event->done < seq;
  pthread_mutex_unlock(&event->mu);
  int failed = 0;
  int64_t t = event_await(event, seq, &failed);
  if (blocked) host_woke(t);
  return cuda_fail((cudaError_t)failed);
}

/* Time of a finished timed event; an error otherwise. */
static cudaError_t time_of(cudaEvent_t e, int64_t *ns) {
  if (!valid(e) || (e->flags & cudaEventDisableTiming)) return cudaErrorInvalidResourceHandle;
  pthread_mutex_lock(&e->mu);
  cudaError_t rc = cudaSuccess;
  if (!e->recorded) rc = cudaErrorInvalidResourceHandle;
  else if (e->done < e->recorded) rc = cudaErrorNotReady;
  *ns = e->time_ns;
  pthread_mutex_unlock(&e->mu);
  return rc;
}

LAB_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  int64_t a = 0, b = 0;
  if (!ms) return cuda_fail(cudaErrorInvalidValue);
  cudaError_t rc = time_of(start, &a);
  cudaError_t rd = time_of(end, &b);
  if (rc == cudaSuccess) rc = rd;
  if (rc == cudaSuccess) *ms = (float)((double)(b - a) / 1e6);
  return cuda_fail(rc);
}

LAB_API cudaError_t falcon_lab_event_ns(cudaEvent_t event, int64_t *ns) {
  return cuda_fail(ns ? time_of(event, ns) : cudaErrorInvalidValue);
}
