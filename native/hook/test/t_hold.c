/* Cases of a pause by the cut: how it ends, and what stands beside it. */
#include "paused.h"

/* The held call's communicator is gone: it must not be handed to NCCL. */
static void case_abort(void) {
  comm = comm_of(1);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  await_trapped();
  await_looks(); /* the device is known by then: an order that meets no communicator is refused otherwise */
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
  order_at(4, 20000, 0); /* not given: the counts alone decide */
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
  await_looks(); /* the events are made by then */
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

/* A profile window is over at the cut, its timings written, though no agent ends it. */
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

/* Unless it is asked for, nothing is taken of the GPU, and a test is refused. */
extern _Atomic int fake_cuda_mallocs, fake_cuda_creates;
static void case_no_memory(void) {
  unsetenv("FALCON_TEST_MB");
  comm = comm_of(1);
  CHECK(!LOAD(CTL(b)->test_workspace) && !fake_cuda_mallocs && !fake_cuda_creates);
  armed(1, 20000, 0);
  pthread_t id = call_aside();
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000));
  falcon_test_result r = await_result(put_test((falcon_test){.kind = FALCON_TEST_GEMM, .n = 8, .repeats = 3, .bytes = 4096}, 5000), 10000);
  CHECK(r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NO_WORKSPACE && !fake_cuda_mallocs);
  release();
  CHECK(!pthread_join(id, NULL));
}

/* Of a GPU that is nearly full nothing is taken. */
extern _Atomic size_t fake_cuda_free;
static void case_full(void) {
  setenv("FALCON_TEST_MB", "8", 1);
  fake_cuda_free = ((size_t)1 << 30) + (7 << 20);
  comm = comm_of(1);
  CHECK(!LOAD(CTL(b)->test_workspace) && !fake_cuda_mallocs && !fake_cuda_creates);
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

static void *rejoin(void *rc) {
  __typeof__(&falcon_job_park) park = (__typeof__(&falcon_job_park))dlsym(RTLD_DEFAULT, "falcon_job_park");
  *(int *)rc = park(FALCON_PARK_SUSPENDED, NULL, NULL, NULL);
  return NULL;
}

/* A suspension lets a held call go, which fails; no pause begins until the rejoin. */
static void case_suspended(void) {
  comm = comm_of(1);
  armed(1, 50000, 0);
  pthread_t id = call_aside();
  await_trapped();
  put_suspend(4, 0);
  CHECK(!pthread_join(id, NULL) && last_rc == NCCL_REMOTE_ERROR && await_suspended(4, 10000));
  CHECK(LOAD(CTL(b)->pause_state) == FALCON_PAUSE_REFUSED && REASON == FALCON_REASON_ABORTED);
  order(2, 50000);
  rouse();
  await_looks();
  CHECK(LOAD(CTL(b)->pause_seen) == 1);
  release();
  int rc = -9;
  CHECK(!pthread_create(&id, NULL, rejoin, &rc) && await_parked(4, 10000));
  put_rejoin(4);
  CHECK(!pthread_join(id, NULL) && rc == FALCON_PARK_REJOIN);
  comm_of(2);
  order(3, 50000);
  rouse();
  CHECK(await_state(3, FALCON_PAUSE_ARMED, 10000));
  release();
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

static const test_case cases[] = {
  CASE(abort), CASE(capture), CASE(replaced), CASE(uneven), CASE(alone), CASE(default_stream),
  CASE(finish), CASE(exit), CASE(fork), CASE(profile), CASE(no_memory), CASE(full), CASE(library), CASE(suspended), CASE(fuzz),
};

int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
