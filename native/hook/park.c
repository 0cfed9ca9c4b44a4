/*
 * Parking: where a process waits that has left training, and what is reported about
 * a recovery. Called from one thread of the framework.
 *
 * A rejoin is taken once, only while parked, only when it answers the newest
 * suspension, and only after every communicator before it has ended. The wait
 * ends: without a live agent after FALCON_PARK_AGENT_S, and FALCON_PARK_MAX_S
 * after the agent, which keeps it up while it is connected to an engine, last did.
 */
#include "park.h"
#include "clock.h"
#include "ring.h"
#include "suspend.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../include/falcon_job.h"

#define SLICE_NS 20000000ull /* looks again, should a wake-up be missed */
#define AGENT_S 120
#define MAX_S 1800
#define FIXED_VALUES 5u /* checkpoint, resume twice, splits, moves */

#define SET(field, v) __atomic_store_n(&c->field, v, __ATOMIC_RELAXED)
#define GET(field) __atomic_load_n(&c->field, __ATOMIC_ACQUIRE)

static uint64_t last_taken; /* newest rejoin that was given to the framework */

static uint64_t begin_write(uint64_t *at) {
  uint64_t seq = __atomic_load_n(at, __ATOMIC_RELAXED) | 1;
  __atomic_store_n(at, seq, __ATOMIC_RELAXED);
  falcon_store_fence();
  return seq;
}

static void end_write(uint64_t *at, uint64_t seq) { __atomic_store_n(at, seq + 1, __ATOMIC_RELEASE); }

/* ---- what the adapter declares ---- */

FALCON_EXPORT void falcon_job_state(int zero_stage, int zero_instances, uint64_t state_bytes, uint64_t copy_bytes_s, int micro_min,
                                    int micro_max, int micro_multiple) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  SET(zero_stage, zero_stage);
  SET(zero_instances, zero_instances);
  SET(state_bytes, state_bytes);
  SET(copy_bytes_s, copy_bytes_s);
  SET(micro_min, micro_min);
  SET(micro_max, micro_max);
  SET(micro_multiple, micro_multiple);
  __atomic_fetch_add(&c->describe_seq, 1, __ATOMIC_RELEASE);
}

FALCON_EXPORT void falcon_job_checkpoint(int64_t i) {
  falcon_control *c = falcon_adapter();
  if (c && i >= 0 && i < INT64_MAX) SET(checkpoint_iteration, i + 1);
}

FALCON_EXPORT void falcon_job_can(uint32_t can, int versions) {
  falcon_control *c = falcon_adapter();
  if (!c) return;
  uint32_t known = can & (FALCON_CAN_PARK | FALCON_CAN_SPLIT | FALCON_CAN_PLACE | FALCON_CAN_CHECKPOINT);
  SET(versions, versions > 0 ? versions : 0);
  __atomic_store_n(&c->can, known ? known : FALCON_CAN_NOTHING, __ATOMIC_RELEASE);
  falcon_cover_slow(0); /* FALCON_COV_STAYS follows from it */
  __atomic_fetch_add(&c->describe_seq, 1, __ATOMIC_RELEASE);
}

FALCON_EXPORT uint64_t falcon_job_suspended(void) {
  return falcon_suspend_on() ? __atomic_load_n(&falcon_hook.control->suspend_generation, __ATOMIC_ACQUIRE) : 0;
}

/* The tag is i from here on: the state is that before iteration i. */
FALCON_EXPORT void falcon_job_rejoined(uint64_t id, int64_t i, int32_t status, const uint64_t ns[2], uint64_t bytes) {
  falcon_control *c = falcon_adapter();
  if (!c || !ns) return;
  if (!status) __atomic_store_n(&c->step_tag, i, __ATOMIC_RELEASE);
  uint64_t seq = begin_write(&c->rejoin_seq);
  SET(rejoin_order, id);
  SET(rejoin_iteration, i);
  for (int k = 0; k < 2; k++) SET(rejoin_step_ns[k], ns[k]);
  SET(rejoin_bytes, bytes);
  SET(rejoin_status, status);
  end_write(&c->rejoin_seq, seq);
}

/* ---- parking ---- */

typedef struct parked {
  int status;
  const int64_t *steps;
  const uint64_t *sums;
  uint64_t begun_ns, generation;
} parked;

/* What it has obeyed last; who has obeyed nothing is of its launch. */
static uint64_t word_generation(void) {
  uint64_t obeyed = falcon_suspend_obeyed(), now = falcon_suspend_generation();
  return obeyed > now ? obeyed : now;
}

static void publish(falcon_control *c, const parked *p, bool on) {
  uint64_t seq = begin_write(&c->park_seq);
  SET(park_on, on);
  SET(park_status, p->status);
  SET(park_generation, p->generation);
  SET(park_tag, __atomic_load_n(&c->step_tag, __ATOMIC_RELAXED));
  for (int k = 0; k < 2; k++) {
    SET(park_steps[k], p->steps ? p->steps[k] : -1);
    SET(park_sums[k], p->sums ? p->sums[k] : 0);
  }
  SET(park_ns, p->begun_ns);
  end_write(&c->park_seq, seq);
}

/* A time that somebody else wrote: since the wait began, and not to come. */
static uint64_t since(const parked *p, uint64_t at_ns, uint64_t now_ns) {
  if (at_ns > now_ns) return now_ns;
  return at_ns < p->begun_ns ? p->begun_ns : at_ns;
}

/* No agent has looked for too long, or none that hears the engine has kept the wait up. */
static bool nobody_comes(const falcon_control *c, const parked *p, uint64_t agent_ns, uint64_t max_ns) {
  uint64_t looked = GET(agent_alive_ns), kept = GET(suspend_until_ns), now = falcon_mono_ns();
  if (kept > now + FALCON_SUSPEND_MAX_MS * 1000000ull) kept = 0; /* none that an agent writes */
  return now - since(p, kept, now) > max_ns || now - since(p, looked, now) > agent_ns;
}

/* The counts and pairs fill the order exactly. */
static bool well_formed(const falcon_shm_order *o) {
  const int32_t *v = o->values;
  if (o->kind != FALCON_ORDER_REJOIN || o->epoch != o->id || o->n < FIXED_VALUES) return false;
  if (v[1] < 0 || v[2] < 0 || v[3] < 0 || (uint32_t)v[3] > o->n - FIXED_VALUES) return false;
  int32_t moves = v[4 + v[3]];
  return moves >= 0 && moves <= (int32_t)FALCON_ORDER_VALUES && FIXED_VALUES + (uint32_t)v[3] + 2 * (uint32_t)moves == o->n;
}

/* A replacement begins with the generation that it was launched for. */
static bool due(const falcon_control *c, const parked *p, uint64_t id) {
  uint64_t now = falcon_suspend_generation();
  return id > last_taken && id >= GET(suspend_generation) && (id > now || (id == now && p->status == FALCON_PARK_JOIN));
}

static bool take(falcon_control *c, const parked *p, falcon_job_order *out) {
  static falcon_shm_order o;
  uint64_t id = GET(rejoin_id);
  if (!id || !due(c, p, id) || !falcon_order_read(&c->rejoin, &o) || o.id != id || !well_formed(&o)) return false;
  if (!falcon_suspend_obey(id)) return false;
  last_taken = id;
  if (out) {
    *out = (falcon_job_order){.id = o.id, .epoch = o.epoch, .kind = o.kind, .n = o.n};
    memcpy(out->values, o.values, o.n * sizeof *o.values);
  }
  return true;
}

static void sleep_slice(falcon_control *c, uint32_t seen) {
  uint64_t at = falcon_mono_ns() + SLICE_NS;
  struct timespec ts = {(time_t)(at / 1000000000ull), (long)(at % 1000000000ull)};
  syscall(SYS_futex, &c->pause_word, FUTEX_WAIT_BITSET, seen, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
}

static int wait_word(falcon_control *c, parked *p, falcon_job_order *out) {
  uint64_t agent_ns = falcon_env_seconds("FALCON_PARK_AGENT_S", AGENT_S), max_ns = falcon_env_seconds("FALCON_PARK_MAX_S", MAX_S);
  for (;;) {
    uint32_t seen = GET(pause_word);
    if (word_generation() != p->generation) {
      p->generation = word_generation();
      publish(c, p, true);
    }
    if (GET(stop_generation)) return FALCON_PARK_STOP;
    if (take(c, p, out)) return FALCON_PARK_REJOIN;
    if (nobody_comes(c, p, agent_ns, max_ns)) return FALCON_PARK_NOBODY;
    sleep_slice(c, seen);
  }
}

FALCON_EXPORT int falcon_job_park(int status, const int64_t steps[2], const uint64_t sums[2], falcon_job_order *out) {
  falcon_control *c = falcon_adapter();
  if (!c) return FALCON_PARK_NO_HOOK;
  int saved = errno;
  falcon_suspend_updating(false);
  parked p = {.status = status, .steps = steps, .sums = sums, .begun_ns = falcon_mono_ns(), .generation = word_generation()};
  publish(c, &p, true);
  int rc = wait_word(c, &p, out);
  if (rc == FALCON_PARK_REJOIN) {
    falcon_orders_void();
    falcon_suspend_rejoin(last_taken);
  }
  publish(c, &p, false);
  errno = saved;
  return rc;
}
