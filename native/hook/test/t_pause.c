/* Cases of a pause by the cut, on the fake NCCL and CUDA runtime. This program
 * plays the agent as well. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "../../include/falcon_job.h"
#include "agent.h"
#include "nccl.h"

unsigned long fake_nccl_calls(void *c);
void fake_cuda_work(void *stream, unsigned long ns);
extern _Atomic int fake_cuda_spoils, fake_cuda_elsewhere;
int cudaSetDevice(int device);
int cudaStreamQuery(void *stream);

#define S1 ((void *)0x10)
#define S2 ((void *)0x20)
#define CAPTURING ((void *)0xCAFE0)

static void *comm_of(int id) {
  void *c = NULL;
  CHECK(cudaSetDevice(3) == 0 && ncclCommInitRank(&c, 4, test_id(id), 1) == 0 && c);
  b = shm_map();
  CHECK(b);
  return c;
}

static int reduce(void *comm, void *stream) { return ncclAllReduce(NULL, NULL, 8, 7, 0, comm, stream); }

static void await_trapped(void) {
  for (int i = 0; i < 10000 && !LOAD(CTL(b)->trapped_ns); i++) usleep(500);
  CHECK(LOAD(CTL(b)->trapped_ns));
}

/* ---- the job: threads with communicators of their own, in iterations ---- */

#define THREADS 4
#define COMMS 3 /* per thread */

typedef struct { void *comm[COMMS]; int calls[COMMS]; unsigned seed; _Atomic uint64_t iterations; pthread_t id; } worker;
static worker workers[THREADS];
static _Atomic int stopping;

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

/* ---- one thread, step by step ---- */

static void *comm;
static _Atomic int calls_done, last_rc;
static void *call_stream = S1;

static void *call_once(void *unused) {
  (void)unused;
  last_rc = reduce(comm, call_stream);
  calls_done++;
  return NULL;
}

static pthread_t call_aside(void) {
  pthread_t id;
  CHECK(!pthread_create(&id, NULL, call_once, NULL));
  return id;
}

/* One communicator at its cut of n calls more; the caller has none of them left. */
static void armed(uint64_t id, uint64_t ms, uint64_t n) {
  order(id, ms);
  CHECK(arm(0, count(0) + n));
  rouse();
}

static void case_held(void) {
  comm = comm_of(1);
  armed(1, 20000, 2);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  CHECK(reduce(comm, S1) == 0 && reduce(comm, S1) == 0); /* before the cut */
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000)); /* nobody waits, and yet it is at its cut */
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
  usleep(20000); /* the events are made by then */
  fake_cuda_work(S2, 200 * MS);
  uint64_t begun = now_ns();
  CHECK(reduce(comm, S2) == 0); /* 3 ms more */
  CHECK(await_state(1, FALCON_PAUSE_REACHED, 5000));
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000) && LOAD(CTL(b)->quiet_ns) - begun >= 195 * MS);
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

/* Held whole at its start: not a call of it has begun. */
static void *group(void *unused) {
  (void)unused;
  CHECK(ncclGroupStart() == 0 && reduce(comm, S1) == 0 && reduce(comm, S2) == 0 && ncclGroupEnd() == 0);
  calls_done++;
  return NULL;
}

static void case_group(void) {
  pthread_t id;
  comm = comm_of(1);
  armed(1, 20000, 2);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  usleep(20000);
  fake_cuda_work(S2, 100 * MS);
  group(NULL); /* passes: the cut lies behind it */
  CHECK(count(0) == 2 && await_state(1, FALCON_PAUSE_REACHED, 5000) && await_state(1, FALCON_PAUSE_QUIET, 5000));
  CHECK(!pthread_create(&id, NULL, group, NULL));
  await_trapped();
  usleep(10000);
  CHECK(calls_done == 1 && count(0) == 2);
  release();
  CHECK(!pthread_join(id, NULL) && count(0) == 4);
}

/* A group across the cut can't be held: everything is let go, and the reason told. */
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

/* Nobody takes the order back, as when the agent was killed. */
static void case_expiry(void) {
  comm = comm_of(1);
  uint64_t begun = now_ns();
  armed(1, 300, 0);
  CHECK(reduce(comm, S1) == 0);
  uint64_t took = now_ns() - begun;
  CHECK(took >= 295 * MS && took < 5000 * MS);
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_EXPIRED && LOAD(CTL(b)->pause_seen) == 1 && CTL(b)->pause_order == 1);
  CHECK(LOAD(CTL(b)->paused_ns) >= 290 * MS && LOAD(CTL(b)->paused_ns) <= took);
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

/* The held call's communicator is gone: it must not be handed to NCCL. */
static void case_abort(void) {
  comm = comm_of(1);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  await_trapped();
  uint64_t begun = now_ns();
  CHECK(ncclCommAbort(comm) == 0);
  order(2, 20000); /* at once: the held thread may not have looked yet */
  rouse();
  CHECK(!pthread_join(id, NULL));
  CHECK(last_rc == NCCL_INVALID_USAGE && now_ns() - begun < 5000 * MS);
  CHECK(COMM(b, 0)->state == FALCON_COMM_ABORTED && await_state(2, FALCON_PAUSE_ARMED, 5000));
  release();
  CHECK(await_state(2, FALCON_PAUSE_RELEASED, 5000));
  void *next = comm_of(3);
  order(3, 20000);
  CHECK(arm(1, 0));
  rouse();
  CHECK(await_state(3, FALCON_PAUSE_QUIET, 5000) && ncclCommAbort(next) == 0);
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_REFUSED && REASON == FALCON_REASON_ABORTED);
  comm = next;
  CHECK(reduce(comm, S1) == NCCL_INVALID_USAGE); /* in a group it would come like this */
  void *again = comm_of(2); /* the heap hands out the same pointer */
  CHECK(reduce(again, S1) == 0);
}

/* Before the boundary's iteration has begun a call is not held where another
 * gate is open yet; and one of that iteration does not pass without a word. */
static void case_uneven(void) {
  __typeof__(&falcon_job_begin_iteration) begin = (__typeof__(&falcon_job_begin_iteration))dlsym(RTLD_DEFAULT, "falcon_job_begin_iteration");
  comm = comm_of(1);
  void *other = comm_of(2);
  begin(4);
  order_at(1, 20000, 7);
  CHECK(arm(0, 1) && arm(1, 1));
  rouse();
  uint64_t begun = now_ns();
  for (int i = 0; i < 3; i++) CHECK(reduce(comm, S1) == 0);
  CHECK(now_ns() - begun < 5000 * MS && LOAD(CTL(b)->pause_state) == FALCON_PAUSE_REFUSED && REASON == FALCON_REASON_UNEVEN);
  CHECK(!LOAD(CTL(b)->trapped_ns) && reduce(other, S1) == 0);
  order_at(2, 20000, 7); /* one call more as well, but nothing else is to come: the cut holds */
  CHECK(arm(0, count(0)) && arm(1, count(1)));
  rouse();
  pthread_t id = call_aside();
  await_trapped();
  CHECK(await_state(2, FALCON_PAUSE_QUIET, 5000));
  release();
  CHECK(!pthread_join(id, NULL));
  begin(6);
  order_at(3, 20000, 7);
  CHECK(arm(0, count(0) + 2) && arm(1, count(1)));
  rouse();
  CHECK(reduce(comm, S1) == 0 && LOAD(CTL(b)->pause_state) == FALCON_PAUSE_REFUSED && REASON == FALCON_REASON_UNEVEN);
  order_at(4, 20000, 0); /* not told: the counts alone decide */
  CHECK(arm(0, count(0) + 1) && arm(1, count(1)));
  rouse();
  CHECK(reduce(comm, S1) == 0);
  id = call_aside();
  CHECK(await_state(4, FALCON_PAUSE_QUIET, 5000));
  release();
  CHECK(!pthread_join(id, NULL));
}

/* A process at its cut is given time to come to its next call. */
static void case_alone(void) {
  comm = comm_of(1);
  uint64_t begun = now_ns();
  armed(1, 20000, 0);
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000) && LOAD(CTL(b)->quiet_ns) - begun >= 995 * MS);
  release();
}

/* A held group's streams are not known; what is on the default stream drains. */
static void *group_on_device(void *unused) {
  CHECK(cudaSetDevice(3) == 0);
  return group(unused);
}

static void case_default_stream(void) {
  comm = comm_of(1);
  armed(1, 20000, 1);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  usleep(20000); /* the events are made by then */
  CHECK(reduce(comm, S1) == 0);
  uint64_t begun = now_ns();
  fake_cuda_work(NULL, 400 * MS);
  pthread_t id;
  CHECK(!pthread_create(&id, NULL, group_on_device, NULL));
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000) && LOAD(CTL(b)->trapped_ns) && LOAD(CTL(b)->quiet_ns) - begun >= 395 * MS);
  release();
  CHECK(!pthread_join(id, NULL));
}

static void case_capture(void) {
  comm = comm_of(1);
  armed(1, 20000, 5);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000));
  for (int i = 0; i < 1000 && LOAD(CTL(b)->pause_state) == FALCON_PAUSE_ARMED && count(0) < 5; i++, usleep(10000)) CHECK(reduce(comm, CAPTURING) == 0);
  CHECK(await_state(1, FALCON_PAUSE_REFUSED, 5000) && REASON == FALCON_REASON_CAPTURE);
  armed(2, 20000, 0); /* what was captured once may be replayed, unseen */
  CHECK(await_state(2, FALCON_PAUSE_REFUSED, 5000) && REASON == FALCON_REASON_CAPTURE && reduce(comm, S1) == 0);
}

/* The next order, while one is in force: the first is over. */
static void case_replaced(void) {
  comm = comm_of(1);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  await_trapped();
  armed(2, 400, 0);
  CHECK(!pthread_join(id, NULL) && calls_done == 1);
  CHECK(await_state(2, FALCON_PAUSE_EXPIRED, 5000)); /* its cut was passed by the call that was held: it ran out */
}

static void case_finish(void) {
  void (*finish)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "falcon_job_finish");
  comm = comm_of(1);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  await_trapped();
  uint64_t begun = now_ns();
  finish();
  CHECK(!pthread_join(id, NULL) && !last_rc && now_ns() - begun < 5000 * MS);
  armed(2, 20000, 0); /* the training is over: no order any more */
  CHECK(reduce(comm, S1) == 0 && now_ns() - begun < 5000 * MS);
}

static pthread_t held_thread;
static void join_held(void) { CHECK(!pthread_join(held_thread, NULL)); }

/* A program that waits for its threads when it exits. */
static void case_exit(void) {
  comm = comm_of(1);
  atexit(join_held);
  armed(1, 15000, 0);
  alarm(10);
  held_thread = call_aside();
  await_trapped();
  exit(0);
}

/* A profile window is over at the cut, its timings written, though nobody ends it. */
static void case_profile(void) {
  comm = comm_of(1);
  CHECK(reduce(comm, S1) == 0);
  CTL(b)->profile_until_ns = now_ns() + 60000 * MS;
  CTL(b)->profile_window = 9;
  __atomic_store_n(&CTL(b)->mode, FALCON_MODE_PROFILE, __ATOMIC_RELEASE);
  for (int i = 0; i < 5000 && !(REC(b, 0, LOAD(RING(b, 0)->head) - 1)->flags & FALCON_REC_TIMED); i++, usleep(2000)) CHECK(reduce(comm, S1) == 0);
  armed(1, 20000, 1);
  CHECK(await_state(1, FALCON_PAUSE_ARMED, 5000) && reduce(comm, S1) == 0 && await_state(1, FALCON_PAUSE_QUIET, 20000));
  for (int i = 0; i < 5000 && LOAD(CTL(b)->profile_done) != 9; i++) usleep(2000);
  CHECK(LOAD(CTL(b)->profile_done) == 9 && LOAD(CTL(b)->timing_head) > 0 && LOAD(CTL(b)->pause_state) == FALCON_PAUSE_QUIET);
  release();
}

/* Neither cuBLAS nor all of NCCL is here, and the memory that was reserved helps nothing. */
static void case_library(void) {
  setenv("FALCON_TEST_MB", "8", 1);
  comm = comm_of(1);
  CHECK(LOAD(CTL(b)->test_workspace) == 8u << 20);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000));
  for (uint32_t kind = FALCON_TEST_GEMM; kind <= FALCON_TEST_LINK; kind++) {
    falcon_test_result r = await_result(put_test((falcon_test){.kind = kind, .n = 8, .repeats = 3, .bytes = 4096}, 5000), 10000);
    CHECK(r.kind == kind && r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NO_LIBRARY);
  }
  CHECK(!fake_cuda_spoils && !fake_cuda_elsewhere); /* the events were made here, and are asked elsewhere */
  release();
  CHECK(!pthread_join(id, NULL));
}

static void case_fork(void) {
  comm = comm_of(1);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  await_trapped();
  pid_t child = fork();
  if (!child) {
    alarm(10);
    for (int i = 0; i < 5; i++) CHECK(reduce(comm, S1) == 0);
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0 && !calls_done);
  release();
  CHECK(!pthread_join(id, NULL) && count(0) == 1);
}

/* An agent gone mad: random bytes all over its half of the control block and
 * over the gates. The calls go on, none is held for longer than the bound. */
static _Atomic uint64_t longest;
static void *timed_calls(void *c) {
  unsigned seed = 3;
  while (!stopping) {
    uint64_t t = now_ns();
    int grouped = rand_r(&seed) % 4 == 0;
    if (grouped) CHECK(ncclGroupStart() == 0);
    CHECK(reduce(c, S1) == 0);
    if (grouped) CHECK(ncclGroupEnd() == 0);
    t = now_ns() - t;
    if (t > longest) longest = t;
    calls_done++;
  }
  return NULL;
}

static void case_fuzz(void) {
  unsigned seed = 11;
  void *c[3] = {comm_of(1), comm_of(2), comm_of(3)};
  pthread_t id[3];
  for (int i = 0; i < 3; i++) CHECK(!pthread_create(&id[i], NULL, timed_calls, c[i]));
  for (uint64_t end = now_ns() + 4000 * MS; now_ns() < end; usleep((unsigned)rand_r(&seed) % 2000)) mad_agent(&seed, 3);
  stopping = 1;
  uint64_t begun = now_ns();
  for (int i = 0; i < 3; i++) CHECK(!pthread_join(id[i], NULL));
  CHECK(now_ns() - begun < 5000 * MS && calls_done > 50);
  CHECK(longest < 2000 * MS); /* the bound is 200 ms here; the rest is this machine's */
}

static const struct { const char *name; void (*run)(void); } cases[] = {
#define C(n) {#n, case_##n}
  C(cut), C(held), C(drained), C(group), C(overrun), C(expiry), C(clamp), C(late), C(word), C(abort), C(capture), C(replaced),
  C(uneven), C(alone), C(default_stream),
  C(finish), C(exit), C(fork), C(profile), C(library), C(fuzz),
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) { cases[i].run(); return 0; }
  }
  return argc < 2 ? 0 : 2;
}
