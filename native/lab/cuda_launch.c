/*
 * Launches of compiled kernels, as nvcc's host code makes them: registration
 * at load, <<<...>>> configurations, cudaLaunchKernel. A kernel does not
 * compute; it takes the modelled time of a few operations per thread. What
 * carries control data is computed behind it (cuda_control.c).
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

#define FLOPS_PER_THREAD 64.0 /* a pointwise kernel's few vector loads, operations and stores */
#define DEPTH_MAX 16          /* configurations pushed and not popped, of one thread */

typedef struct dim3 { unsigned x, y, z; } dim3;

typedef struct config {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} config;

typedef struct launch_config {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  void *attrs;
  unsigned attrs_n;
} launch_config;

static __thread config pushed[DEPTH_MAX];
static __thread unsigned depth;

static int run_nothing(void *arg, falcon_lab_run *run) {
  (void)arg;
  (void)run;
  return 0;
}

cudaError_t launch_paced(cudaStream_t stream, double flops) {
  falcon_lab_host_launch();
  falcon_lab_op op = {.fn = run_nothing, .flops = flops};
  return falcon_lab_enqueue(stream, &op);
}

static cudaError_t launch_grid(dim3 g, dim3 b, cudaStream_t stream) {
  double threads = (double)g.x * g.y * g.z * b.x * b.y * b.z;
  control_note_launch(stream);
  return launch_paced(stream, threads * FLOPS_PER_THREAD);
}

LAB_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  if (depth == DEPTH_MAX) return 1;
  pushed[depth++] = (config){grid, block, shared, stream};
  return 0;
}

LAB_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (!depth) return cuda_fail(cudaErrorInvalidValue);
  const config *c = &pushed[--depth];
  *grid = c->grid;
  *block = c->block;
  *shared = c->shared;
  memcpy(stream, &c->stream, sizeof c->stream);
  return cudaSuccess;
}

LAB_API cudaError_t cudaLaunchKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared,
                                     cudaStream_t stream) {
  (void)args;
  (void)shared;
  return fn ? launch_grid(grid, block, stream) : cuda_fail(cudaErrorInvalidValue);
}

/* CUDA 13's host code launches by a kernel handle. */
LAB_API cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                       cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

LAB_API cudaError_t cudaLaunchCooperativeKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared,
                                                cudaStream_t stream) {
  return cudaLaunchKernel(fn, grid, block, args, shared, stream);
}

LAB_API cudaError_t cudaLaunchKernelExC(const launch_config *c, const void *fn, void **args) {
  (void)args;
  return c && fn ? launch_grid(c->grid, c->block, c->stream) : cuda_fail(cudaErrorInvalidValue);
}

/* ---- registration: host code holds on to handles and never looks into them ---- */

static char module[8];

LAB_API void **__cudaRegisterFatBinary(void *binary) {
  (void)binary;
  return (void **)module;
}

LAB_API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
LAB_API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
LAB_API char __cudaInitModule(void **handle) {
  (void)handle;
  return 0;
}

LAB_API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                                    void *tid, void *bid, void *block, void *grid, int *warp) {
  (void)handle, (void)host, (void)device, (void)name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid,
      (void)warp;
}

LAB_API cudaError_t __cudaGetKernel(void **kernel, const void *fn) {
  *kernel = (void *)fn;
  return cudaSuccess;
}

LAB_API cudaError_t cudaLibraryLoadData(void **library, const void *code, void *jit, void **jit_values, unsigned jit_n,
                                        void *options, void **option_values, unsigned options_n) {
  (void)code, (void)jit, (void)jit_values, (void)jit_n, (void)options, (void)option_values, (void)options_n;
  *library = module;
  return cudaSuccess;
}

LAB_API cudaError_t cudaLibraryUnload(void *library) {
  (void)library;
  return cudaSuccess;
}

LAB_API cudaError_t cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)library, (void)name;
  *kernel = module;
  return cudaSuccess;
}

LAB_API cudaError_t cudaKernelSetAttributeForDevice(void *kernel, int attr, int value, int device) {
  (void)kernel, (void)attr, (void)value, (void)device;
  return cudaSuccess;
}

LAB_API cudaError_t cudaFuncSetAttribute(const void *fn, int attr, int value) {
  (void)fn, (void)attr, (void)value;
  return cudaSuccess;
}

LAB_API cudaError_t cudaFuncGetAttributes(void *attributes, const void *fn) {
  struct { size_t shared, constant, local; int threads, regs, ptx, binary; } a = {0, 0, 0, 1024, 32, 90, 90};
  (void)fn;
  if (!attributes) return cuda_fail(cudaErrorInvalidValue);
  memset(attributes, 0, 64);
  memcpy(attributes, &a, sizeof a);
  return cudaSuccess;
}

LAB_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *fn, int size,
                                                                           size_t shared, unsigned flags) {
  (void)fn, (void)shared, (void)flags;
  *blocks = size > 0 && size <= 2048 ? 2048 / size : 1;
  return cudaSuccess;
}

LAB_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *fn, int size,
                                                                  size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, fn, size, shared, 0);
}

/* ---- variables of device code: one buffer each, made when it is first asked for ---- */

typedef struct variable {
  struct variable *next;
  const void *host;
  size_t bytes;
  void *buffer;
} variable;

static pthread_mutex_t variables_mu = PTHREAD_MUTEX_INITIALIZER;
static variable *variables;

LAB_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
                               int constant, int global) {
  (void)handle, (void)device, (void)name, (void)external, (void)constant, (void)global;
  variable *v = calloc(1, sizeof *v);
  if (!v) return; /* cudaGetSymbolAddress reports it */
  v->host = host;
  v->bytes = bytes;
  pthread_mutex_lock(&variables_mu);
  v->next = variables;
  variables = v;
  pthread_mutex_unlock(&variables_mu);
}

LAB_API cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  pthread_mutex_lock(&variables_mu);
  variable *v = variables;
  while (v && v->host != symbol) v = v->next;
  if (v && !v->buffer) v->buffer = calloc(1, v->bytes ? v->bytes : 1);
  void *buffer = v ? v->buffer : NULL;
  pthread_mutex_unlock(&variables_mu);
  if (!buffer) return cuda_fail(cudaErrorInvalidValue);
  *address = buffer;
  return cudaSuccess;
}

LAB_API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
                                       enum cudaMemcpyKind kind) {
  void *to = NULL;
  cudaError_t rc = cudaGetSymbolAddress(&to, symbol);
  return rc ? rc : cudaMemcpy((char *)to + offset, src, count, kind);
}
