/*
 * Creation and end of communicators. A communicator is entered in the table
 * after NCCL made it and taken out of it before NCCL destroys it, since its
 * pointer may be reused at once. Inside a group the pointer is valid only after
 * the group's end, so creations wait there in a bounded list.
 */
#include "ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PENDING_MAX 64u
#define COLOR_SHRINK (-2)
#define COLOR_GROW (-3)

typedef struct { void **where; falcon_comm_spec spec; char name[FALCON_NAME_BYTES]; } pending_comm;
static __thread pending_comm *pending __attribute__((tls_model("initial-exec")));

static bool fine(int rc) { return rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS; }

/* The name is copied now: NCCL asks for the config only until the call returns. */
static void defer(falcon_tls *t, void **where, const falcon_comm_spec *spec) {
  if (!pending) pending = calloc(PENDING_MAX, sizeof *pending);
  if (!pending || t->pending >= PENDING_MAX) return; /* found by its first call, with id 0 */
  pending_comm *p = &pending[t->pending++];
  p->where = where;
  p->spec = *spec;
  snprintf(p->name, sizeof p->name, "%s", spec->name ? spec->name : "");
  p->spec.name = p->name;
}

static void add_at(void **where, falcon_comm_spec *spec) {
  if (!where || !*where) return; /* NCCL_SPLIT_NOCOLOR */
  spec->handle = *where;
  falcon_comm_add(spec);
}

static void created(void **where, const nccl_config *config, int rc, falcon_comm_spec spec) {
  falcon_tls *t = &falcon_thread;
  falcon_cover(FALCON_COV_INIT);
  falcon_exports_look(falcon_fn(FN_ncclCommCount));
  if (config && config->size >= sizeof *config && config->magic == NCCL_CONFIG_MAGIC) spec.name = config->commName;
  spec.in_progress = rc == NCCL_IN_PROGRESS;
  if (t->depth) {
    defer(t, where, &spec);
    return;
  }
  add_at(where, &spec);
  falcon_reserve_tests();
}

FALCON_COLD void falcon_comm_settle(falcon_tls *t, int rc) {
  uint32_t n = t->pending;
  t->pending = 0;
  if (!fine(rc) || !falcon_active()) return;
  for (uint32_t i = 0; i < n; i++) {
    pending[i].spec.in_progress = rc == NCCL_IN_PROGRESS;
    add_at(pending[i].where, &pending[i].spec);
  }
  falcon_reserve_tests();
}

/* Calls the real function once, with the guard up. */
#define GUARDED(t, rc, call) \
  do { (t)->inside = 1; (rc) = (call); (t)->inside = 0; } while (0)

#define OPEN(name, params, args) \
  FALCON_REAL(name, params); \
  falcon_tls *t = &falcon_thread; \
  if (t->inside || !falcon_activate()) return real args; \
  int rc

FALCON_EXPORT int ncclCommInitRank(void **comm, int n, nccl_unique_id id, int rank);
int ncclCommInitRank(void **comm, int n, nccl_unique_id id, int rank) {
  OPEN(ncclCommInitRank, (void **, int, nccl_unique_id, int), (comm, n, id, rank));
  GUARDED(t, rc, real(comm, n, id, rank));
  if (fine(rc)) created(comm, NULL, rc, (falcon_comm_spec){.id = falcon_fnv(FALCON_FNV_START, &id, sizeof id), .size = n, .rank = rank});
  return rc;
}

FALCON_EXPORT int ncclCommInitRankConfig(void **comm, int n, nccl_unique_id id, int rank, nccl_config *config);
int ncclCommInitRankConfig(void **comm, int n, nccl_unique_id id, int rank, nccl_config *config) {
  OPEN(ncclCommInitRankConfig, (void **, int, nccl_unique_id, int, nccl_config *), (comm, n, id, rank, config));
  GUARDED(t, rc, real(comm, n, id, rank, config));
  if (fine(rc)) created(comm, config, rc, (falcon_comm_spec){.id = falcon_fnv(FALCON_FNV_START, &id, sizeof id), .size = n, .rank = rank});
  return rc;
}

FALCON_EXPORT int ncclCommInitRankScalable(void **comm, int n, int rank, int nids, nccl_unique_id *ids, nccl_config *config);
int ncclCommInitRankScalable(void **comm, int n, int rank, int nids, nccl_unique_id *ids, nccl_config *config) {
  OPEN(ncclCommInitRankScalable, (void **, int, int, int, nccl_unique_id *, nccl_config *), (comm, n, rank, nids, ids, config));
  uint64_t id = ids && nids > 0 ? falcon_fnv(FALCON_FNV_START, ids, (size_t)nids * sizeof *ids) : 0;
  GUARDED(t, rc, real(comm, n, rank, nids, ids, config));
  if (fine(rc)) created(comm, config, rc, (falcon_comm_spec){.id = id, .size = n, .rank = rank});
  return rc;
}

/* All ranks live in this process: the id is made of its pid and a count. */
FALCON_EXPORT int ncclCommInitAll(void **comms, int n, const int *devices);
int ncclCommInitAll(void **comms, int n, const int *devices) {
  OPEN(ncclCommInitAll, (void **, int, const int *), (comms, n, devices));
  static _Atomic uint32_t count;
  uint32_t key[2] = {(uint32_t)getpid(), atomic_fetch_add(&count, 1)};
  GUARDED(t, rc, real(comms, n, devices));
  for (int i = 0; fine(rc) && i < n; i++)
    created(&comms[i], NULL, rc, (falcon_comm_spec){.id = falcon_fnv(FALCON_FNV_START, key, sizeof key), .size = n, .rank = i});
  return rc;
}

FALCON_EXPORT int ncclCommSplit(void *comm, int color, int key, void **out, nccl_config *config);
int ncclCommSplit(void *comm, int color, int key, void **out, nccl_config *config) {
  OPEN(ncclCommSplit, (void *, int, int, void **, nccl_config *), (comm, color, key, out, config));
  uint64_t parent, id = falcon_comm_child(comm, color, &parent);
  GUARDED(t, rc, real(comm, color, key, out, config));
  if (fine(rc) && color >= 0) created(out, config, rc, (falcon_comm_spec){.id = id, .parent = parent, .size = -1, .rank = -1});
  return rc;
}

FALCON_EXPORT int ncclCommShrink(void *comm, int *exclude, int n, void **out, nccl_config *config, int flags);
int ncclCommShrink(void *comm, int *exclude, int n, void **out, nccl_config *config, int flags) {
  OPEN(ncclCommShrink, (void *, int *, int, void **, nccl_config *, int), (comm, exclude, n, out, config, flags));
  uint64_t parent, id = falcon_comm_child(comm, COLOR_SHRINK, &parent);
  GUARDED(t, rc, real(comm, exclude, n, out, config, flags));
  if (fine(rc)) created(out, config, rc, (falcon_comm_spec){.id = id, .parent = parent, .size = -1, .rank = -1});
  return rc;
}

/* Ranks that stay know the parent, ranks that join know only the unique id:
 * their two ids differ, and the reader joins them by size and rank. */
FALCON_EXPORT int ncclCommGrow(void *comm, int n, const nccl_unique_id *uid, int rank, void **out, nccl_config *config);
int ncclCommGrow(void *comm, int n, const nccl_unique_id *uid, int rank, void **out, nccl_config *config) {
  OPEN(ncclCommGrow, (void *, int, const nccl_unique_id *, int, void **, nccl_config *), (comm, n, uid, rank, out, config));
  uint64_t parent = 0, id = 0;
  if (comm) id = falcon_comm_child(comm, COLOR_GROW, &parent);
  else if (uid) id = falcon_fnv(FALCON_FNV_START, uid, sizeof *uid);
  GUARDED(t, rc, real(comm, n, uid, rank, out, config));
  if (fine(rc)) created(out, config, rc, (falcon_comm_spec){.id = id, .parent = parent, .size = n, .rank = rank});
  return rc;
}

#define END(name, state, forget) \
  FALCON_EXPORT int name(void *comm); \
  int name(void *comm) { \
    FALCON_REAL(name, (void *)); \
    falcon_tls *t = &falcon_thread; \
    if (t->inside) return real(comm); \
    if (falcon_active()) falcon_comm_end(comm, state, forget); \
    int rc; \
    GUARDED(t, rc, real(comm)); \
    return rc; \
  }

END(ncclCommFinalize, FALCON_COMM_GONE, false)
END(ncclCommDestroy, FALCON_COMM_GONE, true)
END(ncclCommAbort, FALCON_COMM_ABORTED, true)

FALCON_EXPORT int ncclCommRevoke(void *comm, int flags);
int ncclCommRevoke(void *comm, int flags) {
  FALCON_REAL(ncclCommRevoke, (void *, int));
  falcon_tls *t = &falcon_thread;
  if (t->inside) return real(comm, flags);
  if (falcon_active()) falcon_comm_end(comm, FALCON_COMM_ABORTED, false);
  int rc;
  GUARDED(t, rc, real(comm, flags));
  return rc;
}
