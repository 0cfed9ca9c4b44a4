/* What a device says of itself, and what kind of memory an address is. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cuda_internal.h"

#define MULTIPROCESSORS 132
#define SHARED_BYTES    49152
#define SHARED_OPTIN    232448
#define NAME            "Falcon lab GPU (emulated)"

/* The beginning of cudaDeviceProp, which is the same since CUDA 10. */
typedef struct props_head {
  char name[256], uuid[16], luid[8];
  unsigned luid_mask;
  size_t memory, shared;
  int regs, warp;
  size_t pitch;
  int threads, dim[3], grid[3];
} props_head;

static void fill_head(props_head *p, int device) {
  snprintf(p->name, sizeof p->name, "%s", NAME);
  p->uuid[14] = (char)(falcon_lab_node() + 1);
  p->uuid[15] = (char)(device + 1);
  size_t unused;
  (void)cudaMemGetInfo(&unused, &p->memory);
  p->shared = SHARED_BYTES;
  p->regs = 65536;
  p->warp = 32;
  p->pitch = 2147483647;
  p->threads = p->dim[0] = p->dim[1] = 1024;
  p->dim[2] = 64;
  p->grid[0] = 2147483647;
  p->grid[1] = p->grid[2] = 65535;
}

/* Places of the fields behind it, by the layout of the runtime's version. */
typedef struct places {
  size_t bytes, constant, major, minor, texture, pitch, processors, l2, threads, shared_mp, regs_mp, optin;
} places;

static const places cuda12 = {1032, 352, 360, 364, 368, 376, 388, 616, 624, 640, 648, 696};
static const places cuda13 = {1008, 352, 360, 364, 368, 376, 384, 596, 604, 624, 632, 672};

static void set_int(char *p, size_t at, int v) { memcpy(p + at, &v, sizeof v); }
static void set_size(char *p, size_t at, size_t v) { memcpy(p + at, &v, sizeof v); }

static cudaError_t fill(void *props, int device, const places *at) {
  int devices = 0;
  (void)cudaGetDeviceCount(&devices);
  if (!props) return cuda_fail(cudaErrorInvalidValue);
  if (device < 0 || device >= devices) return cuda_fail(cudaErrorInvalidDevice);
  memset(props, 0, at->bytes);
  fill_head(props, device);
  set_size(props, at->constant, 65536);
  set_int(props, at->major, 9);
  set_int(props, at->minor, 0);
  set_size(props, at->texture, 512);
  set_size(props, at->pitch, 32);
  set_int(props, at->processors, MULTIPROCESSORS);
  set_int(props, at->l2, 50 << 20);
  set_int(props, at->threads, 2048);
  set_size(props, at->shared_mp, SHARED_OPTIN + 1024);
  set_int(props, at->regs_mp, 65536);
  set_size(props, at->optin, SHARED_OPTIN);
  return cudaSuccess;
}

/* The name without a suffix has CUDA 13's layout; CUDA 12's headers call the other one. */
LAB_API cudaError_t cudaGetDeviceProperties(void *props, int device) { return fill(props, device, &cuda13); }
LAB_API cudaError_t cudaGetDeviceProperties_v2(void *props, int device) { return fill(props, device, &cuda12); }

/* enum cudaDeviceAttr: the ones whose value matters; what else there is, is there. */
LAB_API cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
  static const struct { int attribute, value; } known[] = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, SHARED_BYTES},
      {9, 65536}, {10, 32}, {12, 65536}, {15, 0}, {16, MULTIPROCESSORS}, {17, 0}, {18, 0}, {39, 2048},
      {75, 9}, {76, 0}, {81, SHARED_OPTIN + 1024}, {82, 65536}, {95, 1}, {97, SHARED_OPTIN}, {106, 32},
      {115, 0}, {116, 0},
  };
  (void)device;
  if (!value) return cuda_fail(cudaErrorInvalidValue);
  *value = 1;
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].attribute == attribute) *value = known[i].value;
  return cudaSuccess;
}

LAB_API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}

LAB_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)peer, (void)flags;
  return cudaSuccess;
}

LAB_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

typedef struct pointer_attributes {
  int type, device; /* 0 ordinary host memory, 1 pinned, 2 of a device */
  void *on_device, *on_host;
} pointer_attributes;

LAB_API cudaError_t cudaPointerGetAttributes(pointer_attributes *a, const void *p) {
  if (!a) return cuda_fail(cudaErrorInvalidValue);
  int device = -1, kind = memory_kind(p, &device);
  *a = (pointer_attributes){.type = kind, .device = kind == MEMORY_PLAIN ? -2 : device};
  if (kind != MEMORY_PLAIN) a->on_device = (void *)p;
  if (kind != MEMORY_DEVICE) a->on_host = (void *)p;
  return cudaSuccess;
}

/* No driver stands behind the runtime: what asks for its functions goes without. */
LAB_API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **fn, unsigned version,
                                                     unsigned long long flags, int *status) {
  (void)symbol, (void)version, (void)flags;
  *fn = NULL;
  if (status) *status = 1; /* symbol not found */
  return cudaSuccess;
}

LAB_API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags, int *status) {
  return cudaGetDriverEntryPointByVersion(symbol, fn, 0, flags, status);
}

LAB_API cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
LAB_API cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
