/* Moves several messages at once, without a busy wait: each is a header and a
 * payload on a data connection; messages of one connection go in order. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_internal.h"

#define XFER_MAGIC 0x464c5831u

xfer xfer_make(const call *c, int channel, int to, int sending, const void *buf, size_t bytes, when at) {
  xfer x = {.comm = c->comm, .channel = channel, .peer = to, .sending = sending, .bytes = bytes, .ready = 1};
  x.buf = (void *)(uintptr_t)buf;
  x.kind = channel == CH_P2P ? 0x50325032u : (uint32_t)c->kind | (uint32_t)c->type << 8 | (uint32_t)c->op << 16;
  x.head = (header){.magic = XFER_MAGIC, .kind = x.kind, .bytes = bytes, .at = at};
  return x;
}

static int same_line(const xfer *a, const xfer *b) {
  return a->comm == b->comm && a->channel == b->channel && a->peer == b->peer && a->sending == b->sending;
}

static int first_in_line(const xfer *x, int i) {
  for (int j = 0; j < i; j++)
    if (!x[j].complete && same_line(&x[j], &x[i])) return 0;
  return 1;
}

static ncclResult_t lost(xfer *x) { return comm_fail(x->comm, ncclRemoteError, "lost rank %d", x->peer); }

/* What is left of header and payload, as at most two pieces. */
static int pieces(xfer *x, struct iovec *v) {
  int n = 0;
  if (x->done < sizeof x->head) v[n++] = (struct iovec){(char *)&x->head + x->done, sizeof x->head - x->done};
  size_t at = x->done > sizeof x->head ? x->done - sizeof x->head : 0;
  if (x->bytes > at) v[n++] = (struct iovec){(char *)x->buf + at, x->bytes - at};
  return n;
}

static size_t total(const xfer *x) { return sizeof x->head + x->bytes; }

/* 1 moved something, 0 would block, -1 broken; connection locked. */
static int push_locked(xfer *x, conn *k) {
  int moved = 0, flushed = conn_flush_locked(k);
  if (flushed != 1) return flushed;
  while (x->done < total(x)) {
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)pieces(x, v)};
    ssize_t n = sendmsg(k->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN ? moved : -1;
    x->done += (size_t)n;
    moved = 1;
  }
  x->complete = 1;
  return 1;
}

static ncclResult_t step_send(xfer *x, int *moved) {
  conn *k;
  ncclResult_t rc = conn_out(x->comm, x->channel, x->peer, &k);
  if (rc != ncclSuccess) return rc;
  pthread_mutex_lock(&k->mu);
  int n = push_locked(x, k);
  pthread_mutex_unlock(&k->mu);
  *moved |= n > 0;
  x->ready = 0; /* until poll reports it */
  return n < 0 ? lost(x) : ncclSuccess;
}

/* Leaves the rest of a send to the service thread; 0 when it is too much. */
static int leave_behind(xfer *x) {
  conn *k;
  struct iovec v[2];
  if (conn_out(x->comm, x->channel, x->peer, &k) != ncclSuccess) return 0;
  pthread_mutex_lock(&k->mu);
  int fits = k->out_len + total(x) - x->done <= EAGER_BYTES;
  for (int i = 0, n = pieces(x, v); fits && i < n; i++) fits = conn_queue_locked(k, v[i].iov_base, v[i].iov_len) == 0;
  if (fits) net_want_write(k);
  pthread_mutex_unlock(&k->mu);
  x->complete = fits;
  return fits;
}

/* Both sides must mean the same call; a mismatch would corrupt silently. */
static ncclResult_t check_header(xfer *x, const header *want) {
  if (x->head.magic == XFER_MAGIC && x->head.kind == want->kind && x->head.bytes == want->bytes) return ncclSuccess;
  return comm_fail(x->comm, ncclInvalidUsage, "rank %d called something else: %llu bytes of kind %x against %llu of %x",
                   x->peer, (unsigned long long)x->head.bytes, x->head.kind, (unsigned long long)want->bytes,
                   want->kind);
}

static ncclResult_t step_recv(xfer *x, int *moved) {
  conn *k = conn_in(x->comm, x->channel, x->peer);
  x->ready = 0; /* until poll reports it, or a delivery wakes us */
  if (!k) return ncclSuccess;
  header want = {.kind = x->kind, .bytes = x->bytes};
  while (x->done < total(x)) {
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)pieces(x, v)};
    ssize_t n = recvmsg(k->fd, &m, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return ncclSuccess;
    if (n <= 0) return lost(x);
    int had = x->done >= sizeof x->head;
    x->done += (size_t)n;
    *moved = 1;
    ncclResult_t rc = !had && x->done >= sizeof x->head ? check_header(x, &want) : ncclSuccess;
    if (rc != ncclSuccess) return rc;
  }
  x->complete = 1;
  return ncclSuccess;
}

/* No message moved: is there any point in waiting? */
static ncclResult_t hopeless(plan *p, xfer *x, int n) {
  if (atomic_load(&p->cancel)) return ncclInvalidUsage;
  for (int i = 0; i < n; i++) {
    ncclComm_t c = x[i].comm;
    if (x[i].complete) continue;
    pthread_mutex_lock(&c->mu);
    int state = c->peers[x[i].peer].state, connected = c->peers[x[i].peer].in[x[i].channel] != NULL;
    ncclResult_t async = c->broken ? c->async : ncclSuccess;
    pthread_mutex_unlock(&c->mu);
    if (state == PEER_DEAD || (state == PEER_LEFT && !x[i].sending && !connected)) return lost(&x[i]);
    if (async != ncclSuccess) return async;
  }
  return ncclSuccess;
}

static ncclResult_t sleep_on(plan *p, xfer *x, int n, int64_t deadline_ns) {
  struct pollfd few[33], *fds = n < 33 ? few : malloc(sizeof *fds * (size_t)(n + 1));
  int at[32], *of = n < 33 ? at : malloc(sizeof *of * (size_t)n), m = 0;
  if (!fds || !of) return ncclSystemError;
  for (int i = 0; i < n; i++) {
    if (x[i].complete || !first_in_line(x, i)) continue;
    conn *k = NULL;
    if (x[i].sending) conn_out(x[i].comm, x[i].channel, x[i].peer, &k);
    else k = conn_in(x[i].comm, x[i].channel, x[i].peer);
    if (!k) continue;
    of[m] = i;
    fds[m++] = (struct pollfd){k->fd, x[i].sending ? POLLOUT : POLLIN, 0};
  }
  fds[m] = (struct pollfd){p->wake, POLLIN, 0};
  int64_t left = deadline_ns - falcon_lab_now_ns();
  int rc = poll(fds, (nfds_t)m + 1, deadline_ns ? (left > 0 ? (int)(left / 1000000) + 1 : 0) : -1);
  for (int i = 0; i < m; i++) x[of[i]].ready = fds[i].revents != 0;
  uint64_t word;
  if (fds[m].revents && read(p->wake, &word, sizeof word) > 0)
    for (int i = 0; i < n; i++) x[i].ready = 1;
  if (fds != few) free(fds);
  if (of != at) free(of);
  return rc == 0 && deadline_ns ? ncclSystemError : ncclSuccess;
}

/* When only sends are left and all fit behind, they are done. */
static int finish_eagerly(xfer *x, int n) {
  for (int i = 0; i < n; i++)
    if (!x[i].complete && !x[i].sending) return 0;
  for (int i = 0; i < n; i++)
    if (!x[i].complete && !leave_behind(&x[i])) return 0;
  return 1;
}

ncclResult_t xfers_run(plan *p, xfer *x, int n, int64_t deadline_ns) {
  for (;;) {
    int moved = 0, left = 0;
    for (int i = 0; i < n; i++) {
      if (x[i].complete || !x[i].ready || !first_in_line(x, i)) {
        left += !x[i].complete;
        continue;
      }
      ncclResult_t rc = x[i].sending ? step_send(&x[i], &moved) : step_recv(&x[i], &moved);
      if (rc != ncclSuccess) return rc;
      left += !x[i].complete;
    }
    if (left == 0 || (!moved && finish_eagerly(x, n))) return ncclSuccess;
    if (moved) continue;
    ncclResult_t rc = hopeless(p, x, n);
    if (rc == ncclSuccess) rc = sleep_on(p, x, n, deadline_ns);
    if (rc != ncclSuccess) return rc;
  }
}
