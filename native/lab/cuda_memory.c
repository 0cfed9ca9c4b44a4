/* Memory (plain host memory), copies, and the launches that run a callback. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"
#include "include/falcon_lab_launch.h"

#define DEVICE_BYTES (80ull << 30) /* what cudaMemGetInfo claims */
#define LAUNCH_ARG_MAX 4096u       /* as CUDA's own limit on kernel parameters */
#define DEVICE_ALIGN 256u

/* Every allocation, so that an address can be asked for: allocators take few large ones. */
typedef struct block {
  struct block *next;
  void *base; /* as calloc gave it */
  char *start;
  size_t bytes;
  int kind, device;
} block;

static pthread_mutex_t blocks_mu = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;

/* Zeroed: a job that reads what no kernel computed reads the same in every run. */
static cudaError_t allocate(void **p, size_t size, int kind) {
  if (!p) return cuda_fail(cudaErrorInvalidValue);
  *p = NULL;
  if (size == 0) return cudaSuccess;
  block *b = malloc(sizeof *b);
  void *base = b && size < SIZE_MAX - DEVICE_ALIGN ? calloc(1, size + DEVICE_ALIGN) : NULL;
  if (!base) {
    free(b);
    return cuda_fail(cudaErrorMemoryAllocation);
  }
  char *start = (char *)(((uintptr_t)base + DEVICE_ALIGN - 1) & ~(uintptr_t)(DEVICE_ALIGN - 1));
  pthread_mutex_lock(&blocks_mu);
  *b = (block){blocks, base, start, size, kind, current_device()};
  blocks = b;
  pthread_mutex_unlock(&blocks_mu);
  *p = start;
  return cudaSuccess;
}

static cudaError_t release(void *p) {
  pthread_mutex_lock(&blocks_mu);
  block **at = &blocks;
  while (*at && (*at)->start != p) at = &(*at)->next;
  block *b = *at;
  if (b) *at = b->next;
  pthread_mutex_unlock(&blocks_mu);
  if (!b) return cuda_fail(cudaErrorInvalidValue);
  free(b->base);
  free(b);
  return cudaSuccess;
}

int memory_kind(const void *p, int *device) {
  int kind = MEMORY_PLAIN;
  pthread_mutex_lock(&blocks_mu);
  for (block *b = blocks; b && kind == MEMORY_PLAIN; b = b->next)
    if ((const char *)p >= b->start && (const char *)p < b->start + b->bytes) {
      kind = b->kind;
      *device = b->device;
    }
  pthread_mutex_unlock(&blocks_mu);
  return kind;
}

LAB_API cudaError_t cudaMalloc(void **p, size_t size) { return allocate(p, size, MEMORY_DEVICE); }
LAB_API cudaError_t cudaMallocHost(void **p, size_t size) { return allocate(p, size, MEMORY_PINNED); }
LAB_API cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags) {
  (void)flags;
  return cudaMallocHost(p, size);
}

/* As the real one, waits for the device: work in flight may still use p. */
LAB_API cudaError_t cudaFree(void *p) {
  if (!p) return cudaSuccess;
  cudaError_t rc = stream_wait_all();
  cudaError_t freed = release(p);
  return cuda_fail(rc ? rc : freed);
}

LAB_API cudaError_t cudaFreeHost(void *p) { return p ? release(p) : cudaSuccess; }

/* Ordered by the host's own order: the memory is there at once, and freed when the stream is idle. */
LAB_API cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t stream) {
  (void)stream;
  return cudaMalloc(p, size);
}

LAB_API cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
  cudaError_t rc = cudaStreamSynchronize(stream);
  cudaError_t freed = p ? release(p) : cudaSuccess;
  return rc ? rc : freed;
}

static char pool[8];

LAB_API cudaError_t cudaDeviceGetDefaultMemPool(void **out, int device) {
  (void)device;
  *out = pool;
  return cudaSuccess;
}

LAB_API cudaError_t cudaMemPoolGetAttribute(void *of, int attribute, void *value) {
  (void)of, (void)attribute;
  memset(value, 0, sizeof(uint64_t));
  return cudaSuccess;
}

LAB_API cudaError_t cudaMemPoolSetAttribute(void *of, int attribute, void *value) {
  (void)of, (void)attribute, (void)value;
  return cudaSuccess;
}

LAB_API cudaError_t cudaMemPoolSetAccess(void *of, const void *list, size_t n) {
  (void)of, (void)list, (void)n;
  return cudaSuccess;
}

LAB_API cudaError_t cudaMemPoolTrimTo(void *of, size_t keep) {
  (void)of, (void)keep;
  return cudaSuccess;
}

LAB_API cudaError_t cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
  (void)device;
  return cudaMemPoolGetAttribute(NULL, attribute, value);
}

LAB_API cudaError_t cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value) {
  (void)device, (void)attribute, (void)value;
  return cudaSuccess;
}

LAB_API cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags) {
  (void)p, (void)size, (void)flags;
  return cudaSuccess;
}

LAB_API cudaError_t cudaHostUnregister(void *p) {
  (void)p;
  return cudaSuccess;
}

LAB_API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
  (void)flags;
  *device = host;
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

LAB_API cudaError_t cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t count,
                                        cudaStream_t stream) {
  (void)to, (void)from;
  return cudaMemcpyAsync(dst, src, count, cudaMemcpyDefault, stream);
}

LAB_API cudaError_t cudaMemcpy2DAsync(void *dst, size_t to_pitch, const void *src, size_t from_pitch, size_t width,
                                      size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t i = 0; i < height; i++) {
    cudaError_t rc = cudaMemcpyAsync((char *)dst + i * to_pitch, (const char *)src + i * from_pitch, width, kind, stream);
    if (rc) return rc;
  }
  return cudaSuccess;
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

typedef struct callback {
  void (*fn)(cudaStream_t, cudaError_t, void *);
  cudaStream_t stream;
  void *user;
} callback;

static int run_callback(void *arg, falcon_lab_run *run) {
  callback *c = arg;
  (void)run;
  c->fn(c->stream, cudaSuccess, c->user);
  return 0;
}

LAB_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, void (*fn)(cudaStream_t, cudaError_t, void *),
                                          void *user, unsigned flags) {
  (void)flags;
  callback *c = fn ? malloc(sizeof *c) : NULL;
  if (!c) return cuda_fail(fn ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
  *c = (callback){fn, stream, user};
  falcon_lab_op op = {.fn = run_callback, .arg = c, .release = free};
  return falcon_lab_enqueue(stream, &op);
}
