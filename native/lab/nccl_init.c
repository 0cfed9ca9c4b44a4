/* Making communicators: by unique id, for all devices of a process, by split. */
#include <stdlib.h>

#include "nccl_internal.h"

#define API __attribute__((visibility("default")))
#define ALIAS(name) __attribute__((visibility("default"), weak, alias("p" #name)))

API ncclResult_t pncclGetUniqueId(ncclUniqueId *id) {
  return id ? boot_unique_id(id) : nccl_error(ncclInvalidArgument, "null unique id");
}

/* A configuration is checked, and only its blocking has an effect. */
static ncclResult_t check_config(const ncclConfig_t *config) {
  if (config && config->magic != NCCL_CONFIG_MAGIC)
    return nccl_error(ncclInvalidArgument, "configuration without NCCL_CONFIG_INITIALIZER");
  return ncclSuccess;
}

static int in_background(const ncclConfig_t *config) {
  return config && config->size >= offsetof(ncclConfig_t, blocking) + sizeof config->blocking && config->blocking == 0;
}

static ncclResult_t make(ncclComm_t *comm, int n, const ncclUniqueId *id, int rank, const ncclConfig_t *config) {
  int device;
  if (!comm || n < 1 || n > RANKS_MAX || rank < 0 || rank >= n)
    return nccl_error(ncclInvalidArgument, "rank %d of %d ranks: out of range", rank, n);
  ncclResult_t rc = check_config(config);
  if (rc != ncclSuccess) return rc;
  __atomic_store_n(comm, NULL, __ATOMIC_RELEASE); /* another thread may already look for the handle */
  if (cudaGetDevice(&device) != cudaSuccess) return nccl_error(ncclUnhandledCudaError, "no current device");
  if (group_open()) return group_defer_init(comm, n, id, rank, device); /* the group's end blocks */
  if (in_background(config)) return boot_start(comm, n, id, rank, device);
  return boot_init(comm, n, id, rank, device);
}

API ncclResult_t pncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank) {
  return make(comm, n, &id, rank, NULL);
}

API ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config) {
  return make(comm, n, &id, rank, config);
}

/* One rendezvous serves the sizes of a lab: the first id is used. */
API ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int n, int rank, int ids, ncclUniqueId *id,
                                           ncclConfig_t *config) {
  if (ids < 1 || !id) return nccl_error(ncclInvalidArgument, "no unique id");
  return make(comm, n, id, rank, config);
}

API ncclResult_t pncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
  ncclUniqueId id;
  int count = 0;
  if (!comms || n < 1 || cudaGetDeviceCount(&count) != cudaSuccess || n > count)
    return nccl_error(ncclInvalidArgument, "%d communicators on %d devices", n, count);
  if (group_open()) return nccl_error(ncclInvalidUsage, "ncclCommInitAll inside a group");
  ncclResult_t rc = boot_unique_id(&id);
  if (rc != ncclSuccess) return rc;
  pncclGroupStart();
  for (int i = 0; i < n && rc == ncclSuccess; i++)
    rc = group_defer_init(&comms[i], n, &id, i, devices ? devices[i] : i);
  ncclResult_t end = pncclGroupEnd();
  return rc == ncclSuccess ? end : rc;
}

/* ---- split ---- */

typedef struct member {
  int64_t key;
  int rank;
} member;

static int by_key(const void *a, const void *b) {
  const member *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->rank - y->rank;
}

static int pick(const int64_t *all, int n, int color, member *m) {
  int k = 0;
  for (int i = 0; i < n; i++)
    if (all[2 * i] == color) m[k++] = (member){all[2 * i + 1], i};
  qsort(m, (size_t)k, sizeof *m, by_key);
  return k;
}

static ncclResult_t make_child(ncclComm_t c, uint64_t ordinal, int color, const member *m, int n, ncclComm_t *out) {
  struct { uint64_t parent, ordinal; int64_t color; } name = {c->id, ordinal, color};
  int rank = 0;
  while (rank < n && m[rank].rank != c->rank) rank++;
  ncclComm_t child = comm_new(fnv64(FNV_START, &name, sizeof name), n, rank, c->device);
  if (!child) return nccl_error(ncclSystemError, "out of memory");
  for (int i = 0; i < n; i++) child->peers[i].at = c->peers[m[i].rank].at;
  comm_publish(child);
  net_cancel = &c->cancel; /* giving the parent up ends the split */
  ncclResult_t rc = boot_mesh(child);
  net_cancel = NULL;
  if (rc != ncclSuccess) comm_discard(child);
  else *out = child;
  return rc;
}

static ncclResult_t split(ncclComm_t c, int color, int key, ncclComm_t *out) {
  int64_t mine[2] = {color, key}, *all = calloc((size_t)c->n, sizeof mine);
  member *m = calloc((size_t)c->n, sizeof *m);
  *out = NULL;
  ncclResult_t rc = all && m ? comm_usable(c) : nccl_error(ncclSystemError, "out of memory");
  if (rc == ncclSuccess) rc = c->n == 1 ? ncclSuccess : coll_words(c, mine, 2, all);
  if (rc == ncclSuccess) {
    if (c->n == 1) all[0] = color, all[1] = key;
    pthread_mutex_lock(&c->mu);
    uint64_t ordinal = c->splits++;
    pthread_mutex_unlock(&c->mu);
    if (color >= 0) rc = make_child(c, ordinal, color, m, pick(all, c->n, color, m), out);
  }
  free(all);
  free(m);
  return rc;
}

API ncclResult_t pncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  if (!out || color < NCCL_SPLIT_NOCOLOR) return nccl_error(ncclInvalidArgument, "color %d", color);
  ncclResult_t rc = check_config(config);
  ncclComm_t c = rc == ncclSuccess ? comm_acquire(handle) : NULL;
  if (!c) return ncclInvalidArgument;
  rc = split(c, color, key, out);
  comm_release(c);
  return rc;
}

ALIAS(ncclGetUniqueId) ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ALIAS(ncclCommInitRank) ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ALIAS(ncclCommInitRankConfig) ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
ALIAS(ncclCommInitRankScalable) ncclResult_t ncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *,
                                                                      ncclConfig_t *);
ALIAS(ncclCommInitAll) ncclResult_t ncclCommInitAll(ncclComm_t *, int, const int *);
ALIAS(ncclCommSplit) ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
