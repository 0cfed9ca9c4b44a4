/*
 * Creation and end of communicators. A communicator is entered in the table
 * after NCCL made it and taken out of it before NCCL destroys it, since its
 * pointer may be reused at once. Inside a group the pointer is valid only after
 * the group's end, so creations wait there in a bounded list.
 */
#include "ring.h"
#include "suspend.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PENDING_MAX 64u
#define COLOR_SHRINK (-2)
#define COLOR_GROW (-3)

typedef struct { void **where; uint32_t ticket; falcon_comm_spec spec; char name[FALCON_NAME_BYTES]; } pending_comm;
static __thread pending_comm *pending __attribute__((tls_model("initial-exec")));

static bool fine(int rc) { return rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS; }

/* The name is copied now: NCCL asks for the config only until the call returns. */
static bool defer(falcon_tls *t, void **where, uint32_t ticket, const falcon_comm_spec *spec) {
  if (!pending) pending = calloc(PENDING_MAX, sizeof *pending);
  if (!pending || t->pending >= PENDING_MAX) return false; /* found by its first call, with id 0 */
  pending_comm *p = &pending[t->pending++];
  p->where = where;
  p->ticket = ticket;
  p->spec = *spec;
  snprintf(p->name, sizeof p->name, "%s", spec->name ? spec->name : "");
  p->spec.name = p->name;
  return true;
}

/* A communicator that a suspension came for while it was made: the program is
 * answered that there is none. */
static int discard(void **where, bool aborted) {
  int (*real)(void *) = (int (*)(void *))falcon_fn(FN_ncclCommAbort);
  void *handle = where ? *where : NULL;
  if (where) __atomic_store_n(where, NULL, __ATOMIC_RELEASE);
  if (handle && !aborted && real) real(handle);
  return NCCL_REMOTE_ERROR;
}

/* Entered in the table before the last look at the suspension, whose side thread
 * looks at the table after it began: one of the two finds it. */
static int enter_made(void **where, bool aborted, falcon_comm_spec *spec, int rc) {
  if (aborted) return discard(where, true);
  void *handle = where ? __atomic_load_n(where, __ATOMIC_ACQUIRE) : NULL;
  if (!handle && where && rc == NCCL_IN_PROGRESS) falcon_later_add(where, spec);
  if (!handle) return rc; /* or NCCL_SPLIT_NOCOLOR */
  spec->handle = handle;
  spec->in_progress = rc == NCCL_IN_PROGRESS;
  falcon_comm_add(spec);
  return falcon_suspend_on() && falcon_comm_end(handle, FALCON_COMM_ABORTED, true) ? discard(where, false) : rc;
}

static void look_at_config(falcon_comm_spec *spec, const nccl_config *config) {
  if (config && config->size >= sizeof *config && config->magic == NCCL_CONFIG_MAGIC) spec->name = config->commName;
}

static void note_first(void) {
  falcon_note_environment();
  falcon_reserve_tests();
}

/* After the real call: what is returned to the program. */
static int made(falcon_tls *t, uint32_t ticket, void **where, const nccl_config *config, int rc, falcon_comm_spec spec) {
  if (fine(rc)) {
    falcon_cover(FALCON_COV_INIT);
    falcon_exports_look(falcon_fn(FN_ncclCommCount));
    falcon_bound_version(t);
    look_at_config(&spec, config);
    if (t->depth && defer(t, where, ticket, &spec)) return rc;
  }
  bool aborted = falcon_making_end(ticket);
  if (aborted && t->depth) t->group_rc = NCCL_REMOTE_ERROR;
  if (!fine(rc) || t->depth) return aborted ? discard(where, true) : rc;
  rc = enter_made(where, aborted, &spec, rc);
  if (fine(rc)) note_first();
  return rc;
}

FALCON_COLD int falcon_comm_settle(falcon_tls *t, int rc) {
  uint32_t n = t->pending;
  int out = rc;
  t->pending = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool aborted = falcon_making_end(pending[i].ticket);
    if (!falcon_active() || (!fine(rc) && !aborted)) continue;
    int one = enter_made(pending[i].where, aborted, &pending[i].spec, rc);
    if (!fine(one)) out = one;
  }
  if (fine(out) && falcon_active()) note_first();
  return out;
}

/* Calls the real function once, with the guard up. */
#define GUARDED(t, rc, call) \
  do { (t)->inside = 1; (rc) = (call); (t)->inside = 0; } while (0)

static int refuse(falcon_tls *t) {
  if (t->depth) t->group_rc = NCCL_REMOTE_ERROR;
  return NCCL_REMOTE_ERROR;
}

#define OPEN(name, params, args) \
  FALCON_REAL(name, params); \
  falcon_tls *t = &falcon_thread; \
  if (falcon_aside(t, bound) || !falcon_activate()) return real args; \
  int rc

/* While a suspension is in force nothing is made, and never from what it ended.
 * The ticket comes first: whoever is not refused then is seen by the suspension. */
#define MAKE(out, parent) \
  uint32_t ticket = falcon_making_begin(out); \
  if (FALCON_UNLIKELY(falcon_suspend_on() || falcon_comm_closed(parent))) { \
    falcon_making_end(ticket); \
    return refuse(t); \
  }

FALCON_EXPORT int ncclCommInitRank(void **comm, int n, nccl_unique_id id, int rank);
int ncclCommInitRank(void **comm, int n, nccl_unique_id id, int rank) {
  OPEN(ncclCommInitRank, (void **, int, nccl_unique_id, int), (comm, n, id, rank));
  MAKE(comm, NULL)
  GUARDED(t, rc, real(comm, n, id, rank));
  return made(t, ticket, comm, NULL, rc, (falcon_comm_spec){.id = falcon_fnv(FALCON_FNV_START, &id, sizeof id), .size = n, .rank = rank});
}

FALCON_EXPORT int ncclCommInitRankConfig(void **comm, int n, nccl_unique_id id, int rank, nccl_config *config);
int ncclCommInitRankConfig(void **comm, int n, nccl_unique_id id, int rank, nccl_config *config) {
  OPEN(ncclCommInitRankConfig, (void **, int, nccl_unique_id, int, nccl_config *), (comm, n, id, rank, config));
  MAKE(comm, NULL)
  GUARDED(t, rc, real(comm, n, id, rank, config));
  return made(t, ticket, comm, config, rc, (falcon_comm_spec){.id = falcon_fnv(FALCON_FNV_START, &id, sizeof id), .size = n, .rank = rank});
}

FALCON_EXPORT int ncclCommInitRankScalable(void **comm, int n, int rank, int nids, nccl_unique_id *ids, nccl_config *config);
int ncclCommInitRankScalable(void **comm, int n, int rank, int nids, nccl_unique_id *ids, nccl_config *config) {
  OPEN(ncclCommInitRankScalable, (void **, int, int, int, nccl_unique_id *, nccl_config *), (comm, n, rank, nids, ids, config));
  MAKE(comm, NULL)
  uint64_t id = ids && nids > 0 ? falcon_fnv(FALCON_FNV_START, ids, (size_t)nids * sizeof *ids) : 0;
  GUARDED(t, rc, real(comm, n, rank, nids, ids, config));
  return made(t, ticket, comm, config, rc, (falcon_comm_spec){.id = id, .size = n, .rank = rank});
}

/* All ranks live in this process: the id is made of its pid and a count. */
FALCON_EXPORT int ncclCommInitAll(void **comms, int n, const int *devices);
int ncclCommInitAll(void **comms, int n, const int *devices) {
  OPEN(ncclCommInitAll, (void **, int, const int *), (comms, n, devices));
  static _Atomic uint32_t count;
  uint32_t key[2] = {(uint32_t)getpid(), atomic_fetch_add(&count, 1)};
  if (falcon_suspend_on()) return refuse(t);
  GUARDED(t, rc, real(comms, n, devices));
  int out = rc;
  for (int i = 0; fine(rc) && i < n; i++) {
    falcon_comm_spec spec = {.id = falcon_fnv(FALCON_FNV_START, key, sizeof key), .size = n, .rank = i};
    int one = made(t, FALCON_MAKING_MAX, &comms[i], NULL, rc, spec);
    if (!fine(one)) out = one;
  }
  return out;
}

FALCON_EXPORT int ncclCommSplit(void *comm, int color, int key, void **out, nccl_config *config);
int ncclCommSplit(void *comm, int color, int key, void **out, nccl_config *config) {
  OPEN(ncclCommSplit, (void *, int, int, void **, nccl_config *), (comm, color, key, out, config));
  MAKE(out, comm)
  uint64_t parent, id = falcon_comm_child(comm, color, &parent);
  GUARDED(t, rc, real(comm, color, key, out, config));
  return made(t, ticket, out, config, rc, (falcon_comm_spec){.id = id, .parent = parent, .from = comm, .size = -1, .rank = -1});
}

FALCON_EXPORT int ncclCommShrink(void *comm, int *exclude, int n, void **out, nccl_config *config, int flags);
int ncclCommShrink(void *comm, int *exclude, int n, void **out, nccl_config *config, int flags) {
  OPEN(ncclCommShrink, (void *, int *, int, void **, nccl_config *, int), (comm, exclude, n, out, config, flags));
  MAKE(out, comm)
  uint64_t parent, id = falcon_comm_child(comm, COLOR_SHRINK, &parent);
  GUARDED(t, rc, real(comm, exclude, n, out, config, flags));
  return made(t, ticket, out, config, rc, (falcon_comm_spec){.id = id, .parent = parent, .from = comm, .size = -1, .rank = -1});
}

/* Ranks that stay know the parent, ranks that join know only the unique id:
 * their two ids differ, and the reader joins them by size and rank. */
FALCON_EXPORT int ncclCommGrow(void *comm, int n, const nccl_unique_id *uid, int rank, void **out, nccl_config *config);
int ncclCommGrow(void *comm, int n, const nccl_unique_id *uid, int rank, void **out, nccl_config *config) {
  OPEN(ncclCommGrow, (void *, int, const nccl_unique_id *, int, void **, nccl_config *), (comm, n, uid, rank, out, config));
  MAKE(out, comm)
  uint64_t parent = 0, id = 0;
  if (comm) id = falcon_comm_child(comm, COLOR_GROW, &parent);
  else if (uid) id = falcon_fnv(FALCON_FNV_START, uid, sizeof *uid);
  GUARDED(t, rc, real(comm, n, uid, rank, out, config));
  return made(t, ticket, out, config, rc, (falcon_comm_spec){.id = id, .parent = parent, .from = comm, .size = n, .rank = rank});
}

/* What a suspension has ended: true, and the program gets success. A
 * revoked one still owns its memory: the program's destroy of it is done. */
static bool ended(falcon_tls *t, void *comm, bool forget, int (*real)(void *)) {
  enum falcon_closed how = falcon_comm_let_go(comm, forget);
  int rc = NCCL_SUCCESS;
  if (how == CLOSED_REVOKED && forget) GUARDED(t, rc, real(comm));
  (void)rc;
  return how != CLOSED_NOT;
}

#define END(name, state, forget) \
  FALCON_EXPORT int name(void *comm); \
  int name(void *comm) { \
    FALCON_REAL(name, (void *)); \
    falcon_tls *t = &falcon_thread; \
    if (falcon_aside(t, bound)) return real(comm); \
    while (falcon_active()) { \
      if (FALCON_UNLIKELY(ended(t, comm, forget, real))) return NCCL_SUCCESS; \
      if (falcon_comm_end(comm, state, forget)) break; /* or closed between the two */ \
    } \
    falcon_later_drop(comm); \
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
  if (falcon_aside(t, bound)) return real(comm, flags);
  if (falcon_active() && !falcon_comm_end(comm, FALCON_COMM_ABORTED, false)) return NCCL_SUCCESS;
  int rc;
  GUARDED(t, rc, real(comm, flags));
  return rc;
}

/* Of an ended one NCCL is not asked: it may be gone. Where the job has an adapter,
 * that takes the program to the rejoin; a watchdog that saw an error would end it. */
static int ended_error(void *result) {
  bool adapted = __atomic_load_n(&falcon_hook.control->describe_seq, __ATOMIC_ACQUIRE);
  if (result) *(int *)result = adapted ? NCCL_SUCCESS : NCCL_REMOTE_ERROR;
  return result ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

FALCON_EXPORT int ncclCommGetAsyncError(void *comm, int *result);
int ncclCommGetAsyncError(void *comm, int *result) {
  FALCON_REAL(ncclCommGetAsyncError, (void *, int *));
  if (falcon_aside(&falcon_thread, bound) || !falcon_active()) return real(comm, result);
  falcon_comm_late(comm);
  if (FALCON_UNLIKELY(!falcon_comm_asked(comm))) return ended_error(result);
  int rc = real(comm, result);
  falcon_comm_answered();
  return rc;
}
