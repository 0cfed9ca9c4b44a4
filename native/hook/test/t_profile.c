/* Cases of profile mode, on the fake CUDA runtime. */
#include <dlfcn.h>
#include <time.h>

#include "nccl.h"

extern _Atomic int fake_cuda_broken, fake_cuda_creates, fake_cuda_events, fake_cuda_room, fake_cuda_elsewhere, fake_cuda_spoils;
int cudaGetLastError(void);
void fake_cuda_work(void *stream, unsigned long ns);

#define S1 ((void *)0x10)
#define S2 ((void *)0x20)
#define CAPTURING ((void *)0xCAFE0)

static void *comm;
static char *b;

static uint64_t now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void reduce(void *stream) { CHECK(ncclAllReduce(NULL, NULL, 1000, 7, 0, comm, stream) == 0); }

static void setup(void) {
  CHECK(ncclCommInitRank(&comm, 4, test_id(1), 0) == 0);
  b = shm_map();
  CHECK(b);
  reduce(S1); /* claims the ring, so that the window reserves for this thread */
}

static void ask(uint32_t window, uint64_t ms) {
  CTL(b)->profile_until_ns = now_ns() + ms * 1000000;
  CTL(b)->profile_window = window;
  __atomic_store_n(&CTL(b)->mode, FALCON_MODE_PROFILE, __ATOMIC_RELEASE);
}

/* The window is open when a call comes out timed; returns its ordinal. */
static uint64_t await_open(void *stream) {
  for (int i = 0; i < 2000; i++, usleep(2000)) {
    reduce(stream);
    falcon_record *r = REC(b, 0, LOAD(RING(b, 0)->head) - 1);
    if (r->flags & FALCON_REC_TIMED) return r->ordinal;
  }
  CHECK(!"the window never opened");
  return 0;
}

static void await_done(uint32_t window) {
  for (int i = 0; i < 4000 && LOAD(CTL(b)->profile_done) != window; i++) usleep(2000);
  CHECK(LOAD(CTL(b)->profile_done) == window);
}

static void stop(void) { __atomic_store_n(&CTL(b)->mode, FALCON_MODE_MONITOR, __ATOMIC_RELEASE); }

static falcon_timing *timing_of(uint64_t ordinal) {
  for (uint64_t i = 0; i < LOAD(CTL(b)->timing_head); i++)
    if (TIMING(b, i)->ordinal == ordinal) return TIMING(b, i);
  return NULL;
}

static int near(int64_t ns, int64_t want) { return ns > want - 100000 && ns < want + 100000; }

/* The stream is given 300 ms of other work first, so that all that follows is
 * queued behind it and the fake device's times are exact, however busy this
 * machine is. */
static void case_window(void) {
  setup();
  ask(5, 60000);
  uint64_t first = await_open(S1), calls = 20;
  fake_cuda_work(S1, 300000000);
  uint64_t begun = now_ns();
  for (uint64_t i = 1; i < calls; i++) reduce(S1);
  int64_t host = (int64_t)(now_ns() - begun);
  stop();
  await_done(5);
  CHECK(LOAD(CTL(b)->timing_head) == calls && LOAD(CTL(b)->timing_lost) == 0);
  for (uint64_t i = 1; i < calls; i++) {
    falcon_timing *t = timing_of(first + i);
    CHECK(t && t->window == 5 && t->comm == 0 && t->op == FALCON_OP_ALLREDUCE && t->bytes == 4000 && t->peer == -1);
    CHECK(near(t->duration_ns, 3000000) && t->flags == FALCON_REC_TIMED);
    CHECK(t->queue_ns > 0);
  }
  int64_t gap = timing_of(first + 19)->start_ns - timing_of(first + 18)->start_ns;
  CHECK(near(gap, 3000000));
  /* 18 calls deeper in the queue, less the time that the host took to issue them. */
  int64_t lead = timing_of(first + 19)->queue_ns - timing_of(first + 1)->queue_ns;
  CHECK(lead < 54100000 && lead > 54000000 - host - 100000);
}

static void case_group_window(void) {
  setup();
  ask(6, 60000);
  await_open(S1);
  fake_cuda_work(S2, 300000000);
  CHECK(ncclGroupStart() == 0 && ncclGroupStart() == 0);
  CHECK(ncclSend(NULL, 10, 8, 1, comm, S2) == 0 && ncclRecv(NULL, 20, 8, 2, comm, S2) == 0);
  CHECK(ncclGroupEnd() == 0);
  CHECK(ncclRecv(NULL, 30, 8, 3, comm, S2) == 0);
  CHECK(ncclGroupEnd() == 0);
  uint64_t send = COMM(b, 0)->gate - 3;
  stop();
  await_done(6);
  for (uint64_t i = 0; i < 3; i++) {
    falcon_timing *t = timing_of(send + i);
    CHECK(t && t->flags == (FALCON_REC_TIMED | FALCON_REC_GROUPED) && near(t->duration_ns, 5000000));
    CHECK(t->start_ns == timing_of(send)->start_ns && t->bytes == 80 * (i + 1) && t->peer == (int)i + 1);
  }
  CHECK(timing_of(send)->op == FALCON_OP_SEND && timing_of(send + 2)->op == FALCON_OP_RECV);
}

/* No agent stops the window: the hook stops at the deadline by itself, and does
 * not begin the same window again. */
static void case_deadline(void) {
  setup();
  ask(7, 300);
  await_open(S1);
  await_done(7);
  CHECK(CTL(b)->mode == FALCON_MODE_PROFILE);
  uint64_t head = LOAD(CTL(b)->timing_head);
  usleep(250000);
  reduce(S1);
  CHECK(!(REC(b, 0, LOAD(RING(b, 0)->head) - 1)->flags & FALCON_REC_TIMED) && LOAD(CTL(b)->timing_head) == head);
  ask(8, 60000);
  await_open(S1);
  stop();
  await_done(8);
  CHECK(LOAD(CTL(b)->timing_head) > head);
}

static void case_capture(void) {
  setup();
  ask(9, 60000);
  await_open(S1);
  reduce(CAPTURING);
  CHECK((REC(b, 0, LOAD(RING(b, 0)->head) - 1)->flags & (FALCON_REC_TIMED | FALCON_REC_CAPTURING)) == FALCON_REC_CAPTURING);
  stop();
  await_done(9);
  CHECK(LOAD(CTL(b)->timing_lost) == 0);
}

static void case_mask(void) {
  void *other, *first;
  setup();
  first = comm;
  CHECK(ncclCommInitRank(&other, 4, test_id(2), 0) == 0);
  CTL(b)->profile_comms[0] = 1ull << 1;
  ask(10, 60000);
  comm = other;
  await_open(S1);
  comm = first;
  reduce(S1);
  CHECK(!(REC(b, 0, LOAD(RING(b, 0)->head) - 1)->flags & FALCON_REC_TIMED));
  stop();
  await_done(10);
  for (uint64_t i = 0; i < LOAD(CTL(b)->timing_head); i++) CHECK(TIMING(b, i)->comm == 1);
}

/* 1024 calls not yet done are the bound; the rest is counted, not waited for. */
static void case_full(void) {
  setup();
  ask(11, 60000);
  await_open(S1);
  fake_cuda_work(S2, 400000000);
  for (int i = 0; i < 1500; i++) CHECK(ncclAllReduce(NULL, NULL, 1, 7, 0, comm, S2) == 0);
  CHECK(LOAD(CTL(b)->timing_lost) >= 1500 - 1024);
  uint64_t total = 1501;
  stop();
  await_done(11);
  CHECK(LOAD(CTL(b)->timing_head) + LOAD(CTL(b)->timing_lost) >= total);
}

/* CUDA that refuses: calls go on, nothing is timed, no error is left behind. */
static void case_broken(void) {
  setup();
  ask(12, 60000);
  await_open(S1);
  uint64_t before = LOAD(CTL(b)->timing_lost);
  fake_cuda_broken = 1;
  for (int i = 0; i < 5; i++) reduce(S1);
  CHECK(ncclGroupStart() == 0);
  reduce(S1);
  CHECK(ncclGroupEnd() == 0);
  CHECK(cudaGetLastError() == 0 && LOAD(CTL(b)->timing_lost) == before + 6);
  fake_cuda_broken = 0;
  stop();
  await_done(12);
}

/* No CUDA call and no event before the first window. */
static void case_quiet(void) {
  setup();
  for (int i = 0; i < 100; i++) reduce(S1);
  CHECK(fake_cuda_creates == 0);
}

/* A GPU without room for the events: calls go on, the window ends with losses,
 * and the events that could be made are given back, not piled up. */
static void case_no_room(void) {
  setup();
  fake_cuda_room = 100;
  ask(13, 300);
  for (int i = 0; i < 100; i++, usleep(2000)) reduce(S1);
  await_done(13);
  CHECK(fake_cuda_events <= 1 && fake_cuda_creates <= 101);
  CHECK(LOAD(CTL(b)->timing_head) == 0 && LOAD(CTL(b)->timing_lost) > 0);
}

/* While the training's GPU is not known no other one is touched. */
static void case_no_device(void) {
  setenv("FAKE_ASYNC", "1", 1);
  nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, 22700, 0, 0, 0, 0, NULL, 0, 0, NULL};
  CHECK(ncclCommInitRankConfig(&comm, 4, test_id(1), 0, &config) == 7);
  b = shm_map();
  CHECK(b);
  ask(14, 60000);
  await_done(14);
  CHECK(fake_cuda_creates == 0 && fake_cuda_elsewhere == 0 && LOAD(CTL(b)->timing_lost) == 1);
  for (int i = 0; i < 5; i++) reduce(S1); /* ready by now */
  ask(15, 60000);
  await_open(S1);
  stop();
  await_done(15);
  CHECK(fake_cuda_elsewhere == 0 && fake_cuda_spoils == 0 && LOAD(CTL(b)->timing_head) > 0);
}

static const struct { const char *name; void (*run)(void); } cases[] = {
#define C(n) {#n, case_##n}
  C(window), C(group_window), C(deadline), C(capture), C(mask), C(full), C(broken), C(quiet), C(no_room), C(no_device),
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) { cases[i].run(); return 0; }
  }
  return argc < 2 ? 0 : 2;
}
