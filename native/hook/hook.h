/*
 * Inside of libfalcon_hook.so: the state of this process, and what the parts
 * ask of each other.
 *
 * Threads: training threads run the wrappers (calls.c, comm.c, group.c,
 * job.c); one side thread (side.c) beats, calibrates and polls events. Each
 * ring has one writer, the thread that owns it. Registration of communicators
 * takes a lock; recording a call never does.
 *
 * The rule of every failure path: behave as if the hook were absent.
 *
 * Environment: FALCON_PAUSE_MAX_MS lowers the longest hold of a pause;
 * FALCON_TEST_MB is the workspace of active tests (none without it); FALCON_SHM_DIR, FALCON_JOB,
 * FALCON_DEVICE, FALCON_GENERATION, RANK, WORLD_SIZE and LOCAL_RANK name the process (falcon_shm.h); FALCON_HOOK=off keeps the hook
 * inert; FALCON_CLOCK=mono makes it leave the TSC alone.
 */
#ifndef FALCON_HOOK_H
#define FALCON_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/falcon_shm.h"
#include "api.h"
#include "nccl_abi.h"

#define FALCON_EXPORT __attribute__((visibility("default")))
#define FALCON_COLD __attribute__((cold, noinline))
#define FALCON_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FALCON_BEAT_NS 100000000ull        /* between heartbeats */
#define FALCON_BEAT_PROFILE_NS 10000000ull /* while a profile window is open */
#define FALCON_DRAIN_NS (FALCON_DRAIN_MS * 1000000ull) /* after a window, for calls still on the device */

#define FALCON_COV_MAPPED (1u << 31)        /* private: NCCL is mapped and no call came through the hook yet */
#define FALCON_COV_UNASKED (1u << 30)       /* private: streams must not be asked any more */

enum falcon_life { LIFE_INERT = 0, LIFE_ACTIVE = 1, LIFE_OFF = 2 /* for good: refused, failed or forked */ };

typedef struct falcon_state {
  _Atomic uint32_t life;
  uint32_t clock;            /* enum falcon_clock */
  _Atomic uint32_t step;     /* iteration for the records */
  _Atomic uint32_t coverage; /* private copy, so that the hot path only reads */
  _Atomic uint64_t profile;  /* 0, or window id << 32 | 1: calls are to be timed */
  _Atomic uint32_t half;     /* newest 16 or 8 bit ncclDataType_t of a call of FALCON_HALF_COUNT or more; 0 = none */
  falcon_header *header;
  falcon_control *control;
  falcon_comm *comms;
  falcon_timing *timings;
  char *rings;
  bool reserved;             /* every page of the file is allocated */
  uint64_t load_ticks, load_mono_ns, load_unix_ns;
  char path[1024];
  char self[1024];           /* this library's path as loaded */
} falcon_state;

extern falcon_state falcon_hook __attribute__((visibility("hidden")));

#define FALCON_PASSED_MAX 8u /* streams of one group that pass armed gates; with more the pause is refused */

/* Calls of an open group that passed armed gates, by stream. */
typedef struct falcon_passed {
  uint64_t order;
  void *stream;
  uint32_t comm, calls;
} falcon_passed;

/* State of one calling thread. */
typedef struct falcon_tls {
  falcon_ring *ring;
  falcon_record *slots;
  uint64_t head;
  uint32_t inside;     /* in a call of NCCL: what NCCL calls itself is not recorded */
  uint32_t depth;      /* ncclGroupStart nesting */
  uint32_t ring_index;
  uint32_t misses;     /* calls without a ring */
  uint32_t exiting;
  uint32_t pending;    /* communicators created in the open group */
  uint32_t busy_slot;  /* calls.c: where it records that it is inside, plus 1; 0 = nowhere yet */
  int32_t group_rc;    /* of the first call in the open group that a suspension refused, 0 = none */
  uint32_t prof_group; /* entries of the open group waiting in the profile queue */
  uint32_t passed_count;
  falcon_passed passed[FALCON_PASSED_MAX]; /* what passed armed gates in the open group */
} falcon_tls;

/* A library that is preloaded has its place in the static thread block; one that is
 * opened later must not count on room there. */
#ifndef FALCON_TLS
#define FALCON_TLS __attribute__((tls_model("initial-exec")))
#endif
extern __thread falcon_tls falcon_thread __attribute__((visibility("hidden"))) FALCON_TLS;

/* What one wrapper carries from enter to exit. */
typedef struct falcon_span {
  uint64_t enter, ordinal;
  uint32_t comm;
  uint32_t flags;
  uint32_t step; /* as the call came: of a call that takes long the step may end */
  int32_t timed; /* entry in the profile queue, -1 = none */
  uint64_t order; /* pause under which the call passed an armed gate, 0 = none */
} falcon_span;

/* How a part of the program is bound to NCCL (bind.c). */
enum falcon_role { FALCON_ROLE_NONE = 0 /* has not called yet */, FALCON_ROLE_HOOKED = 1, FALCON_ROLE_OTHER = 2 /* not of the NCCL that is hooked */ };
typedef struct falcon_binding {
  _Atomic(void *) fn[FN_COUNT]; /* found so far */
  void *handle;                 /* pinned; names are looked up in it and in what it needs */
  bool global;                  /* the global scope behind the hook comes first */
  uint32_t how;                 /* enum falcon_bound */
  _Atomic uint32_t role;
} falcon_binding;
typedef struct falcon_caller { uintptr_t lo; _Atomic uintptr_t size; falcon_binding *by; } falcon_caller; /* an object that calls NCCL */

extern falcon_caller falcon_first __attribute__((visibility("hidden")));
FALCON_COLD falcon_binding *falcon_caller_slow(void *at, int fn);
FALCON_COLD void *falcon_bound_find(falcon_binding *b, int fn);
FALCON_COLD int falcon_missing(int fn);    /* what a call that no NCCL has returns */
falcon_binding *falcon_binding_of(void *at, int fn); /* of code that may never call; NULL: no NCCL can be found */
bool falcon_dlsym_leads(void *asker, int fn, void *theirs); /* ours, given to who asked for theirs, goes on to it */
int falcon_fn_index(const char *name);     /* of a hooked name, else -1 */
void *falcon_fn(int fn);                   /* of the NCCL that is hooked, NULL where it has none */
void falcon_bound_publish(void);
FALCON_COLD void falcon_bound_version(falcon_tls *t);

static inline falcon_binding *falcon_caller_of(void *at, int fn) {
  uintptr_t size = atomic_load_explicit(&falcon_first.size, memory_order_acquire);
  return FALCON_UNLIKELY((uintptr_t)at - falcon_first.lo >= size) ? falcon_caller_slow(at, fn) : falcon_first.by;
}

static inline void *falcon_bound_fn(falcon_binding *b, int fn) {
  void *p = atomic_load_explicit(&b->fn[fn], memory_order_acquire);
  return FALCON_UNLIKELY(!p) ? falcon_bound_find(b, fn) : p;
}

/* The caller's binding as a local variable `bound`, the real function of this
 * name as `real`; or return. */
#define FALCON_REAL(name, params) \
  falcon_binding *bound = falcon_caller_of(__builtin_return_address(0), FN_##name); \
  int(*real) params = (int(*) params)falcon_bound_fn(bound, FN_##name); \
  if (FALCON_UNLIKELY(!real)) return falcon_missing(FN_##name)

/* Not a call of the program on the NCCL that is hooked: it passes untouched. */
static inline bool falcon_aside(const falcon_tls *t, const falcon_binding *bound) {
  return t->inside || atomic_load_explicit(&bound->role, memory_order_relaxed) != FALCON_ROLE_HOOKED;
}

/* resolve.c */
void *falcon_symbol(void *handle, const char *name); /* dlsym.c: the real dlsym */
void *falcon_cuda(const char *name);
void *falcon_cublas(const char *name);     /* of a libcublas that is loaded */
void *falcon_nccl_handle(const char *name); /* pins a loaded NCCL that has this function, whoever uses it */
bool falcon_nccl_mapped(void);             /* a file of its name */
bool falcon_nccl_loaded(void);             /* or within another library; slow */
bool falcon_is_mine(void *p);

/* shm.c */
bool falcon_activate(void);                /* first use: create the file, start the side thread */
bool falcon_reserve(void *from, size_t bytes); /* false: the memory must not be written */
void falcon_retire(void);                  /* record that it ended in order, and remove the file */

/* ended.c */
void falcon_ended_load(void);              /* once, in a process that has a file: learn its exit status */
void falcon_ended_mark(void);
uint64_t falcon_env_seconds(const char *name, unsigned long seconds); /* as ns; the default where it is unset or absurd */
void falcon_strip_preload(void);           /* env.c */

static inline bool falcon_active(void) {
  return atomic_load_explicit(&falcon_hook.life, memory_order_acquire) == LIFE_ACTIVE;
}

FALCON_COLD void falcon_cover_slow(uint32_t bits);
static inline void falcon_cover(uint32_t bits) {
  if (FALCON_UNLIKELY((atomic_load_explicit(&falcon_hook.coverage, memory_order_relaxed) & bits) != bits)) falcon_cover_slow(bits);
}

/* ring.c */
bool falcon_ring_claim(falcon_tls *t);
void falcon_ring_setup(void);

/* slots.c: the communicators' places in the file. All but falcon_fnv under the lock. */
typedef struct falcon_comm_spec {
  void *handle;
  uint64_t id, parent;
  int size, rank; /* -1: ask NCCL */
  const char *name; /* NULL when not given */
  bool in_progress; /* not ready: NCCL is asked at its first call only */
  void *from;       /* handle of the parent, NULL = none */
} falcon_comm_spec;
void falcon_slots_lock(void);
void falcon_slots_unlock(void);
uint32_t falcon_slot_take(const falcon_comm_spec *spec); /* FALCON_COMM_NONE: all are in use */
void falcon_slot_state(falcon_comm *c, uint32_t state);
void falcon_slot_place(falcon_comm *c, int size, int rank, int device);
void falcon_slot_traffic(falcon_comm *c, uint32_t traffic);
uint64_t falcon_fnv(uint64_t h, const void *p, size_t n);
#define FALCON_FNV_START 14695981039346656037ull

/* table.c: the way from NCCL's handle to the slot */
uint32_t falcon_comm_add(const falcon_comm_spec *spec);
uint32_t falcon_comm_slow(void *handle);   /* a handle the hot path did not find */
uint32_t falcon_comm_find(void *handle);
void falcon_comm_late(void *handle);       /* the program uses it: enters it if it is one of later.c */
void falcon_comm_query(uint32_t slot, void *handle);
bool falcon_comm_end(void *handle, uint32_t state, bool forget); /* false: a suspension has it */
/* In place of a slot: a communicator that ended while a pause held calls. */
#define FALCON_COMM_ENDED 0xfffffffeu
/* In place of a slot: one that a suspension ended. */
#define FALCON_COMM_CLOSED 0xfffffffdu
bool falcon_comm_stands(void *handle, uint32_t slot, uint32_t generation); /* may NCCL be given it still? */
uint64_t falcon_comm_child(void *parent, int color, uint64_t *parent_id);
int falcon_comm_device(uint32_t slot);
void falcon_comm_mark(void *handle, uint32_t traffic); /* enum falcon_traffic */

/* wait.c: by slot, the stream of the newest call of a live communicator, plus 1;
 * 0 = none. Not in the file: what the agent writes is never given to CUDA. */
extern _Atomic uintptr_t falcon_streams[FALCON_COMMS_MAX] __attribute__((visibility("hidden")));

/* exports.c */
void falcon_exports_look(void *real);      /* once: any function of the NCCL that is used */

/* comm.c */
int falcon_comm_settle(falcon_tls *t, int rc);     /* communicators created in a group, after its end: what it returns */

/* busy.c: threads that may be inside NCCL with a communicator they looked up. */
void falcon_busy_claim(falcon_tls *t);
void falcon_busy_await(uint64_t ns);       /* until none is that looked it up before it was closed, or so long */
#define FALCON_BUSY_SLOTS 64u              /* threads; those beyond are not waited for */
extern _Atomic uint32_t falcon_busy[FALCON_BUSY_SLOTS][16] __attribute__((visibility("hidden"))); /* a cache line each */

/* Before the handle is looked up. That the store comes first for whoever has
 * closed it is the business of falcon_busy_await, which is rare. */
static inline void falcon_busy_enter(falcon_tls *t) {
  if (FALCON_UNLIKELY(!t->busy_slot)) falcon_busy_claim(t);
  if (t->busy_slot <= FALCON_BUSY_SLOTS) atomic_store_explicit(&falcon_busy[t->busy_slot - 1][0], 1, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
}

/* Not inside a group, whose end uses what was called in it. */
static inline void falcon_busy_leave(falcon_tls *t) {
  if (!t->depth && t->busy_slot && t->busy_slot <= FALCON_BUSY_SLOTS)
    atomic_store_explicit(&falcon_busy[t->busy_slot - 1][0], 0, memory_order_release);
}

/* later.c: communicators whose handle NCCL stores only once they are ready */
void falcon_later_add(void **where, const falcon_comm_spec *spec);
bool falcon_later_any(void);
bool falcon_later_is(void *handle, falcon_comm_spec *spec, char name[FALCON_NAME_BYTES]); /* a handle that the program uses: is it one of them? */
void falcon_later_drop(void *parent);
void falcon_later_forked(void);

/* comm.c, calls.c: what a call that NCCL must not be given returns. */
int falcon_comm_error(void *handle);

/* profile.c */
FALCON_COLD void falcon_profile_begin(falcon_tls *t, falcon_span *s, void *stream);
FALCON_COLD void falcon_profile_end(falcon_tls *t, falcon_span *s, const falcon_record *r, bool ok);
FALCON_COLD void falcon_profile_group_end(falcon_tls *t, bool launched);
bool falcon_profile_tick(uint64_t now_ns); /* side thread; true while a window needs it */

/* side.c */
bool falcon_side_start(void);

/* choice.c, reserve.c: once, at the first communicator */
FALCON_COLD void falcon_note_environment(void);
FALCON_COLD void falcon_reserve_tests(void);

/* probe.c: active tests */
void falcon_probe_tick(uint64_t now_ns);   /* side thread */

#endif
