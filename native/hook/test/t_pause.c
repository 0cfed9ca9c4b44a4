/* Cases of a pause by the cut: what passes and what is held, on the fake NCCL and
 * CUDA runtime. This program plays the agent as well. */
#include "paused.h"

/* ---- the job: threads with communicators of their own, in iterations ---- */

#define THREADS 4
#define COMMS 3 /* per thread */

typedef struct { void *comm[COMMS]; int calls[COMMS]; unsigned seed; _Atomic uint64_t iterations; pthread_t id; } worker;
static worker workers[THREADS];

static void *stream_of(const worker *w, int c) { return (void *)(0x10 * (uintptr_t)(1 + (w - workers) * COMMS + c)); }

/* Each iteration ends when its streams have drained, as one whose loss is read. */
static void *train(void *arg) {
  worker *w = arg;
  while (!stopping) {
    for (int c = 0; c < COMMS; c++)
      for (int i = 0; i < w->calls[c]; i++) {
        CHECK(reduce(w->comm[c], stream_of(w, c)) == 0);
        if (rand_r(&w->seed) % 8 == 0) usleep((unsigned)rand_r(&w->seed) % 300);
      }
    for (int c = 0; c < COMMS; c++)
      while (cudaStreamQuery(stream_of(w, c))) usleep(200);
    w->iterations++;
  }
  return NULL;
}

static void start_job(void) {
  for (int t = 0; t < THREADS; t++) {
    workers[t].seed = (unsigned)t + 1;
    for (int c = 0; c < COMMS; c++) {
      workers[t].comm[c] = comm_of(100 * t + c);
      workers[t].calls[c] = 1 + (t + c) % 3;
    }
  }
  for (int t = 0; t < THREADS; t++) CHECK(!pthread_create(&workers[t].id, NULL, train, &workers[t]));
}

static void stop_job(void) {
  stopping = 1;
  for (int t = 0; t < THREADS; t++) CHECK(!pthread_join(workers[t].id, NULL));
}

/* Cuts at the end of an iteration that no thread has reached. */
static int arm_all(uint64_t k) {
  int ok = 1;
  for (int t = 0; t < THREADS; t++)
    for (int c = 0; c < COMMS; c++) ok &= arm(t * COMMS + c, k * (uint64_t)workers[t].calls[c]);
  return ok;
}

static void check_cut(uint64_t k) {
  for (int t = 0; t < THREADS; t++)
    for (int c = 0; c < COMMS; c++) {
      uint64_t cut = k * (uint64_t)workers[t].calls[c];
      CHECK(count(t * COMMS + c) == cut && fake_nccl_calls(workers[t].comm[c]) == cut);
    }
}

static uint64_t farthest(void) {
  uint64_t k = 0;
  for (int t = 0; t < THREADS; t++)
    if (workers[t].iterations > k) k = workers[t].iterations;
  return k;
}

/* The property, at random moments: not one call beyond the cut, and each before
 * it passes; the held ones go on afterwards. */
static void case_cut(void) {
  unsigned seed = 7;
  start_job();
  uint64_t paused = 0, held = 0;
  for (uint64_t id = 1; id <= 40; id++) {
    usleep((unsigned)rand_r(&seed) % 8000);
    order(id, 20000);
    uint64_t k = farthest() + 2 + (unsigned)rand_r(&seed) % 3;
    if (!arm_all(k)) { /* a thread was faster: nothing is held */
      release();
      CHECK(await_state(id, FALCON_PAUSE_RELEASED, 10000));
      continue;
    }
    rouse();
    CHECK(await_state(id, FALCON_PAUSE_QUIET, 15000));
    check_cut(k);
    usleep(3000);
    check_cut(k);
    CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_QUIET);
    await_trapped();
    release();
    CHECK(await_state(id, FALCON_PAUSE_RELEASED, 10000) && LOAD(CTL(b)->released_ns) >= LOAD(CTL(b)->quiet_ns));
    for (int i = 0; i < 10000 && farthest() <= k; i++) usleep(500);
    CHECK(farthest() > k);
    held++;
    for (int i = 0; i < 10000 && LOAD(CTL(b)->paused_ns) == paused; i++) usleep(500);
    CHECK(LOAD(CTL(b)->paused_ns) > paused);
    paused = LOAD(CTL(b)->paused_ns);
  }
  CHECK(held >= 10);
  stop_job();
}
static void case_held(void) {
  comm = comm_of(1);
  armed(1, 20000, 2);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  CHECK(reduce(comm, S1) == 0 && reduce(comm, S1) == 0); /* before the cut */
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000)); /* no rank waits, and yet it is at its cut */
  CHECK(!LOAD(CTL(b)->trapped_ns));
  pthread_t id = call_aside();
  await_trapped();
  void *other = comm_of(2); /* none of these is held */
  CHECK(reduce(other, S2) == 0 && ncclCommFinalize(other) == 0 && ncclCommDestroy(other) == 0);
  usleep(20000);
  CHECK(!calls_done && count(0) == 2 && LOAD(CTL(b)->pause_state) == FALCON_PAUSE_QUIET);
  uint64_t enter = now_ns();
  release();
  CHECK(!pthread_join(id, NULL) && !last_rc && count(0) == 3 && fake_nccl_calls(comm) == 3);
  CHECK(await_state(1, FALCON_PAUSE_RELEASED, 5000) && LOAD(CTL(b)->paused_ns) >= 20 * MS && now_ns() - enter < 5000 * MS);
}

/* REACHED while the streams run, QUIET when they have drained: also the one of
 * the held call, up to where it is held. */
static void case_drained(void) {
  comm = comm_of(1);
  armed(1, 20000, 1);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  await_looks(); /* the events are made by then */
  fake_cuda_work(S2, 500 * MS);
  uint64_t begun = now_ns();
  CHECK(reduce(comm, S2) == 0); /* 3 ms more */
  CHECK(await_state(1, FALCON_PAUSE_REACHED, 5000));
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000) && LOAD(CTL(b)->quiet_ns) - begun >= 495 * MS);
  release();
  CHECK(await_state(1, FALCON_PAUSE_RELEASED, 5000));
  fake_cuda_work(S1, 200 * MS);
  begun = now_ns();
  order(2, 20000);
  CHECK(arm(0, count(0)));
  pthread_t id = call_aside();
  await_trapped();
  rouse(); /* only now is it known that all gates are armed */
  CHECK(await_state(2, FALCON_PAUSE_QUIET, 5000) && LOAD(CTL(b)->quiet_ns) - begun >= 195 * MS);
  release();
  CHECK(!pthread_join(id, NULL));
}

static void case_group(void) {
  pthread_t id;
  comm = comm_of(1);
  armed(1, 20000, 2);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  await_looks();
  fake_cuda_work(S2, 500 * MS);
  group(NULL); /* passes: the cut lies behind it */
  CHECK(count(0) == 2 && await_state(1, FALCON_PAUSE_REACHED, 5000) && await_state(1, FALCON_PAUSE_QUIET, 5000));
  CHECK(!pthread_create(&id, NULL, group, NULL));
  await_trapped();
  usleep(10000);
  CHECK(calls_done == 1 && count(0) == 2);
  release();
  CHECK(!pthread_join(id, NULL) && count(0) == 4);
}

/* A group across the cut can't be held: everything is let go, and the reason published. */
static void case_overrun(void) {
  comm = comm_of(1);
  armed(1, 20000, 1);
  group(NULL);
  CHECK(count(0) == 2 && await_state(1, FALCON_PAUSE_REFUSED, 5000) && REASON == FALCON_REASON_GROUP);
  CHECK(!(LOAD(COMM(b, 0)->gate) & FALCON_GATE_ARMED) && reduce(comm, S1) == 0);
  /* Two communicators of which one has not reached its cut: the group starts, and is too late. */
  comm_of(2);
  order(2, 20000);
  CHECK(arm(0, count(0)) && arm(1, 5));
  rouse();
  group(NULL);
  CHECK(await_state(2, FALCON_PAUSE_REFUSED, 5000) && REASON == FALCON_REASON_GROUP);
}

/* No agent takes the order back, as when the agent was killed. */
static void case_expiry(void) {
  comm = comm_of(1);
  uint64_t begun = now_ns();
  armed(1, 300, 0);
  CHECK(reduce(comm, S1) == 0);
  uint64_t took = now_ns() - begun;
  CHECK(took >= 295 * MS && took < 5000 * MS);
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_EXPIRED && LOAD(CTL(b)->pause_seen) == 1 && CTL(b)->pause_order == 1);
  uint64_t late = LOAD(CTL(b)->trapped_ns) - begun; /* the call came to its gate */
  CHECK(LOAD(CTL(b)->paused_ns) + late >= 290 * MS && LOAD(CTL(b)->paused_ns) <= took);
  CHECK(!(LOAD(COMM(b, 0)->gate) & FALCON_GATE_ARMED));
  CHECK(ncclGroupStart() == 0 && ncclGroupEnd() == 0); /* the dead order is still written there */
  CHECK(arm(0, count(0))); /* by an agent that is late: nothing is held, and the gate is cleared */
  CHECK(reduce(comm, S1) == 0 && !(LOAD(COMM(b, 0)->gate) & FALCON_GATE_ARMED) && count(0) == 2);
}

/* Longer than any pause may be: cut down, from when it was first seen. */
static void case_clamp(void) {
  comm = comm_of(1);
  uint64_t begun = now_ns();
  armed(1, 1ull << 40, 0);
  CHECK(reduce(comm, S1) == 0 && now_ns() - begun >= 195 * MS && now_ns() - begun < 5000 * MS);
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_EXPIRED);
}

static void case_late(void) {
  comm = comm_of(1);
  order(1, 0);
  CHECK(arm(0, 0));
  rouse();
  CHECK(reduce(comm, S1) == 0 && await_state(1, FALCON_PAUSE_REFUSED, 5000) && REASON == FALCON_REASON_LATE);
  CHECK(!LOAD(CTL(b)->trapped_ns) && LOAD(CTL(b)->paused_ns) == 0);
  __atomic_store_n(&CTL(b)->pause_order, 0, __ATOMIC_RELEASE);
  CHECK(arm(0, count(0)) && reduce(comm, S1) == 0); /* armed without an order */
  CHECK(!(LOAD(COMM(b, 0)->gate) & FALCON_GATE_ARMED));
}

/* A gate alone does not say that all are armed. */
static void case_word(void) {
  comm = comm_of(1);
  comm_of(2);
  order(1, 20000);
  CHECK(arm(0, 0));
  syscall(SYS_futex, &CTL(b)->mode, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  usleep(30000);
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_ARMED && arm(1, 1));
  rouse();
  usleep(30000);
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_ARMED);
  release();
}

static const test_case cases[] = {
  CASE(cut), CASE(held), CASE(drained), CASE(group), CASE(overrun), CASE(expiry), CASE(clamp), CASE(late), CASE(word),
};

int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
