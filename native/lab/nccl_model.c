/* Modelled transfer times, from the lab's state: what an ideal ring (or the
 * links of a root) would take on links of the given bandwidth and latency. */
#include "include/falcon_lab_comm.h"
#include "nccl_internal.h"

typedef struct path {
  double bytes_per_s, latency_s;
} path;

static path link_of(ncclComm_t c, int a, int b) {
  path p;
  falcon_lab_link_now(c->peers[a].at.node, c->peers[b].at.node, &p.bytes_per_s, &p.latency_s);
  return p;
}

/* The slowest link of the ring 0, 1, .. n-1, 0. */
static path ring_of(ncclComm_t c) {
  path worst = {1e18, 0};
  for (int i = 0; i < c->n; i++) {
    path p = link_of(c, i, (i + 1) % c->n);
    if (p.bytes_per_s < worst.bytes_per_s) worst.bytes_per_s = p.bytes_per_s;
    if (p.latency_s > worst.latency_s) worst.latency_s = p.latency_s;
  }
  return worst;
}

/* One rank exchanges bytes with each other one over its own links. */
static double fan_s(ncclComm_t c, int at, size_t bytes) {
  double s = 0, latency = 0;
  for (int i = 0; i < c->n; i++) {
    if (i == at) continue;
    path p = link_of(c, at, i);
    s += (double)bytes / p.bytes_per_s;
    if (p.latency_s > latency) latency = p.latency_s;
  }
  return s + latency;
}

static int log2_up(int n) {
  int k = 0;
  while (1 << k < n) k++;
  return k;
}

/* rounds: passes of the payload over the slowest link; a ring of n-1 hops per
 * pass, or a tree where the message is small. */
static double ring_s(ncclComm_t c, double rounds, double bytes, int passes) {
  path p = ring_of(c);
  int hops = bytes <= STAR_BYTES ? log2_up(c->n) : c->n - 1;
  return rounds * bytes / p.bytes_per_s + passes * hops * p.latency_s;
}

int64_t model_coll_ns(const call *c) {
  int n = c->comm->n;
  double share = (double)(n - 1) / n, bytes = (double)c->bytes, s = 0;
  if (n == 1 || !falcon_lab_paced()) return 0;
  switch (c->kind) {
    case OP_ALLREDUCE: s = ring_s(c->comm, 2 * share, bytes, 2); break;
    case OP_REDUCESCATTER:
    case OP_ALLGATHER: s = ring_s(c->comm, share, bytes * n, 1); break;
    case OP_BROADCAST:
    case OP_REDUCE: s = ring_s(c->comm, 1, bytes, 1); break;
    case OP_GATHER:
    case OP_SCATTER: s = fan_s(c->comm, c->root, c->bytes); break;
    case OP_ALLTOALL: s = fan_s(c->comm, c->comm->rank, c->bytes); break;
    default: break;
  }
  return (int64_t)(s * 1e9 + 0.5);
}

static double scale_of(ncclComm_t c) {
  pthread_mutex_lock(&c->mu);
  double scale = c->scale;
  pthread_mutex_unlock(&c->mu);
  return scale > 0 ? scale : 1;
}

int64_t model_link_ns(ncclComm_t c, int to, size_t bytes, int with_latency) {
  if (to == c->rank || !falcon_lab_paced()) return 0;
  path p = link_of(c, c->rank, to);
  return (int64_t)((scale_of(c) * (double)bytes / p.bytes_per_s + (with_latency ? p.latency_s : 0)) * 1e9 + 0.5);
}

__attribute__((visibility("default"))) ncclResult_t falcon_lab_comm_scale(ncclComm_t handle, double factor) {
  ncclComm_t c = factor > 0 && factor < 1e15 ? comm_acquire(handle) : NULL;
  if (!c) return ncclInvalidArgument;
  pthread_mutex_lock(&c->mu);
  c->scale = factor;
  pthread_mutex_unlock(&c->mu);
  comm_release(c);
  return ncclSuccess;
}
