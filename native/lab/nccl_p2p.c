/*
 * Sends and receives of one plan, all at once. A receive ends at
 * max(its start, the sender's start) + transfer: the payload crosses the link
 * when both sides are there. A send ends after the transfer whether or not the
 * receiver came, unless more than EAGER_BYTES would stay behind.
 */
#include <stdlib.h>

#include "nccl_internal.h"

static int is_p2p(const call *c) { return c->kind == OP_SEND || c->kind == OP_RECV; }

static uint64_t *turn_of(const call *c) {
  peer *p = &c->comm->peers[c->root];
  return c->kind == OP_SEND ? &p->send_turn : &p->recv_turn;
}

static int same_line(const call *a, const call *b) {
  return a->comm == b->comm && a->kind == b->kind && a->root == b->root;
}

/* Only the first of a line waits: the others of this plan follow it. */
static ncclResult_t wait_turns(plan *p) {
  for (call *c = p->calls; c; c = c->next) {
    int first = is_p2p(c);
    for (call *b = p->calls; b != c && first; b = b->next) first = !same_line(b, c);
    ncclResult_t rc = first ? wait_turn(c->comm, p, turn_of(c), c->ticket) : ncclSuccess;
    if (rc != ncclSuccess) return rc;
  }
  return ncclSuccess;
}

/* Sends to one peer share its link: each starts when the one before is through. */
static int64_t send_start(plan *p, const call *c, int64_t start_ns) {
  for (call *b = p->calls; b != c; b = b->next)
    if (same_line(b, c)) start_ns += model_link_ns(b->comm, b->root, b->bytes, 0);
  return start_ns;
}

static int64_t end_of(const xfer *x, int64_t start_ns) {
  int64_t from = x->head.at.start_ns > start_ns ? x->head.at.start_ns : start_ns;
  return from + model_link_ns(x->comm, x->peer, x->bytes, 1);
}

static int fill(plan *p, xfer *x, int64_t start_ns) {
  int n = 0;
  for (call *c = p->calls; c; c = c->next) {
    if (!is_p2p(c)) continue;
    int sending = c->kind == OP_SEND;
    when at = {sending ? send_start(p, c, start_ns) : start_ns, 0};
    x[n++] = xfer_make(c, CH_P2P, c->root, sending, sending ? c->send : c->recv, c->bytes, at);
  }
  return n;
}

ncclResult_t p2p_run(plan *p, int64_t start_ns, int64_t *end_ns) {
  xfer *x = calloc((size_t)p->n, sizeof *x);
  if (!x) return ncclSystemError;
  ncclResult_t rc = wait_turns(p);
  int n = fill(p, x, start_ns);
  if (rc == ncclSuccess) rc = xfers_run(p, x, n, 0);
  *end_ns = start_ns;
  for (int i = 0; i < n && rc == ncclSuccess; i++) {
    int64_t end = end_of(&x[i], start_ns);
    if (end > *end_ns) *end_ns = end;
  }
  for (call *c = p->calls; c && rc == ncclSuccess; c = c->next)
    if (is_p2p(c)) pass_turn(c->comm, turn_of(c), c->ticket);
  free(x);
  return rc;
}
