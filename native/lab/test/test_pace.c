/* Modelled times of communication. Clocks of the wall play no part: event
 * times are modelled ones, compared to the nanosecond (or to rounding). */
#include <unistd.h>

#include "../include/falcon_lab_comm.h"
#include "../include/falcon_lab_launch.h"
#include "world.h"

static unsigned char *state;

static void nothing(void *arg) { (void)arg; }

static int64_t ns_of(cudaEvent_t e) {
  int64_t ns;
  OK(falcon_lab_event_ns(e, &ns));
  return ns;
}

typedef struct rig {
  board *b;
  ncclComm_t c;
  cudaStream_t s;
  cudaEvent_t pre, from, to;
  atomic_int gate;
} rig;

/* Rank r lives on node r. */
static rig set_up(board *b, int rank, int n) {
  rig r = {.b = b};
  char node[16];
  snprintf(node, sizeof node, "%d", rank);
  setenv("FALCON_LAB_NODE", node, 1);
  r.c = world(b, rank, n);
  OK(cudaStreamCreateWithFlags(&r.s, cudaStreamNonBlocking));
  OK(cudaEventCreate(&r.pre));
  OK(cudaEventCreate(&r.from));
  OK(cudaEventCreate(&r.to));
  return r;
}

static void tear_down(rig *r) {
  OK(cudaEventDestroy(r->pre));
  OK(cudaEventDestroy(r->from));
  OK(cudaEventDestroy(r->to));
  OK(ncclCommDestroy(r->c));
}

/* A gate first, so that the measured call is enqueued before its turn; the
 * first event takes up lost time, the second one is the call's exact start. */
static void delay(rig *r, double ms) {
  atomic_store(&r->gate, 0);
  OK(cudaLaunchHostFunc(r->s, gate_wait, &r->gate));
  OK(falcon_lab_launch(r->s, nothing, NULL, 0, ms * 1e6));
  OK(cudaEventRecord(r->pre, r->s));
  OK(cudaEventRecord(r->from, r->s));
}

/* Leaves start and end on the board and returns when all ranks have. */
static void publish(rig *r, int rank, int n, int flag) {
  OK(cudaEventRecord(r->to, r->s));
  gate_open(&r->gate);
  OK(cudaStreamSynchronize(r->s));
  atomic_store(&r->b->word[2 * rank], ns_of(r->from));
  atomic_store(&r->b->word[2 * rank + 1], ns_of(r->to));
  meet_flag(r->b, flag, n);
}

static int64_t last_start(board *b, int n) {
  int64_t t = 0;
  for (int i = 0; i < n; i++) t = b->word[2 * i] > t ? b->word[2 * i] : t;
  return t;
}

static void check_ends(rig *r, int n, double want_ns) {
  int64_t end = r->b->word[1], start = last_start(r->b, n);
  for (int i = 1; i < n; i++) CHECK(r->b->word[2 * i + 1] == end);
  if (fabs((double)(end - start) - want_ns) > 2) {
    fprintf(stderr, "transfer %lld ns, expected %.0f\n", (long long)(end - start), want_ns);
    exit(1);
  }
}

/* 1 GB/s and 10 us between nodes. */
static void allreduce_time(int rank, int n, void *arg) {
  rig r = set_up(arg, rank, n);
  static char x[1000000];
  delay(&r, 1 + rank);
  OK(ncclAllReduce(x, x, sizeof x, ncclInt8, ncclSum, r.c, r.s));
  publish(&r, rank, n, 0);
  check_ends(&r, n, 2.0 * (n - 1) / n * 1e6 + 2 * (n - 1) * 10e3);
  if (rank == 0) state_set(&state_link(state, 1, 2)->bandwidth, 0.25);
  if (rank == 0) state_set(&state_link(state, 2, 3)->latency, 3);
  meet_flag(r.b, 1, n);
  delay(&r, 5 - rank);
  OK(ncclAllReduce(x, x, sizeof x, ncclInt8, ncclSum, r.c, r.s));
  publish(&r, rank, n, 2);
  check_ends(&r, n, 2.0 * (n - 1) / n * 4e6 + 2 * (n - 1) * 30e3);
  tear_down(&r);
}

static void barrier_time(int rank, int n, void *arg) {
  rig r = set_up(arg, rank, n);
  int64_t word = rank;
  delay(&r, 1);
  OK(ncclAllReduce(&word, &word, 1, ncclInt64, ncclMin, r.c, r.s));
  publish(&r, rank, n, 0);
  check_ends(&r, n, 2 * 2 * 10e3 + 2.0 * (n - 1) / n * 8); /* a tree of depth 2, there and back */
  tear_down(&r);
}

/* The transfer starts when both sides are there; the sender is not held up. */
static void send_time(int rank, int n, void *arg) {
  rig r = set_up(arg, rank, n);
  static char x[500000];
  for (int late = 0; late < 2; late++) {
    delay(&r, rank == late ? 8 : 1);
    if (rank == 0) OK(ncclSend(x, sizeof x, ncclInt8, 1, r.c, r.s));
    else OK(ncclRecv(x, sizeof x, ncclInt8, 0, r.c, r.s));
    publish(&r, rank, n, 2 * late);
    CHECK(r.b->word[1] - r.b->word[0] == 510000);
    CHECK(r.b->word[3] - last_start(r.b, n) == 510000);
    meet_flag(r.b, 2 * late + 1, n);
  }
  tear_down(&r);
}

/* Sends of a group to one peer share the link. */
static void group_time(int rank, int n, void *arg) {
  rig r = set_up(arg, rank, n);
  static char x[2][500000];
  delay(&r, 1);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    if (rank == 0) OK(ncclSend(x[i], sizeof x[i], ncclInt8, 1, r.c, r.s));
    else OK(ncclRecv(x[i], sizeof x[i], ncclInt8, 0, r.c, r.s));
  }
  OK(ncclGroupEnd());
  publish(&r, rank, n, 0);
  CHECK(r.b->word[1] - r.b->word[0] == 1010000);
  CHECK(r.b->word[3] - last_start(r.b, n) >= 510000);
  CHECK(r.b->word[3] - r.b->word[0] >= 1010000);
  tear_down(&r);
}

/* A scaled communicator's messages take as long as larger ones, both ways and
 * until it is changed; its collectives take what they always did. */
static void scaled_time(int rank, int n, void *arg) {
  rig r = set_up(arg, rank, n);
  static char x[500000];
  const double factors[] = {4, 1, 0.5};
  const int64_t want_ns[] = {2010000, 510000, 260000};
  CHECK(falcon_lab_comm_scale(r.c, 0) == ncclInvalidArgument && falcon_lab_comm_scale(r.c, -1) == ncclInvalidArgument);
  CHECK(falcon_lab_comm_scale(NULL, 2) == ncclInvalidArgument);
  for (int k = 0; k < 3; k++) {
    OK(falcon_lab_comm_scale(r.c, factors[k]));
    delay(&r, 1);
    if (rank == 0) OK(ncclSend(x, sizeof x, ncclInt8, 1, r.c, r.s));
    else OK(ncclRecv(x, sizeof x, ncclInt8, 0, r.c, r.s));
    publish(&r, rank, n, 3 * k);
    CHECK(r.b->word[1] - r.b->word[0] == want_ns[k]);
    CHECK(r.b->word[3] - last_start(r.b, n) == want_ns[k]);
    meet_flag(r.b, 3 * k + 1, n);
  }
  int64_t word = rank;
  delay(&r, 1);
  OK(ncclAllReduce(&word, &word, 1, ncclInt64, ncclMin, r.c, r.s));
  publish(&r, rank, n, 2);
  check_ends(&r, n, 2 * 10e3 + 2.0 * (n - 1) / n * 8);
  tear_down(&r);
}

/* The same sums with and without pacing. */
static void sums(int rank, int n, void *arg) {
  rig r = set_up(arg, rank, n);
  size_t count = 40000;
  float *x = malloc(count * sizeof *x);
  for (size_t i = 0; i < count; i++) x[i] = value(rank, i);
  for (int k = 0; k < 3; k++) OK(ncclAllReduce(x, x, count, ncclFloat, ncclAvg, r.c, r.s));
  OK(cudaStreamSynchronize(r.s));
  memcpy(r.b->result[rank], x, count * sizeof *x);
  free(x);
  tear_down(&r);
}

int main(void) {
  state = state_create(4, 2);
  run_ranks("all-reduce ends together, at the right time", 4, allreduce_time, shared(sizeof(board)), 10);
  state = state_create(4, 2);
  run_ranks("small all-reduce costs latency", 4, barrier_time, shared(sizeof(board)), 10);
  run_ranks("send and receive times", 2, send_time, shared(sizeof(board)), 10);
  run_ranks("grouped sends share a link", 2, group_time, shared(sizeof(board)), 10);
  run_ranks("scaled sends take longer", 2, scaled_time, shared(sizeof(board)), 10);
  board *a = shared(sizeof *a), *b = shared(sizeof *b);
  run_ranks("sums, paced", 3, sums, a, 10);
  state_header(state)->unpaced = 1;
  run_ranks("sums, unpaced", 3, sums, b, 10);
  CHECK(memcmp(a->result, b->result, sizeof a->result) == 0);
  return 0;
}
