/* Plans: what a stream runs as one operation, and the order in which plans on
 * different streams may use a communicator (that of their calls). */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "nccl_internal.h"

#define SPIN_NAP_NS 1000000

void calls_free(call *list) {
  while (list) {
    call *next = list->next;
    comm_release(list->comm);
    free(list);
    list = next;
  }
}

plan *plan_new(call *calls) {
  plan *p = calloc(1, sizeof *p);
  int n = 0;
  for (call *c = calls; c; c = c->next) n++;
  link_t *links = calloc((size_t)n, sizeof *links);
  if (!p || !links) {
    free(p);
    free(links);
    return NULL;
  }
  p->calls = calls;
  p->n = n;
  p->links = links;
  p->wake = -1;
  return p;
}

void plan_free(plan *p) {
  calls_free(p->calls);
  free(p->links);
  free(p);
}

/* Makes the plan known to its communicators, so that they can wake and cancel it. */
ncclResult_t plan_begin(plan *p) {
  ncclResult_t rc = ncclSuccess;
  p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (p->wake < 0) return nccl_error(ncclSystemError, "out of file descriptors");
  for (call *c = p->calls; c; c = c->next) {
    link_t *l = &p->links[p->linked++];
    pthread_mutex_lock(&c->comm->mu);
    l->plan = p;
    l->next = c->comm->links;
    c->comm->links = l;
    c->comm->running++;
    if (c->comm->state >= COMM_REVOKED) rc = ncclInvalidUsage;
    else if (c->comm->broken) rc = c->comm->async;
    pthread_mutex_unlock(&c->comm->mu);
  }
  return rc;
}

static void unlink_from(ncclComm_t c, link_t *l) {
  pthread_mutex_lock(&c->mu);
  for (link_t **at = &c->links; *at; at = &(*at)->next)
    if (*at == l) {
      *at = l->next;
      break;
    }
  c->running--;
  pthread_cond_broadcast(&c->cv);
  pthread_mutex_unlock(&c->mu);
}

void plan_end(plan *p) {
  call *c = p->calls;
  for (int i = 0; i < p->linked; i++, c = c->next) unlink_from(c->comm, &p->links[i]);
  p->linked = 0;
  if (p->wake >= 0) close(p->wake);
  p->wake = -1;
}

/* Until all calls before this one have run. */
ncclResult_t wait_turn(ncclComm_t c, plan *p, const uint64_t *turn, uint64_t ticket) {
  ncclResult_t rc = ncclSuccess;
  pthread_mutex_lock(&c->mu);
  while (*turn < ticket && !c->broken && !atomic_load(&p->cancel)) pthread_cond_wait(&c->cv, &c->mu);
  if (c->broken) rc = c->async;
  else if (atomic_load(&p->cancel)) rc = ncclInvalidUsage;
  pthread_mutex_unlock(&c->mu);
  return rc;
}

void pass_turn(ncclComm_t c, uint64_t *turn, uint64_t ticket) {
  pthread_mutex_lock(&c->mu);
  if (*turn <= ticket) *turn = ticket + 1;
  pthread_cond_broadcast(&c->cv);
  pthread_mutex_unlock(&c->mu);
}

static int is_p2p(const call *c) { return c->kind == OP_SEND || c->kind == OP_RECV; }

static void note_times(call *c, const falcon_lab_run *run, int64_t from, int64_t to) {
  c->began_ns = run->paced ? from : run->start_ns;
  c->ended_ns = run->paced ? to : falcon_lab_now_ns();
}

/* On a GPU the kernel of a call whose peer is gone spins until its communicator is given up, as a framework's
 * watchdog does. Who has none gets the error at once. */
static void spin(plan *p) {
  while (falcon_lab_hollow() && !atomic_load(&p->cancel)) nanosleep(&(struct timespec){0, SPIN_NAP_NS}, NULL);
}

static int plan_run(void *arg, falcon_lab_run *run) {
  plan *p = arg;
  ncclResult_t rc = plan_begin(p);
  int64_t at_ns = run->start_ns;
  int p2p = 0;
  for (call *c = p->calls; c && rc == ncclSuccess; c = c->next) {
    when at = {at_ns, 0};
    if (is_p2p(c)) {
      p2p = 1;
      continue;
    }
    rc = coll_run(p, c, &at);
    note_times(c, run, at_ns, at.start_ns + at.transfer_ns);
    at_ns = at.start_ns + at.transfer_ns;
  }
  int64_t from = at_ns;
  if (rc == ncclSuccess && p2p) rc = p2p_run(p, at_ns, &at_ns);
  for (call *c = p->calls; c; c = c->next)
    if (is_p2p(c)) note_times(c, run, from, at_ns);
  if (rc == ncclSuccess) run->end_ns = at_ns;
  if (rc == ncclRemoteError) spin(p);
  return rc == ncclSuccess ? 0 : cudaErrorLaunchFailure;
}

static void plan_release(void *arg) {
  plan *p = arg;
  plan_end(p);
  watch_device(p->calls);
  for (call *c = p->calls; c; c = c->next) {
    pthread_mutex_lock(&c->comm->mu);
    c->comm->pending--;
    pthread_cond_broadcast(&c->comm->cv);
    pthread_mutex_unlock(&c->comm->mu);
  }
  plan_free(p);
}

ncclResult_t plan_submit(call *calls) {
  plan *p = plan_new(calls);
  cudaStream_t stream = calls->stream;
  if (!p) {
    calls_free(calls);
    return nccl_error(ncclSystemError, "out of memory");
  }
  for (call *c = calls; c; c = c->next) {
    pthread_mutex_lock(&c->comm->mu);
    c->comm->pending++;
    pthread_mutex_unlock(&c->comm->mu);
  }
  watch_launch(calls);
  falcon_lab_op op = {.fn = plan_run, .arg = p, .release = plan_release, .cancel = &p->cancel, .transfer = 1};
  if (falcon_lab_enqueue(stream, &op) != cudaSuccess)
    return nccl_error(ncclUnhandledCudaError, "not a stream, or one that was destroyed");
  return ncclSuccess;
}
