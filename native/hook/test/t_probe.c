/*
 * The active tests, on the lab's stand-ins: paced, so that what they measure is
 * known. Each rank is a process that plays its own agent.
 */
#include <pthread.h>
#include <unistd.h>

#include "../../lab/test/world.h"
#include "agent.h"

static unsigned char *state;
static _Atomic size_t free_bytes = (size_t)1 << 36;

/* In the place of the lab's, whose GPU is never full. */
cudaError_t cudaMemGetInfo(size_t *f, size_t *total) {
  *f = free_bytes;
  *total = (size_t)1 << 37;
  return cudaSuccess;
}

static void set_node(int rank) {
  char node[8];
  snprintf(node, sizeof node, "%d", rank);
  setenv("FALCON_LAB_NODE", node, 1);
}

/* A rank on a node of its own, held and quiet. */
static ncclComm_t quiet_rank(board *bd, int rank, int n) {
  set_node(rank);
  ncclComm_t c = world(bd, rank, n);
  b = shm_map();
  CHECK(b);
  order(1, 30000);
  CHECK(arm(0, 0));
  rouse();
  CHECK(await_state(1, FALCON_PAUSE_QUIET, 5000));
  return c;
}

/* A busy machine makes a repeat longer than modelled, never shorter: so the best
 * of them is looked at, and a test tried again where none was in time. */
#define TRIES 20
static int too_long(int64_t ns, double want) {
  CHECK(ns > want * 0.995);
  return ns > want * 1.005;
}

static falcon_test_result gemm(uint32_t n, uint32_t repeats) {
  return await_result(put_test((falcon_test){.kind = FALCON_TEST_GEMM, .n = n, .repeats = repeats}, 20000), 25000);
}

static void check_gemm(double want) {
  falcon_test_result r;
  int tries = 0;
  do {
    r = gemm(32, 7);
    CHECK(r.status == FALCON_TEST_DONE && r.repeats == 7 && r.kind == FALCON_TEST_GEMM && r.setup_ns > 0 && r.median_ns >= r.best_ns);
  } while (too_long(r.best_ns, want) && ++tries < TRIES);
  CHECK(tries < TRIES);
}

/* Little real arithmetic and a slow device: 6.6 ms at clock 1, which also an
 * instrumented build keeps. */
static void gemm_times(int rank, int n, void *arg) {
  ncclComm_t c = quiet_rank(arg, rank, n);
  double ns = 2.0 * 32 * 32 * 32 / 1e7 * 1e9;
  state_set(&state_header(state)->peak_flops, 1e7);
  CHECK(LOAD(CTL(b)->test_workspace) == 64u << 20);
  check_gemm(ns);
  state_set(&state_gpu(state, 0, 0)->clock, 0.5);
  check_gemm(2 * ns);
  state_set(&state_gpu(state, 0, 0)->clock, 1);
  CHECK(gemm(1, 64).status == FALCON_TEST_DONE);
  CHECK(count(0) == 0 && COMM(b, 1)->state == FALCON_COMM_FREE && LOAD(RING(b, 0)->head) == 0);
  release();
  OK(ncclCommDestroy(c));
}

/* A job that sends many bfloat16 is tested in them, and one whose library has no such
 * product (the lab's computes in single precision only, unless it is hollow) in floats. */
static void gemm_precision(int rank, int n, void *arg) {
  static uint16_t x[1 << 15];
  int hollow = n > 1;
  if (hollow) setenv("FALCON_LAB_HOLLOW", "1", 1);
  set_node(rank);
  ncclComm_t c = world(arg, rank, n);
  b = shm_map();
  CHECK(b);
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(ncclBroadcast(x, x, 1 << 14, ncclBfloat16, 0, c, s)); /* too few to tell */
  OK(cudaStreamSynchronize(s));
  for (uint64_t i = 1; i <= 2; i++) {
    order(i, 30000);
    CHECK(arm(0, (int64_t)i));
    rouse();
    CHECK(await_state(i, FALCON_PAUSE_QUIET, 5000));
    falcon_test_result r = gemm(16, 3);
    CHECK(r.status == FALCON_TEST_DONE && r.bytes == 16u * 16u * (i == 2 && hollow ? 2u : 4u));
    release();
    CHECK(await_state(i, FALCON_PAUSE_RELEASED, 5000));
    OK(ncclBroadcast(x, x, 1 << 15, ncclBfloat16, 0, c, s));
    OK(cudaStreamSynchronize(s));
  }
  OK(ncclCommDestroy(c));
}

static void hostile(int rank, int n, void *arg) {
  ncclComm_t c = quiet_rank(arg, rank, n);
  falcon_test_result r = gemm(1 << 13, 3);
  CHECK(r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NO_WORKSPACE);
  CHECK(gemm(0, 3).status == FALCON_TEST_FAILED && gemm(UINT32_MAX, 3).status == FALCON_TEST_FAILED);
  CHECK(gemm(8, 0).status == FALCON_TEST_FAILED && gemm(8, 65).status == FALCON_TEST_FAILED);
  falcon_test t = {.kind = FALCON_TEST_LINK, .repeats = 3, .bytes = 1 << 20, .side = 7};
  CHECK(await_result(put_test(t, 2000), 5000).status == FALCON_TEST_FAILED);
  t.side = 0; /* and ids of no library */
  CHECK(await_result(put_test(t, 2000), 5000).status == FALCON_TEST_FAILED);
  static const uint64_t sizes[] = {0, 1, (33u << 20), UINT64_MAX / 4, UINT64_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    t.bytes = sizes[i];
    r = await_result(put_test(t, 2000), 5000);
    CHECK(r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NO_WORKSPACE);
  }
  t.kind = 77;
  CHECK(await_result(put_test(t, 2000), 5000).status == FALCON_TEST_FAILED);
  t.kind = FALCON_TEST_GEMM;
  CHECK(await_result(put_test(t, 0), 5000).status == FALCON_TEST_LATE);
  free_bytes = 1 << 20; /* a full GPU: nothing may be allocated there */
  r = gemm(8, 3);
  CHECK(r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NO_WORKSPACE);
  free_bytes = (size_t)1 << 36;
  CHECK(gemm(8, 3).status == FALCON_TEST_DONE);
  release();
  CHECK(await_state(1, FALCON_PAUSE_RELEASED, 5000));
  r = gemm(8, 3);
  CHECK(r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NOT_QUIET);
  OK(ncclCommDestroy(c));
}

static void no_workspace(int rank, int n, void *arg) {
  setenv("FALCON_TEST_MB", "0", 1);
  quiet_rank(arg, rank, n);
  falcon_test_result r = gemm(8, 3);
  CHECK(!CTL(b)->test_workspace && r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_NO_WORKSPACE);
}

/* The calls of one rank, under an agent gone mad that also orders tests. */
typedef struct { ncclComm_t comm; cudaStream_t s; _Atomic int over; int64_t calls; uint64_t longest; } caller;
static void *keep_calling(void *arg) {
  caller *c = arg;
  int x = 0;
  while (!c->over) {
    uint64_t t = now_ns();
    OK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c->comm, c->s));
    OK(cudaStreamSynchronize(c->s));
    t = now_ns() - t;
    if (t > c->longest) c->longest = t;
    c->calls++;
  }
  return NULL;
}

static void fuzz(int rank, int n, void *arg) {
  static caller c;
  unsigned seed = 21;
  pthread_t id;
  c.comm = world(arg, rank, n);
  b = shm_map();
  OK(cudaStreamCreateWithFlags(&c.s, cudaStreamNonBlocking));
  OK(pthread_create(&id, NULL, keep_calling, &c));
  uint64_t tests = 0, last = 0;
  for (uint64_t end = now_ns() + 5000 * MS; now_ns() < end; usleep((unsigned)rand_r(&seed) % 4000)) {
    mad_agent(&seed, 1);
    if (LOAD(CTL(b)->result.id) != last && LOAD(CTL(b)->result.status) == FALCON_TEST_DONE) tests++;
    last = LOAD(CTL(b)->result.id);
  }
  c.over = 1;
  OK(pthread_join(id, NULL));
  CHECK(c.calls > 20 && c.longest < 2000 * MS); /* the bound is 200 ms here; the rest is this machine's */
  printf("     %ld calls, %lu tests done, longest call %lu ms\n", (long)c.calls, (unsigned long)tests, (unsigned long)(c.longest / MS));
  CHECK(unlink(shm_path()) == 0);
  fflush(stdout);
  _exit(0); /* whatever test runs is cut off */
}

/* ---- links ---- */

/* Where the ids of the pair lie, and which round it is. */
typedef struct { board bd; uint8_t ids[2][128]; } pair;

/* Both sides; any number of times. */
static void meet(pair *p) {
  static int times;
  meet_flag(&p->bd, 0, 2 * ++times);
}

/* Side 0 mints the ids, as the lower rank of a pair does. */
static void share_ids(pair *p, int rank) {
  if (rank == 0) {
    falcon_test_result r = await_result(put_test((falcon_test){.kind = FALCON_TEST_ID}, 5000), 10000);
    CHECK(r.status == FALCON_TEST_DONE && memcmp(r.ids[0], r.ids[1], 128));
    memcpy(p->ids, r.ids, sizeof p->ids);
  }
  meet(p);
}

static uint64_t start_links(const pair *p, int rank, uint64_t bytes, uint32_t n, uint64_t ms) {
  falcon_test t = {.kind = FALCON_TEST_LINK, .bytes = bytes, .repeats = 5, .n = n, .side = rank};
  memcpy(t.ids, p->ids, sizeof t.ids);
  return put_test(t, ms);
}

static uint64_t start_link(const pair *p, int rank, uint64_t bytes, uint64_t ms) { return start_links(p, rank, bytes, 0, ms); }

#define LINK_BYTES 65536
static double link_ns(double bytes_per_s) { return 1e9 * (LINK_BYTES / bytes_per_s + 10e-6); }

/* Both sides measure their own direction, and try again together. */
static void check_link(pair *p, int rank, double want) {
  for (int tries = 0; tries < TRIES; tries++) {
    share_ids(p, rank);
    falcon_test_result r = await_result(start_link(p, rank, LINK_BYTES, 20000), 25000);
    CHECK(r.status == FALCON_TEST_DONE && r.repeats == 5 && r.bytes == LINK_BYTES);
    p->bd.word[rank] = too_long(r.best_ns, want);
    meet(p);
    int again = p->bd.word[0] || p->bd.word[1];
    meet(p);
    if (!again) return;
  }
  CHECK(!"no repeat was in time");
}

/* A repeat of several messages takes as many times as long, and its bytes say so. */
static void check_messages(pair *p, int rank, uint32_t n, double want) {
  for (int tries = 0; tries < TRIES; tries++) {
    share_ids(p, rank);
    falcon_test_result r = await_result(start_links(p, rank, LINK_BYTES, n, 20000), 25000);
    CHECK(r.status == FALCON_TEST_DONE && r.repeats == 5 && r.bytes == (uint64_t)LINK_BYTES * n && (double)r.best_ns > want * (n - 1));
    p->bd.word[rank] = too_long(r.best_ns, want * n);
    meet(p);
    int again = p->bd.word[0] || p->bd.word[1];
    meet(p);
    if (!again) return;
  }
  CHECK(!"no repeat was in time");
}

static void link_times(int rank, int n, void *arg) {
  pair *p = arg;
  ncclComm_t c = quiet_rank(&p->bd, rank, n);
  state_set(&state_header(state)->inter_bytes_per_s, 1e7);
  check_link(p, rank, link_ns(1e7));
  state_set(&state_link(state, 0, 1)->bandwidth, 0.25);
  check_link(p, rank, link_ns(0.25e7));
  check_messages(p, rank, 4, link_ns(0.25e7));
  CHECK(count(0) == 0 && COMM(b, 1)->state == FALCON_COMM_FREE && LOAD(RING(b, 0)->head) == 0);
  meet(p);
  release();
  OK(ncclCommDestroy(c));
}

/* The peer never comes: over at its deadline, and the next test works. */
static void link_alone(int rank, int n, void *arg) {
  pair *p = arg;
  ncclComm_t c = quiet_rank(&p->bd, rank, n);
  share_ids(p, rank);
  if (rank == 0) {
    uint64_t begun = now_ns();
    falcon_test_result r = await_result(start_link(p, rank, 1 << 20, 300), 20000);
    CHECK(r.status == FALCON_TEST_LATE && now_ns() - begun >= 299 * MS);
    CHECK(gemm(64, 3).status == FALCON_TEST_DONE);
  }
  meet(p);
  release();
  OK(ncclCommDestroy(c));
}

/* The pause ends in the middle of a slow exchange: the training goes on at
 * once, the test ends, and a test in the next pause works. */
static void link_cut_short(int rank, int n, void *arg) {
  pair *p = arg;
  ncclComm_t c = quiet_rank(&p->bd, rank, n);
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  state_set(&state_link(state, 0, 1)->bandwidth, 0.001);
  share_ids(p, rank);
  uint64_t id = start_link(p, rank, 1 << 20, 20000);
  usleep(200000);
  CHECK(LOAD(CTL(b)->result.status) == FALCON_TEST_RUNNING);
  release();
  CHECK(await_result(id, 5000).status == FALCON_TEST_LATE);
  state_set(&state_link(state, 0, 1)->bandwidth, 1);
  int x = 1, y = 0;
  OK(ncclAllReduce(&x, &y, 1, ncclInt, ncclSum, c, s));
  OK(cudaStreamSynchronize(s));
  CHECK(y == 2);
  order(2, 30000);
  CHECK(arm(0, 1));
  rouse();
  CHECK(await_state(2, FALCON_PAUSE_QUIET, 5000));
  share_ids(p, rank);
  CHECK(await_result(start_link(p, rank, 1 << 16, 20000), 25000).status == FALCON_TEST_DONE);
  meet(p);
  release();
  OK(ncclCommDestroy(c));
}

static falcon_test_result mint(void) { return await_result(put_test((falcon_test){.kind = FALCON_TEST_ID}, 5000), 10000); }

/* Ids that nobody uses keep a thread each in NCCL: there is an end to them. */
static void ids_unused(int rank, int n, void *arg) {
  quiet_rank(arg, rank, n);
  int minted = 0;
  while (minted < 100 && mint().status == FALCON_TEST_DONE) minted++;
  CHECK(minted == 32 && mint().status == FALCON_TEST_FAILED && gemm(8, 3).status == FALCON_TEST_DONE);
}

static void environment(int rank, int n, void *arg) {
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  quiet_rank(arg, rank, n);
  falcon_test_result r = mint(), l = await_result(put_test((falcon_test){.kind = FALCON_TEST_LINK, .bytes = 4096, .repeats = 3}, 5000), 10000);
  CHECK(r.status == FALCON_TEST_REFUSED && r.reason == FALCON_REASON_ENVIRONMENT);
  CHECK(l.status == FALCON_TEST_REFUSED && l.reason == FALCON_REASON_ENVIRONMENT && gemm(8, 3).status == FALCON_TEST_DONE);
}

int main(int argc, char **argv) {
  static const struct { const char *name; int ranks; rank_fn run; } cases[] = {
    {"gemm", 1, gemm_times}, {"single", 1, gemm_precision}, {"half", 2, gemm_precision}, {"hostile", 1, hostile}, {"no_workspace", 1, no_workspace}, {"fuzz", 1, fuzz},
    {"link", 2, link_times}, {"link_alone", 2, link_alone}, {"link_cut_short", 2, link_cut_short},
    {"ids_unused", 1, ids_unused}, {"environment", 1, environment},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) {
      state = state_create(2, 1);
      run_ranks(cases[i].name, cases[i].ranks, cases[i].run, shared(sizeof(pair)), 100);
      return 0;
    }
  }
  return argc < 2 ? 0 : 2;
}
