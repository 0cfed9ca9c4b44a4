/* A CUDA runtime whose streams are clocks: work moves a stream's end forward,
 * an event takes the stream's end, and is complete when real time reaches it.
 * Events and streams belong to device 3; the stream 0xCAFE captures; while
 * fake_cuda_broken is set every record fails and leaves its error behind; at
 * most fake_cuda_room events exist at a time. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

typedef struct { _Atomic int64_t at; int device; } event;
API _Atomic int fake_cuda_broken, fake_cuda_creates, fake_cuda_events, fake_cuda_room = 1 << 20;
API _Atomic int fake_cuda_elsewhere; /* events and contexts made on another device than 3 */
API _Atomic int fake_cuda_spoils;    /* queries that would spoil another thread's capture */
API _Atomic size_t fake_cuda_free = (size_t)1 << 33; /* what cudaMemGetInfo answers */
static _Atomic int64_t ends[16];
static _Thread_local int device, mode, last_error;

static int64_t now(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static _Atomic int64_t *end_of(void *stream) { return &ends[((uintptr_t)stream >> 4) & 15]; }

API void fake_cuda_work(void *stream, unsigned long ns) {
  int64_t e = *end_of(stream), t = now();
  *end_of(stream) = (e > t ? e : t) + (int64_t)ns;
}

API int cudaSetDevice(int d) { device = d; return 0; }
API int cudaGetDevice(int *d) { *d = device; return 0; }
API _Atomic int fake_cuda_mallocs;
API int cudaMalloc(void **p, size_t n) { fake_cuda_mallocs++; return (*p = malloc(n)) ? 0 : 2; }
API int cudaMemGetInfo(size_t *f, size_t *t) { *f = *t = fake_cuda_free; return 0; }
API int cudaMemsetAsync(void *p, int v, size_t n, void *stream) { (void)stream; memset(p, v, n); return 0; }
API int cudaStreamCreateWithFlags(void **s, unsigned flags) { static uintptr_t next = 0xA0; (void)flags; *s = (void *)(next += 0x10); return 0; }
API _Atomic int fake_cuda_queries;   /* of streams */
API int cudaStreamQuery(void *stream) {
  fake_cuda_queries++;
  return now() >= *end_of(stream) ? 0 : 600;
}
API int cudaStreamSynchronize(void *stream) { (void)stream; return 0; }
API int cudaGetLastError(void) { int e = last_error; last_error = 0; return e; }
/* It makes a context on the thread's device, as the real one does. */
API int cudaThreadExchangeStreamCaptureMode(int *m) {
  int was = mode;
  if (device != 3) fake_cuda_elsewhere++;
  mode = *m;
  *m = was;
  return 0;
}

API int cudaEventCreateWithFlags(void **e, unsigned flags) {
  (void)flags;
  if (fake_cuda_events >= fake_cuda_room) return last_error = 2;
  event *v = calloc(1, sizeof *v);
  fake_cuda_events++;
  if (device != 3) fake_cuda_elsewhere++;
  v->device = device;
  *e = v;
  fake_cuda_creates++;
  return 0;
}

API int cudaEventDestroy(void *e) { free(e); fake_cuda_events--; return 0; }

API int cudaEventRecord(void *e, void *stream) {
  event *v = e;
  if (fake_cuda_broken || v->device != 3) return last_error = 400;
  int64_t end = *end_of(stream), t = now();
  v->at = end > t ? end : t;
  return 0;
}

API int cudaEventQuery(void *e) {
  if (mode != 2) fake_cuda_spoils++;
  return now() >= ((event *)e)->at ? 0 : 600;
}

API int cudaEventElapsedTime(float *ms, void *a, void *b) {
  *ms = (float)(((event *)b)->at - ((event *)a)->at) / 1e6f;
  return 0;
}

API int cudaStreamIsCapturing(void *stream, int *status) { *status = stream == (void *)0xCAFE0; return 0; }
