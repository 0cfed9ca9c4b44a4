/* Communicators: registry, life and death, errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_internal.h"

pthread_mutex_t net_mu = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t registry; /* published communicators */

static __thread char thread_error[ERROR_BYTES];

uint64_t fnv64(uint64_t h, const void *p, size_t n) {
  for (const unsigned char *b = p; n--; b++) h = (h ^ *b) * 1099511628211ull;
  return h;
}

/* ---- errors ---- */

ncclResult_t nccl_error(ncclResult_t why, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(thread_error, sizeof thread_error, fmt, ap);
  va_end(ap);
  return why;
}

static void wake_all_locked(ncclComm_t c, int cancel) {
  uint64_t one = 1;
  pthread_cond_broadcast(&c->cv);
  for (link_t *l = c->links; l; l = l->next) {
    if (cancel) atomic_store(&l->plan->cancel, 1);
    if (write(l->plan->wake, &one, sizeof one) < 0) continue; /* full means awake already */
  }
}

/* Tells every peer, by closing without a farewell, that nothing more will come. */
static void hang_up_locked(ncclComm_t c) {
  for (int i = 0; i < c->n; i++)
    if (c->peers[i].control >= 0) shutdown(c->peers[i].control, SHUT_RDWR);
}

/* An operation failed for good: so does the communicator, here and, through
 * the control connections, at the others, who might wait for us. */
ncclResult_t comm_fail(ncclComm_t c, ncclResult_t why, const char *fmt, ...) {
  va_list ap;
  pthread_mutex_lock(&c->mu);
  if (c->state < COMM_REVOKED) {
    if (c->error[0] == 0) {
      va_start(ap, fmt);
      vsnprintf(c->error, sizeof c->error, fmt, ap);
      va_end(ap);
    }
    if (c->async == ncclSuccess) c->async = why;
    c->broken = 1;
    hang_up_locked(c);
    wake_all_locked(c, 0);
  }
  pthread_mutex_unlock(&c->mu);
  return why;
}

/* May a new call use it? */
ncclResult_t comm_usable(ncclComm_t c) {
  pthread_mutex_lock(&c->mu);
  int state = c->state, making = c->making;
  ncclResult_t async = c->async;
  pthread_mutex_unlock(&c->mu);
  if (making) return nccl_error(ncclInvalidUsage, "the communicator is not ready: wait until ncclCommGetAsyncError says so");
  if (state == COMM_LIVE && async == ncclSuccess) return ncclSuccess;
  if (state == COMM_FINALIZED) return nccl_error(ncclInvalidUsage, "the communicator was finalized");
  if (state == COMM_REVOKED) return nccl_error(ncclInvalidUsage, "the communicator was revoked");
  if (state == COMM_ABORTED) return nccl_error(ncclInvalidUsage, "the communicator was aborted");
  return nccl_error(async, "%s", c->error);
}

/* ---- birth, references, death ---- */

ncclComm_t comm_new(uint64_t id, int n, int rank, int device) {
  ncclComm_t c = calloc(1, sizeof *c);
  peer *peers = calloc((size_t)n, sizeof *peers);
  if (!c || !peers) {
    free(c);
    free(peers);
    return NULL;
  }
  for (int i = 0; i < n; i++) peers[i].control = -1;
  c->peers = peers;
  c->refs = 1;
  c->id = id;
  c->n = n;
  c->rank = rank;
  c->device = device;
  pthread_mutex_init(&c->mu, NULL);
  pthread_cond_init(&c->cv, NULL);
  return c;
}

void comm_publish(ncclComm_t c) {
  events_open(&c->events, c->id, c->n, c->rank, NULL);
  pthread_mutex_lock(&net_mu);
  c->next = registry;
  registry = c;
  net_claim_stash();
  pthread_mutex_unlock(&net_mu);
}

/* 1 for the one caller that took it out: the handle's reference is its to drop. */
static int unpublish(ncclComm_t c) {
  pthread_mutex_lock(&net_mu);
  ncclComm_t *p = &registry;
  while (*p && *p != c) p = &(*p)->next;
  int found = *p == c;
  if (found) *p = c->next;
  pthread_mutex_unlock(&net_mu);
  return found;
}

ncclComm_t comm_acquire(ncclComm_t handle) {
  pthread_mutex_lock(&net_mu);
  ncclComm_t c = registry;
  while (c && c != handle) c = c->next;
  if (c) c->refs++;
  pthread_mutex_unlock(&net_mu);
  if (!c) nccl_error(ncclInvalidArgument, "not a communicator, or one that was destroyed");
  return c;
}

ncclComm_t comm_find_locked(uint64_t id, int rank) {
  for (ncclComm_t c = registry; c; c = c->next)
    if (c->id == id && c->rank == rank) return c;
  return NULL;
}

void comm_hold(ncclComm_t c) {
  pthread_mutex_lock(&net_mu);
  c->refs++;
  pthread_mutex_unlock(&net_mu);
}

static void comm_free(ncclComm_t c) {
  events_close(&c->events);
  for (int i = 0; i < c->n; i++) {
    peer *p = &c->peers[i];
    for (int ch = 0; ch < CH_COUNT; ch++) {
      conn_free(p->out[ch]);
      conn_free(p->in[ch]);
    }
    if (p->control < 0) continue;
    net_forget(p->control, p->control_gen);
    close(p->control);
  }
  pthread_mutex_destroy(&c->mu);
  pthread_cond_destroy(&c->cv);
  free(c->peers);
  free(c);
}

void comm_release(ncclComm_t c) {
  pthread_mutex_lock(&net_mu);
  int last = --c->refs == 0;
  pthread_mutex_unlock(&net_mu);
  if (last) comm_free(c);
}

/* ---- from the service thread, net lock held ---- */

void comm_deliver_locked(ncclComm_t c, int from, int channel, int fd) {
  peer *p = &c->peers[from];
  if (channel == CH_CONTROL) {
    uint32_t gen = net_watch_control(c, from, fd);
    pthread_mutex_lock(&c->mu);
    p->control = fd;
    p->control_gen = gen;
    pthread_cond_broadcast(&c->cv);
    pthread_mutex_unlock(&c->mu);
    return;
  }
  conn *k = conn_new(fd);
  if (!k) {
    close(fd);
    return;
  }
  pthread_mutex_lock(&c->mu);
  if (!p->in[channel]) {
    p->in[channel] = k;
    k = NULL;
  }
  wake_all_locked(c, 0);
  pthread_mutex_unlock(&c->mu);
  conn_free(k); /* a second one: not from our own kind */
}

void comm_peer_gone_locked(ncclComm_t c, int rank, int left) {
  pthread_mutex_lock(&c->mu);
  c->peers[rank].state = left ? PEER_LEFT : PEER_DEAD;
  if (!left && c->state == COMM_LIVE && c->async == ncclSuccess) {
    c->async = ncclRemoteError;
    snprintf(c->error, sizeof c->error, "rank %d is gone or gave up", rank);
  }
  wake_all_locked(c, 0);
  pthread_mutex_unlock(&c->mu);
}

/* ---- API ---- */

#define API __attribute__((visibility("default")))
#define ALIAS(name) __attribute__((visibility("default"), weak, alias("p" #name)))

/* Waits until fewer than limit plans are left; -1 at the deadline. */
static int drain(ncclComm_t c, const int *count, int64_t deadline_ns) {
  int rc = 0;
  struct timespec ts;
  pthread_mutex_lock(&c->mu);
  while (*count > 0 && rc == 0) {
    int64_t left = deadline_ns - falcon_lab_now_ns();
    clock_gettime(CLOCK_REALTIME, &ts);
    left = left < 0 ? 0 : left > 50000000 ? 50000000 : left;
    ts.tv_nsec += left;
    if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
    if (left == 0) rc = -1;
    else pthread_cond_timedwait(&c->cv, &c->mu, &ts);
  }
  pthread_mutex_unlock(&c->mu);
  return rc;
}

static void stop(ncclComm_t c, int state) {
  pthread_mutex_lock(&c->mu);
  if (c->state < state) {
    c->state = state;
    __atomic_store_n(&c->cancel, 1, __ATOMIC_RELEASE);
    snprintf(c->error, sizeof c->error, "the communicator was %s", state == COMM_REVOKED ? "revoked" : "aborted");
    hang_up_locked(c);
    wake_all_locked(c, 1);
  }
  pthread_mutex_unlock(&c->mu);
}

static void retire(ncclComm_t c) {
  if (unpublish(c)) comm_release(c); /* the handle's */
  comm_release(c);                   /* ours */
}

void comm_discard(ncclComm_t c) {
  comm_hold(c);
  stop(c, COMM_ABORTED);
  drain(c, &c->running, net_deadline());
  retire(c);
}

API ncclResult_t pncclCommAbort(ncclComm_t handle) {
  ncclComm_t c = comm_acquire(handle);
  if (!c) return ncclInvalidArgument;
  stop(c, COMM_ABORTED);
  drain(c, &c->running, net_deadline());
  retire(c);
  return ncclSuccess;
}

/* Blocked calls return, later ones fail; the handle lives until its destroy or abort. */
API ncclResult_t pncclCommRevoke(ncclComm_t handle, int flags) {
  ncclComm_t c = flags == NCCL_REVOKE_DEFAULT ? comm_acquire(handle) : NULL;
  if (!c) return ncclInvalidArgument;
  stop(c, COMM_REVOKED);
  comm_release(c);
  return ncclSuccess;
}

API ncclResult_t pncclCommFinalize(ncclComm_t handle) {
  ncclComm_t c = comm_acquire(handle);
  if (!c) return ncclInvalidArgument;
  ncclResult_t rc = ncclSuccess;
  if (drain(c, &c->pending, net_deadline())) rc = nccl_error(ncclSystemError, "operations are still in flight");
  pthread_mutex_lock(&c->mu);
  if (rc == ncclSuccess && c->state == COMM_LIVE) c->state = COMM_FINALIZED;
  pthread_mutex_unlock(&c->mu);
  comm_release(c);
  return rc;
}

/* Sends what eager sends left behind, then a farewell to every peer. */
static void take_leave(ncclComm_t c) {
  int64_t deadline = falcon_lab_now_ns() + 10000000000;
  for (int i = 0; i < c->n * CH_COUNT; i++) {
    conn *k = c->peers[i / CH_COUNT].out[i % CH_COUNT];
    int rc = 1;
    do {
      if (!k) break;
      pthread_mutex_lock(&k->mu);
      rc = conn_flush_locked(k);
      pthread_mutex_unlock(&k->mu);
      if (rc == 0) usleep(500);
    } while (rc == 0 && falcon_lab_now_ns() < deadline);
  }
  for (int i = 0; i < c->n; i++)
    if (c->peers[i].control >= 0) {
      if (send(c->peers[i].control, "b", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) continue; /* gone itself */
    }
}

static int is_broken(ncclComm_t c) {
  pthread_mutex_lock(&c->mu);
  int broken = c->broken || c->making || c->state >= COMM_REVOKED;
  pthread_mutex_unlock(&c->mu);
  return broken;
}

/* Waits for what was enqueued, as the real one does, but not for ever; and not
 * at all on a broken communicator, whose queued calls may be behind others. */
API ncclResult_t pncclCommDestroy(ncclComm_t handle) {
  ncclComm_t c = comm_acquire(handle);
  if (!c) return ncclInvalidArgument;
  ncclResult_t rc = ncclSuccess;
  if (!is_broken(c) && drain(c, &c->pending, net_deadline()))
    rc = nccl_error(ncclSystemError, "operations never finished; the communicator was aborted");
  if (rc == ncclSuccess && !is_broken(c)) take_leave(c);
  else stop(c, COMM_ABORTED);
  drain(c, &c->running, net_deadline());
  retire(c);
  return rc;
}

API ncclResult_t pncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *result) {
  ncclComm_t c = result ? comm_acquire(handle) : NULL;
  if (!c) return ncclInvalidArgument;
  pthread_mutex_lock(&c->mu);
  *result = c->making ? ncclInProgress : c->async;
  pthread_mutex_unlock(&c->mu);
  comm_release(c);
  return ncclSuccess;
}

static ncclResult_t answer(ncclComm_t handle, int *to, size_t field) {
  ncclComm_t c = to ? comm_acquire(handle) : NULL;
  if (!c) return ncclInvalidArgument;
  memcpy(to, (const char *)c + field, sizeof *to);
  comm_release(c);
  return ncclSuccess;
}

API ncclResult_t pncclCommCount(const ncclComm_t c, int *n) { return answer(c, n, offsetof(struct ncclComm, n)); }
API ncclResult_t pncclCommUserRank(const ncclComm_t c, int *r) { return answer(c, r, offsetof(struct ncclComm, rank)); }
API ncclResult_t pncclCommCuDevice(const ncclComm_t c, int *d) { return answer(c, d, offsetof(struct ncclComm, device)); }

/* The text stays valid until this thread's next call here. */
API const char *pncclGetLastError(ncclComm_t handle) {
  static __thread char text[ERROR_BYTES];
  ncclComm_t c = handle ? comm_acquire(handle) : NULL;
  memcpy(text, thread_error, sizeof text);
  if (!c) return text;
  pthread_mutex_lock(&c->mu);
  if (c->error[0]) memcpy(text, c->error, sizeof text);
  pthread_mutex_unlock(&c->mu);
  comm_release(c);
  return text;
}

ALIAS(ncclCommAbort) ncclResult_t ncclCommAbort(ncclComm_t);
ALIAS(ncclCommRevoke) ncclResult_t ncclCommRevoke(ncclComm_t, int);
ALIAS(ncclCommFinalize) ncclResult_t ncclCommFinalize(ncclComm_t);
ALIAS(ncclCommDestroy) ncclResult_t ncclCommDestroy(ncclComm_t);
ALIAS(ncclCommGetAsyncError) ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ALIAS(ncclCommCount) ncclResult_t ncclCommCount(const ncclComm_t, int *);
ALIAS(ncclCommUserRank) ncclResult_t ncclCommUserRank(const ncclComm_t, int *);
ALIAS(ncclCommCuDevice) ncclResult_t ncclCommCuDevice(const ncclComm_t, int *);
ALIAS(ncclGetLastError) const char *ncclGetLastError(ncclComm_t);
