/* A libnccl.so.2 that communicates nothing: it hands out communicators (the
 * last one destroyed is the next one handed out, as a heap does). ncclBcast goes
 * through the public ncclBroadcast, as NCCL's does. FAKE_ASYNC makes communicators answer "in progress" at first. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../nccl_abi.h"

#define API __attribute__((visibility("default")))

typedef struct { int n, rank, device, not_ready; _Atomic unsigned long calls; _Atomic int ended, inside; } fake_comm;

/* What reached this library, over all communicators. */
enum { COUNT_CALLS, COUNT_ABORTS, COUNT_REVOKES, COUNT_DESTROYS, COUNT_INITS, COUNT_MEMORY, COUNTS };
static _Atomic unsigned long counts[COUNTS];
API unsigned long fake_nccl_count(int what) { return counts[what]; }

/* A peer is dead: an all-reduce of so many elements, and the creation of a
 * communicator of so many ranks, return only once it was aborted or revoked;
 * one more rank, and the creation goes on in the background for ever. */
#define BLOCKS 777777777
#define NEVER_READY (BLOCKS + 1)

static int block(fake_comm *c) {
  c->inside++;
  while (!c->ended) usleep(200);
  c->inside--;
  return 6;
}

API int ncclGroupStart(void);
API int ncclGroupEnd(void);
static _Thread_local int depth;
static _Thread_local void *group_stream;

/* With the fake CUDA runtime in the process a call takes 3 ms on its stream, a
 * group 5 ms from its end on. */
extern void fake_cuda_work(void *stream, unsigned long ns) __attribute__((weak));

static void work(void *stream) {
  if (!fake_cuda_work) return;
  if (depth) group_stream = stream;
  else fake_cuda_work(stream, 3000000);
}

static fake_comm *make(int n, int rank) {
  fake_comm *c = malloc(sizeof *c);
  c->n = n;
  c->rank = rank;
  c->device = 3;
  c->calls = 0;
  c->ended = c->inside = 0;
  counts[COUNT_INITS]++;
  c->not_ready = getenv("FAKE_ASYNC") ? 2 : 0;
  return c;
}

/* Of one thread: a locked instruction here would spoil the bench. */
static void tick(_Atomic unsigned long *n) { atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_release); }
static void count(fake_comm *c) { tick(&c->calls); tick(&counts[COUNT_CALLS]); }

static int coll(void *st) { work(st); return 0; }
static int p2p(void *st) { work(st); return 0; }

API int ncclCommCount(void *c, int *n) { fake_comm *f = c; if (f->not_ready && f->not_ready--) return 7; *n = f->n; return 0; }
API int ncclCommUserRank(void *c, int *r) { *r = ((fake_comm *)c)->rank; return 0; }
API int ncclCommCuDevice(void *c, int *d) { *d = ((fake_comm *)c)->device; return 0; }

/* The handle is known while the call blocks, and dies with the failure. */
API int ncclCommInitRank(void **c, int n, nccl_unique_id id, int rank) {
  (void)id;
  fake_comm *f = make(n, rank);
  __atomic_store_n(c, (void *)f, __ATOMIC_RELEASE);
  return n == BLOCKS ? block(f) : 0;
}
API int ncclCommInitRankConfig(void **c, int n, nccl_unique_id id, int rank, void *cfg) {
  (void)cfg;
  int rc = ncclCommInitRank(c, n, id, rank);
  return rc ? rc : n == NEVER_READY || getenv("FAKE_ASYNC") ? 7 : 0;
}
/* FAKE_LATE: a split goes on in the background, and its handle is stored with the
 * second question, or by fake_nccl_ready. */
static _Thread_local struct { void **where; void *made; int asked; } late;
API void fake_nccl_ready(void) {
  if (late.where) *late.where = late.made;
  late.where = NULL;
}

API int ncclCommGetAsyncError(void *c, int *rc) {
  fake_comm *f = c;
  if (late.where && !late.asked++) return *rc = 7, 0;
  fake_nccl_ready();
  *rc = f->ended ? 6 : f->n == NEVER_READY ? 7 : 0;
  return 0;
}
API int ncclCommInitAll(void **c, int n, const int *d) { (void)d; for (int i = 0; i < n; i++) c[i] = make(n, i); return 0; }
API int ncclCommInitRankScalable(void **c, int n, int rank, int k, nccl_unique_id *ids, void *cfg) { (void)k; (void)ids; (void)cfg; *c = make(n, rank); return 0; }
API int ncclCommSplit(void *p, int color, int key, void **c, void *cfg) {
  (void)key;
  (void)cfg;
  void *made = color < 0 ? NULL : make(((fake_comm *)p)->n / 2, ((fake_comm *)p)->rank / 2);
  *c = getenv("FAKE_LATE") ? NULL : made;
  late.where = getenv("FAKE_LATE") ? c : NULL;
  late.made = made;
  late.asked = 0;
  return late.where ? 7 : 0;
}
static int end(fake_comm *c, int what) {
  counts[what]++;
  c->ended = 1;
  while (c->inside) usleep(200);
  return 0;
}
API int ncclCommDestroy(void *c) { end(c, COUNT_DESTROYS); free(c); return 0; }
API int ncclCommAbort(void *c) { end(c, COUNT_ABORTS); free(c); return 0; }
API int ncclCommFinalize(void *c) { (void)c; return 0; }

API int ncclGroupStart(void) { depth++; return 0; }
API int ncclGroupEnd(void) {
  if (!--depth && fake_cuda_work && group_stream) fake_cuda_work(group_stream, 5000000);
  if (!depth) group_stream = NULL;
  return getenv("FAKE_GROUP_LATE") ? 7 : 0;
}

API int ncclAllReduce(const void *s, void *r, size_t n, int t, int o, void *c, void *st) { (void)s; (void)r; (void)t; (void)o; count(c); coll(st); return n == 666 ? 2 : n == BLOCKS ? block(c) : ((fake_comm *)c)->ended ? 5 : 0; }
API unsigned long fake_nccl_calls(void *c) { return ((fake_comm *)c)->calls; } /* all-reduces that got through */
API int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st) { (void)s; (void)r; (void)n; (void)t; (void)c; return coll(st); }
API int ncclReduceScatter(const void *s, void *r, size_t n, int t, int o, void *c, void *st) { (void)s; (void)r; (void)n; (void)t; (void)o; (void)c; return coll(st); }
API int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { (void)s; (void)r; (void)n; (void)t; (void)root; (void)c; return coll(st); }
API int ncclBcast(void *b, size_t n, int t, int root, void *c, void *st) { return ncclBroadcast(b, b, n, t, root, c, st); }
API int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st) { (void)s; (void)n; (void)t; (void)peer; (void)c; return p2p(st); }
API int ncclRecv(void *s, size_t n, int t, int peer, void *c, void *st) { (void)s; (void)n; (void)t; (void)peer; (void)c; return p2p(st); }

/* All of these write to their communicator. */
static int memory(void *c) { ((fake_comm *)c)->inside += 0; counts[COUNT_MEMORY]++; return 0; }
API int ncclCommRegister(void *c, void *b, size_t n, void **h) { (void)b; (void)n; *h = c; return memory(c); }
API int ncclCommDeregister(void *c, void *h) { (void)h; return memory(c); }
API int ncclCommWindowRegister(void *c, void *b, size_t n, void **w, int f) { (void)b; (void)n; (void)f; *w = c; return memory(c); }
API int ncclCommWindowDeregister(void *c, void *w) { (void)w; return memory(c); }
API int ncclDevCommCreate(void *c, const void *wants, void *out) { (void)wants; (void)out; return memory(c); }
API int ncclDevCommDestroy(void *c, const void *out) { (void)out; return memory(c); }
API int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int where, void *c) { (void)scalar; (void)type; (void)where; *op = 9; return memory(c); }
API int ncclSignal(int peer, int sig, int ctx, unsigned fl, void *c, void *st) { (void)peer; (void)sig; (void)ctx; (void)fl; (void)st; return memory(c); }

API int ncclGetVersion(int *v) { *v = 22700; return 0; }
API int ncclRedOpDestroy(int op, void *c) { (void)op; return memory(c); }

#ifdef FAKE_STRANGE
API int ncclFoldLeft(const void *s, void *c, void *st) { (void)s; (void)c; (void)st; return 0; }
#endif

#ifdef FAKE_NEWER
API int ncclCommRevoke(void *c, int flags) { return flags ? 4 : end(c, COUNT_REVOKES); }
#endif
