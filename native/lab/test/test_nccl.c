/* Results of every operation against plain loops, for several sizes of world. */
#include <unistd.h>

#include "world.h"

static cudaStream_t new_stream(void) {
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

static float *filled(int rank, size_t n) {
  float *x = malloc(n * sizeof *x + 4);
  for (size_t i = 0; i < n; i++) x[i] = value(rank, i);
  return x;
}

static int near(float a, double b) { return fabs((double)a - b) <= 1e-4 * (1 + fabs(b)); }

static const size_t sizes[] = {0, 1, 3, 1000, 16384, 16385, 70001, 250000};
#define SIZES (sizeof sizes / sizeof *sizes)

static void check_allreduce(ncclComm_t c, cudaStream_t s, int rank, int n, size_t count, int in_place) {
  float *x = filled(rank, count), *y = in_place ? x : filled(99, count);
  OK(ncclAllReduce(x, y, count, ncclFloat, ncclSum, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count; i++) {
    double want = 0;
    for (int r = 0; r < n; r++) want += value(r, i);
    CHECK(near(y[i], want));
  }
  if (!in_place) free(y);
  free(x);
}

static void check_reduce_scatter(ncclComm_t c, cudaStream_t s, int rank, int n, size_t count) {
  float *x = filled(rank, count * (size_t)n), *y = filled(99, count);
  OK(ncclReduceScatter(x, y, count, ncclFloat, ncclAvg, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count; i++) {
    double want = 0;
    for (int r = 0; r < n; r++) want += value(r, i + count * (size_t)rank) / n;
    CHECK(near(y[i], want));
  }
  free(x);
  free(y);
}

static void check_all_gather(ncclComm_t c, cudaStream_t s, int rank, int n, size_t count, int in_place) {
  float *y = filled(99, count * (size_t)n), *x = filled(rank, count);
  float *mine = y + count * (size_t)rank;
  if (in_place) memcpy(mine, x, count * sizeof *x);
  OK(ncclAllGather(in_place ? mine : x, y, count, ncclFloat, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count * (size_t)n; i++) CHECK(y[i] == value((int)(i / count), i % count));
  free(x);
  free(y);
}

static void check_rooted(ncclComm_t c, cudaStream_t s, int rank, int n, size_t count, int root) {
  float *x = filled(rank, count * (size_t)n), *y = filled(99, count * (size_t)n);
  OK(ncclBroadcast(x, y, count, ncclFloat, root, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count; i++) CHECK(y[i] == value(root, i));
  OK(ncclReduce(x, y, count, ncclFloat, ncclMax, root, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count && rank == root; i++) {
    float want = value(0, i);
    for (int r = 1; r < n; r++) want = fmaxf(want, value(r, i));
    CHECK(y[i] == want);
  }
  OK(ncclGather(x, y, count, ncclFloat, root, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count * (size_t)n && rank == root; i++) CHECK(y[i] == value((int)(i / count), i % count));
  OK(ncclScatter(x, y, count, ncclFloat, root, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count; i++) CHECK(y[i] == value(root, i + count * (size_t)rank));
  OK(ncclBcast(x, count, ncclFloat, root, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count; i++) CHECK(x[i] == value(root, i));
  free(x);
  free(y);
}

static void check_alltoall(ncclComm_t c, cudaStream_t s, int rank, int n, size_t count) {
  float *x = filled(rank, count * (size_t)n), *y = filled(99, count * (size_t)n);
  OK(ncclAlltoAll(x, y, count, ncclFloat, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count * (size_t)n; i++) CHECK(y[i] == value((int)(i / count), i % count + count * (size_t)rank));
  free(x);
  free(y);
}

static void collectives(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  for (size_t i = 0; i < SIZES; i++) {
    check_allreduce(c, s, rank, n, sizes[i], (int)(i & 1));
    check_reduce_scatter(c, s, rank, n, sizes[i] / (size_t)n + 1);
    check_all_gather(c, s, rank, n, sizes[i] / (size_t)n + 1, (int)(i & 1));
    check_alltoall(c, s, rank, n, sizes[i] / (size_t)n + 1);
    check_rooted(c, s, rank, n, sizes[i], (int)i % n);
  }
  ncclResult_t async;
  OK(ncclCommGetAsyncError(c, &async));
  OK(async);
  OK(ncclCommDestroy(c));
}

/* ---- types ---- */

#define CHECK_TYPE(T, nccl)                                                            \
  do {                                                                                 \
    T x[7], y[7];                                                                      \
    for (int o = 0; o < 4; o++) {                                                      \
      for (int i = 0; i < 7; i++) x[i] = (T)(rank * 3 + i + 1);                        \
      OK(ncclAllReduce(x, y, 7, nccl, (ncclRedOp_t)o, c, s));                          \
      OK(cudaStreamSynchronize(s));                                                    \
      for (int i = 0; i < 7; i++) {                                                    \
        T want = (T)(i + 1);                                                           \
        for (int r = 1; r < n; r++) {                                                  \
          T v = (T)(r * 3 + i + 1);                                                    \
          want = (T)(o == 0 ? want + v : o == 1 ? want * v : o == 2 ? (v > want ? v : want) : (v < want ? v : want)); \
        }                                                                              \
        CHECK(y[i] == want);                                                           \
      }                                                                                \
    }                                                                                  \
  } while (0)

static void types(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  CHECK_TYPE(float, ncclFloat);
  CHECK_TYPE(double, ncclDouble);
  CHECK_TYPE(int32_t, ncclInt32);
  CHECK_TYPE(int64_t, ncclInt64);
  CHECK_TYPE(uint64_t, ncclUint64);
  CHECK_TYPE(int8_t, ncclInt8);
  int64_t a = rank == 1 ? -7 : 40, b;
  OK(ncclAllReduce(&a, &b, 1, ncclInt64, ncclMin, c, s));
  OK(cudaStreamSynchronize(s));
  CHECK(b == -7);
  CHECK(ncclAllReduce(&a, &b, 1, ncclBfloat16, ncclSum, c, s) == ncclInvalidArgument);
  CHECK(ncclAllReduce(&a, NULL, 1, ncclInt64, ncclSum, c, s) == ncclInvalidArgument);
  CHECK(ncclSend(&a, 1, ncclInt64, n, c, s) == ncclInvalidArgument);
  CHECK(ncclAllReduce(&a, &b, 1, ncclInt64, ncclSum, (ncclComm_t)&b, s) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  OK(ncclCommDestroy(c));
  CHECK(ncclCommDestroy(c) == ncclInvalidArgument);
}

/* ---- bit identity ---- */

static void permuted(int process, int n, void *arg) {
  board *b = arg;
  int rank = b->perm[process];
  ncclComm_t c = world(b, rank, n);
  cudaStream_t s = new_stream();
  size_t count = 60001;
  float *x = filled(rank, count), small[50];
  for (int i = 0; i < 50; i++) small[i] = value(rank, (size_t)i);
  OK(ncclAllReduce(x, x, count, ncclFloat, ncclSum, c, s));
  OK(ncclAllReduce(small, small, 50, ncclFloat, ncclSum, c, s));
  OK(cudaStreamSynchronize(s));
  memcpy(b->result[rank], x, count * sizeof *x);
  memcpy(b->result[rank] + count * sizeof *x, small, sizeof small);
  free(x);
  OK(ncclCommDestroy(c));
}

static void bit_identity(void) {
  enum { N = 5 };
  board *a = shared(sizeof *a), *b = shared(sizeof *b);
  for (int i = 0; i < N; i++) a->perm[i] = i, b->perm[i] = (3 * i + 2) % N;
  run_ranks("all-reduce, 5 ranks", N, permuted, a, 20);
  run_ranks("the same, processes permuted", N, permuted, b, 20);
  for (int i = 0; i < N; i++) {
    CHECK(memcmp(a->result[i], b->result[i], sizeof a->result[i]) == 0);
    CHECK(memcmp(a->result[i], a->result[0], sizeof a->result[i]) == 0);
  }
}

/* ---- send and receive ---- */

static void order(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  enum { M = 50 };
  int out[M], in[M];
  for (int i = 0; i < M; i++) out[i] = rank * 1000 + i;
  for (int i = 0; i < M; i++) OK(ncclSend(&out[i], 1, ncclInt, (rank + 1) % n, c, s));
  for (int i = 0; i < M; i++) OK(ncclRecv(&in[i], 1, ncclInt, (rank + n - 1) % n, c, s));
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < M; i++) CHECK(in[i] == (rank + n - 1) % n * 1000 + i);
  OK(ncclCommDestroy(c));
}

/* Ungrouped sends before receives on both sides: eager up to the bound. */
static void eager(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  size_t count = 1 << 20; /* 4 MiB */
  float *x = filled(rank, count), *y = filled(99, count);
  OK(ncclSend(x, count, ncclFloat, 1 - rank, c, s));
  OK(cudaStreamSynchronize(s)); /* returns though nobody receives yet */
  meet_flag(arg, 0, n);
  OK(ncclRecv(y, count, ncclFloat, 1 - rank, c, s));
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < count; i++) CHECK(y[i] == value(1 - rank, i));
  free(x);
  free(y);
  OK(ncclCommDestroy(c));
}

/* Beyond the bound a send waits for its receiver. */
static void bounded(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  size_t bytes = 64u << 20;
  char *x = calloc(1, bytes);
  if (rank == 0) {
    memset(x, 7, bytes);
    OK(ncclSend(x, bytes, ncclInt8, 1, c, s));
    usleep(100000);
    CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
    meet_flag(arg, 0, n);
  } else {
    meet_flag(arg, 0, n);
    OK(ncclRecv(x, bytes, ncclInt8, 0, c, s));
  }
  OK(cudaStreamSynchronize(s));
  for (size_t i = 0; i < bytes; i += 4096) CHECK(x[i] == 7);
  free(x);
  OK(ncclCommDestroy(c));
}

/* Grouped exchanges larger than any buffer, all pairs at once, self included. */
static void grouped(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  size_t count = 3 << 20;
  float *x = filled(rank, count), *y = malloc(count * (size_t)n * sizeof *y);
  OK(ncclGroupStart());
  for (int p = 0; p < n; p++) {
    OK(ncclSend(x, count, ncclFloat, p, c, s));
    OK(ncclGroupStart());
    OK(ncclRecv(y + count * (size_t)p, count, ncclFloat, p, c, s));
    OK(ncclGroupEnd());
  }
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(s));
  for (int p = 0; p < n; p++)
    for (size_t i = 0; i < count; i += 97) CHECK(y[count * (size_t)p + i] == value(p, i));
  free(x);
  free(y);
  OK(ncclCommDestroy(c));
}

/* ---- splits, several communicators ---- */

static void splits(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n), row, none;
  cudaStream_t s = new_stream(), t = new_stream();
  int size, me;
  OK(ncclCommSplit(c, rank % 2, -rank, &row, NULL)); /* keys reverse the order */
  OK(ncclCommCount(row, &size));
  OK(ncclCommUserRank(row, &me));
  CHECK(size == (n + 1 - rank % 2) / 2);
  CHECK(me == size - 1 - rank / 2);
  OK(ncclCommSplit(c, rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL));
  CHECK((none == NULL) == (rank == 0));
  int one = rank, sum = 0, all = 0;
  OK(ncclGroupStart()); /* posted in different orders: the group sorts them */
  if (rank % 2) OK(ncclAllReduce(&one, &all, 1, ncclInt, ncclSum, c, s));
  OK(ncclAllReduce(&one, &sum, 1, ncclInt, ncclSum, row, rank % 3 ? s : t));
  if (rank % 2 == 0) OK(ncclAllReduce(&one, &all, 1, ncclInt, ncclSum, c, s));
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamSynchronize(t));
  int want = 0;
  for (int r = rank % 2; r < n; r += 2) want += r;
  CHECK(sum == want && all == n * (n - 1) / 2);
  if (none) OK(ncclCommDestroy(none));
  OK(ncclCommDestroy(row));
  OK(ncclCommFinalize(c));
  CHECK(ncclAllReduce(&one, &all, 1, ncclInt, ncclSum, c, s) == ncclInvalidUsage);
  OK(ncclCommDestroy(c));
}

static void init_all(void) {
  ncclComm_t c[3];
  cudaStream_t s[3];
  int x[3] = {1, 20, 300}, y[3];
  OK(ncclCommInitAll(c, 3, NULL));
  for (int i = 0; i < 3; i++) s[i] = new_stream();
  OK(ncclGroupStart());
  for (int i = 0; i < 3; i++) OK(ncclAllReduce(&x[i], &y[i], 1, ncclInt, ncclSum, c[i], s[i]));
  OK(ncclGroupEnd());
  for (int i = 0; i < 3; i++) OK(cudaStreamSynchronize(s[i]));
  for (int i = 0; i < 3; i++) CHECK(y[i] == 321);
  int version;
  OK(ncclGetVersion(&version));
  CHECK(version == 22809);
  for (int i = 0; i < 3; i++) OK(ncclCommDestroy(c[i]));
}

int main(void) {
  unsetenv("FALCON_LAB_STATE");
  char name[64];
  for (int n = 1; n <= 5; n++) {
    snprintf(name, sizeof name, "collectives, %d ranks", n);
    run_ranks(name, n, collectives, shared(sizeof(board)), 30);
  }
  run_ranks("types, reductions, wrong arguments", 3, types, shared(sizeof(board)), 10);
  bit_identity();
  run_ranks("send and receive in order", 3, order, shared(sizeof(board)), 10);
  run_ranks("eager sends both ways", 2, eager, shared(sizeof(board)), 10);
  run_ranks("eager bound", 2, bounded, shared(sizeof(board)), 20);
  run_ranks("grouped exchange", 3, grouped, shared(sizeof(board)), 20);
  run_ranks("splits and several communicators", 5, splits, shared(sizeof(board)), 10);
  run_alone("all ranks in one process", init_all, 10);
  return 0;
}
