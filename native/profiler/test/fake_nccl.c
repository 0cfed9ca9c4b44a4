/*
 * An NCCL that communicates nothing and loads the profiler plug-in as NCCL does
 * (../../lab/nccl_events.c). The device's work of a call is played by the test.
 */
#include <stdlib.h>
#include <string.h>

#include "../../hook/nccl_abi.h"
#include "../../lab/nccl_events.h"
#include "fake.h"

#define API __attribute__((visibility("default")))
#define PENDING 64

typedef struct fake_comm { events_comm events; int n, rank; } fake_comm;
typedef struct pending { fake_comm *comm; events_task task; } pending;

static __thread pending tasks[PENDING]; /* of the open group, and after its end */
static __thread int count, launched;

API int ncclGetVersion(int *v) { return *v = 22809, 0; }
API int ncclGetUniqueId(nccl_unique_id *id) { return memset(id, 1, sizeof *id), 0; }

static uint64_t hash(const nccl_unique_id *id) {
  uint64_t h = 0;
  memcpy(&h, id, sizeof h);
  return h;
}

API int ncclCommInitRankConfig(void **c, int n, nccl_unique_id id, int rank, nccl_config *cfg) {
  fake_comm *f = calloc(1, sizeof *f);
  f->n = n;
  f->rank = rank;
  events_open(&f->events, hash(&id), n, rank, cfg ? cfg->commName : NULL);
  *c = f;
  return 0;
}

API int ncclCommInitRank(void **c, int n, nccl_unique_id id, int rank) { return ncclCommInitRankConfig(c, n, id, rank, NULL); }

API int ncclCommDestroy(void *c) {
  events_close(&((fake_comm *)c)->events);
  free(c);
  return 0;
}

API int ncclCommAbort(void *c) { return ncclCommDestroy(c); }
API int ncclCommCount(void *c, int *n) { return *n = ((fake_comm *)c)->n, 0; }
API int ncclCommUserRank(void *c, int *r) { return *r = ((fake_comm *)c)->rank, 0; }
API int ncclCommCuDevice(void *c, int *d) { return (void)c, *d = 0, 0; }

static void launch(void *unused) {
  (void)unused;
  for (; launched < count; launched++) events_launch(&tasks[launched].comm->events, &tasks[launched].task, 1);
}

static void issue(fake_comm *c, const char *func, int p2p, size_t n, int type, int root, void *stream) {
  if (launched == count) launched = count = 0;
  if (count == PENDING) abort();
  pending *p = &tasks[count++];
  p->comm = c;
  events_issue(&c->events, &(events_call){.func = func, .p2p = p2p, .type = type, .root = root, .count = n, .stream = stream, .captured = fake_captured}, &p->task);
}

static __thread int depth;
API __thread int fake_captured;

static int call(fake_comm *c, const char *func, int p2p, size_t n, int type, int root, void *stream) {
  events_enter();
  issue(c, func, p2p, n, type, root, stream);
  events_leave(depth ? NULL : launch, NULL);
  return 0;
}

API int ncclGroupStart(void) { return depth++, events_enter(), 0; }
API int ncclGroupEnd(void) { return events_leave(--depth ? NULL : launch, NULL), 0; }
API int ncclAllReduce(const void *s, void *r, size_t n, int t, int o, void *c, void *st) { return (void)s, (void)r, (void)o, call(c, "AllReduce", 0, n, t, 0, st); }
API int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st) { return (void)s, (void)r, call(c, "AllGather", 0, n, t, 0, st); }
API int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { return (void)s, (void)r, call(c, "Broadcast", 0, n, t, root, st); }
API int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st) { return (void)s, call(c, "Send", 1, n, t, peer, st); }
API int ncclRecv(void *s, size_t n, int t, int peer, void *c, void *st) { return (void)s, call(c, "Recv", 1, n, t, peer, st); }

API int ncclAlltoAll(const void *s, void *r, size_t n, int t, void *comm, void *st) {
  fake_comm *c = comm;
  (void)s, (void)r;
  events_enter();
  for (int i = 0; i < c->n; i++) {
    issue(c, "Send", 1, n, t, i, st);
    issue(c, "Recv", 1, n, t, i, st);
  }
  events_leave(depth ? NULL : launch, NULL);
  return 0;
}

API int cudaSetDevice(int d) { return (void)d, 0; }

/* The newest calls' work on the device, on the caller's thread. */
API void fake_device(int back, uint64_t from, uint64_t to) {
  pending *p = &tasks[count - 1 - back];
  for (int channel = 0; channel < 2; channel++) {
    events_begin(&p->comm->events, &p->task, from + 10 * (uint64_t)channel);
    events_end(&p->task, to - 10 * (uint64_t)(1 - channel));
  }
}

/* The program gives up in the middle of a group: NCCL's error paths skip the ends. */
API void fake_give_up(void) { depth = 0; }
