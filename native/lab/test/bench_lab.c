/*
 * What a lab of 16 ranks costs: dp 4 x pp 4, 1F1B over 8 micro-batches, one
 * 192^3 GEMM per forward and two per backward, paced at 5 and 10 ms (or
 * unpaced, with an argument), a gradient all-reduce and a world-wide vote per
 * iteration. Prints iteration times against the ideal and the CPU used.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../include/cublas_v2.h"
#include "../include/falcon_lab_launch.h"
#include "world.h"

enum { DP = 4, PP = 4, MICRO = 8, N = 192, ITERATIONS = 30, GRAD = 200000 };

typedef struct rank_state {
  ncclComm_t all, dp, pp;
  cudaStream_t s;
  cublasHandle_t h;
  int stage;
  float *w, *x, *y, *grad;
} rank_state;

static double now_ms(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void gemm(rank_state *r) {
  float one = 1e-3f, zero = 0;
  OK(cublasSgemm(r->h, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one, r->w, N, r->x, N, &zero, r->y, N));
}

static void forward(rank_state *r) {
  if (r->stage > 0) OK(ncclRecv(r->x, N * N, ncclFloat, r->stage - 1, r->pp, r->s));
  gemm(r);
  if (r->stage < PP - 1) OK(ncclSend(r->y, N * N, ncclFloat, r->stage + 1, r->pp, r->s));
}

static void backward(rank_state *r) {
  if (r->stage < PP - 1) OK(ncclRecv(r->x, N * N, ncclFloat, r->stage + 1, r->pp, r->s));
  gemm(r);
  gemm(r);
  if (r->stage > 0) OK(ncclSend(r->y, N * N, ncclFloat, r->stage - 1, r->pp, r->s));
}

static void iteration(rank_state *r) {
  int warm = PP - 1 - r->stage;
  int64_t vote = 0;
  for (int i = 0; i < warm; i++) forward(r);
  for (int i = 0; i < MICRO - warm; i++) {
    forward(r);
    backward(r);
  }
  for (int i = 0; i < warm; i++) backward(r);
  OK(ncclAllReduce(r->grad, r->grad, GRAD, ncclFloat, ncclAvg, r->dp, r->s));
  OK(ncclAllReduce(&vote, &vote, 1, ncclInt64, ncclMin, r->all, r->s));
  OK(cudaStreamSynchronize(r->s));
}

static void work(int rank, int n, void *arg) {
  rank_state r = {.stage = rank / DP};
  char node[16];
  snprintf(node, sizeof node, "%d", rank / 4);
  setenv("FALCON_LAB_NODE", node, 1);
  r.all = world(arg, rank, n);
  OK(ncclCommSplit(r.all, rank / DP, rank, &r.dp, NULL));
  OK(ncclCommSplit(r.all, rank % DP, rank, &r.pp, NULL));
  OK(cudaStreamCreateWithFlags(&r.s, cudaStreamNonBlocking));
  OK(cublasCreate(&r.h));
  OK(cublasSetStream(r.h, r.s));
  r.w = calloc(N * N, 4), r.x = calloc(N * N, 4), r.y = calloc(N * N, 4), r.grad = calloc(GRAD, 4);
  iteration(&r);
  double sum = 0, squares = 0;
  for (int i = 0; i < ITERATIONS; i++) {
    double t = now_ms();
    iteration(&r);
    t = now_ms() - t;
    sum += t, squares += t * t;
  }
  double mean = sum / ITERATIONS, var = squares / ITERATIONS - mean * mean;
  if (rank == 0) printf("iteration %.2f ms, CoV %.2f %%\n", mean, 100 * sqrt(var > 0 ? var : 0) / mean);
  fflush(stdout);
  OK(ncclCommDestroy(r.pp));
  OK(ncclCommDestroy(r.dp));
  OK(ncclCommDestroy(r.all));
}

/* From ncclCommAbort in one thread to the release of another. */
static void *give_up(void *arg) {
  usleep(20000);
  *(double *)arg = now_ms();
  OK(ncclCommAbort(*(ncclComm_t *)((char *)arg + sizeof(double))));
  return NULL;
}

static void abort_latency(int rank, int n, void *arg) {
  struct { double at; ncclComm_t c; } x;
  double worst = 0;
  for (int i = 0; i < 20; i++) {
    board *b = (board *)arg + i;
    int word;
    cudaStream_t s;
    pthread_t t;
    x.c = world(b, rank, n);
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(ncclRecv(&word, 1, ncclInt, 1 - rank, x.c, s));
    OK(pthread_create(&t, NULL, give_up, &x));
    cudaStreamSynchronize(s);
    double ms = now_ms() - x.at;
    if (ms > worst && ms < 1e6) worst = ms;
    pthread_join(t, NULL);
    OK(cudaStreamDestroy(s));
  }
  if (rank == 0) printf("abort to release: at most %.2f ms in 20\n", worst);
  fflush(stdout);
}

int main(int argc, char **argv) {
  (void)argv;
  unsigned char *state = state_create(4, 4);
  state_header(state)->peak_flops = 2.0 * N * N * N / 5e-3;
  state_header(state)->inter_latency_s = 20e-6;
  state_header(state)->unpaced = argc > 1;
  double start = now_ms();
  run_ranks("16 ranks", DP * PP, work, shared(sizeof(board)), 120);
  struct rusage u;
  getrusage(RUSAGE_CHILDREN, &u);
  double cpu = (double)u.ru_utime.tv_sec * 1e3 + (double)u.ru_utime.tv_usec / 1e3 + (double)u.ru_stime.tv_sec * 1e3 +
               (double)u.ru_stime.tv_usec / 1e3, wall = now_ms() - start;
  printf("ideal %.1f ms without communication; CPU %.1f core-ms per iteration, %.1f %% of %ld cores\n",
         (MICRO + PP - 1) * 15.0, cpu / (ITERATIONS + 1), 100 * cpu / wall / (double)sysconf(_SC_NPROCESSORS_ONLN),
         sysconf(_SC_NPROCESSORS_ONLN));
  if (argc == 1) run_ranks("abort", 2, abort_latency, shared(20 * sizeof(board)), 30);
  return 0;
}
