/* Timings in the file: one writer, the side thread. */
#include "timing.h"
#include "ring.h"

void falcon_timing_lost(uint64_t n) { __atomic_fetch_add(&falcon_hook.control->timing_lost, n, __ATOMIC_RELAXED); }

bool falcon_timing_reserve(void) { return falcon_reserve(falcon_hook.timings, FALCON_TIMING_SLOTS * sizeof(falcon_timing)); }

void falcon_timing_put(const falcon_timing *from) {
  uint64_t seq = falcon_hook.control->timing_head + 1;
  falcon_timing *t = &falcon_hook.timings[(seq - 1) & (FALCON_TIMING_SLOTS - 1)];
  __atomic_store_n(&t->seq, 0, __ATOMIC_RELAXED);
  falcon_store_fence();
  t->ordinal = from->ordinal;
  t->bytes = from->bytes;
  t->start_ns = from->start_ns;
  t->duration_ns = from->duration_ns;
  t->queue_ns = from->queue_ns;
  t->comm = from->comm;
  t->peer = from->peer;
  t->op = from->op;
  t->dtype = from->dtype;
  t->flags = from->flags;
  t->window = from->window;
  __atomic_store_n(&t->seq, seq, __ATOMIC_RELEASE);
  __atomic_store_n(&falcon_hook.control->timing_head, seq, __ATOMIC_RELEASE);
}
