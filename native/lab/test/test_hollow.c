/* What a framework's compiled code calls: launches, memory of every kind, properties, products by descriptor. */
#include <unistd.h>

#include "../include/cublas_v2.h"
#include "../include/cuda_runtime_api.h"
#include "../include/falcon_lab_launch.h"
#include "check.h"

typedef struct dim3 { unsigned x, y, z; } dim3;
typedef struct pointer { int type, device; void *on_device, *on_host; } pointer;

unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t cudaGetSymbolAddress(void **, const void *);
cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, enum cudaMemcpyKind);
cudaError_t cudaPointerGetAttributes(pointer *, const void *);
cudaError_t cudaGetDeviceProperties(void *, int);
cudaError_t cudaGetDeviceProperties_v2(void *, int);
cudaError_t cudaDeviceGetAttribute(int *, int, int);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t);
cudaError_t cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaHostAlloc(void **, size_t, unsigned);
cudaError_t cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t cudaStreamAddCallback(cudaStream_t, void (*)(cudaStream_t, cudaError_t, void *), void *, unsigned);
cudaError_t cudaGraphLaunch(void *, cudaStream_t);

static unsigned char *state;
static char variable[8], kernel;

static void kinds_of_memory(void) {
  char *device, *pinned, *later, plain[4], got[4] = "abc", rows[12];
  pointer a;
  cudaStream_t s;
  OK(cudaSetDevice(1));
  OK(cudaMalloc((void **)&device, 4));
  OK(cudaHostAlloc((void **)&pinned, 4, 0));
  OK(cudaPointerGetAttributes(&a, device + 3));
  CHECK(a.type == 2 && a.device == 1 && a.on_device == device + 3 && !a.on_host);
  OK(cudaPointerGetAttributes(&a, device + 4));
  CHECK(a.type == 0 && !a.on_device);
  OK(cudaPointerGetAttributes(&a, pinned));
  CHECK(a.type == 1 && a.on_host == pinned && a.on_device == pinned);
  OK(cudaPointerGetAttributes(&a, plain));
  CHECK(a.type == 0 && a.on_host == plain);
  OK(cudaMemcpy(got, device, 4, cudaMemcpyDeviceToHost));
  CHECK(!got[0] && !got[3]); /* zeroed */
  OK(cudaFree(device));
  CHECK(cudaFree(device) == cudaErrorInvalidValue && cudaFreeHost(plain) == cudaErrorInvalidValue);
  OK(cudaFreeHost(pinned));
  OK(cudaStreamCreate(&s));
  OK(cudaMallocAsync((void **)&later, 4, s));
  OK(cudaMemcpy2DAsync(rows, 4, "abXXcdXXefXX", 4, 2, 3, cudaMemcpyDefault, s));
  OK(cudaStreamSynchronize(s));
  CHECK(!memcmp(rows, "ab", 2) && !memcmp(rows + 4, "cd", 2) && !memcmp(rows + 8, "ef", 2));
  OK(cudaFreeAsync(later, s));
  OK(cudaStreamDestroy(s));
}

static void variables(void) {
  char *at = NULL, *again = NULL;
  CHECK(cudaGetSymbolAddress((void **)&at, variable) == cudaErrorInvalidValue);
  __cudaRegisterVar(NULL, variable, NULL, "v", 0, sizeof variable, 0, 0);
  OK(cudaGetSymbolAddress((void **)&at, variable));
  OK(cudaGetSymbolAddress((void **)&again, variable));
  CHECK(at == again && at != variable);
  OK(cudaMemcpyToSymbol(variable, "xyz", 3, 2, cudaMemcpyHostToDevice));
  CHECK(!at[1] && at[2] == 'x' && at[4] == 'z');
}

static int field(const char *p, size_t at) {
  int v;
  memcpy(&v, p + at, sizeof v);
  return v;
}

static void properties(void) {
  char *p = malloc(1032 + 1), id[16];
  int v = 0;
  memset(p, 7, 1033);
  OK(cudaGetDeviceProperties(p, 0)); /* CUDA 13 */
  CHECK(strstr(p, "emulated") && field(p, 360) == 9 && field(p, 384) == 132 && field(p, 604) == 2048 && p[1008] == 7);
  memcpy(id, p + 256, 16);
  OK(cudaGetDeviceProperties_v2(p, 1)); /* CUDA 12 */
  CHECK(memcmp(id, p + 256, 16) && field(p, 388) == 132 && field(p, 624) == 2048 && p[1032] == 7);
  CHECK(cudaGetDeviceProperties(p, 99) == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
  OK(cudaDeviceGetAttribute(&v, 75, 0));
  CHECK(v == 9);
  free(p);
}

static void configurations(void) {
  dim3 g = {1, 2, 3}, b = {4, 5, 6}, g2, b2;
  size_t shared;
  cudaStream_t s, got = NULL;
  OK(cudaStreamCreate(&s));
  CHECK(!__cudaPushCallConfiguration(g, b, 7, s) && !__cudaPushCallConfiguration(b, g, 8, NULL));
  OK(__cudaPopCallConfiguration(&g2, &b2, &shared, &got));
  CHECK(g2.x == 4 && b2.z == 3 && shared == 8 && !got);
  OK(__cudaPopCallConfiguration(&g2, &b2, &shared, &got));
  CHECK(g2.y == 2 && b2.y == 5 && shared == 7 && got == s);
  CHECK(__cudaPopCallConfiguration(&g2, &b2, &shared, &got) == cudaErrorInvalidValue);
  OK(cudaStreamDestroy(s));
}

static float paced_launch(cudaStream_t s, cudaEvent_t a, cudaEvent_t b) {
  float ms;
  OK(cudaEventRecord(a, s));
  OK(cudaLaunchKernel(&kernel, (dim3){1000, 1, 1}, (dim3){1000, 1, 1}, NULL, 0, s));
  OK(cudaEventRecord(b, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaEventElapsedTime(&ms, a, b));
  return ms;
}

/* 64 operations per thread at 1 GFLOP/s: a million threads take 64 ms, on half
 * a clock 128. What a busy machine adds is not the model's: the least of several. */
static void paced_launches(void) {
  cudaEvent_t a, b;
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  float least = 1e9f;
  for (int i = 0; i < 20 && least > 94; i++) least = fminf(least, paced_launch(s, a, b));
  CHECK(least > 63.9f && least < 94);
  state_set(&state_gpu(state, 0, 0)->clock, 0.5);
  CHECK(paced_launch(s, a, b) > 127.9f);
  CHECK(cudaLaunchKernel(NULL, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, s) == cudaErrorInvalidValue);
  OK(cudaEventDestroy(a));
  OK(cudaEventDestroy(b));
  OK(cudaStreamDestroy(s));
}

static void note_call(cudaStream_t s, cudaError_t rc, void *user) {
  (void)s;
  *(int *)user = rc == cudaSuccess;
}

static void callbacks_and_refusals(void) {
  int called = 0;
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  OK(cudaStreamAddCallback(s, note_call, &called, 0));
  OK(cudaStreamSynchronize(s));
  CHECK(called);
  CHECK(cudaGraphLaunch(NULL, s) == cudaErrorNotSupported && cudaGetLastError() == cudaErrorNotSupported);
  OK(cudaStreamDestroy(s));
}

static void note_run(void *p) { ++*(int *)p; }
static void note_release(void *p) { *(int *)p += 10; }

/* What computes control data knows the stream of the kernel before it, and comes after it. */
static void after_a_kernel(void) {
  int count = 0;
  cudaStream_t s, last = NULL;
  OK(cudaStreamCreate(&s));
  unsigned long before = falcon_lab_launched(NULL);
  OK(cudaMemsetAsync(&count, 0, sizeof count, s));
  CHECK(falcon_lab_launched(NULL) == before);
  OK(cudaLaunchKernel(&kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, s));
  CHECK(falcon_lab_launched(&last) == before + 1 && last == s);
  OK(falcon_lab_after(s, note_run, note_release, &count));
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamDestroy(s));
  CHECK(count == 11);
  CHECK(falcon_lab_after(s, note_run, note_release, &count) != cudaSuccess && count == 21);
}

/* Streams that are never used cost no thread: frameworks make pools of them. */
static int threads(void) {
  char line[256];
  int n = 0;
  FILE *f = fopen("/proc/self/status", "r");
  CHECK(f);
  while (fgets(line, sizeof line, f)) (void)sscanf(line, "Threads: %d", &n);
  fclose(f);
  return n;
}

static void idle_streams(void) {
  cudaStream_t s[64];
  int before = threads();
  for (int i = 0; i < 64; i++) OK(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
  CHECK(threads() == before);
  OK(cudaStreamSynchronize(s[0]));
  for (int i = 0; i < 64; i++) OK(cudaStreamDestroy(s[i]));
  CHECK(threads() == before);
}

int main(void) {
  unsetenv("FALCON_LAB_STATE");
  run_alone("kinds of memory", kinds_of_memory, 10);
  run_alone("variables of device code", variables, 10);
  run_alone("properties in both layouts", properties, 10);
  run_alone("launch configurations", configurations, 10);
  run_alone("callbacks and refusals", callbacks_and_refusals, 10);
  run_alone("after a kernel", after_a_kernel, 10);
  run_alone("idle streams", idle_streams, 10);
  state = state_create(1, 2);
  run_alone("paced launches", paced_launches, 10);
  return 0;
}
