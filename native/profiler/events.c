/*
 * NCCL's events made into records. A call is recorded when it returns to the
 * program: at the end of its event within a group, and at the end of the implicit
 * group that NCCL puts around it elsewhere, since that is where it is launched.
 *
 * Handles of calls are numbers that the calling thread compares with its own.
 * NCCL keeps some of them long after their end, as parents of other events, and
 * may stop one twice.
 */
#include "../hook/parts.h"
#include "../hook/ring.h"
#include "names.h"
#include "profiler.h"

#include <pthread.h>
#include <string.h>

#define SLOT_LATER 0xfffffffcu /* is entered at its first call that the hook does not see */

typedef struct event_context {
  bool used;
  uint32_t nccl;          /* index of nccls, plus 1; 0 = beyond them */
  _Atomic uint32_t slot;
  _Atomic uint64_t largest[FALCON_CHOICES_MAX]; /* bytes of the calls whose choice is known, by operation */
  falcon_comm_spec spec;
  char name[FALCON_NAME_BYTES];
} event_context;

typedef struct event_nccl {
  int *mask;
  int events;        /* that are always asked for */
  uint32_t contexts; /* alive */
} event_nccl;

/* The calling thread. */
typedef struct event_thread {
  uint64_t serial;        /* of the newest handle */
  void *group, *call;     /* open events */
  bool in_group, held;    /* ncclGroupStart was called; `record` waits for the end of its implicit group */
  uint64_t group_end;     /* when the end of the group was called */
  falcon_record record;   /* the newest call */
} event_thread;

static __thread event_thread thread_events FALCON_TLS;
static event_context contexts[FALCON_CONTEXTS_MAX];
static event_nccl nccls[FALCON_NCCLS_MAX];
static int asked; /* beyond what is always asked for */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
const falcon_device *falcon_events_device;
_Atomic bool falcon_events_several;

/* ---- communicators ---- */

/* Under the lock. */
static uint32_t nccl_of(int *mask) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < FALCON_NCCLS_MAX; i++) {
    if (nccls[i].contexts && nccls[i].mask == mask) return i + 1;
    if (!nccls[i].contexts && !at) at = i + 1;
  }
  return at;
}

static void set_mask(const event_nccl *n) { __atomic_store_n(n->mask, n->events | asked, __ATOMIC_RELAXED); }

/* A mask is written only while a communicator of its NCCL lives. */
void falcon_events_ask(int events, bool on) {
  pthread_mutex_lock(&lock);
  asked = on ? asked | events : asked & ~events;
  for (uint32_t i = 0; i < FALCON_NCCLS_MAX; i++)
    if (nccls[i].contexts) set_mask(&nccls[i]);
  pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static event_context *free_context(void) {
  for (uint32_t i = 0; i < FALCON_CONTEXTS_MAX; i++)
    if (!contexts[i].used) return &contexts[i];
  return NULL;
}

/* Under both locks: NCCL may close a context and open another one in its place. */
static void enter_comm(event_context *c) {
  pthread_mutex_lock(&lock);
  falcon_slots_lock();
  if (atomic_load(&c->slot) == SLOT_LATER) atomic_store(&c->slot, falcon_slot_take(&c->spec));
  falcon_slots_unlock();
  pthread_mutex_unlock(&lock);
}

/* Under the lock: another rank of this communicator is in this process, on another GPU. */
static bool has_sibling(const falcon_profiled *comm) {
  for (uint32_t i = 0; i < FALCON_CONTEXTS_MAX; i++)
    if (contexts[i].used && contexts[i].spec.id == comm->id && contexts[i].spec.rank != comm->rank) return true;
  return false;
}

/* Under the lock. */
static void open_context(event_context *c, const falcon_profiled *comm) {
  if (has_sibling(comm)) atomic_store(&falcon_events_several, true);
  size_t n = comm->name ? strnlen(comm->name, FALCON_NAME_BYTES - 1) : 0;
  if (n) memcpy(c->name, comm->name, n);
  c->name[n] = 0;
  c->spec = (falcon_comm_spec){.handle = c, .id = comm->id, .size = comm->ranks, .rank = comm->rank, .name = c->name};
  atomic_store(&c->slot, SLOT_LATER);
  for (uint32_t i = 0; i < FALCON_CHOICES_MAX; i++) atomic_store(&c->largest[i], 0);
  c->used = true;
  c->nccl = nccl_of(comm->mask);
  if (!c->nccl) return;
  event_nccl *of = &nccls[c->nccl - 1];
  of->mask = comm->mask;
  of->events = comm->version > 4 ? FALCON_EVENTS_CALLS : FALCON_EVENTS_TASKS;
  of->contexts++;
  set_mask(of);
}

static int events_init(void **context, const falcon_profiled *comm) {
  *context = NULL;
  if (!falcon_part_hooks() && !falcon_activate()) return NCCL_SYSTEM_ERROR;
  if (falcon_part_hooks() && comm->version == 4) return NCCL_SUCCESS; /* tasks don't show who called */
  pthread_mutex_lock(&lock);
  event_context *c = free_context();
  if (c) open_context(c, comm);
  pthread_mutex_unlock(&lock);
  *context = c;
  if (c && !falcon_part_hooks()) {
    enter_comm(c);
    falcon_cover(FALCON_COV_INIT | FALCON_COV_PROFILER);
  }
  return NCCL_SUCCESS;
}

static event_context *context_of(void *context) {
  uintptr_t off = (uintptr_t)context - (uintptr_t)contexts;
  return off < sizeof contexts && off % sizeof *contexts == 0 ? &contexts[off / sizeof *contexts] : NULL;
}

static void leave_comm(event_context *c) {
  uint32_t slot = atomic_load(&c->slot);
  if (slot >= FALCON_COMMS_MAX || !falcon_active()) return;
  falcon_comm *entry = &falcon_hook.comms[slot];
  falcon_slots_lock();
  if (entry->state == FALCON_COMM_LIVE && entry->handle == (uint64_t)(uintptr_t)c) falcon_slot_state(entry, FALCON_COMM_GONE);
  falcon_slots_unlock();
}

static int events_finalize(void *context) {
  event_context *c = context_of(context);
  if (!c) return NCCL_SUCCESS;
  pthread_mutex_lock(&lock);
  if (c->used) {
    leave_comm(c);
    if (c->nccl) nccls[c->nccl - 1].contexts--;
    c->used = false;
  }
  pthread_mutex_unlock(&lock);
  return NCCL_SUCCESS;
}

/* The slot of a communicator whose call the hook does not see. */
static uint32_t slot_of(event_context *c) {
  uint32_t slot = atomic_load_explicit(&c->slot, memory_order_relaxed);
  if (FALCON_UNLIKELY(slot == SLOT_LATER)) {
    enter_comm(c);
    falcon_cover(FALCON_COV_INIT | FALCON_COV_PROFILER | FALCON_COV_UNHOOKED);
    slot = atomic_load(&c->slot);
  }
  return slot;
}

/* ---- records ---- */

static void number_call(event_context *c, falcon_record *r) {
  r->comm = slot_of(c);
  if (r->comm < FALCON_COMMS_MAX) r->ordinal = FALCON_GATE_COUNT(__atomic_fetch_add(&falcon_hook.comms[r->comm].gate, 1, __ATOMIC_RELAXED));
  falcon_cover(r->op >= FALCON_OP_SEND ? FALCON_COV_P2P : FALCON_COV_COLL);
}

static bool has_root(uint8_t op) { return op == FALCON_OP_BROADCAST || op == FALCON_OP_REDUCE || op == FALCON_OP_GATHER || op == FALCON_OP_SCATTER; }

static void write_mark(uint32_t op, uint64_t enter) {
  falcon_record r = {.enter = enter, .exit = falcon_ticks(), .comm = FALCON_COMM_NONE, .peer = -1, .op = (uint8_t)op,
                     .step = atomic_load_explicit(&falcon_hook.step, memory_order_relaxed)};
  falcon_cover(FALCON_COV_GROUP);
  falcon_record_put(&falcon_thread, &r);
}

static void write_held(event_thread *t) {
  if (!t->held) return;
  t->held = false;
  t->record.exit = falcon_ticks();
  falcon_record_put(&falcon_thread, &t->record);
}

/* A group that NCCL gave up has no end. */
static void *start_group(event_thread *t, int depth) {
  write_held(t);
  t->in_group = depth > 1;
  t->call = NULL;
  t->group_end = 0;
  if (t->in_group) write_mark(FALCON_OP_GROUPSTART, falcon_ticks());
  return t->group = falcon_handle(FALCON_HANDLE_GROUP, ++t->serial);
}

static void stop_group(event_thread *t) {
  write_held(t);
  if (t->in_group) write_mark(FALCON_OP_GROUPEND, t->group_end ? t->group_end : falcon_ticks());
  t->in_group = false;
  t->group = NULL;
}

static void *start_call(event_thread *t, event_context *c, falcon_record r, bool captured) {
  write_held(t);
  r.enter = falcon_ticks();
  r.step = atomic_load_explicit(&falcon_hook.step, memory_order_relaxed);
  r.depth = t->in_group;
  r.flags = (uint8_t)((t->in_group ? FALCON_REC_GROUPED : 0) | (captured ? FALCON_REC_CAPTURING : 0));
  number_call(c, &r);
  void *timed = NULL;
  if (FALCON_UNLIKELY(falcon_events_device && atomic_load_explicit(&falcon_hook.profile, memory_order_relaxed) && !captured))
    timed = falcon_events_device->call(&r);
  if (timed) r.flags |= FALCON_REC_TIMED;
  t->record = r;
  return t->call = timed ? timed : falcon_handle(FALCON_HANDLE_CALL, ++t->serial);
}

static void stop_call(event_thread *t) {
  t->call = NULL;
  t->held = true;
  if (t->in_group || !t->group) write_held(t);
}

static void *start_coll_api(event_thread *t, event_context *c, const nccl_event_descr *e) {
  uint8_t op = falcon_name_op(e->call.func);
  return start_call(t, c, (falcon_record){.count = e->call.count, .stream = (uint64_t)(uintptr_t)e->call.stream, .op = op,
                    .peer = has_root(op) ? e->call.root : -1, .dtype = falcon_name_type(e->call.datatype)}, e->call.captured);
}

static void *start_p2p_api(event_thread *t, event_context *c, const nccl_event_descr *e) {
  return start_call(t, c, (falcon_record){.count = e->p2p_call.count, .stream = (uint64_t)(uintptr_t)e->p2p_call.stream, .peer = -1,
                    .op = falcon_name_op(e->p2p_call.func), .dtype = falcon_name_type(e->p2p_call.datatype)}, e->p2p_call.captured);
}

/* NCCL's choice follows the size of a call: that of the largest ones is kept, whose transfers are compared. */
static void note_choice(event_context *c, const nccl_task_coll *t) {
  uint8_t op = falcon_name_op(t->func), algorithm = falcon_name_algorithm(t->algorithm);
  uint32_t slot = atomic_load_explicit(&c->slot, memory_order_relaxed);
  if (!algorithm || op >= FALCON_CHOICES_MAX || slot >= FALCON_COMMS_MAX) return;
  uint64_t bytes = t->count * nccl_type_bytes(falcon_name_type(t->datatype));
  if (bytes < atomic_load_explicit(&c->largest[op], memory_order_relaxed)) return;
  atomic_store_explicit(&c->largest[op], bytes, memory_order_relaxed);
  uint32_t choice = FALCON_CHOICE(algorithm, falcon_name_protocol(t->protocol), t->channels);
  __atomic_store_n(&falcon_hook.comms[slot].choices[op], choice, __ATOMIC_RELAXED);
}

/* ---- callbacks ---- */

static void *start_device(const nccl_event_descr *e, uint64_t type) {
  switch (type) {
    case NCCL_EVENT_COLL: return falcon_events_device->task(e->parent, e->coll.channels, -1);
    case NCCL_EVENT_P2P: return falcon_events_device->task(e->parent, e->p2p.channels, e->p2p.peer);
    case NCCL_EVENT_KERNEL: return falcon_events_device->kernel(e->parent, e->kernel.timer);
  }
  return NULL;
}

/* A call that the hook sees is recorded by the hook. */
static bool is_ours(void) { return !falcon_thread.inside && (falcon_active() || (falcon_part_hooks() && falcon_activate())); }

static int events_start(void *context, void **handle, nccl_event_descr *e) {
  event_thread *t = &thread_events;
  event_context *c = context_of(context);
  *handle = NULL;
  if (!is_ours()) return NCCL_SUCCESS;
  if (FALCON_UNLIKELY(!c)) {
    if (e->type & (NCCL_EVENT_COLL_API | NCCL_EVENT_P2P_API)) __atomic_fetch_add(&falcon_hook.control->records_lost, 1, __ATOMIC_RELAXED);
    return NCCL_SUCCESS;
  }
  if (e->type == NCCL_EVENT_GROUP_API) *handle = start_group(t, e->group.depth);
  else if (e->type == NCCL_EVENT_COLL_API) *handle = start_coll_api(t, c, e);
  else if (e->type == NCCL_EVENT_P2P_API) *handle = start_p2p_api(t, c, e);
  else if (falcon_events_device) {
    if (e->type == NCCL_EVENT_COLL) note_choice(c, &e->coll);
    *handle = start_device(e, e->type);
  }
  return NCCL_SUCCESS;
}

/* Version 4: a task stands for its call, and its time is that of the launch. */
static void *start_task4(event_context *c, const nccl_event_descr *e) {
  bool coll = e->type4 == NCCL_EVENT_COLL;
  uint8_t op = falcon_name_op(coll ? e->coll.func : e->p2p.func);
  falcon_record r = {.enter = falcon_ticks(), .count = coll ? e->coll.count : e->p2p.count, .op = op,
                     .peer = !coll ? e->p2p.peer : has_root(op) ? e->coll.root : -1,
                     .dtype = falcon_name_type(coll ? e->coll.datatype : e->p2p.datatype),
                     .step = atomic_load_explicit(&falcon_hook.step, memory_order_relaxed)};
  void *timed = NULL;
  number_call(c, &r);
  if (coll) note_choice(c, &e->coll);
  if (FALCON_UNLIKELY(atomic_load_explicit(&falcon_hook.profile, memory_order_relaxed))) timed = falcon_events_device->call(&r);
  if (timed) r.flags |= FALCON_REC_TIMED;
  r.exit = falcon_ticks();
  falcon_record_put(&falcon_thread, &r);
  return timed ? falcon_events_device->task(timed, coll ? e->coll.channels : e->p2p.channels, r.peer) : NULL;
}

static int events_start4(void *context, void **handle, nccl_event_descr *e) {
  event_context *c = context_of(context);
  *handle = NULL;
  if (!c || !falcon_events_device || !is_ours()) return NCCL_SUCCESS;
  if (e->type4 == NCCL_EVENT_COLL || e->type4 == NCCL_EVENT_P2P) *handle = start_task4(c, e);
  else *handle = start_device(e, e->type4);
  return NCCL_SUCCESS;
}

static int events_stop(void *handle) {
  event_thread *t = &thread_events;
  if (!handle || !falcon_active()) return NCCL_SUCCESS;
  if (handle == t->call) stop_call(t);
  else if (handle == t->group) stop_group(t);
  return NCCL_SUCCESS;
}

static int events_state(void *handle, int state, nccl_event_args *args) {
  event_thread *t = &thread_events;
  if (!handle || !falcon_active()) return NCCL_SUCCESS;
  if (state == NCCL_STATE_GROUP_END && handle == t->group && t->in_group) t->group_end = falcon_ticks();
  else if (state == NCCL_STATE_KERNEL_STOP && args && falcon_events_device) falcon_events_device->stop(handle, args->kernel.timer);
  return NCCL_SUCCESS;
}

void falcon_events_forked(void) {
  thread_events = (event_thread){0};
  pthread_mutex_init(&lock, NULL); /* another thread of the parent may have held it */
}

const falcon_profiler falcon_profiler_events = {
  .abi = FALCON_PROFILER_ABI, .bytes = sizeof falcon_profiler_events, .init = events_init, .start = events_start,
  .start4 = events_start4, .stop = events_stop, .state = events_state, .finalize = events_finalize,
};
