/*
 * The active tests, on the lab's stand-ins: paced, so that what they measure is
 * known. Each rank is a process that plays its own agent.
 */
#include "../../lab/test/world.h"
#include "agent.h"

static unsigned char *state;
static size_t free_bytes = (size_t)1 << 36;

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

static int about(int64_t ns, double want) { return ns > want * 0.995 && ns < want * 1.005; }

static falcon_test_result gemm(uint32_t n, uint32_t repeats) {
  return await_result(put_test((falcon_test){.kind = FALCON_TEST_GEMM, .n = n, .repeats = repeats}, 20000), 25000);
}

/* 1 GFLOP/s at clock 1. The best of the repeats is the modelled time, whatever
 * this machine does meanwhile. */
static void gemm_times(int rank, int n, void *arg) {
  ncclComm_t c = quiet_rank(arg, rank, n);
  double flops = 2.0 * 128 * 128 * 128;
  CHECK(LOAD(CTL(b)->test_workspace) == 64u << 20);
  falcon_test_result r = gemm(128, 7);
  CHECK(r.status == FALCON_TEST_DONE && r.repeats == 7 && r.kind == FALCON_TEST_GEMM && r.setup_ns > 0);
  CHECK(about(r.best_ns, flops) && r.median_ns >= r.best_ns);
  state_set(&state_gpu(state, 0, 0)->clock, 0.5);
  r = gemm(128, 5);
  CHECK(r.status == FALCON_TEST_DONE && about(r.best_ns, 2 * flops));
  state_set(&state_gpu(state, 0, 0)->clock, 1);
  CHECK(gemm(1, 64).status == FALCON_TEST_DONE);
  CHECK(count(0) == 0 && COMM(b, 1)->state == FALCON_COMM_FREE && LOAD(RING(b, 0)->head) == 0);
  release();
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

/* ---- links ---- */

/* Where the ids of the pair lie, and which round it is. */
typedef struct { board bd; uint8_t ids[2][128]; } pair;

/* Side 0 mints the ids, as the lower rank of a pair does. */
static void share_ids(pair *p, int rank, int flag) {
  if (rank == 0) {
    falcon_test_result r = await_result(put_test((falcon_test){.kind = FALCON_TEST_ID}, 5000), 10000);
    CHECK(r.status == FALCON_TEST_DONE && memcmp(r.ids[0], r.ids[1], 128));
    memcpy(p->ids, r.ids, sizeof p->ids);
  }
  meet_flag(&p->bd, flag, 2);
}

static uint64_t start_link(const pair *p, int rank, uint64_t bytes, uint64_t ms) {
  falcon_test t = {.kind = FALCON_TEST_LINK, .bytes = bytes, .repeats = 5, .side = rank};
  memcpy(t.ids, p->ids, sizeof t.ids);
  return put_test(t, ms);
}

static double link_ns(double share) { return 1e9 * ((1 << 20) / (1e9 * share) + 10e-6); }

static void link_times(int rank, int n, void *arg) {
  pair *p = arg;
  ncclComm_t c = quiet_rank(&p->bd, rank, n);
  for (int round = 0; round < 2; round++) {
    double share = round ? 0.25 : 1;
    state_set(&state_link(state, 0, 1)->bandwidth, share);
    share_ids(p, rank, 1 + round);
    falcon_test_result r = await_result(start_link(p, rank, 1 << 20, 20000), 25000);
    CHECK(r.status == FALCON_TEST_DONE && r.repeats == 5 && r.bytes == 1 << 20);
    if (!about(r.best_ns, link_ns(share))) fprintf(stderr, "best %ld ns, median %ld, expected %.0f\n", (long)r.best_ns, (long)r.median_ns, link_ns(share));
    CHECK(about(r.best_ns, link_ns(share)));
  }
  CHECK(count(0) == 0 && COMM(b, 1)->state == FALCON_COMM_FREE && LOAD(RING(b, 0)->head) == 0);
  meet_flag(&p->bd, 4, 2);
  release();
  OK(ncclCommDestroy(c));
}

/* The peer never comes: over at its deadline, and the next test works. */
static void link_alone(int rank, int n, void *arg) {
  pair *p = arg;
  ncclComm_t c = quiet_rank(&p->bd, rank, n);
  share_ids(p, rank, 1);
  if (rank == 0) {
    uint64_t begun = now_ns();
    falcon_test_result r = await_result(start_link(p, rank, 1 << 20, 300), 20000);
    CHECK(r.status == FALCON_TEST_LATE && now_ns() - begun >= 299 * MS);
    CHECK(gemm(64, 3).status == FALCON_TEST_DONE);
  }
  meet_flag(&p->bd, 2, 2);
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
  share_ids(p, rank, 1);
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
  share_ids(p, rank, 2);
  CHECK(await_result(start_link(p, rank, 1 << 16, 20000), 25000).status == FALCON_TEST_DONE);
  meet_flag(&p->bd, 3, 2);
  release();
  OK(ncclCommDestroy(c));
}

int main(int argc, char **argv) {
  static const struct { const char *name; int ranks; rank_fn run; } cases[] = {
    {"gemm", 1, gemm_times}, {"hostile", 1, hostile}, {"no_workspace", 1, no_workspace},
    {"link", 2, link_times}, {"link_alone", 2, link_alone}, {"link_cut_short", 2, link_cut_short},
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
