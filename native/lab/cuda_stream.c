/*
 * Streams: registry, queue, and the worker that runs operations at their
 * modelled pace. A worker thread belongs to its stream, drains it, and frees
 * it when the stream was destroyed; no call waits for a worker but the
 * synchronising ones.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cuda_internal.h"
#include "lab_busy.h"
#include "lab_state.h"

static pthread_mutex_t registry_mu = PTHREAD_MUTEX_INITIALIZER;
static cudaStream_t registry;
static cudaStream_t defaults[FALCON_LAB_GPUS];

static void stream_free(cudaStream_t s) {
  pthread_mutex_destroy(&s->mu);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->done);
  pthread_cond_destroy(&s->room);
  free(s);
}

void stream_release(cudaStream_t s) {
  pthread_mutex_lock(&registry_mu);
  int last = --s->refs == 0;
  pthread_mutex_unlock(&registry_mu);
  if (last) stream_free(s);
}

item *item_new(enum item_kind kind) {
  item *it = calloc(1, sizeof *it);
  if (it) it->kind = kind;
  return it;
}

static void item_free(item *it) {
  if (it->kind == ITEM_OP && it->op.release) it->op.release(it->op.arg);
  if (it->event) event_release(it->event);
  if (it->other) stream_release(it->other);
  free(it);
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- worker ---- */

static int run_op(cudaStream_t s, item *it) {
  falcon_lab_run run = {.paced = falcon_lab_paced()};
  int64_t chain = later(later(s->end_ns, s->floor_ns), it->enqueue_ns);
  run.start_ns = run.paced ? chain : falcon_lab_now_ns();
  run.end_ns = run.start_ns;
  if (run.paced) run.end_ns += (int64_t)(pace_kernel_s(s->device, it->op.flops) * 1e9 + 0.5);
  int rc = it->op.fn(it->op.arg, &run);
  if (run.paced) pace_until(run.end_ns, it->op.cancel);
  int64_t now = falcon_lab_now_ns();
  int cut = it->op.cancel && atomic_load(it->op.cancel);
  if (!run.paced || (cut && run.end_ns > now)) run.end_ns = now;
  lab_busy_add(s->device, run.end_ns - run.start_ns, it->op.flops > 0);
  pthread_mutex_lock(&s->mu);
  s->end_ns = run.end_ns;
  s->floor_ns = now - run.end_ns > FALCON_LAB_LATE_NS ? now : run.end_ns;
  s->exact = it->op.transfer;
  pthread_mutex_unlock(&s->mu);
  return rc;
}

/* The first event behind a transfer carries its modelled end; any other one
 * also the lost time, which so lands outside the measured transfers. */
static void run_record(cudaStream_t s, item *it) {
  int64_t t = falcon_lab_now_ns();
  pthread_mutex_lock(&s->mu);
  if (falcon_lab_paced()) {
    t = later(s->end_ns, it->enqueue_ns);
    if (!s->exact) t = later(t, s->floor_ns);
  }
  s->exact = 0;
  int failed = s->failed;
  pthread_mutex_unlock(&s->mu);
  event_fire(it->event, it->seq, t, failed);
}

static void catch_up(cudaStream_t s, int64_t t) {
  pthread_mutex_lock(&s->mu);
  s->end_ns = later(s->end_ns, t);
  pthread_mutex_unlock(&s->mu);
}

static int run_wait_stream(cudaStream_t s, item *it) {
  cudaStream_t o = it->other;
  pthread_mutex_lock(&o->mu);
  while (o->completed < it->seq) pthread_cond_wait(&o->done, &o->mu);
  int64_t t = o->end_ns;
  pthread_mutex_unlock(&o->mu);
  catch_up(s, t);
  return 0;
}

static int run_item(cudaStream_t s, item *it) {
  int failed = 0;
  switch (it->kind) {
    case ITEM_OP:
      return run_op(s, it);
    case ITEM_RECORD:
      run_record(s, it);
      return 0;
    case ITEM_WAIT_EVENT:
      catch_up(s, event_await(it->event, it->seq, &failed));
      return failed;
    case ITEM_WAIT_STREAM:
      return run_wait_stream(s, it);
  }
  return 0;
}

static item *pop(cudaStream_t s) {
  pthread_mutex_lock(&s->mu);
  while (!s->head && !s->closing) pthread_cond_wait(&s->work, &s->mu);
  item *it = s->head;
  if (it) {
    s->head = it->next;
    if (!s->head) s->tail = &s->head;
    s->depth--;
    pthread_cond_signal(&s->room);
  }
  pthread_mutex_unlock(&s->mu);
  return it;
}

/* A GPU does not wait for the host's scheduler: where permitted, a paced
 * stream runs ahead of ordinary threads, so that load on the machine (a build,
 * another lab) does not pass for slow silicon. Unpaced runs stay ordinary. */
static void keep_pace(void) {
  prctl(PR_SET_TIMERSLACK, 1ul); /* the default of 50 us would blunt every pace */
  struct sched_param rr = {.sched_priority = 1};
  if (falcon_lab_paced()) (void)pthread_setschedparam(pthread_self(), SCHED_RR, &rr);
}

static void *worker(void *arg) {
  cudaStream_t s = arg;
  keep_pace();
  prctl(PR_SET_NAME, "falcon-stream");
  for (item *it; (it = pop(s));) {
    int rc = run_item(s, it);
    item_free(it); /* before the stream counts it done: then its memory is the caller's again */
    pthread_mutex_lock(&s->mu);
    s->completed++;
    if (rc && !s->failed) s->failed = rc;
    pthread_cond_broadcast(&s->done);
    pthread_mutex_unlock(&s->mu);
  }
  stream_release(s);
  return NULL;
}

/* Workers take no signals: those belong to the host program's own threads. */
static int start_worker(cudaStream_t s) {
  pthread_attr_t attr;
  sigset_t all, old;
  pthread_t t;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, 1 << 20);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&t, &attr, worker, s);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return rc;
}

/* ---- registry ---- */

static cudaStream_t stream_new(int device, unsigned flags, int is_default) {
  cudaStream_t s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->device = device;
  s->flags = flags;
  s->is_default = is_default;
  s->refs = 1; /* the registry's; the worker's when it starts */
  s->listed = 1;
  s->tail = &s->head;
  pthread_mutex_init(&s->mu, NULL);
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->done, NULL);
  pthread_cond_init(&s->room, NULL);
  s->next = registry;
  registry = s;
  return s;
}

static cudaStream_t find_locked(cudaStream_t handle) {
  if (handle == NULL || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    int d = current_device();
    if (!defaults[d]) defaults[d] = stream_new(d, 0, 1);
    return defaults[d];
  }
  for (cudaStream_t s = registry; s; s = s->next)
    if (s == handle) return s;
  return NULL;
}

cudaStream_t stream_acquire(cudaStream_t handle) {
  pthread_mutex_lock(&registry_mu);
  cudaStream_t s = find_locked(handle);
  if (s) s->refs++;
  pthread_mutex_unlock(&registry_mu);
  return s;
}

/* ---- queue ---- */

/* The worker starts with the first item: frameworks make pools of streams and use few. */
static int ensure_worker(cudaStream_t s) {
  pthread_mutex_lock(&registry_mu);
  int rc = 0;
  if (!s->working) {
    s->refs++;
    rc = start_worker(s);
    if (rc) s->refs--;
    else s->working = 1;
  }
  pthread_mutex_unlock(&registry_mu);
  return rc;
}

static void append(cudaStream_t s, item *it) {
  pthread_mutex_lock(&s->mu);
  while (s->depth >= FALCON_LAB_QUEUE_MAX) pthread_cond_wait(&s->room, &s->mu);
  it->enqueue_ns = host_now_ns();
  *s->tail = it;
  s->tail = &it->next;
  s->depth++;
  s->enqueued++;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->mu);
}

/* An item that waits for all that o holds now; NULL when o is idle. Takes a
 * reference to o; called under the registry's lock. */
static item *wait_for(cudaStream_t o) {
  pthread_mutex_lock(&o->mu);
  uint64_t seq = o->enqueued;
  int busy = o->completed < seq;
  pthread_mutex_unlock(&o->mu);
  item *it = busy ? item_new(ITEM_WAIT_STREAM) : NULL;
  if (it) {
    it->other = o;
    it->seq = seq;
    o->refs++;
  }
  return it;
}

/* The legacy default stream runs after everything on the blocking streams of
 * its device and before everything that follows there. */
static item *legacy_waits(cudaStream_t s) {
  item *list = NULL;
  pthread_mutex_lock(&registry_mu);
  for (cudaStream_t o = registry; o; o = o->next) {
    int related = o != s && o->device == s->device && !(o->flags & cudaStreamNonBlocking) &&
                  (s->is_default || o->is_default);
    item *it = related ? wait_for(o) : NULL;
    if (it) {
      it->next = list;
      list = it;
    }
  }
  pthread_mutex_unlock(&registry_mu);
  return list;
}

/* Takes over it. */
cudaError_t stream_push(cudaStream_t s, item *it) {
  if (ensure_worker(s)) {
    item_free(it);
    return cuda_fail(cudaErrorMemoryAllocation);
  }
  item *waits = s->flags & cudaStreamNonBlocking ? NULL : legacy_waits(s);
  while (waits) {
    item *next = waits->next;
    waits->next = NULL;
    append(s, waits);
    waits = next;
  }
  append(s, it);
  return cudaSuccess;
}

LAB_API cudaError_t falcon_lab_enqueue(cudaStream_t stream, const falcon_lab_op *op) {
  cudaStream_t s = stream_acquire(stream);
  item *it = s ? item_new(ITEM_OP) : NULL;
  if (!it) {
    if (op->release) op->release(op->arg);
    if (s) stream_release(s);
    return cuda_fail(s ? cudaErrorMemoryAllocation : cudaErrorInvalidResourceHandle);
  }
  it->op = *op;
  cudaError_t rc = stream_push(s, it);
  stream_release(s);
  return rc;
}

LAB_API int falcon_lab_stream_device(cudaStream_t stream) {
  cudaStream_t s = stream_acquire(stream);
  if (!s) return -1;
  int d = s->device;
  stream_release(s);
  return d;
}

/* ---- waiting ---- */

cudaError_t stream_wait(cudaStream_t s) {
  pthread_mutex_lock(&s->mu);
  uint64_t seq = s->enqueued;
  int blocked = s->completed < seq;
  while (s->completed < seq) pthread_cond_wait(&s->done, &s->mu);
  int rc = s->failed;
  s->failed = 0;
  int64_t end = s->end_ns;
  pthread_mutex_unlock(&s->mu);
  if (blocked) host_woke(end);
  return (cudaError_t)rc;
}

static cudaStream_t nth_stream(int device, int n) {
  pthread_mutex_lock(&registry_mu);
  cudaStream_t s = registry;
  for (; s; s = s->next)
    if (s->device == device && n-- == 0) break;
  if (s) s->refs++;
  pthread_mutex_unlock(&registry_mu);
  return s;
}

/* Streams created meanwhile go to the front: one may be waited for twice, none
 * of the old ones is missed. */
cudaError_t stream_wait_all(void) {
  cudaError_t first = cudaSuccess;
  cudaStream_t s;
  for (int n = 0; (s = nth_stream(current_device(), n)); n++) {
    cudaError_t rc = stream_wait(s);
    stream_release(s);
    if (first == cudaSuccess) first = rc;
  }
  if (first != cudaSuccess) events_forgive();
  return first;
}

/* ---- API ---- */

LAB_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  if (!stream || (flags & ~(unsigned)cudaStreamNonBlocking)) return cuda_fail(cudaErrorInvalidValue);
  pthread_mutex_lock(&registry_mu);
  *stream = stream_new(current_device(), flags, 0);
  pthread_mutex_unlock(&registry_mu);
  return *stream ? cudaSuccess : cuda_fail(cudaErrorMemoryAllocation);
}

LAB_API cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

LAB_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  (void)priority;
  return cudaStreamCreateWithFlags(stream, flags);
}

/* Returns at once; what is queued still runs. */
LAB_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  pthread_mutex_lock(&registry_mu);
  cudaStream_t *p = &registry;
  while (*p && *p != stream) p = &(*p)->next;
  cudaStream_t s = *p;
  if (!s || s->is_default) {
    pthread_mutex_unlock(&registry_mu);
    return cuda_fail(cudaErrorInvalidResourceHandle);
  }
  *p = s->next;
  s->listed = 0;
  pthread_mutex_unlock(&registry_mu);
  pthread_mutex_lock(&s->mu);
  s->closing = 1;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->mu);
  stream_release(s);
  return cudaSuccess;
}

LAB_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaStream_t s = stream_acquire(stream);
  if (!s) return cuda_fail(cudaErrorInvalidResourceHandle);
  cudaError_t rc = stream_wait(s);
  stream_release(s);
  return cuda_fail(rc);
}

LAB_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  cudaStream_t s = stream_acquire(stream);
  if (!s) return cuda_fail(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&s->mu);
  cudaError_t rc = s->completed < s->enqueued ? cudaErrorNotReady : (cudaError_t)s->failed;
  pthread_mutex_unlock(&s->mu);
  stream_release(s);
  return cuda_fail(rc);
}

LAB_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  (void)stream;
  *priority = 0;
  return cudaSuccess;
}

/* CUDA 12 and 13 differ in what they are asked for besides; without a capture that is not set. */
LAB_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  return cudaStreamIsCapturing(stream, status);
}

LAB_API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  return cudaStreamIsCapturing(stream, status);
}

LAB_API cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
  (void)mode;
  return cudaSuccess;
}

LAB_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  cudaStream_t s = status ? stream_acquire(stream) : NULL;
  if (!s) return cuda_fail(status ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
  *status = cudaStreamCaptureStatusNone; /* the lab has no graphs */
  stream_release(s);
  return cudaSuccess;
}
