/* Windows as the agent asks for them, and their timings: one writer, the side thread. */
#include "timing.h"
#include "ring.h"

#define WINDOW_MAX_NS 60000000000ull /* no window is longer, whatever the deadline is */

bool falcon_window_wanted(uint32_t last, uint64_t now_ns, falcon_window *w) {
  const falcon_control *c = falcon_hook.control;
  uint32_t id = __atomic_load_n(&c->profile_window, __ATOMIC_ACQUIRE);
  uint64_t until = __atomic_load_n(&c->profile_until_ns, __ATOMIC_RELAXED), any = 0;
  if (__atomic_load_n(&c->mode, __ATOMIC_ACQUIRE) != FALCON_MODE_PROFILE || !id || id == last || now_ns >= until) return false;
  w->id = id;
  w->until_ns = until < now_ns + WINDOW_MAX_NS ? until : now_ns + WINDOW_MAX_NS;
  for (int i = 0; i < 4; i++) any |= w->comms[i] = __atomic_load_n(&c->profile_comms[i], __ATOMIC_RELAXED);
  for (int i = 0; i < 4 && !any; i++) w->comms[i] = UINT64_MAX;
  return true;
}

bool falcon_window_over(const falcon_window *w, uint64_t now_ns) {
  const falcon_control *c = falcon_hook.control;
  return now_ns >= w->until_ns || __atomic_load_n(&c->mode, __ATOMIC_RELAXED) != FALCON_MODE_PROFILE ||
         __atomic_load_n(&c->profile_window, __ATOMIC_RELAXED) != w->id;
}

void falcon_window_done(uint32_t id) { __atomic_store_n(&falcon_hook.control->profile_done, id, __ATOMIC_RELEASE); }

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
