/*
 * Collectives. Up to STAR_BYTES one rank collects, adds in the order of ranks
 * and answers: few messages, few wake-ups. Beyond, rings: chunk c is summed in
 * the order c+1, c+2, .. c. Both orders depend on logical ranks alone, so that
 * results are the same to the bit whichever process holds a rank.
 *
 * Every message carries the largest start and transfer time that its sender
 * knows; after any of these patterns all members know the largest of all, and
 * so end together, at the last start plus the transfer.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

static void agree(when *at, const when *other) {
  if (other->start_ns > at->start_ns) at->start_ns = other->start_ns;
  if (other->transfer_ns > at->transfer_ns) at->transfer_ns = other->transfer_ns;
}

/* ---- star ---- */

static ncclResult_t leaf(plan *p, call *c, int root, const void *up, size_t up_bytes, void *down, size_t down_bytes,
                         when *at) {
  xfer x[2] = {xfer_make(c, CH_COLL, root, 1, up, up_bytes, *at), xfer_make(c, CH_COLL, root, 0, down, down_bytes, *at)};
  ncclResult_t rc = xfers_run(p, x, 2, 0);
  if (rc == ncclSuccess) *at = x[1].head.at;
  return rc;
}

/* Root: everyone's bytes to gather + rank * stride. */
static ncclResult_t collect(plan *p, call *c, char *gather, size_t stride, size_t bytes, when *at) {
  int n = c->comm->n, me = c->comm->rank, m = 0;
  xfer *x = calloc((size_t)n, sizeof *x);
  if (!x) return ncclSystemError;
  for (int i = 0; i < n; i++)
    if (i != me) x[m++] = xfer_make(c, CH_COLL, i, 0, gather ? gather + (size_t)i * stride : NULL, bytes, *at);
  ncclResult_t rc = xfers_run(p, x, m, 0);
  for (int i = 0; i < m && rc == ncclSuccess; i++) agree(at, &x[i].head.at);
  free(x);
  return rc;
}

static ncclResult_t answer(plan *p, call *c, const char *reply, size_t stride, size_t bytes, const when *at) {
  int n = c->comm->n, me = c->comm->rank, m = 0;
  xfer *x = calloc((size_t)n, sizeof *x);
  if (!x) return ncclSystemError;
  for (int i = 0; i < n; i++)
    if (i != me) x[m++] = xfer_make(c, CH_COLL, i, 1, reply ? reply + (size_t)i * stride : NULL, bytes, *at);
  ncclResult_t rc = xfers_run(p, x, m, 0);
  free(x);
  return rc;
}

static void copy(void *to, const void *from, size_t n) {
  if (n && to != from) memmove(to, from, n);
}

/* Root: collects bytes from all and adds them in the order of ranks into sum. */
static ncclResult_t collect_sum(plan *p, call *c, size_t count, void *sum, when *at) {
  size_t bytes = count * type_bytes(c->type);
  int n = c->comm->n;
  char *all = malloc(bytes * (size_t)n + 1);
  if (!all) return ncclSystemError;
  copy(all + bytes * (size_t)c->comm->rank, c->send, bytes);
  ncclResult_t rc = collect(p, c, all, bytes, bytes, at);
  for (int i = 1; i < n && rc == ncclSuccess; i++) reduce_into(all, all + bytes * (size_t)i, count, c->type, c->op);
  if (rc == ncclSuccess) {
    reduce_finish(all, count, c->type, c->op, n);
    copy(sum, all, bytes);
  }
  free(all);
  return rc;
}

static ncclResult_t star_allreduce(plan *p, call *c, when *at) {
  if (c->comm->rank) return leaf(p, c, 0, c->send, c->bytes, c->recv, c->bytes, at);
  ncclResult_t rc = collect_sum(p, c, c->count, c->recv, at);
  return rc == ncclSuccess ? answer(p, c, c->recv, 0, c->bytes, at) : rc;
}

static ncclResult_t star_reducescatter(plan *p, call *c, when *at) {
  size_t n = (size_t)c->comm->n;
  if (c->comm->rank) return leaf(p, c, 0, c->send, c->bytes * n, c->recv, c->bytes, at);
  char *sum = malloc(c->bytes * n + 1);
  if (!sum) return ncclSystemError;
  ncclResult_t rc = collect_sum(p, c, c->count * n, sum, at);
  if (rc == ncclSuccess) rc = answer(p, c, sum, c->bytes, c->bytes, at);
  if (rc == ncclSuccess) copy(c->recv, sum, c->bytes);
  free(sum);
  return rc;
}

static ncclResult_t star_allgather(plan *p, call *c, when *at) {
  size_t n = (size_t)c->comm->n;
  if (c->comm->rank) return leaf(p, c, 0, c->send, c->bytes, c->recv, c->bytes * n, at);
  copy(c->recv, c->send, c->bytes);
  ncclResult_t rc = collect(p, c, c->recv, c->bytes, c->bytes, at);
  return rc == ncclSuccess ? answer(p, c, c->recv, 0, c->bytes * n, at) : rc;
}

static ncclResult_t rooted(plan *p, call *c, when *at) {
  int root = c->root, is_root = c->comm->rank == root;
  int up = c->kind == OP_REDUCE || c->kind == OP_GATHER;
  if (!is_root) return leaf(p, c, root, c->send, up ? c->bytes : 0, c->recv, up ? 0 : c->bytes, at);
  if (c->kind == OP_REDUCE) {
    ncclResult_t rc = collect_sum(p, c, c->count, c->recv, at);
    return rc == ncclSuccess ? answer(p, c, NULL, 0, 0, at) : rc;
  }
  if (c->kind == OP_GATHER) {
    copy((char *)c->recv + c->bytes * (size_t)root, c->send, c->bytes);
    ncclResult_t rc = collect(p, c, c->recv, c->bytes, c->bytes, at);
    return rc == ncclSuccess ? answer(p, c, NULL, 0, 0, at) : rc;
  }
  int scatter = c->kind == OP_SCATTER;
  copy(c->recv, (const char *)c->send + (scatter ? c->bytes * (size_t)root : 0), c->bytes);
  ncclResult_t rc = collect(p, c, NULL, 0, 0, at);
  return rc == ncclSuccess ? answer(p, c, c->send, scatter ? c->bytes : 0, c->bytes, at) : rc;
}

/* ---- ring ---- */

typedef struct ring {
  plan *p;
  call *c;
  char *data;    /* n chunks, in place */
  size_t count;  /* elements of all chunks together */
  when *at;
} ring;

static size_t edge(const ring *r, int chunk) {
  return r->count * (size_t)chunk / (size_t)r->c->comm->n * type_bytes(r->c->type);
}

static size_t width(const ring *r, int chunk) { return edge(r, chunk + 1) - edge(r, chunk); }

/* One hop: a chunk to the next rank, another from the one before, into to. */
static ncclResult_t hop(ring *r, int out, int in, void *to) {
  int n = r->c->comm->n, me = r->c->comm->rank;
  xfer x[2] = {xfer_make(r->c, CH_COLL, (me + 1) % n, 1, r->data + edge(r, out), width(r, out), *r->at),
               xfer_make(r->c, CH_COLL, (me + n - 1) % n, 0, to, width(r, in), *r->at)};
  ncclResult_t rc = xfers_run(r->p, x, 2, 0);
  if (rc == ncclSuccess) agree(r->at, &x[1].head.at);
  return rc;
}

/* Leaves the whole sum of chunk r in rank r. */
static ncclResult_t ring_reduce_scatter(ring *r) {
  int n = r->c->comm->n, me = r->c->comm->rank;
  size_t widest = 0;
  for (int i = 0; i < n; i++) widest = width(r, i) > widest ? width(r, i) : widest;
  char *got = malloc(widest + 1);
  ncclResult_t rc = got ? ncclSuccess : ncclSystemError;
  for (int k = 0; k < n - 1 && rc == ncclSuccess; k++) {
    int out = (me - k - 1 + 2 * n) % n, in = (me - k - 2 + 2 * n) % n;
    rc = hop(r, out, in, got);
    if (rc == ncclSuccess)
      reduce_into(r->data + edge(r, in), got, width(r, in) / type_bytes(r->c->type), r->c->type, r->c->op);
  }
  free(got);
  if (rc == ncclSuccess)
    reduce_finish(r->data + edge(r, me), width(r, me) / type_bytes(r->c->type), r->c->type, r->c->op, n);
  return rc;
}

/* Starts from chunk r in rank r. */
static ncclResult_t ring_all_gather(ring *r) {
  int n = r->c->comm->n, me = r->c->comm->rank;
  ncclResult_t rc = ncclSuccess;
  for (int k = 0; k < n - 1 && rc == ncclSuccess; k++) {
    int out = (me - k + n) % n, in = (me - k - 1 + n) % n;
    rc = hop(r, out, in, r->data + edge(r, in));
  }
  return rc;
}

static ncclResult_t ring_allreduce(plan *p, call *c, when *at) {
  ring r = {p, c, c->recv, c->count, at};
  copy(c->recv, c->send, c->bytes);
  ncclResult_t rc = ring_reduce_scatter(&r);
  return rc == ncclSuccess ? ring_all_gather(&r) : rc;
}

static ncclResult_t ring_reducescatter(plan *p, call *c, when *at) {
  size_t n = (size_t)c->comm->n;
  ring r = {p, c, malloc(c->bytes * n), c->count * n, at};
  if (!r.data) return ncclSystemError;
  copy(r.data, c->send, c->bytes * n);
  ncclResult_t rc = ring_reduce_scatter(&r);
  if (rc == ncclSuccess) copy(c->recv, r.data + edge(&r, c->comm->rank), c->bytes);
  free(r.data);
  return rc;
}

static ncclResult_t ring_allgather(plan *p, call *c, when *at) {
  ring r = {p, c, c->recv, c->count * (size_t)c->comm->n, at};
  copy(r.data + c->bytes * (size_t)c->comm->rank, c->send, c->bytes);
  return ring_all_gather(&r);
}

/* ---- all to all ---- */

static ncclResult_t alltoall(plan *p, call *c, when *at) {
  int n = c->comm->n, me = c->comm->rank, m = 0;
  const char *send = c->send;
  char *recv = c->recv;
  xfer *x = calloc(2 * (size_t)n, sizeof *x);
  if (!x) return ncclSystemError;
  copy(recv + c->bytes * (size_t)me, send + c->bytes * (size_t)me, c->bytes);
  for (int k = 1; k < n; k++) {
    int to = (me + k) % n, from = (me - k + n) % n;
    x[m++] = xfer_make(c, CH_COLL, to, 1, send + c->bytes * (size_t)to, c->bytes, *at);
    x[m++] = xfer_make(c, CH_COLL, from, 0, recv + c->bytes * (size_t)from, c->bytes, *at);
  }
  ncclResult_t rc = xfers_run(p, x, m, 0);
  for (int i = 0; i < m && rc == ncclSuccess; i++) agree(at, &x[i].head.at);
  free(x);
  return rc;
}

/* ---- choice ---- */

static void alone(call *c) { copy(c->recv, c->send, c->bytes); }

static ncclResult_t pattern(plan *p, call *c, when *at) {
  size_t total = c->kind == OP_ALLREDUCE ? c->bytes : c->bytes * (size_t)c->comm->n;
  int star = total <= STAR_BYTES;
  switch (c->kind) {
    case OP_ALLREDUCE: return star ? star_allreduce(p, c, at) : ring_allreduce(p, c, at);
    case OP_REDUCESCATTER: return star ? star_reducescatter(p, c, at) : ring_reducescatter(p, c, at);
    case OP_ALLGATHER: return star ? star_allgather(p, c, at) : ring_allgather(p, c, at);
    case OP_ALLTOALL: return alltoall(p, c, at);
    default: return rooted(p, c, at);
  }
}

ncclResult_t coll_run(plan *p, call *c, when *at) {
  if (c->comm->n == 1) {
    alone(c);
    return ncclSuccess;
  }
  at->transfer_ns = model_coll_ns(c);
  ncclResult_t rc = wait_turn(c->comm, p, &c->comm->coll_turn, c->ticket);
  if (rc == ncclSuccess) rc = pattern(p, c, at);
  if (rc == ncclSuccess) pass_turn(c->comm, &c->comm->coll_turn, c->ticket);
  if (rc == ncclSystemError) comm_fail(c->comm, rc, "out of memory");
  return rc;
}

/* Outside any stream: every rank's words to all, in its turn among the
 * communicator's collectives. */
ncclResult_t coll_words(ncclComm_t comm, const int64_t *mine, int words, int64_t *all) {
  call *c = calloc(1, sizeof *c);
  plan *p = c ? plan_new(c) : NULL;
  if (!p) {
    free(c);
    return nccl_error(ncclSystemError, "out of memory");
  }
  comm_hold(comm);
  *c = (call){.comm = comm, .kind = OP_ALLGATHER, .send = mine, .recv = all, .count = (size_t)words,
              .bytes = sizeof *mine * (size_t)words, .type = ncclInt64};
  pthread_mutex_lock(&comm->mu);
  c->ticket = comm->coll_next++;
  pthread_mutex_unlock(&comm->mu);
  when at = {0, 0};
  ncclResult_t rc = plan_begin(p);
  if (rc == ncclSuccess) rc = coll_run(p, c, &at);
  plan_end(p);
  plan_free(p);
  return rc;
}
