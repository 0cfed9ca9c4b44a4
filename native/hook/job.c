/*
 * The job adapter: step marks out, orders in. Called from one thread of the
 * framework; nothing here waits. Orders are copied out of the mailbox when they
 * are first seen, so that a rank still holds what it voted for.
 */
#include "clock.h"
#include "park.h"
#include "ring.h"
#include "suspend.h"

#include <string.h>

#include "../include/falcon_job.h"

#define MARKS 64u
#define READ_TRIES 8

typedef uint64_t __attribute__((may_alias)) word;

static falcon_shm_order held[FALCON_ORDER_SLOTS];
static uint64_t newest_seen;
static uint64_t voided; /* orders up to this one are of a generation that is over */

_Static_assert(FALCON_JOB_VALUES_MAX == FALCON_ORDER_VALUES, "an order fits");

falcon_control *falcon_adapter(void) {
  if (!falcon_activate()) return NULL;
  falcon_cover(FALCON_COV_ADAPTER);
  return falcon_hook.control;
}

FALCON_EXPORT uint32_t falcon_job_version(void) { return FALCON_JOB_VERSION; }

FALCON_EXPORT void falcon_job_describe(int tp, int dp, int pp, int micro_batches) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  __atomic_store_n(&c->tp, tp, __ATOMIC_RELAXED);
  __atomic_store_n(&c->dp, dp, __ATOMIC_RELAXED);
  __atomic_store_n(&c->pp, pp, __ATOMIC_RELAXED);
  __atomic_store_n(&c->micro_batches, (uint32_t)(micro_batches > 0 ? micro_batches : 0), __ATOMIC_RELAXED);
  __atomic_fetch_add(&c->describe_seq, 1, __ATOMIC_RELEASE);
}

FALCON_EXPORT void falcon_job_mesh(const char *dims, int micro_batches) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  size_t n = dims ? strnlen(dims, FALCON_MESH_BYTES) : 0;
  if (n >= FALCON_MESH_BYTES) n = 0;
  uint64_t seq = __atomic_load_n(&c->mesh_seq, __ATOMIC_RELAXED);
  __atomic_store_n(&c->mesh_seq, seq | 1, __ATOMIC_RELAXED);
  falcon_store_fence();
  memset(c->mesh, 0, sizeof(c->mesh));
  if (n) memcpy(c->mesh, dims, n);
  __atomic_store_n(&c->mesh_seq, (seq | 1) + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&c->micro_batches, (uint32_t)(micro_batches > 0 ? micro_batches : 0), __ATOMIC_RELAXED);
  __atomic_fetch_add(&c->describe_seq, 1, __ATOMIC_RELEASE);
}

static void put_text(char *to, const char *from) {
  size_t n = from ? strnlen(from, FALCON_RAISED_BYTES - 1) : 0;
  memset(to, 0, FALCON_RAISED_BYTES);
  if (n) memcpy(to, from, n);
}

FALCON_EXPORT void falcon_job_raised(const char *kind, const char *where, const char *text, int of_peers) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  uint64_t none = 0;
  if (!__atomic_compare_exchange_n(&c->raised_seq, &none, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  falcon_store_fence();
  c->raised_of_peers = of_peers ? 1 : 0;
  put_text(c->raised_kind, kind);
  put_text(c->raised_where, where);
  put_text(c->raised_text, text);
  __atomic_store_n(&c->raised_seq, 2, __ATOMIC_RELEASE);
}

FALCON_EXPORT void falcon_job_begin_iteration(int64_t i) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  uint64_t now = falcon_mono_ns(), k = __atomic_load_n(&c->iterations_done, __ATOMIC_RELAXED);
  uint64_t *seq = &c->marks[k % MARKS].seq;
  __atomic_store_n(seq, 0, __ATOMIC_RELAXED);
  falcon_store_fence();
  c->marks[k % MARKS].iteration = i;
  c->marks[k % MARKS].start_ns = now;
  c->marks[k % MARKS].paused_ns = __atomic_load_n(&c->paused_ns, __ATOMIC_RELAXED);
  __atomic_store_n(seq, k + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&c->iterations_done, k + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&c->iteration_start_ns, now, __ATOMIC_RELAXED);
  __atomic_store_n(&c->step_tag, i, __ATOMIC_RELAXED);
  __atomic_store_n(&c->iteration, i, __ATOMIC_RELEASE);
  atomic_store_explicit(&falcon_hook.step, (uint32_t)i, memory_order_relaxed);
  falcon_suspend_updating(false);
}

static void tag(int64_t step) {
  falcon_control *c = falcon_adapter();
  if (c) __atomic_store_n(&c->step_tag, step, __ATOMIC_RELEASE);
}

FALCON_EXPORT void falcon_job_begin_optimizer(int64_t i) {
  (void)i;
  falcon_suspend_updating(true);
  tag(-1);
}

FALCON_EXPORT void falcon_job_end_optimizer(int64_t next) {
  tag(next);
  falcon_suspend_updating(false);
}

/* Seqlock read of one mailbox slot; false when it is being written or absurd. */
bool falcon_order_read(const falcon_shm_order *from, falcon_shm_order *to) {
  for (int i = 0; i < READ_TRIES; i++) {
    uint64_t before = __atomic_load_n(&from->seq, __ATOMIC_ACQUIRE);
    if (before & 1) continue;
    for (size_t w = 0; w < sizeof *to / sizeof(uint64_t); w++)
      ((word *)to)[w] = __atomic_load_n(&((const word *)from)[w], __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&from->seq, __ATOMIC_RELAXED) == before) return to->id && to->n <= FALCON_ORDER_VALUES;
  }
  return false;
}

/* Everything in the mailbox that is newer than what this rank holds in its place. */
static void collect(falcon_control *c) {
  static falcon_shm_order order;
  for (uint32_t i = 0; i < FALCON_ORDER_SLOTS; i++)
    if (falcon_order_read(&c->orders[i], &order) && order.id % FALCON_ORDER_SLOTS == i && order.id > held[i].id) held[i] = order;
}

FALCON_EXPORT uint64_t falcon_job_poll(int64_t i) {
  (void)i;
  falcon_control *c = falcon_adapter();
  if (!c) return 0;
  uint64_t newest = __atomic_load_n(&c->newest_order, __ATOMIC_ACQUIRE);
  if (newest > newest_seen) {
    collect(c);
    if (held[newest % FALCON_ORDER_SLOTS].id == newest) newest_seen = newest;
  }
  return newest_seen > voided ? newest_seen : 0;
}

/* What lies in the mailbox was ordered of the job as it was: ranks that rejoin in
 * another generation must not vote for it, whenever the last of them gets it. */
void falcon_orders_void(void) {
  falcon_control *c = falcon_adapter();
  if (c) voided = __atomic_load_n(&c->newest_order, __ATOMIC_ACQUIRE);
}

FALCON_EXPORT int falcon_job_fetch(uint64_t id, falcon_job_order *out) {
  falcon_control *c = falcon_adapter();
  const falcon_shm_order *o = &held[id % FALCON_ORDER_SLOTS];
  if (!c || !out || !id) return -1;
  if (o->id != id) collect(c);
  if (o->id != id) return -1;
  *out = (falcon_job_order){.id = o->id, .epoch = o->epoch, .kind = o->kind, .n = o->n};
  memcpy(out->values, o->values, o->n * sizeof *o->values);
  return 0;
}

/* A checkpoint was ordered and is on disk: a restart begins where the acknowledgement points. */
static bool wrote(uint64_t id, int32_t status) {
  const falcon_shm_order *o = &held[id % FALCON_ORDER_SLOTS];
  return !status && o->id == id && o->kind == FALCON_ORDER_CHECKPOINT;
}

FALCON_EXPORT void falcon_job_ack(uint64_t id, int64_t i, int32_t status) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  if (wrote(id, status) && i > 0) __atomic_store_n(&c->resume_iteration, (uint64_t)i, __ATOMIC_RELAXED);
  __atomic_store_n(&c->committed_iteration, i, __ATOMIC_RELAXED);
  __atomic_store_n(&c->committed_status, status, __ATOMIC_RELAXED);
  __atomic_store_n(&c->committed_order, id, __ATOMIC_RELEASE);
}

/* The reader takes the whole under place_seq; the header's rank stays as it was,
 * so that iterations before i still have their own. */
FALCON_EXPORT void falcon_job_place(uint64_t id, int64_t i, int rank, const uint64_t step_ns[4], uint64_t bytes) {
  falcon_control *c = falcon_adapter();
  if (!c || !step_ns) return;
  uint64_t seq = __atomic_load_n(&c->place_seq, __ATOMIC_RELAXED) | 1;
  __atomic_store_n(&c->place_seq, seq, __ATOMIC_RELAXED);
  falcon_store_fence();
  __atomic_store_n(&c->place_order, id, __ATOMIC_RELAXED);
  __atomic_store_n(&c->place_iteration, i, __ATOMIC_RELAXED);
  for (int k = 0; k < 4; k++) __atomic_store_n(&c->place_step_ns[k], step_ns[k], __ATOMIC_RELAXED);
  __atomic_store_n(&c->place_bytes, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&c->place_rank, rank, __ATOMIC_RELAXED);
  __atomic_store_n(&c->place_seq, seq + 1, __ATOMIC_RELEASE);
}

/* A program that asks this alone has no adapter. */
FALCON_EXPORT uint64_t falcon_job_paused_ns(void) {
  return falcon_activate() ? __atomic_load_n(&falcon_hook.control->paused_ns, __ATOMIC_ACQUIRE) : 0;
}

FALCON_EXPORT uint64_t falcon_job_waited_ns(void) {
  uint64_t since = falcon_activate() ? __atomic_load_n(&falcon_hook.control->waiting_since_ns, __ATOMIC_ACQUIRE) : 0;
  uint64_t now = falcon_mono_ns();
  return since && since < now ? now - since : 0;
}

FALCON_EXPORT void falcon_job_finish(void) { falcon_retire(); }
