/*
 * The state of a pause. One order at a time, under one lock, which is held for
 * a few loads and stores only, never across a call of CUDA or NCCL and never
 * while waiting. The side thread reads the agent's order, and so do training threads
 * at armed gates, so that no wake-up is relied on.
 */
#include "pause.h"
#include "clock.h"
#include "cuda.h"
#include "wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 20000000ull /* a held thread looks again, should a wake-up within this process be missed */
#define ALONE_NS 1000000000ull /* so long a process at its cut is waited for to come to its next call */
#define GONE_MAX 64u         /* communicators that may end during one hold and be remembered */

static struct {
  pthread_mutex_t mu;
  _Atomic uint64_t order;   /* in force, 0 = none */
  _Atomic uint64_t last;    /* newest that was ever taken up: it is never taken up again */
  _Atomic uint32_t state;   /* enum falcon_pause_state of last */
  uint64_t until_ns;        /* its deadline as we hold to it, whatever the agent writes later */
  uint64_t boundary;        /* of this order, as the agent wrote it */
  uint32_t on_their_way;    /* armed calls between their gate and the return of NCCL */
  uint32_t held;            /* threads */
  uint64_t held_since_ns;
  uint64_t reached_ns;      /* since when the state is REACHED */
  uint64_t max_ns;
  bool closed;
  bool suspended;
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
  pause_.boundary = __atomic_load_n(&falcon_hook.control->pause_boundary, __ATOMIC_ACQUIRE);
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

/* What the agent wants, and what time it is. */
static void look(void) {
  const falcon_control *c = falcon_hook.control;
  uint64_t now = falcon_mono_ns(), order = atomic_load(&pause_.order);
  uint64_t wanted = __atomic_load_n(&c->pause_order, __ATOMIC_ACQUIRE);
  if (order && wanted != order) end(FALCON_PAUSE_RELEASED, FALCON_REASON_NONE);
  else if (order && now >= pause_.until_ns) end(FALCON_PAUSE_EXPIRED, FALCON_REASON_NONE);
  if (wanted && wanted != atomic_load(&pause_.last) && !pause_.closed && !pause_.suspended)
    begin(wanted, __atomic_load_n(&c->pause_until_ns, __ATOMIC_ACQUIRE), now);
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

static bool all_armed(void) {
  return __atomic_load_n(&falcon_hook.control->pause_armed, __ATOMIC_ACQUIRE) == atomic_load(&pause_.order);
}

static bool reached(void) { return all_armed() && !pause_.on_their_way && all_closed(); }

/* Where this process stands by its own marks: -1 before the boundary's
 * iteration, 1 in it or behind it, 0 where either is not marked. */
static int side_of_boundary(void) {
  uint32_t step = atomic_load_explicit(&falcon_hook.step, memory_order_relaxed);
  if (!pause_.boundary || step == UINT32_MAX) return 0;
  return (int32_t)(step - (uint32_t)(pause_.boundary - 1)) < 0 ? -1 : 1;
}

/* At a closed gate: has this iteration made more calls here than those that were
 * surveyed? Where all gates are closed nonetheless, the cut holds as it is. */
static bool too_soon(void) { return side_of_boundary() < 0 && !(all_armed() && all_closed()); }

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

/* Waits for the agent's release, to the deadline at most. */
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

/* The default stream carries the computation of most frameworks; the
 * communication of a held group would have been ordered behind it. */
static void note_default(uint64_t order) {
  if (falcon_drain_here()) note(order, FALCON_COMM_NONE, NULL);
}

enum verdict { PASSED, CLOSED, AGAIN };

/* One step through the gate. A gate that is armed without an order is cleared.
 * A call that has been held passes in any case, and leaves the gate, which may
 * be armed again, as it is: an order of then that it spoils runs out. */
static enum verdict step(falcon_span *s, uint64_t order, bool was_held) {
  uint64_t *gate = gate_of(s->comm), g = __atomic_load_n(gate, __ATOMIC_ACQUIRE);
  if (order && !was_held && g & FALCON_GATE_ARMED && at_cut(g)) return CLOSED;
  uint64_t next = FALCON_GATE_COUNT(g + 1) | (order || was_held ? g & ~FALCON_GATE_COUNT_MASK : 0);
  if (!__atomic_compare_exchange_n(gate, &g, next, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return AGAIN;
  s->ordinal = FALCON_GATE_COUNT(g);
  return PASSED;
}

/* Why a call at a closed gate can't be held, if so. Inside a group it is too
 * late, since what the call waits for may be in the same group. Long before
 * the boundary, others would be held at other places, or wait inside NCCL for
 * those that are: the order is of no use to anybody, and another one may be. */
static uint32_t not_to_be_held(const falcon_tls *t, uint64_t order) {
  lock();
  bool soon = in_force(order) && too_soon();
  unlock();
  if (soon) return FALCON_REASON_UNEVEN;
  return t->depth ? FALCON_REASON_GROUP : FALCON_REASON_NONE;
}

/* At a closed gate: the call waits, where it may. */
static bool closed(falcon_tls *t, falcon_span *s, uint64_t order, void *handle, void *stream) {
  uint32_t reason = not_to_be_held(t, order);
  if (reason) {
    arrived(order, 1);
    refuse(order, reason);
    return true;
  }
  uint32_t generation = __atomic_load_n(&falcon_hook.comms[s->comm].generation, __ATOMIC_RELAXED);
  note(order, s->comm, stream); /* what the program put on the stream before this call is to drain too */
  arrived(order, 1);
  hold(order);
  s->enter = falcon_ticks(); /* the time held is not the call's */
  return falcon_comm_stands(handle, s->comm, generation);
}

/* A call of the boundary's iteration passed before the cut: those before it made
 * fewer than the ones that were surveyed. */
static void passed_boundary(uint64_t order) {
  lock();
  bool past = in_force(order) && side_of_boundary() > 0;
  unlock();
  if (past) refuse(order, FALCON_REASON_UNEVEN);
}

bool falcon_gate_slow(falcon_tls *t, falcon_span *s, void *handle, void *stream) {
  bool was_held = false;
  for (;;) {
    uint64_t order = was_held ? 0 : order_now(true);
    enum verdict v = step(s, order, was_held);
    if (v == PASSED) {
      s->order = order;
      if (order) passed_boundary(order);
      return true;
    }
    if (v == AGAIN) arrived(order, 1);
    else if (!closed(t, s, order, handle, stream)) return false;
    else was_held = true;
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
 * where all have reached their cut. Neither is its stream: what the program has
 * put on the default stream is to drain. */
void falcon_gate_group_start(void) {
  uint64_t wanted = __atomic_load_n(&falcon_hook.control->pause_order, __ATOMIC_ACQUIRE);
  if (wanted == atomic_load(&pause_.last) && !atomic_load(&pause_.order)) return; /* over long ago */
  lock();
  look();
  uint64_t order = atomic_load(&pause_.order);
  bool stop = order && all_armed() && all_closed();
  unlock();
  if (!stop) return;
  int saved = errno;
  note_default(order);
  errno = saved;
  hold(order);
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

void falcon_pause_captured(void) {
  atomic_store(&pause_.captured, true);
  falcon_wait_captured();
}

/* Behind its cut the program goes on to compute, up to its next call: the tests
 * would run beside that. So the call is awaited, whose stream then shows when
 * the computation is done; but not for long, as there may be none (a rank that
 * writes a checkpoint). */
static bool settled(void) {
  return __atomic_load_n(&falcon_hook.control->trapped_ns, __ATOMIC_RELAXED) || falcon_mono_ns() >= pause_.reached_ns + ALONE_NS;
}

/* ARMED and REACHED follow the gates both ways; returns the order whose streams
 * are to be asked. */
static uint64_t advance(void) {
  lock();
  look();
  uint64_t order = atomic_load(&pause_.order);
  uint32_t state = atomic_load(&pause_.state);
  if (order && state != FALCON_PAUSE_QUIET) {
    uint32_t now = reached() ? FALCON_PAUSE_REACHED : FALCON_PAUSE_ARMED;
    if (now != state) {
      pause_.reached_ns = falcon_mono_ns();
      set_state(now);
    }
    state = now;
  }
  bool ask = state == FALCON_PAUSE_REACHED && settled();
  unlock();
  return ask ? order : 0;
}

static void quiet(uint64_t order) {
  lock();
  if (in_force(order) && reached()) {
    PUT(quiet_ns, falcon_mono_ns());
    set_state(FALCON_PAUSE_QUIET);
  }
  unlock();
}

/* The side thread's first query would make a context on another device, and in
 * CUDA's default mode it spoils a capture of another thread: so the device comes
 * first, and the relaxed mode. */
static bool prepared(void) {
  static int device = -1;
  if (device < 0) device = falcon_cuda_enter();
  return device >= 0 && (falcon_drain_ready() || falcon_drain_prepare(device));
}

bool falcon_pause_tick(uint64_t now_ns) {
  (void)now_ns;
  uint64_t ask = advance(), order = atomic_load(&pause_.order);
  if (order && !prepared()) refuse(order, FALCON_REASON_NO_CUDA);
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

/* Who is held waits for peers that may be dead. */
void falcon_pause_suspend(bool on) {
  lock();
  pause_.suspended = on;
  if (on && atomic_load(&pause_.order)) end(FALCON_PAUSE_REFUSED, FALCON_REASON_ABORTED);
  unlock();
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
