/*
 * Rendezvous. A unique id names a listener in the process that made it; a
 * short-lived thread there collects the address of every rank and sends all of
 * them to each. Then the ranks connect pairwise. Every step has a deadline.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_internal.h"

#define ID_MAGIC     0x44494c4e4f434c46ull
#define ROOT_IDLE_NS 600000000000ll /* an unused id is forgotten after 10 minutes */
#define GREET_NS     5000000000ll

typedef struct id_words {
  uint64_t magic, nonce;
  uint32_t ip;
  uint16_t port;
} id_words;

typedef struct join {
  uint64_t magic, nonce;
  int32_t n, rank;
  address at;
} join_t;

enum verdict { JOINED = 0, DISAGREE = 1, TAKEN = 2 };

typedef struct root {
  int fd;
  uint64_t nonce;
} root;

/* ---- root ---- */

typedef struct roll {
  int n, have;
  int *fds;
  address *at;
} roll;

static void refuse(roll *r, int verdict) {
  for (int i = 0; i < r->n; i++)
    if (r->fds[i] >= 0) net_write_all(r->fds[i], &verdict, sizeof verdict, falcon_lab_now_ns() + GREET_NS);
}

/* Enters one rank; a verdict other than JOINED ends the rendezvous. */
static int enter(roll *r, int fd, const join_t *j) {
  if (!r->fds) {
    if (j->n < 1 || j->n > RANKS_MAX) return DISAGREE;
    r->fds = malloc(sizeof *r->fds * (size_t)j->n);
    r->at = calloc((size_t)j->n, sizeof *r->at);
    if (!r->fds || !r->at) return DISAGREE;
    r->n = j->n;
    for (int i = 0; i < j->n; i++) r->fds[i] = -1;
  }
  if (j->n != r->n || j->rank < 0 || j->rank >= r->n) return DISAGREE;
  if (r->fds[j->rank] >= 0) return TAKEN;
  r->fds[j->rank] = fd;
  r->at[j->rank] = j->at;
  r->have++;
  return JOINED;
}

static void send_roll(roll *r) {
  int verdict = JOINED;
  int64_t deadline = falcon_lab_now_ns() + GREET_NS;
  for (int i = 0; i < r->n; i++)
    if (net_write_all(r->fds[i], &verdict, sizeof verdict, deadline) == 0)
      net_write_all(r->fds[i], r->at, sizeof *r->at * (size_t)r->n, deadline);
}

/* Accepts one rank; -1 when the deadline passed. */
static int admit(root *o, roll *r, int64_t deadline) {
  int64_t left = deadline - falcon_lab_now_ns();
  struct pollfd p = {o->fd, POLLIN, 0};
  if (left <= 0 || poll(&p, 1, (int)(left / 1000000) + 1) == 0) return -1;
  int fd = accept4(o->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return 0;
  join_t j;
  if (net_read_all(fd, &j, sizeof j, falcon_lab_now_ns() + GREET_NS) || j.magic != ID_MAGIC || j.nonce != o->nonce) {
    close(fd);
    return 0;
  }
  int verdict = enter(r, fd, &j);
  if (verdict == JOINED) return 0;
  net_write_all(fd, &verdict, sizeof verdict, falcon_lab_now_ns() + GREET_NS);
  close(fd);
  if (r->fds) refuse(r, verdict);
  return -1;
}

static void *preside(void *arg) {
  root *o = arg;
  roll r = {0};
  int64_t deadline = falcon_lab_now_ns() + ROOT_IDLE_NS;
  while (r.n == 0 || r.have < r.n) {
    int before = r.have;
    if (admit(o, &r, deadline)) break;
    if (before == 0 && r.have == 1) deadline = net_deadline();
  }
  if (r.n && r.have == r.n) send_roll(&r);
  for (int i = 0; i < r.n; i++)
    if (r.fds[i] >= 0) close(r.fds[i]);
  close(o->fd);
  free(r.fds);
  free(r.at);
  free(o);
  return NULL;
}

static int start_root(root *o) {
  sigset_t all, old;
  pthread_t t;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&t, NULL, preside, o);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc == 0) pthread_detach(t);
  return rc;
}

ncclResult_t boot_unique_id(ncclUniqueId *id) {
  id_words w = {.magic = ID_MAGIC};
  unsigned char salt[NCCL_UNIQUE_ID_BYTES - sizeof w];
  root *o = calloc(1, sizeof *o);
  if (!o || getrandom(&w.nonce, sizeof w.nonce, 0) < 0 || getrandom(salt, sizeof salt, 0) < 0) {
    free(o);
    return nccl_error(ncclSystemError, "out of memory or of random numbers");
  }
  o->nonce = w.nonce;
  o->fd = net_listen(&w.ip, &w.port);
  if (o->fd < 0 || start_root(o)) {
    if (o->fd >= 0) close(o->fd);
    free(o);
    return nccl_error(ncclSystemError, "can't listen on FALCON_LAB_ADDR or 127.0.0.1");
  }
  memcpy(id->internal, &w, sizeof w);
  memcpy(id->internal + sizeof w, salt, sizeof salt);
  return ncclSuccess;
}

/* ---- ranks ---- */

static ncclResult_t read_roll(int fd, int n, address *table, int64_t deadline) {
  int verdict;
  if (net_read_all(fd, &verdict, sizeof verdict, deadline))
    return nccl_error(ncclRemoteError, "not all %d ranks came to the rendezvous in time", n);
  if (verdict == DISAGREE) return nccl_error(ncclInvalidArgument, "ranks disagree on the number of ranks (%d here)", n);
  if (verdict == TAKEN) return nccl_error(ncclInvalidArgument, "two processes claim the same rank");
  if (net_read_all(fd, table, sizeof *table * (size_t)n, deadline))
    return nccl_error(ncclRemoteError, "the rendezvous broke off");
  return ncclSuccess;
}

static ncclResult_t meet(const id_words *w, int n, int rank, const address *self, address *table) {
  int64_t deadline = net_deadline() + 1000000000; /* the root's verdict first */
  join_t j = {.magic = ID_MAGIC, .nonce = w->nonce, .n = n, .rank = rank, .at = *self};
  int fd = net_dial(w->ip, w->port, deadline);
  if (fd < 0) return nccl_error(ncclRemoteError, "no process listens for this unique id any more");
  ncclResult_t rc = ncclSuccess;
  if (net_write_all(fd, &j, sizeof j, deadline)) rc = nccl_error(ncclRemoteError, "the rendezvous broke off");
  if (rc == ncclSuccess) rc = read_roll(fd, n, table, deadline);
  close(fd);
  return rc;
}

static ncclResult_t dial_control(ncclComm_t c, int to, int64_t deadline) {
  peer *p = &c->peers[to];
  int fd = net_dial(p->at.ip, p->at.port, deadline);
  if (fd < 0 || net_hello(fd, c, to, CH_CONTROL, deadline)) {
    if (fd >= 0) close(fd);
    return nccl_error(ncclRemoteError, "rank %d can't be reached", to);
  }
  pthread_mutex_lock(&net_mu);
  comm_deliver_locked(c, to, CH_CONTROL, fd);
  pthread_mutex_unlock(&net_mu);
  return ncclSuccess;
}

/* Not for a peer that can't come any more: one is gone, or this communicator or
 * its parent was given up. */
static int may_come_locked(ncclComm_t c) {
  return !net_cancelled() && !__atomic_load_n(&c->cancel, __ATOMIC_RELAXED) && c->async == ncclSuccess;
}

static ncclResult_t await_control(ncclComm_t c, int from, int64_t deadline) {
  pthread_mutex_lock(&c->mu);
  while (c->peers[from].control < 0 && may_come_locked(c) && falcon_lab_now_ns() < deadline) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_nsec += CANCEL_SLICE_NS;
    if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&c->cv, &c->mu, &ts);
  }
  int ok = c->peers[from].control >= 0;
  pthread_mutex_unlock(&c->mu);
  return ok ? ncclSuccess : nccl_error(ncclRemoteError, "rank %d never connected", from);
}

/* The control connections: higher ranks dial lower ones. */
ncclResult_t boot_mesh(ncclComm_t c) {
  int64_t deadline = net_deadline();
  ncclResult_t rc = ncclSuccess;
  for (int i = 0; i < c->rank && rc == ncclSuccess; i++) rc = dial_control(c, i, deadline);
  for (int i = c->rank + 1; i < c->n && rc == ncclSuccess; i++) rc = await_control(c, i, deadline);
  return rc;
}

/* A communicator that is known here, and not yet to its peers. */
static ncclResult_t found(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device, address *self) {
  id_words w;
  memcpy(&w, id->internal, sizeof w);
  ncclResult_t rc = net_start(self);
  if (rc == ncclSuccess && w.magic != ID_MAGIC) rc = nccl_error(ncclInvalidArgument, "not a unique id of this library");
  self->device = device;
  self->rank = rank;
  *out = rc == ncclSuccess ? comm_new(fnv64(FNV_START, id, sizeof *id), n, rank, device) : NULL;
  if (rc == ncclSuccess && !*out) rc = nccl_error(ncclSystemError, "out of memory");
  if (*out) comm_publish(*out);
  return rc;
}

static ncclResult_t gather(ncclComm_t c, const ncclUniqueId *id, const address *self) {
  address *table = calloc((size_t)c->n, sizeof *table);
  id_words w;
  memcpy(&w, id->internal, sizeof w);
  ncclResult_t rc = table ? meet(&w, c->n, c->rank, self, table) : nccl_error(ncclSystemError, "out of memory");
  pthread_mutex_lock(&c->mu);
  for (int i = 0; i < c->n && rc == ncclSuccess; i++) c->peers[i].at = table[i];
  pthread_mutex_unlock(&c->mu);
  free(table);
  return rc == ncclSuccess ? boot_mesh(c) : rc;
}

/* The handle is stored before the wait, as NCCL does: another thread may abort
 * by it a creation whose peers never come. */
ncclResult_t boot_init(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device) {
  address self;
  ncclComm_t c;
  ncclResult_t rc = found(&c, n, id, rank, device, &self);
  if (rc != ncclSuccess) return rc;
  comm_hold(c);
  __atomic_store_n(out, c, __ATOMIC_RELEASE);
  net_cancel = &c->cancel;
  rc = gather(c, id, &self);
  net_cancel = NULL;
  if (__atomic_load_n(&c->cancel, __ATOMIC_ACQUIRE)) rc = nccl_error(ncclRemoteError, "the communicator was given up while it was made");
  if (rc != ncclSuccess) {
    __atomic_store_n(out, NULL, __ATOMIC_RELEASE);
    comm_discard(c);
  }
  comm_release(c);
  return rc;
}

/* ---- blocking = 0: the same on a thread of its own, which holds a reference ---- */

typedef struct making {
  ncclComm_t comm;
  ncclUniqueId id;
  address self;
} making;

static void *make_aside(void *arg) {
  making *m = arg;
  net_cancel = &m->comm->cancel;
  ncclResult_t rc = gather(m->comm, &m->id, &m->self);
  if (rc != ncclSuccess) comm_fail(m->comm, rc, "%s", pncclGetLastError(NULL));
  pthread_mutex_lock(&m->comm->mu);
  m->comm->making = 0;
  pthread_cond_broadcast(&m->comm->cv);
  pthread_mutex_unlock(&m->comm->mu);
  comm_release(m->comm);
  free(m);
  return NULL;
}

static int start_making(making *m) {
  sigset_t all, old;
  pthread_t t;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&t, NULL, make_aside, m);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc == 0) pthread_detach(t);
  return rc;
}

/* The handle is valid at once; ncclCommGetAsyncError reports when it may be used. */
ncclResult_t boot_start(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device) {
  making *m = calloc(1, sizeof *m);
  ncclResult_t rc = m ? found(&m->comm, n, id, rank, device, &m->self) : nccl_error(ncclSystemError, "out of memory");
  if (rc != ncclSuccess) {
    free(m);
    return rc;
  }
  m->id = *id;
  ncclComm_t c = m->comm;
  pthread_mutex_lock(&c->mu);
  c->making = 1;
  pthread_mutex_unlock(&c->mu);
  comm_hold(c);
  if (start_making(m)) {
    comm_release(c);
    pncclCommAbort(c);
    free(m);
    return nccl_error(ncclSystemError, "can't start a thread");
  }
  __atomic_store_n(out, c, __ATOMIC_RELEASE);
  return ncclInProgress;
}
