/*
 * The training thread's half of profile mode: an event before and an event
 * after each wanted call, nothing while the stream captures a graph. A group
 * launches nothing before its outermost end, so its members share one pair of
 * events per stream: from the group's first call on it to the group's end.
 *
 * An error of our own CUDA call is taken back (cudaGetLastError), so that the
 * program's next look does not find it.
 */
#include "profile.h"
#include "timing.h"
#include "pause.h"
#include "clock.h"

#define GROUP_STREAMS 4u /* streams of one group that get events; calls on more are not timed */

profile_state falcon_profile;

typedef struct { void *stream; uint64_t entry; } group_leader;
static __thread group_leader leaders[GROUP_STREAMS] __attribute__((tls_model("initial-exec")));
static __thread uint32_t leader_count __attribute__((tls_model("initial-exec")));

static bool cuda_fine(int rc) {
  if (rc && falcon_profile.last_error) falcon_profile.last_error();
  return !rc;
}

static bool wanted(uint32_t comm) {
  return comm != FALCON_COMM_NONE &&
         (atomic_load_explicit(&falcon_profile.comms[comm / 64], memory_order_relaxed) >> (comm % 64) & 1);
}

static bool on_device(uint32_t comm) {
  int32_t d = __atomic_load_n(&falcon_hook.comms[comm].device, __ATOMIC_RELAXED);
  return d < 0 || falcon_profile.device < 0 || d == falcon_profile.device;
}

static profile_queue *queue_of(falcon_tls *t) {
  if (!t->ring && !falcon_ring_claim(t)) return NULL;
  return &falcon_profile.queue[t->ring_index];
}

/* The first call of a window records the event that all start times refer to. */
static void record_base(void *stream) {
  uint32_t none = BASE_NONE;
  if (!atomic_compare_exchange_strong(&falcon_profile.base, &none, BASE_TAKEN)) return;
  bool ok = cuda_fine(falcon_profile.record(falcon_profile.base_event, stream));
  atomic_store_explicit(&falcon_profile.base, ok ? BASE_RECORDED : BASE_NONE, memory_order_release);
}

/* Number of the entry whose events time a call on this stream, which may be
 * the new entry itself; UINT64_MAX when it cannot be timed. */
static uint64_t lead(falcon_tls *t, profile_entry *e, uint64_t number, void *stream) {
  for (uint32_t i = 0; t->depth && i < leader_count; i++)
    if (leaders[i].stream == stream) return leaders[i].entry;
  if (t->depth && leader_count == GROUP_STREAMS) return UINT64_MAX;
  record_base(stream);
  if (!cuda_fine(falcon_profile.record(e->start, stream))) return UINT64_MAX;
  if (t->depth) leaders[leader_count++] = (group_leader){stream, number};
  return number;
}

void falcon_profile_begin(falcon_tls *t, falcon_span *s, void *stream) {
  uint64_t profile = atomic_load_explicit(&falcon_hook.profile, memory_order_acquire);
  if (!profile || !wanted(s->comm)) return;
  int capture = 0;
  if (!cuda_fine(falcon_profile.capturing(stream, &capture))) return;
  if (capture) {
    s->flags |= FALCON_REC_CAPTURING;
    falcon_pause_captured();
    return;
  }
  profile_queue *q = queue_of(t);
  profile_entry *entries = q ? atomic_load_explicit(&q->entries, memory_order_acquire) : NULL;
  uint64_t number = q ? atomic_load_explicit(&q->head, memory_order_relaxed) + t->prof_group : 0;
  if (!entries || !on_device(s->comm) || number - atomic_load_explicit(&q->tail, memory_order_acquire) >= QUEUE_SLOTS) {
    falcon_timing_lost(1);
    return;
  }
  profile_entry *e = profile_at(entries, number);
  e->enter_ns = falcon_mono_ns();
  e->window = (uint32_t)(profile >> 32);
  e->bad = e->done = 0;
  e->leader = lead(t, e, number, stream);
  if (e->leader == UINT64_MAX) {
    falcon_timing_lost(1);
    return;
  }
  s->flags |= FALCON_REC_TIMED;
  s->timed = (int32_t)(number & (QUEUE_SLOTS - 1));
}

static uint64_t payload(const falcon_record *r) {
  uint64_t bytes = r->count * nccl_type_bytes(r->dtype);
  if (r->op != FALCON_OP_ALLTOALL) return bytes;
  int32_t n = __atomic_load_n(&falcon_hook.comms[r->comm].size, __ATOMIC_RELAXED);
  return n > 0 ? bytes * (uint64_t)n : bytes;
}

void falcon_profile_end(falcon_tls *t, falcon_span *s, const falcon_record *r, bool ok) {
  profile_queue *q = &falcon_profile.queue[t->ring_index];
  profile_entry *e = &atomic_load_explicit(&q->entries, memory_order_relaxed)[s->timed];
  e->ordinal = r->ordinal;
  e->bytes = payload(r);
  e->comm = r->comm;
  e->peer = r->peer;
  e->op = r->op;
  e->dtype = r->dtype;
  e->flags = r->flags;
  e->bad = !ok;
  if (t->depth) {
    t->prof_group++;
    return;
  }
  if (!cuda_fine(falcon_profile.record(e->end, (void *)(uintptr_t)r->stream))) e->bad = 1;
  atomic_fetch_add_explicit(&q->head, 1, memory_order_release);
}

/* All entries of the group are published at once, leaders before members. */
void falcon_profile_group_end(falcon_tls *t, bool launched) {
  profile_queue *q = &falcon_profile.queue[t->ring_index];
  profile_entry *entries = atomic_load_explicit(&q->entries, memory_order_relaxed);
  for (uint32_t i = 0; i < leader_count; i++) {
    profile_entry *e = profile_at(entries, leaders[i].entry);
    if (!launched || !cuda_fine(falcon_profile.record(e->end, leaders[i].stream))) e->bad = 1;
  }
  atomic_fetch_add_explicit(&q->head, t->prof_group, memory_order_release);
  t->prof_group = leader_count = 0;
}
