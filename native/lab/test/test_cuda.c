/* Streams, events and GEMMs. Paced tests compare modelled times only. */
#include <pthread.h>
#include <stdatomic.h>

#include "../include/cublas_v2.h"
#include "../include/falcon_lab_launch.h"
#include "../lab_stream.h"
#include "check.h"

static unsigned char *state;

static uint32_t seed = 1;
static float rnd(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / (1 << 24) - 0.5f;
}

static float at(const float *x, int ld, int t, int i, int j) { return t ? x[j + i * ld] : x[i + j * ld]; }

/* The same sum in the same order: results must agree to the bit. */
static void naive(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                  float beta, float *c, int ldc) {
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) {
      float s = 0;
      for (int p = 0; p < k; p++) s += at(a, lda, ta, i, p) * at(b, ldb, tb, p, j);
      float v = alpha * s;
      c[i + j * ldc] = beta == 0 ? v : v + beta * c[i + j * ldc];
    }
}

static void gemm_case(cublasHandle_t h, int ta, int tb, int m, int n, int k, float alpha, float beta) {
  int lda = (ta ? k : m) + 3, ldb = (tb ? n : k) + 1, ldc = m + 2;
  int na = lda * (ta ? m : k) + 1, nb = ldb * (tb ? k : n) + 1, nc = ldc * n + 1;
  float *a = malloc(4 * (size_t)na), *b = malloc(4 * (size_t)nb);
  float *c = malloc(4 * (size_t)nc), *d = malloc(4 * (size_t)nc);
  for (int i = 0; i < na; i++) a[i] = rnd();
  for (int i = 0; i < nb; i++) b[i] = rnd();
  for (int i = 0; i < nc; i++) c[i] = d[i] = beta == 0 ? NAN : rnd();
  naive(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, d, ldc);
  OK(cublasSgemm(h, (cublasOperation_t)ta, (cublasOperation_t)tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc));
  OK(cudaDeviceSynchronize());
  CHECK(memcmp(c, d, 4 * (size_t)nc) == 0);
  free(a), free(b), free(c), free(d);
}

static void gemms(void) {
  cublasHandle_t h;
  OK(cublasCreate(&h));
  for (int t = 0; t < 40; t++) {
    int m = 1 + (int)(seed % 40), n = 1 + (int)(seed / 64 % 30), k = (int)(seed / 4096 % 50);
    gemm_case(h, t & 1, t >> 1 & 1, m, n, k, t % 3 ? 1.0f : 0.5f, t % 5 ? 0.0f : 1.0f);
  }
  gemm_case(h, 0, 1, 192, 192, 192, 1, 1);
  float one = 1, x = 0;
  CHECK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, &x, 2, &x, 4, &one, &x, 4) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, &x, CUDA_R_16F, 1, &x, CUDA_R_16F, 1, &one, &x, CUDA_R_16F,
                     1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED);
  OK(cublasDestroy(h));
}

static void batched(void) {
  enum { M = 5, B = 3 };
  float a[M * M * B], b[M * M * B], c[M * M * B], d[M * M * B], one = 1, zero = 0;
  for (int i = 0; i < M * M * B; i++) a[i] = rnd(), b[i] = rnd();
  for (int i = 0; i < B; i++) naive(0, 0, M, M, M, 1, a + i * M * M, M, b + i * M * M, M, 0, d + i * M * M, M);
  cublasHandle_t h;
  OK(cublasCreate(&h));
  OK(cublasSgemmStridedBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, M, M, M, &one, a, M, M * M, b, M, M * M, &zero, c, M, M * M, B));
  OK(cudaDeviceSynchronize());
  CHECK(memcmp(c, d, sizeof c) == 0);
  OK(cublasDestroy(h));
}

static void bump(void *arg) {
  int *p = *(int **)arg;
  *p = *p * 10 + 1;
}
static void twice(void *arg) {
  int *p = *(int **)arg;
  *p = *p * 10 + 2;
}

static void streams(void) {
  cudaStream_t a, b;
  cudaEvent_t e;
  int v = 0, *p = &v;
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  OK(cudaEventCreate(&e));
  CHECK(cudaEventQuery(e) == cudaSuccess);
  float ms;
  CHECK(cudaEventElapsedTime(&ms, e, e) == cudaErrorInvalidResourceHandle);
  static atomic_int gate; /* no length of time: a slow test would find the work done */
  OK(cudaLaunchHostFunc(a, gate_wait, &gate));
  OK(falcon_lab_launch(a, bump, &p, sizeof p, 2e6));
  OK(cudaEventRecord(e, a));
  CHECK(cudaEventQuery(e) == cudaErrorNotReady);
  OK(cudaStreamWaitEvent(b, e, 0));
  OK(falcon_lab_launch(b, twice, &p, sizeof p, 0));
  CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
  gate_open(&gate);
  OK(cudaStreamSynchronize(b));
  CHECK(v == 12);
  OK(cudaStreamQuery(b));
  enum cudaStreamCaptureStatus cap;
  OK(cudaStreamIsCapturing(a, &cap));
  CHECK(cap == cudaStreamCaptureStatusNone);
  OK(cudaEventDestroy(e));
  OK(cudaStreamDestroy(a));
  CHECK(cudaStreamSynchronize(a) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle && cudaGetLastError() == cudaSuccess);
  OK(cudaStreamDestroy(b));
}

static void default_stream(void) {
  cudaStream_t blocking;
  int v = 0, *p = &v, host = 0;
  OK(cudaStreamCreate(&blocking));
  OK(falcon_lab_launch(blocking, bump, &p, sizeof p, 3e6));
  OK(falcon_lab_launch(NULL, twice, &p, sizeof p, 2e6)); /* after all blocking streams */
  OK(falcon_lab_launch(blocking, bump, &p, sizeof p, 0)); /* and before what follows there */
  OK(cudaMemcpy(&host, &v, sizeof v, cudaMemcpyDeviceToHost));
  CHECK(host == 121);
  OK(cudaStreamDestroy(blocking));
}

static void devices(void) {
  int n = 0, d = -1;
  void *p;
  OK(cudaGetDeviceCount(&n));
  CHECK(n == 2);
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&d));
  CHECK(d == 1 && cudaSetDevice(2) == cudaErrorInvalidDevice);
  OK(cudaMalloc(&p, 100));
  OK(cudaMemset(p, 7, 100));
  CHECK(((unsigned char *)p)[99] == 7);
  OK(cudaFree(p));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0 && cudaSetDevice(0) == cudaErrorInvalidDevice);
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(strcmp(cudaGetErrorString(cudaSuccess), "no error") == 0);
}

static void nothing(void *arg) { (void)arg; }

static double elapsed(cudaEvent_t a, cudaEvent_t b) {
  float ms;
  OK(cudaEventElapsedTime(&ms, a, b));
  return ms;
}

typedef struct span {
  int64_t start_ns, end_ns;
  void (*after)(void);
} span;

static int note(void *arg, falcon_lab_run *run) {
  span *p = arg;
  p->start_ns = run->start_ns;
  p->end_ns = run->end_ns;
  if (p->after) p->after();
  return 0;
}

static void enqueue_span(cudaStream_t s, span *p, double flops) {
  falcon_lab_op op = {.fn = note, .arg = p, .flops = flops};
  OK(falcon_lab_enqueue(s, &op));
}

/* Modelled lengths are exact, whatever the machine does meanwhile; lost time
 * shows between operations. */
static void pace_chain(void) {
  enum { N = 10 };
  cudaStream_t s;
  cudaEvent_t from, to;
  static atomic_int gate;
  span p[N] = {0};
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaEventCreate(&from));
  OK(cudaEventCreate(&to));
  OK(cudaLaunchHostFunc(s, gate_wait, &gate));
  OK(cudaEventRecord(from, s));
  for (int i = 0; i < N; i++) enqueue_span(s, &p[i], 5e6);
  OK(cudaEventRecord(to, s));
  gate_open(&gate);
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < N; i++) CHECK(p[i].end_ns - p[i].start_ns == 5000000);
  for (int i = 1; i < N; i++) {
    int64_t lost = p[i].start_ns - p[i - 1].end_ns;
    CHECK(lost == 0 || lost > FALCON_LAB_LATE_NS);
  }
  CHECK(elapsed(from, to) >= (double)(p[N - 1].end_ns - p[0].start_ns) / 1e6 - 1e-3);
  OK(cudaEventDestroy(from));
  OK(cudaEventDestroy(to));
}

/* The state changes from within the stream: exactly the later kernels feel it. */
static void halve_clock(void) { state_set(&state_gpu(state, 0, 0)->clock, 0.5); }
static void double_load(void) { state_set(&state_gpu(state, 0, 0)->load, 2.0); }

static void clock_change(void) {
  cudaStream_t s;
  span p[3] = {{.after = halve_clock}, {.after = double_load}, {0}};
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (int i = 0; i < 3; i++) enqueue_span(s, &p[i], 2e6);
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < 3; i++) CHECK(p[i].end_ns - p[i].start_ns == 2000000 << i);
}

/* A starved host: the device waits for launches, and starts at once. */
static void host_share(void) {
  enum { N = 20 };
  cudaStream_t s;
  cudaEvent_t e[2];
  state_set(&state_gpu(state, 0, 0)->host_share, 0.25); /* 1 ms a launch */
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaEventCreate(&e[0]));
  OK(cudaEventCreate(&e[1]));
  OK(cudaEventRecord(e[0], s));
  for (int i = 0; i < N; i++) OK(falcon_lab_launch(s, nothing, NULL, 0, 0.2e6));
  OK(cudaEventRecord(e[1], s));
  OK(cudaStreamSynchronize(s));
  CHECK(elapsed(e[0], e[1]) >= N * 1.0 - 1.0);
  OK(cudaEventDestroy(e[0]));
  OK(cudaEventDestroy(e[1]));
}

static int fail(void *arg, falcon_lab_run *run) {
  (void)arg, (void)run;
  return cudaErrorLaunchFailure;
}
static int far_end(void *arg, falcon_lab_run *run) {
  run->end_ns += 3600ll * 1000000000;
  (void)arg;
  return 0;
}
static void *cancel_soon(void *arg) {
  atomic_store((atomic_int *)arg, 1);
  return NULL;
}

static void errors_and_cancel(void) {
  static atomic_int cancel;
  cudaStream_t s;
  pthread_t t;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  falcon_lab_op bad = {.fn = fail}, endless = {.fn = far_end, .arg = &cancel, .cancel = &cancel};
  OK(falcon_lab_enqueue(s, &bad));
  CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure); /* once, then the stream is usable */
  OK(cudaStreamSynchronize(s));
  cudaEvent_t e;
  OK(cudaEventCreate(&e));
  OK(falcon_lab_enqueue(s, &bad));
  OK(cudaEventRecord(e, s));
  CHECK(cudaEventSynchronize(e) == cudaErrorLaunchFailure);
  CHECK(cudaEventQuery(e) == cudaErrorLaunchFailure); /* whoever asks, until the device has told it */
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  OK(cudaEventQuery(e));
  OK(cudaEventSynchronize(e));
  OK(cudaStreamWaitEvent(s, e, 0));
  OK(cudaDeviceSynchronize());
  OK(cudaEventDestroy(e));
  OK(falcon_lab_enqueue(s, &endless));
  OK(pthread_create(&t, NULL, cancel_soon, &cancel));
  OK(cudaStreamSynchronize(s));
  pthread_join(t, NULL);
}

static void unpaced(void) {
  cudaStream_t s;
  __atomic_store_n(&state_header(state)->unpaced, 1u, __ATOMIC_RELAXED);
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(falcon_lab_launch(s, nothing, NULL, 0, 50e9)); /* 50 s if it were paced; the test's limit is 10 */
  OK(cudaStreamSynchronize(s));
}

int main(void) {
  unsetenv("FALCON_LAB_STATE");
  run_alone("gemm against a naive one, to the bit", gemms, 30);
  run_alone("strided batched gemm", batched, 10);
  state = state_create(4, 2);
  run_alone("streams, events, waits", streams, 10);
  run_alone("legacy default stream", default_stream, 10);
  run_alone("devices and memory", devices, 10);
  run_alone("pacing of a chain", pace_chain, 10);
  state = state_create(4, 2);
  run_alone("clock and load change mid-run", clock_change, 10);
  state = state_create(4, 2);
  run_alone("starved host", host_share, 10);
  state = state_create(4, 2);
  run_alone("stream errors and cancel", errors_and_cancel, 10);
  run_alone("unpaced", unpaced, 10);
  return 0;
}
