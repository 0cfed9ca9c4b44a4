/* The plug-in's parts: its profile windows, and a word to who wants to hold the process. */
#include "../hook/parts.h"
#include "device.h"

bool falcon_part_hooks(void) { return false; }

void falcon_part_load(void) { falcon_events_device = &falcon_device_times; }

void falcon_part_created(void) {}

void falcon_part_started(void) { __atomic_store_n(&falcon_hook.control->bound, FALCON_BOUND_PROFILER, __ATOMIC_RELEASE); }

void falcon_part_forked(void) { falcon_events_forked(); }

void falcon_part_exiting(void) {}

void falcon_part_closing(void) {}

static void disarm_gates(void) {
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++)
    if (__atomic_load_n(&falcon_hook.comms[i].gate, __ATOMIC_RELAXED) & FALCON_GATE_ARMED)
      __atomic_fetch_and(&falcon_hook.comms[i].gate, FALCON_GATE_COUNT_MASK, __ATOMIC_ACQ_REL);
}

/* The state is NONE while the number of the order is replaced. */
static void refuse_pause(uint64_t now_ns) {
  falcon_control *c = falcon_hook.control;
  uint64_t order = __atomic_load_n(&c->pause_order, __ATOMIC_ACQUIRE);
  if (!order) return;
  disarm_gates();
  if (__atomic_load_n(&c->pause_seen, __ATOMIC_RELAXED) == order) return;
  __atomic_store_n(&c->pause_state, FALCON_PAUSE_NONE, __ATOMIC_RELEASE);
  __atomic_store_n(&c->pause_seen, order, __ATOMIC_RELEASE);
  __atomic_store_n(&c->released_ns, now_ns, __ATOMIC_RELEASE);
  __atomic_store_n(&c->pause_reason, FALCON_REASON_PROFILER, __ATOMIC_RELEASE);
  __atomic_store_n(&c->pause_state, FALCON_PAUSE_REFUSED, __ATOMIC_RELEASE);
}

uint64_t falcon_part_tick(uint64_t now_ns, uint32_t round) {
  (void)round;
  refuse_pause(now_ns);
  return falcon_device_tick(now_ns) ? FALCON_BEAT_PROFILE_NS : FALCON_BEAT_NS;
}
