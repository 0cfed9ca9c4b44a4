/*
 * The communicator table, and the way from a handle to its slot: open
 * addressing, read without a lock on the hot path, written under one.
 */
#include "pause.h"
#include "clock.h"
#include "suspend.h"

#include <pthread.h>
#include <string.h>

#define INDEX_SLOTS 1024u /* power of two, 4 x the communicators */
#define TOMBSTONE ((uintptr_t)1)
#define QUERY_TRIES 64    /* a nonblocking communicator answers only once it is ready */

typedef struct { _Atomic uintptr_t handle; _Atomic uint32_t slot; _Atomic uint32_t closed; /* enum falcon_closed */ } index_entry;
typedef struct { uint32_t children; _Atomic uint32_t to_query; } comm_private;

static index_entry entries[INDEX_SLOTS];
static comm_private privates[FALCON_COMMS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_slot;

uint64_t falcon_fnv(uint64_t h, const void *p, size_t n) {
  const unsigned char *b = p;
  for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211ull;
  return h;
}

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

/* Under the lock: a slot never used, else the next one whose communicator is gone. */
static uint32_t take_slot(void) {
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++) {
    uint32_t at = (next_slot + i) % FALCON_COMMS_MAX;
    if (falcon_hook.comms[at].state == FALCON_COMM_LIVE) continue;
    next_slot = at + 1;
    return at;
  }
  return FALCON_COMM_NONE;
}

static void write_begin(falcon_comm *c) {
  __atomic_fetch_add(&c->seq, 1, __ATOMIC_ACQ_REL);
}

static void write_end(falcon_comm *c) { __atomic_fetch_add(&c->seq, 1, __ATOMIC_RELEASE); }

static void copy_name(char *out, const char *name) {
  for (size_t i = 0; i < FALCON_NAME_BYTES; i++) {
    char c = name && i + 1 < FALCON_NAME_BYTES ? name[i] : 0;
    out[i] = c && (c < ' ' || c == 127) ? '?' : c;
    if (!c) name = NULL;
  }
}

/* Fields that the profile reads outside the lock. */
#define set32(where, v) __atomic_store_n(where, v, __ATOMIC_RELAXED)

static void fill(falcon_comm *c, const falcon_comm_spec *s) {
  write_begin(c);
  c->id = s->id;
  c->handle = (uint64_t)(uintptr_t)s->handle;
  __atomic_store_n(&c->gate, 0, __ATOMIC_RELAXED);
  c->generation++;
  set32(&c->state, FALCON_COMM_LIVE);
  set32(&c->size, s->size);
  set32(&c->rank, s->rank);
  set32(&c->device, -1);
  set32(&c->traffic, 0);
  c->parent = s->parent;
  copy_name(c->name, s->name);
  write_end(c);
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
  write_begin(c);
  set32(&c->state, state);
  write_end(c);
}

/* Under the lock. */
static uint32_t enter(const falcon_comm_spec *spec) {
  set_state(live((uintptr_t)spec->handle), FALCON_COMM_GONE); /* destroyed out of our sight */
  uint32_t slot = take_slot();
  if (slot != FALCON_COMM_NONE) {
    fill(&falcon_hook.comms[slot], spec);
    privates[slot].children = 0;
    atomic_store(&privates[slot].to_query, QUERY_TRIES);
  }
  index_put((uintptr_t)spec->handle, slot);
  return slot;
}

uint32_t falcon_comm_add(const falcon_comm_spec *spec) {
  pthread_mutex_lock(&lock);
  uint32_t slot = enter(spec);
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  uint32_t left = atomic_load(&privates[slot].to_query);
  atomic_store(&privates[slot].to_query, ready || !left ? 0 : left - 1);
  falcon_comm *c = &falcon_hook.comms[slot];
  if (ready && c->handle == (uint64_t)(uintptr_t)handle) {
    write_begin(c);
    set32(&c->size, n);
    set32(&c->rank, r);
    set32(&c->device, d);
    write_end(c);
  }
  pthread_mutex_unlock(&lock);
}

int falcon_comm_device(uint32_t slot) {
  pthread_mutex_lock(&lock);
  int d = slot < FALCON_COMMS_MAX ? falcon_hook.comms[slot].device : -1;
  pthread_mutex_unlock(&lock);
  return d;
}

void falcon_comm_mark(void *handle, uint32_t traffic) {
  pthread_mutex_lock(&lock);
  falcon_comm *c = live((uintptr_t)handle);
  if (c && (c->traffic & traffic) != traffic) {
    write_begin(c);
    set32(&c->traffic, c->traffic | traffic);
    write_end(c);
  }
  pthread_mutex_unlock(&lock);
}

/* Enters a handle that the program uses, unless another thread just did. */
static uint32_t enter_used(const falcon_comm_spec *spec, bool closed) {
  uintptr_t h = (uintptr_t)spec->handle;
  pthread_mutex_lock(&lock);
  index_entry *e = find(h);
  uint32_t slot = e ? atomic_load(&e->slot) : closed ? FALCON_COMM_CLOSED : enter(spec);
  if (!e && closed) {
    index_put(h, slot);
    atomic_store(&find(h)->closed, CLOSED_REVOKED); /* its memory is owed to NCCL */
  }
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  bool ours = !falcon_comm_closed(handle);
  falcon_comm *c = live((uintptr_t)handle);
  if (ours) falcon_pause_comm_ended(handle, c, forget);
  if (ours) set_state(c, state);
  if (ours && forget) index_remove((uintptr_t)handle);
  pthread_mutex_unlock(&lock);
  return ours;
}

/* A pointer that was freed may be another communicator's by now. */
bool falcon_comm_stands(void *handle, uint32_t slot, uint32_t generation) {
  pthread_mutex_lock(&lock);
  index_entry *e = find((uintptr_t)handle);
  bool same = e && atomic_load(&e->slot) == slot && falcon_hook.comms[slot].generation == generation;
  pthread_mutex_unlock(&lock);
  return same;
}

/* Splits are collective over the parent, so (parent, how many it had, color)
 * is the same on all its ranks and differs between children. */
uint64_t falcon_comm_child(void *parent, int color, uint64_t *parent_id) {
  uint32_t slot = falcon_comm_find(parent), ordinal = 0;
  *parent_id = 0;
  if (slot < FALCON_COMMS_MAX) {
    pthread_mutex_lock(&lock);
    *parent_id = falcon_hook.comms[slot].id;
    ordinal = privates[slot].children++;
    pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  forget_revoked();
  for (uint32_t i = 0; i < INDEX_SLOTS && n < max; i++) {
    index_entry *e = &entries[i];
    if (!to_close(e)) continue;
    out[n++] = (void *)atomic_load(&e->handle);
    set_state(live(atomic_load(&e->handle)), FALCON_COMM_ABORTED);
    atomic_store(&e->closed, CLOSED_NOW);
    atomic_store(&e->slot, FALCON_COMM_CLOSED);
  }
  pthread_mutex_unlock(&lock);
  return n;
}

void falcon_comm_closed_as(void *handle, enum falcon_closed how) {
  pthread_mutex_lock(&lock);
  index_entry *e = find((uintptr_t)handle);
  if (e && atomic_load(&e->closed) == CLOSED_NOW) atomic_store(&e->closed, how);
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  index_remove((uintptr_t)handle);
  pthread_mutex_unlock(&lock);
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
