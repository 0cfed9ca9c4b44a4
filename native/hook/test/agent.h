/*
 * The agent's side of a pause and of a test, played by the test program on its
 * own file: by the order of writes that falcon_shm.h asks for.
 */
#ifndef FALCON_TEST_AGENT_H
#define FALCON_TEST_AGENT_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "shm.h"

#define MS 1000000ull

static char *b __attribute__((unused)); /* the file */

static inline uint64_t now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static inline uint64_t count(int slot) { return FALCON_GATE_COUNT(LOAD(COMM(b, slot)->gate)); }

static inline void rouse(void) {
  __atomic_store_n(&CTL(b)->pause_armed, LOAD(CTL(b)->pause_order), __ATOMIC_RELEASE); /* all that are to be */
  __atomic_fetch_add(&CTL(b)->pause_word, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, &CTL(b)->pause_word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  syscall(SYS_futex, &CTL(b)->mode, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* boundary: the iteration that begins at the cut, plus 1; 0 = not given. */
static inline void order_at(uint64_t id, uint64_t ms, uint64_t boundary) {
  __atomic_store_n(&CTL(b)->pause_until_ns, now_ns() + ms * MS, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->pause_boundary, boundary, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->pause_order, id, __ATOMIC_RELEASE);
}

static inline void order(uint64_t id, uint64_t ms) { order_at(id, ms, 0); }

/* 0 when the cut was missed. */
static inline int arm(int slot, uint64_t cut) {
  uint64_t *gate = &COMM(b, slot)->gate, g = LOAD(*gate);
  do {
    if (cut < FALCON_GATE_COUNT(g)) return 0;
  } while (!__atomic_compare_exchange_n(gate, &g, FALCON_GATE_ARMED | (cut & FALCON_GATE_CUT_MASK) << FALCON_GATE_CUT_SHIFT | FALCON_GATE_COUNT(g),
                                        0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  return 1;
}

static inline void release(void) {
  __atomic_store_n(&CTL(b)->pause_order, 0, __ATOMIC_RELEASE);
  rouse();
}

static inline int await_state(uint64_t id, uint32_t state, uint64_t ms) {
  for (uint64_t end = now_ns() + ms * MS; now_ns() < end; usleep(100))
    if (LOAD(CTL(b)->pause_seen) == id && LOAD(CTL(b)->pause_state) == state) return 1;
  fprintf(stderr, "order %lu: state %u, reason %u\n", (unsigned long)LOAD(CTL(b)->pause_seen), LOAD(CTL(b)->pause_state), LOAD(CTL(b)->pause_reason));
  return 0;
}

static inline int await_seen(uint64_t id, uint64_t ms) {
  for (uint64_t end = now_ns() + ms * MS; now_ns() < end; usleep(100))
    if (LOAD(CTL(b)->pause_seen) == id) return 1;
  return 0;
}

#define REASON (LOAD(CTL(b)->pause_reason))

/* Orders a test; id, until_ns and seq are filled in here. Returns its id. */
static inline uint64_t put_test(falcon_test test, uint64_t ms) {
  falcon_test *to = &CTL(b)->test;
  uint64_t seq = LOAD(to->seq) | 1, id = LOAD(to->id) + 1;
  __atomic_store_n(&to->seq, seq, __ATOMIC_RELEASE);
  test.seq = seq;
  test.id = id;
  test.until_ns = now_ns() + ms * MS;
  for (size_t w = 1; w < sizeof test / 8; w++) {
    uint64_t v;
    memcpy(&v, (const char *)&test + 8 * w, sizeof v);
    __atomic_store_n((uint64_t *)(void *)to + w, v, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&to->seq, seq + 1, __ATOMIC_RELEASE);
  rouse();
  return id;
}

/* The result of test id, once it has one. */
static inline falcon_test_result await_result(uint64_t id, uint64_t ms) {
  falcon_test_result r, *from = &CTL(b)->result;
  for (uint64_t end = now_ns() + ms * MS; now_ns() < end; usleep(100)) {
    uint64_t seq = LOAD(from->seq);
    for (size_t w = 0; w < sizeof r / 8; w++) {
      uint64_t v = __atomic_load_n((uint64_t *)(void *)from + w, __ATOMIC_ACQUIRE);
      memcpy((char *)&r + 8 * w, &v, sizeof v);
    }
    if (!(seq & 1) && LOAD(from->seq) == seq && r.id == id && r.status != FALCON_TEST_RUNNING) return r;
  }
  CHECK(!"the test has no result");
  exit(1);
}

/* ---- a recovery ---- */

static inline void put_suspend(uint64_t generation, uint64_t until_ns) {
  __atomic_store_n(&CTL(b)->suspend_until_ns, until_ns, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->suspend_generation, generation, __ATOMIC_RELEASE);
  rouse();
}

static inline int await_suspended(uint64_t generation, uint64_t ms) {
  for (uint64_t end = now_ns() + ms * MS; now_ns() < end; usleep(100))
    if (LOAD(CTL(b)->suspended_generation) == generation) return 1;
  fprintf(stderr, "suspended: %lu\n", (unsigned long)LOAD(CTL(b)->suspended_generation));
  return 0;
}

/* The side thread has looked at what was written before, and more than once. */
static inline void await_looks(void) {
  for (int i = 0; i < 3; i++) {
    uint64_t before = LOAD(CTL(b)->heartbeat_ns);
    while (LOAD(CTL(b)->heartbeat_ns) == before) usleep(200);
  }
}

static inline void put_rejoin_as(uint64_t id, uint32_t kind, uint64_t epoch, const int32_t *values, uint32_t n) {
  falcon_shm_order *o = &CTL(b)->rejoin;
  uint64_t seq = LOAD(o->seq) | 1;
  __atomic_store_n(&o->seq, seq, __ATOMIC_RELEASE);
  __atomic_store_n(&o->id, id, __ATOMIC_RELEASE);
  __atomic_store_n(&o->epoch, epoch, __ATOMIC_RELEASE);
  __atomic_store_n(&o->kind, kind, __ATOMIC_RELEASE);
  __atomic_store_n(&o->n, n, __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < n && i < FALCON_ORDER_VALUES; i++) __atomic_store_n(&o->values[i], values[i], __ATOMIC_RELEASE);
  __atomic_store_n(&o->seq, seq + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->rejoin_id, id, __ATOMIC_RELEASE);
  rouse();
}

/* Two replicas with 5 and 3 micro-batches; rank 1 gets its state from rank 3; iteration 2^31 + 7. */
static inline void put_rejoin(uint64_t id) {
  static const int32_t v[] = {0, 7, 1, 2, 5, 3, 1, 1, 3};
  put_rejoin_as(id, FALCON_ORDER_REJOIN, id, v, sizeof v / sizeof *v);
}

typedef struct park_word { uint32_t on; int32_t status; uint64_t generation; int64_t tag, steps[2]; uint64_t sums[2]; } park_word;

static inline park_word read_park(void) {
  for (;;) {
    uint64_t seq = LOAD(CTL(b)->park_seq);
    park_word w = {LOAD(CTL(b)->park_on), LOAD(CTL(b)->park_status), LOAD(CTL(b)->park_generation), LOAD(CTL(b)->park_tag),
                   {LOAD(CTL(b)->park_steps[0]), LOAD(CTL(b)->park_steps[1])}, {LOAD(CTL(b)->park_sums[0]), LOAD(CTL(b)->park_sums[1])}};
    if (!(seq & 1) && LOAD(CTL(b)->park_seq) == seq) return w;
  }
}

static inline int await_parked(uint64_t generation, uint64_t ms) {
  for (uint64_t end = now_ns() + ms * MS; now_ns() < end; usleep(100)) {
    park_word w = read_park();
    if (w.on && w.generation == generation) return 1;
  }
  park_word w = read_park();
  fprintf(stderr, "parked: %u, generation %lu\n", w.on, (unsigned long)w.generation);
  return 0;
}

/* Random bytes, orders, gates and tests: an agent gone mad. */
static inline void scribble(void *to, size_t n, unsigned *seed) {
  for (size_t i = 0; i < n; i++) __atomic_store_n((char *)to + i, (char)rand_r(seed), __ATOMIC_RELAXED);
}

static inline void mad_agent(unsigned *seed, int comms) {
  uint64_t word = (uint64_t)rand_r(seed) << 33 ^ (uint64_t)rand_r(seed) << 11;
  switch (rand_r(seed) % 8) {
    case 0: scribble(CTL(b), 112, seed); break;
    case 1: scribble(&CTL(b)->test, sizeof CTL(b)->test, seed); break;
    case 2: __atomic_store_n(&COMM(b, rand_r(seed) % comms)->gate, word | FALCON_GATE_ARMED, __ATOMIC_RELEASE); break;
    case 3: order(word, (uint64_t)rand_r(seed) % 1000); break;
    case 4: arm(rand_r(seed) % comms, count(0) + 1); break;
    case 5: /* one that may well be tested under */
      order(word, 1000);
      arm(0, count(0) + 1);
      break;
    case 6:
      put_test((falcon_test){.kind = (uint32_t)rand_r(seed) % 5, .n = (uint32_t)rand_r(seed) % 100, .repeats = (uint32_t)rand_r(seed) % 70,
                             .bytes = word >> rand_r(seed) % 64, .side = rand_r(seed) % 3}, (uint64_t)rand_r(seed) % 200);
      break;
    default: CTL(b)->mode = (uint32_t)rand_r(seed) % 4;
  }
  rouse();
}

#endif
