/*
 * The way from NCCL's handle to its slot: open addressing, read without a lock on
 * the hot path, written under the slots' lock.
 */
#include "pause.h"
#include "clock.h"
#include "suspend.h"

#include <time.h>

#define INDEX_SLOTS 1024u /* power of two, 4 x the communicators */
#define TOMBSTONE ((uintptr_t)1)
#define QUERY_TRIES 64    /* a nonblocking communicator answers only once it is ready */

typedef struct { _Atomic uintptr_t handle; _Atomic uint32_t slot; _Atomic uint32_t closed; /* enum falcon_closed */ } index_entry;
typedef struct { uint32_t children; _Atomic uint32_t to_query; } comm_private;

static index_entry entries[INDEX_SLOTS];
static comm_private privates[FALCON_COMMS_MAX];

static inline uint32_t home(uintptr_t h) {
  return (uint32_t)((h * 0x9e3779b97f4a7c15ull) >> 54) & (INDEX_SLOTS - 1);
}

static index_entry *find(uintptr_t h) {
  for (uint32_t i = 0, at = home(h); i < INDEX_SLOTS; i++, at = (at + 1) & (INDEX_SLOTS - 1)) {
    uintptr_t key = atomic_load_explicit(&entries[at].handle, memory_order_acquire);
    if (key == h) return &entries[at];
    if (!key) return NULL;
  }
  return NULL;
}

uint32_t falcon_comm_find(void *handle) {
  index_entry *e = find((uintptr_t)handle);
  if (FALCON_UNLIKELY(!e)) return falcon_comm_slow(handle);
  uint32_t slot = atomic_load_explicit(&e->slot, memory_order_relaxed);
  if (FALCON_UNLIKELY(slot < FALCON_COMMS_MAX && atomic_load_explicit(&privates[slot].to_query, memory_order_relaxed)))
    falcon_comm_query(slot, handle);
  return slot;
}

/* Under the lock. Tombstones at the end of a chain become empty again, so that
 * a long life of many communicators does not fill the table with them. */
static void index_remove(uintptr_t h) {
  index_entry *e = find(h);
  if (!e) return;
  atomic_store_explicit(&e->handle, TOMBSTONE, memory_order_release);
  uint32_t at = (uint32_t)(e - entries);
  if (atomic_load(&entries[(at + 1) & (INDEX_SLOTS - 1)].handle)) return;
  while (atomic_load(&entries[at].handle) == TOMBSTONE) {
    atomic_store_explicit(&entries[at].handle, 0, memory_order_release);
    at = (at - 1) & (INDEX_SLOTS - 1);
  }
}

/* Under the lock. */
static void index_put(uintptr_t h, uint32_t slot) {
  index_remove(h);
  for (uint32_t i = 0, at = home(h); i < INDEX_SLOTS; i++, at = (at + 1) & (INDEX_SLOTS - 1)) {
    uintptr_t key = atomic_load(&entries[at].handle);
    if (key && key != TOMBSTONE) continue;
    atomic_store_explicit(&entries[at].slot, slot, memory_order_relaxed);
    atomic_store(&entries[at].closed, CLOSED_NOT);
    atomic_store_explicit(&entries[at].handle, h, memory_order_release);
    return;
  }
}

/* Under the lock. The slot counts only while its handle is this one: a
 * finalized communicator keeps its handle after its slot was given away. */
static falcon_comm *live(uintptr_t h) {
  index_entry *e = find(h);
  uint32_t slot = e ? atomic_load(&e->slot) : FALCON_COMM_NONE;
  if (slot >= FALCON_COMMS_MAX) return NULL;
  falcon_comm *c = &falcon_hook.comms[slot];
  return c->state == FALCON_COMM_LIVE && c->handle == h ? c : NULL;
}

static void set_state(falcon_comm *c, uint32_t state) {
  if (!c) return;
  atomic_store_explicit(&falcon_streams[c - falcon_hook.comms], 0, memory_order_release); /* it may be destroyed next */
  falcon_slot_state(c, state);
}

/* Under the lock. */
static uint32_t enter(const falcon_comm_spec *spec) {
  set_state(live((uintptr_t)spec->handle), FALCON_COMM_GONE); /* destroyed out of our sight */
  uint32_t slot = falcon_slot_take(spec);
  if (slot != FALCON_COMM_NONE) {
    privates[slot].children = 0;
    atomic_store(&privates[slot].to_query, QUERY_TRIES);
  }
  index_put((uintptr_t)spec->handle, slot);
  return slot;
}

uint32_t falcon_comm_add(const falcon_comm_spec *spec) {
  falcon_slots_lock();
  uint32_t slot = enter(spec);
  falcon_slots_unlock();
  if (slot != FALCON_COMM_NONE && !spec->in_progress) falcon_comm_query(slot, spec->handle);
  return slot;
}

/* Size, rank and device from NCCL. Asked on the caller's thread at creation,
 * and again at the next calls while NCCL reports that it is not ready. */
FALCON_COLD void falcon_comm_query(uint32_t slot, void *handle) {
  int (*count)(void *, int *) = (int (*)(void *, int *))falcon_fn(FN_ncclCommCount);
  int (*user)(void *, int *) = (int (*)(void *, int *))falcon_fn(FN_ncclCommUserRank);
  int (*device)(void *, int *) = (int (*)(void *, int *))falcon_fn(FN_ncclCommCuDevice);
  int n = -1, r = -1, d = -1;
  bool ready = count && user && !count(handle, &n) && !user(handle, &r);
  if (ready && device && device(handle, &d)) d = -1;
  falcon_slots_lock();
  uint32_t left = atomic_load(&privates[slot].to_query);
  atomic_store(&privates[slot].to_query, ready || !left ? 0 : left - 1);
  falcon_comm *c = &falcon_hook.comms[slot];
  if (ready && c->handle == (uint64_t)(uintptr_t)handle) falcon_slot_place(c, n, r, d);
  falcon_slots_unlock();
}

int falcon_comm_device(uint32_t slot) {
  falcon_slots_lock();
  int d = slot < FALCON_COMMS_MAX ? falcon_hook.comms[slot].device : -1;
  falcon_slots_unlock();
  return d;
}

void falcon_comm_mark(void *handle, uint32_t traffic) {
  falcon_slots_lock();
  falcon_comm *c = live((uintptr_t)handle);
  if (c) falcon_slot_traffic(c, traffic);
  falcon_slots_unlock();
}

/* Enters a handle that the program uses, unless another thread just did. */
static uint32_t enter_used(const falcon_comm_spec *spec, bool closed) {
  uintptr_t h = (uintptr_t)spec->handle;
  falcon_slots_lock();
  index_entry *e = find(h);
  uint32_t slot = e ? atomic_load(&e->slot) : closed ? FALCON_COMM_CLOSED : enter(spec);
  if (!e && closed) {
    index_put(h, slot);
    atomic_store(&find(h)->closed, CLOSED_REVOKED); /* its memory is owed to NCCL */
  }
  falcon_slots_unlock();
  if (!e && slot < FALCON_COMMS_MAX) falcon_comm_query(slot, spec->handle);
  return slot;
}

/* One whose handle came late is known. If a suspension has ended its parent
 * meanwhile, it is not used any more. */
static bool enter_late(void *handle, uint32_t *slot) {
  char name[FALCON_NAME_BYTES];
  falcon_comm_spec spec;
  bool late = falcon_later_is(handle, &spec, name);
  if (late) *slot = enter_used(&spec, falcon_suspend_on());
  return late;
}

/* A communicator made out of our sight: recorded with id 0, which means that
 * it cannot be joined with other ranks. */
FALCON_COLD uint32_t falcon_comm_slow(void *handle) {
  uint32_t slot;
  if ((uintptr_t)handle <= TOMBSTONE) return FALCON_COMM_NONE;
  if (falcon_pause_gone(handle)) return FALCON_COMM_ENDED;
  if (enter_late(handle, &slot)) return slot;
  falcon_cover(FALCON_COV_UNHOOKED);
  return enter_used(&(falcon_comm_spec){.handle = handle, .size = -1, .rank = -1}, false);
}

void falcon_comm_late(void *handle) {
  uint32_t slot;
  if (falcon_later_any() && (uintptr_t)handle > TOMBSTONE && !find((uintptr_t)handle)) enter_late(handle, &slot);
}

bool falcon_comm_end(void *handle, uint32_t state, bool forget) {
  if ((uintptr_t)handle <= TOMBSTONE) return true;
  falcon_slots_lock();
  bool ours = !falcon_comm_closed(handle);
  falcon_comm *c = live((uintptr_t)handle);
  if (ours) falcon_pause_comm_ended(handle, c, forget);
  if (ours) set_state(c, state);
  if (ours && forget) index_remove((uintptr_t)handle);
  falcon_slots_unlock();
  return ours;
}

/* A pointer that was freed may be another communicator's by now. */
bool falcon_comm_stands(void *handle, uint32_t slot, uint32_t generation) {
  falcon_slots_lock();
  index_entry *e = find((uintptr_t)handle);
  bool same = e && atomic_load(&e->slot) == slot && falcon_hook.comms[slot].generation == generation;
  falcon_slots_unlock();
  return same;
}

/* Splits are collective over the parent, so (parent, how many it had, color)
 * is the same on all its ranks and differs between children. */
uint64_t falcon_comm_child(void *parent, int color, uint64_t *parent_id) {
  uint32_t slot = falcon_comm_find(parent), ordinal = 0;
  *parent_id = 0;
  if (slot < FALCON_COMMS_MAX) {
    falcon_slots_lock();
    *parent_id = falcon_hook.comms[slot].id;
    ordinal = privates[slot].children++;
    falcon_slots_unlock();
  }
  uint64_t h = falcon_fnv(FALCON_FNV_START, parent_id, sizeof *parent_id);
  h = falcon_fnv(h, &ordinal, sizeof ordinal);
  return falcon_fnv(h, &color, sizeof color);
}

/* ---- communicators that a suspension ends ---- */

#define CLOSED_KEPT (INDEX_SLOTS / 2) /* remembered until the framework releases them */
#define LET_GO_NS 10000000000ull      /* for one that is being ended just now */
#define NAP_NS 1000000l

static _Atomic uint32_t asked; /* queries of NCCL under way */

/* Under the lock. Closed once and not released: the destroy of a revoked one
 * reaches NCCL also when we have forgotten it. */
static void forget_revoked(void) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < INDEX_SLOTS; i++) n += atomic_load(&entries[i].handle) > TOMBSTONE && atomic_load(&entries[i].closed);
  for (uint32_t i = 0; n > CLOSED_KEPT && i < INDEX_SLOTS; i++)
    if (atomic_load(&entries[i].handle) > TOMBSTONE && atomic_load(&entries[i].closed) == CLOSED_REVOKED) index_remove(atomic_load(&entries[i].handle));
}

/* Under the lock: neither finalized nor revoked by the framework itself. */
static bool to_close(index_entry *e) {
  uintptr_t h = atomic_load(&e->handle);
  if (h <= TOMBSTONE || atomic_load(&e->closed)) return false;
  return atomic_load(&e->slot) == FALCON_COMM_NONE || live(h);
}

uint32_t falcon_comm_close_all(void **out, uint32_t max) {
  uint32_t n = 0;
  falcon_slots_lock();
  forget_revoked();
  for (uint32_t i = 0; i < INDEX_SLOTS && n < max; i++) {
    index_entry *e = &entries[i];
    if (!to_close(e)) continue;
    out[n++] = (void *)atomic_load(&e->handle);
    set_state(live(atomic_load(&e->handle)), FALCON_COMM_ABORTED);
    atomic_store(&e->closed, CLOSED_NOW);
    atomic_store(&e->slot, FALCON_COMM_CLOSED);
  }
  falcon_slots_unlock();
  return n;
}

void falcon_comm_closed_as(void *handle, enum falcon_closed how) {
  falcon_slots_lock();
  index_entry *e = find((uintptr_t)handle);
  if (e && atomic_load(&e->closed) == CLOSED_NOW) atomic_store(&e->closed, how);
  falcon_slots_unlock();
}

enum falcon_closed falcon_comm_closed(void *handle) {
  index_entry *e = (uintptr_t)handle > TOMBSTONE ? find((uintptr_t)handle) : NULL;
  return e ? (enum falcon_closed)atomic_load(&e->closed) : CLOSED_NOT;
}

/* One that is still being ended after LET_GO_NS is left to the thread that ends it. */
enum falcon_closed falcon_comm_let_go(void *handle, bool forget) {
  uint64_t until = falcon_mono_ns() + LET_GO_NS;
  while (falcon_comm_closed(handle) == CLOSED_NOW && falcon_mono_ns() < until) nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  enum falcon_closed how = falcon_comm_closed(handle);
  if (!how || !forget) return how;
  falcon_slots_lock();
  index_remove((uintptr_t)handle);
  falcon_slots_unlock();
  return how;
}

/* Once a communicator is closed no new query of it begins: so aborting it, which
 * frees it, waits for those that began before. */
bool falcon_comm_asked(void *handle) {
  atomic_fetch_add(&asked, 1);
  if (!falcon_comm_closed(handle)) return true;
  falcon_comm_answered();
  return false;
}

void falcon_comm_answered(void) { atomic_fetch_sub(&asked, 1); }

void falcon_comm_await_answers(void) {
  while (atomic_load(&asked)) nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}
