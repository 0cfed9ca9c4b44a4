/* Data connections and what eager sends left in them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_internal.h"

conn *conn_new(int fd) {
  conn *k = calloc(1, sizeof *k);
  if (!k) return NULL;
  k->fd = fd;
  pthread_mutex_init(&k->mu, NULL);
  return k;
}

void conn_free(conn *k) {
  if (!k) return;
  net_forget(k->fd, k->gen);
  close(k->fd);
  pthread_mutex_destroy(&k->mu);
  free(k->out);
  free(k);
}

int conn_flush_locked(conn *k) {
  while (k->out_len) {
    ssize_t n = send(k->fd, k->out + k->out_at, k->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN ? 0 : -1;
    k->out_at += (size_t)n;
    k->out_len -= (size_t)n;
  }
  k->out_at = 0;
  return 1;
}

/* Appends n bytes for the service thread to send; -1 when beyond EAGER_BYTES. */
int conn_queue_locked(conn *k, const void *p, size_t n) {
  if (k->out_len + n > EAGER_BYTES) return -1;
  if (k->out_at + k->out_len + n > k->out_cap) {
    if (k->out_at) memmove(k->out, k->out + k->out_at, k->out_len);
    k->out_at = 0;
    size_t cap = k->out_cap ? k->out_cap : 64 << 10;
    while (cap < k->out_len + n) cap *= 2;
    char *grown = cap > k->out_cap ? realloc(k->out, cap) : k->out;
    if (!grown) return -1;
    k->out = grown;
    k->out_cap = cap;
  }
  memcpy(k->out + k->out_at + k->out_len, p, n);
  k->out_len += n;
  return 0;
}

/* A host that is gone answers nothing: giving the communicator up ends the wait. */
static int dial(ncclComm_t c, int channel, int to) {
  peer *p = &c->peers[to];
  int64_t deadline = net_deadline();
  const int *outer = net_cancel;
  net_cancel = &c->cancel;
  int fd = net_dial(p->at.ip, p->at.port, deadline);
  if (fd >= 0 && net_hello(fd, c, to, channel, deadline)) {
    close(fd);
    fd = -1;
  }
  net_cancel = outer;
  return fd;
}

/* The connection to a peer, made on first use. One caller at a time per
 * (channel, peer): turns see to that. */
ncclResult_t conn_out(ncclComm_t c, int channel, int to, conn **out) {
  peer *p = &c->peers[to];
  pthread_mutex_lock(&c->mu);
  conn *k = p->out[channel];
  pthread_mutex_unlock(&c->mu);
  if (!k) {
    int fd = dial(c, channel, to);
    if (fd < 0) return comm_fail(c, ncclRemoteError, "rank %d can't be reached", to);
    k = conn_new(fd);
    if (!k) {
      close(fd);
      return comm_fail(c, ncclSystemError, "out of memory");
    }
    k->gen = net_add_conn(k);
    pthread_mutex_lock(&c->mu);
    p->out[channel] = k;
    pthread_mutex_unlock(&c->mu);
  }
  *out = k;
  return ncclSuccess;
}

conn *conn_in(ncclComm_t c, int channel, int from) {
  pthread_mutex_lock(&c->mu);
  conn *k = c->peers[from].in[channel];
  pthread_mutex_unlock(&c->mu);
  return k;
}
