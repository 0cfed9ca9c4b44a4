/*
 * The state of a pause. One order at a time, under one lock, which is held for
 * a few loads and stores only, never across a call of CUDA or NCCL and never
 * while waiting. Whoever comes by looks at the agent's order: the side thread,
 * and training threads at armed gates, so that no wake-up is relied on.
 */
#include "pause.h"
#include "clock.h"
#include "cuda.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 20000000ull /* a held thread looks again, should a wake-up within this process be missed */
#define GONE_MAX 64u         /* communicators that may end during one hold and be remembered */

static struct {
  pthread_mutex_t mu;
  _Atomic uint64_t order;   /* in force, 0 = none */
  _Atomic uint64_t last;    /* newest that was ever taken up: it is never taken up again */
  _Atomic uint32_t state;   /* enum falcon_pause_state of last */
  uint64_t until_ns;        /* its deadline as we hold to it, whatever the agent writes later */
  uint32_t word;            /* the agent's word at the last look without an order in force */
  uint32_t on_their_way;    /* armed calls between their gate and the return of NCCL */
  uint32_t held;            /* threads */
  uint64_t held_since_ns;
  uint64_t max_ns;
  bool closed;
  _Atomic bool captured;
  _Atomic(void *) gone[GONE_MAX];
  _Atomic uint32_t gone_count;
} pause_ = {.mu = PTHREAD_MUTEX_INITIALIZER, .max_ns = FALCON_PAUSE_MAX_MS * 1000000ull};

#define PUT(field, v) __atomic_store_n(&falcon_hook.control->field, v, __ATOMIC_RELEASE)

static void lock(void) { pthread_mutex_lock(&pause_.mu); }
static void unlock(void) { pthread_mutex_unlock(&pause_.mu); }

static uint64_t *gate_of(uint32_t slot) { return &falcon_hook.comms[slot].gate; }

static bool at_cut(uint64_t g) { return ((FALCON_GATE_CUT(g) - FALCON_GATE_COUNT(g)) & FALCON_GATE_CUT_MASK) == 0; }

static void disarm(uint32_t slot) {
  uint64_t g = __atomic_load_n(gate_of(slot), __ATOMIC_RELAXED);
  while (g & FALCON_GATE_ARMED)
    if (__atomic_compare_exchange_n(gate_of(slot), &g, FALCON_GATE_COUNT(g), true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
}

static void set_state(uint32_t state) {
  atomic_store(&pause_.state, state);
  PUT(pause_state, state);
}

static void wake(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

/* Under the lock, as all that follows up to the next such remark. */
static void end(uint32_t state, uint32_t reason) {
  atomic_store(&pause_.order, 0);
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++) disarm(i);
  PUT(released_ns, falcon_mono_ns());
  PUT(pause_reason, reason);
  set_state(state);
  wake(&falcon_hook.control->pause_word);
}

/* The state is NONE while the fields of the order before are replaced, so that
 * a reader who sees the new number never joins it with the old state. */
static void begin(uint64_t order, uint64_t until_ns, uint64_t now_ns) {
  set_state(FALCON_PAUSE_NONE);
  PUT(pause_reason, FALCON_REASON_NONE);
  PUT(trapped_ns, 0);
  PUT(quiet_ns, 0);
  PUT(released_ns, 0);
  PUT(pause_seen, order);
  atomic_store(&pause_.last, order);
  atomic_store(&pause_.gone_count, 0);
  pause_.on_their_way = 0;
  pause_.until_ns = until_ns < now_ns + pause_.max_ns ? until_ns : now_ns + pause_.max_ns;
  falcon_drain_reset();
  if (until_ns <= now_ns) {
    end(FALCON_PAUSE_REFUSED, FALCON_REASON_LATE);
  } else if (atomic_load(&pause_.captured)) {
    end(FALCON_PAUSE_REFUSED, FALCON_REASON_CAPTURE);
  } else {
    atomic_store(&pause_.order, order);
    set_state(FALCON_PAUSE_ARMED);
  }
}

/* What the agent wants, and what time it is. The word is read first: a word
 * that has changed since the last look without this order was changed after the
 * gates were armed. */
static void look(void) {
  const falcon_control *c = falcon_hook.control;
  uint64_t now = falcon_mono_ns(), order = atomic_load(&pause_.order);
  uint32_t word = __atomic_load_n(&c->pause_word, __ATOMIC_ACQUIRE);
  uint64_t wanted = __atomic_load_n(&c->pause_order, __ATOMIC_ACQUIRE);
  if (order && wanted != order) end(FALCON_PAUSE_RELEASED, FALCON_REASON_NONE);
  else if (order && now >= pause_.until_ns) end(FALCON_PAUSE_EXPIRED, FALCON_REASON_NONE);
  if (wanted && wanted != atomic_load(&pause_.last) && !pause_.closed)
    begin(wanted, __atomic_load_n(&c->pause_until_ns, __ATOMIC_ACQUIRE), now);
  if (!atomic_load(&pause_.order)) pause_.word = word;
}

static bool in_force(uint64_t order) { return order && atomic_load(&pause_.order) == order; }

/* All gates that are armed have closed, and there is one at least. */
static bool all_closed(void) {
  bool any = false;
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++) {
    uint64_t g = __atomic_load_n(gate_of(i), __ATOMIC_ACQUIRE);
    if (!(g & FALCON_GATE_ARMED) || __atomic_load_n(&falcon_hook.comms[i].state, __ATOMIC_RELAXED) != FALCON_COMM_LIVE) continue;
    if (!at_cut(g)) return false;
    any = true;
  }
  return any;
}

static bool reached(void) {
  bool all_armed = __atomic_load_n(&falcon_hook.control->pause_word, __ATOMIC_ACQUIRE) != pause_.word;
  return all_armed && !pause_.on_their_way && all_closed();
}

/* Without the lock from here on. */

static void refuse(uint64_t order, uint32_t reason) {
  lock();
  if (in_force(order)) end(FALCON_PAUSE_REFUSED, reason);
  unlock();
}

/* Order in force right now, entered as on its way into NCCL when `enter`. */
static uint64_t order_now(bool enter) {
  lock();
  look();
  uint64_t order = atomic_load(&pause_.order);
  if (order && enter) pause_.on_their_way++;
  unlock();
  return order;
}

static void arrived(uint64_t order, uint32_t calls) {
  if (!order) return;
  lock();
  if (in_force(order)) pause_.on_their_way -= calls < pause_.on_their_way ? calls : pause_.on_their_way;
  unlock();
}

static void hold_begin(uint64_t order) {
  static _Atomic bool once;
  if (!atomic_exchange(&once, true)) atexit(falcon_pause_close); /* what runs at the exit may join a held thread */
  lock();
  if (!pause_.held++) pause_.held_since_ns = falcon_mono_ns();
  if (in_force(order) && !__atomic_load_n(&falcon_hook.control->trapped_ns, __ATOMIC_RELAXED)) PUT(trapped_ns, falcon_mono_ns());
  unlock();
  wake(&falcon_hook.control->mode); /* the side thread: this may have been the last one */
}

static void hold_end(void) {
  lock();
  if (!--pause_.held)
    __atomic_fetch_add(&falcon_hook.control->paused_ns, falcon_mono_ns() - pause_.held_since_ns, __ATOMIC_RELEASE);
  unlock();
}

/* Waits on the agent's word, to the deadline at most. */
static void wait_word(uint32_t seen, uint64_t until_ns) {
  uint64_t slice = falcon_mono_ns() + SLICE_NS, at = until_ns < slice ? until_ns : slice;
  struct timespec ts = {(time_t)(at / 1000000000ull), (long)(at % 1000000000ull)};
  syscall(SYS_futex, &falcon_hook.control->pause_word, FUTEX_WAIT_BITSET, seen, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* Until this order is over, however it ends. What is ordered next does not hold
 * this call again. */
static void hold(uint64_t order) {
  int saved = errno;
  hold_begin(order);
  for (;;) {
    uint32_t seen = __atomic_load_n(&falcon_hook.control->pause_word, __ATOMIC_ACQUIRE);
    lock();
    look();
    bool over = !in_force(order);
    uint64_t until = pause_.until_ns;
    unlock();
    if (over || !falcon_active()) break;
    wait_word(seen, until);
  }
  hold_end();
  errno = saved;
}

static void note(uint64_t order, uint32_t comm, void *stream) {
  uint32_t reason = falcon_drain_note(comm, stream);
  if (reason == FALCON_REASON_CAPTURE) atomic_store(&pause_.captured, true);
  if (reason) refuse(order, reason);
}

enum verdict { PASSED, CLOSED, AGAIN };

/* One step through the gate. A gate that is armed without an order is cleared.
 * A call that has been held passes in any case, and leaves the gate, which may
 * be armed anew, as it is: an order of then that it spoils runs out. */
static enum verdict step(falcon_span *s, uint64_t order, bool was_held) {
  uint64_t *gate = gate_of(s->comm), g = __atomic_load_n(gate, __ATOMIC_ACQUIRE);
  if (order && !was_held && g & FALCON_GATE_ARMED && at_cut(g)) return CLOSED;
  uint64_t next = FALCON_GATE_COUNT(g + 1) | (order || was_held ? g & ~FALCON_GATE_COUNT_MASK : 0);
  if (!__atomic_compare_exchange_n(gate, &g, next, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return AGAIN;
  s->ordinal = FALCON_GATE_COUNT(g);
  return PASSED;
}

/* At a closed gate: outside a group the call waits; inside one it is too late
 * to hold it, since what it waits for may stand in the same group. */
static bool closed(falcon_tls *t, falcon_span *s, uint64_t order, void *handle, void *stream) {
  if (t->depth) {
    arrived(order, 1);
    refuse(order, FALCON_REASON_GROUP);
    return true;
  }
  note(order, s->comm, stream); /* what the program put on the stream before this call is to drain too */
  arrived(order, 1);
  hold(order);
  s->enter = falcon_ticks(); /* the time held is not the call's */
  return !falcon_pause_gone(handle);
}

bool falcon_gate_slow(falcon_tls *t, falcon_span *s, void *handle, void *stream) {
  bool was_held = false;
  for (;;) {
    uint64_t order = was_held ? 0 : order_now(true);
    enum verdict v = step(s, order, was_held);
    if (v == PASSED) {
      s->order = order;
      return true;
    }
    if (v == AGAIN) arrived(order, 1);
    else if (!closed(t, s, order, handle, stream)) return false;
    else was_held = !t->depth;
  }
}

static void leave(uint64_t order, uint32_t comm, void *stream, uint32_t calls) {
  int saved = errno;
  if (in_force(order)) note(order, comm, stream);
  arrived(order, calls);
  errno = saved;
}

/* A group launches nothing before its end: what passed in it is noted there. */
void falcon_gate_leave(falcon_tls *t, falcon_span *s, void *stream) {
  if (!t->depth) {
    leave(s->order, s->comm, stream, 1);
    return;
  }
  for (uint32_t i = 0; i < t->passed_count; i++)
    if (t->passed[i].stream == stream && t->passed[i].order == s->order) {
      t->passed[i].calls++;
      return;
    }
  if (t->passed_count < FALCON_PASSED_MAX) t->passed[t->passed_count++] = (falcon_passed){s->order, stream, s->comm, 1};
  else refuse(s->order, FALCON_REASON_GROUP);
}

void falcon_gate_group_end(falcon_tls *t) {
  for (uint32_t i = 0; i < t->passed_count; i++)
    leave(t->passed[i].order, t->passed[i].comm, t->passed[i].stream, t->passed[i].calls);
  t->passed_count = 0;
}

/* Which communicators the group will use is not known yet, so it is held only
 * where all have reached their cut. */
void falcon_gate_group_start(void) {
  uint64_t wanted = __atomic_load_n(&falcon_hook.control->pause_order, __ATOMIC_ACQUIRE);
  if (wanted == atomic_load(&pause_.last) && !atomic_load(&pause_.order)) return; /* over long ago */
  lock();
  look();
  uint64_t order = atomic_load(&pause_.order);
  bool stop = order && all_closed();
  unlock();
  if (stop) hold(order);
}

void falcon_pause_comm_ended(void *handle, const falcon_comm *c, bool forget) {
  uint64_t order = atomic_load(&pause_.order);
  if (!order) return;
  lock();
  uint32_t n = atomic_load(&pause_.gone_count);
  if (forget && n < GONE_MAX) {
    atomic_store(&pause_.gone[n], handle);
    atomic_store(&pause_.gone_count, n + 1);
  }
  bool armed = c && __atomic_load_n(&c->gate, __ATOMIC_RELAXED) & FALCON_GATE_ARMED;
  if (armed && in_force(order)) end(FALCON_PAUSE_REFUSED, FALCON_REASON_ABORTED);
  unlock();
}

bool falcon_pause_gone(void *handle) {
  for (uint32_t i = 0, n = atomic_load(&pause_.gone_count); i < n; i++)
    if (atomic_load(&pause_.gone[i]) == handle) return true;
  return false;
}

void falcon_pause_captured(void) { atomic_store(&pause_.captured, true); }

/* ARMED and REACHED follow the gates both ways; returns the order whose streams
 * are to be asked. */
static uint64_t advance(void) {
  lock();
  look();
  uint64_t order = atomic_load(&pause_.order);
  uint32_t state = atomic_load(&pause_.state);
  if (order && state != FALCON_PAUSE_QUIET) {
    uint32_t now = reached() ? FALCON_PAUSE_REACHED : FALCON_PAUSE_ARMED;
    if (now != state) set_state(now);
    state = now;
  }
  unlock();
  return state == FALCON_PAUSE_REACHED ? order : 0;
}

static void quiet(uint64_t order) {
  lock();
  if (in_force(order) && reached()) {
    PUT(quiet_ns, falcon_mono_ns());
    set_state(FALCON_PAUSE_QUIET);
  }
  unlock();
}

bool falcon_pause_tick(uint64_t now_ns) {
  (void)now_ns;
  uint64_t ask = advance(), order = atomic_load(&pause_.order);
  if (order && !falcon_drain_ready() && !falcon_drain_prepare(falcon_cuda_enter())) refuse(order, FALCON_REASON_NO_CUDA);
  if (ask) {
    enum falcon_drain d = falcon_drain_ask();
    if (d == DRAIN_DONE) quiet(ask);
    if (d == DRAIN_BROKEN) refuse(ask, FALCON_REASON_NO_CUDA);
  }
  return atomic_load(&pause_.order) != 0;
}

bool falcon_pause_held(void) {
  uint32_t s = atomic_load(&pause_.state);
  return s == FALCON_PAUSE_REACHED || s == FALCON_PAUSE_QUIET;
}

uint64_t falcon_pause_quiet(uint64_t *until_ns) {
  lock();
  look();
  uint64_t order = atomic_load(&pause_.state) == FALCON_PAUSE_QUIET ? atomic_load(&pause_.order) : 0;
  if (until_ns) *until_ns = pause_.until_ns;
  unlock();
  return order;
}

void falcon_pause_load(void) {
  const char *ms = getenv("FALCON_PAUSE_MAX_MS");
  long v = ms ? strtol(ms, NULL, 10) : 0;
  if (v > 0 && v < (long)FALCON_PAUSE_MAX_MS) pause_.max_ns = (uint64_t)v * 1000000ull;
}

void falcon_pause_close(void) {
  lock();
  pause_.closed = true;
  if (falcon_active() && atomic_load(&pause_.order)) end(FALCON_PAUSE_RELEASED, FALCON_REASON_NONE);
  unlock();
}

/* A forked child is no part of the job: what its parent's threads wait for is
 * none of its business. */
void falcon_pause_forked(void) {
  pthread_mutex_init(&pause_.mu, NULL);
  atomic_store(&pause_.order, 0);
  atomic_store(&pause_.state, FALCON_PAUSE_NONE);
  falcon_drain_forked();
}
