/* Memory (plain host memory), copies, and the launches that run a callback. */
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"
#include "include/falcon_lab_launch.h"

#define DEVICE_BYTES (80ull << 30) /* what cudaMemGetInfo claims */
#define LAUNCH_ARG_MAX 4096u       /* as CUDA's own limit on kernel parameters */
#define DEVICE_ALIGN 256u

static cudaError_t allocate(void **p, size_t size) {
  if (!p) return cuda_fail(cudaErrorInvalidValue);
  *p = NULL;
  if (size == 0) return cudaSuccess;
  if (posix_memalign(p, DEVICE_ALIGN, size)) return cuda_fail(cudaErrorMemoryAllocation);
  return cudaSuccess;
}

LAB_API cudaError_t cudaMalloc(void **p, size_t size) { return allocate(p, size); }
LAB_API cudaError_t cudaMallocHost(void **p, size_t size) { return allocate(p, size); }

/* As the real one, waits for the device: work in flight may still use p. */
LAB_API cudaError_t cudaFree(void *p) {
  if (!p) return cudaSuccess;
  cudaError_t rc = stream_wait_all();
  free(p);
  return cuda_fail(rc);
}

LAB_API cudaError_t cudaFreeHost(void *p) {
  free(p);
  return cudaSuccess;
}

LAB_API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  if (!free_bytes || !total) return cuda_fail(cudaErrorInvalidValue);
  *free_bytes = *total = DEVICE_BYTES;
  return cudaSuccess;
}

typedef struct copy {
  void *dst;
  const void *src; /* NULL: fill with value */
  int value;
  size_t bytes;
} copy;

static int run_copy(void *arg, falcon_lab_run *run) {
  copy *c = arg;
  (void)run;
  if (c->src) memmove(c->dst, c->src, c->bytes);
  else memset(c->dst, c->value, c->bytes);
  return 0;
}

static cudaError_t enqueue_copy(copy c, cudaStream_t stream) {
  if (c.bytes == 0) return cudaSuccess;
  copy *heap = malloc(sizeof *heap);
  if (!heap) return cuda_fail(cudaErrorMemoryAllocation);
  *heap = c;
  falcon_lab_op op = {.fn = run_copy, .arg = heap, .release = free};
  return falcon_lab_enqueue(stream, &op);
}

LAB_API cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                                    cudaStream_t stream) {
  if (count && (!dst || !src)) return cuda_fail(cudaErrorInvalidValue);
  if ((unsigned)kind > cudaMemcpyDefault) return cuda_fail(cudaErrorInvalidMemcpyDirection);
  return enqueue_copy((copy){.dst = dst, .src = src, .bytes = count}, stream);
}

LAB_API cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t stream) {
  if (count && !p) return cuda_fail(cudaErrorInvalidValue);
  return enqueue_copy((copy){.dst = p, .value = value, .bytes = count}, stream);
}

LAB_API cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
  cudaError_t rc = cudaMemcpyAsync(dst, src, count, kind, cudaStreamLegacy);
  return rc == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : rc;
}

LAB_API cudaError_t cudaMemset(void *p, int value, size_t count) {
  cudaError_t rc = cudaMemsetAsync(p, value, count, cudaStreamLegacy);
  return rc == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : rc;
}

typedef struct launch {
  void (*fn)(void *);
  void *user;                          /* host functions */
  _Alignas(16) unsigned char args[];   /* kernels */
} launch;

static int run_kernel(void *arg, falcon_lab_run *run) {
  launch *l = arg;
  (void)run;
  l->fn(l->args);
  return 0;
}

static int run_host_fn(void *arg, falcon_lab_run *run) {
  launch *l = arg;
  (void)run;
  l->fn(l->user);
  return 0;
}

LAB_API cudaError_t falcon_lab_launch(cudaStream_t stream, void (*fn)(void *), const void *arg,
                                      size_t arg_bytes, double flops) {
  if (!fn || arg_bytes > LAUNCH_ARG_MAX || (arg_bytes && !arg)) return cuda_fail(cudaErrorInvalidValue);
  launch *l = malloc(sizeof *l + arg_bytes);
  if (!l) return cuda_fail(cudaErrorMemoryAllocation);
  l->fn = fn;
  if (arg_bytes) memcpy(l->args, arg, arg_bytes);
  falcon_lab_host_launch();
  falcon_lab_op op = {.fn = run_kernel, .arg = l, .release = free, .flops = flops};
  return falcon_lab_enqueue(stream, &op);
}

LAB_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user) {
  if (!fn) return cuda_fail(cudaErrorInvalidValue);
  launch *l = malloc(sizeof *l);
  if (!l) return cuda_fail(cudaErrorMemoryAllocation);
  l->fn = fn;
  l->user = user;
  falcon_lab_op op = {.fn = run_host_fn, .arg = l, .release = free};
  return falcon_lab_enqueue(stream, &op);
}
