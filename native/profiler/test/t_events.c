/* The plug-in under an NCCL that plays its part: what becomes records, and what never happens. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

#include "../../hook/test/agent.h"
#include "../../hook/test/nccl.h"
#include "../nccl_profiler.h"
#include "../profiler.h"
#include "fake.h"

#define STREAM ((void *)0x10)
#define F32 7

static void *comm_of(int n, int id, int rank) {
  void *c = NULL;
  CHECK(ncclCommInitRank(&c, n, test_id(id), rank) == 0);
  return c;
}

static void *first_comm(void) {
  void *c = comm_of(4, 77, 1);
  b = shm_map();
  CHECK(b);
  return c;
}

static uint64_t head(int ring) { return LOAD(RING(b, ring)->head); }

/* Record i of a ring. */
static falcon_record *at(int ring, uint64_t i) {
  CHECK(i < head(ring));
  falcon_record *r = REC(b, ring, i);
  CHECK(LOAD(r->seq) == i + 1);
  return r;
}

static void is_call(falcon_record *r, int op, uint64_t ordinal, int flags) {
  CHECK(r->op == op && r->ordinal == ordinal && r->flags == flags && r->count == 256 && r->dtype == F32 && r->stream == 0x10);
  CHECK(r->enter && r->enter <= r->exit && r->step == 0xffffffffu);
}

static void case_calls(void) {
  nccl_config cfg = {.size = sizeof cfg, .magic = NCCL_CONFIG_MAGIC, .commName = "tensor"};
  void *c = NULL;
  CHECK(ncclCommInitRankConfig(&c, 4, test_id(77), 1, &cfg) == 0);
  CHECK((b = shm_map()));
  CHECK(CTL(b)->bound == FALCON_BOUND_PROFILER && CTL(b)->nccl_version == 22809);
  CHECK(COMM(b, 0)->id == 77 && COMM(b, 0)->size == 4 && COMM(b, 0)->rank == 1 && COMM(b, 0)->state == FALCON_COMM_LIVE && !strcmp(COMM(b, 0)->name, "tensor"));
  for (int i = 0; i < 3; i++) CHECK(ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM) == 0);
  CHECK(ncclBroadcast(NULL, NULL, 256, F32, 2, c, STREAM) == 0);
  CHECK(ncclSend(NULL, 256, F32, 3, c, STREAM) == 0);
  CHECK(head(0) == 5);
  for (uint64_t i = 0; i < 3; i++) is_call(at(0, i), FALCON_OP_ALLREDUCE, i, 0);
  is_call(at(0, 3), FALCON_OP_BROADCAST, 3, 0);
  is_call(at(0, 4), FALCON_OP_SEND, 4, 0);
  CHECK(at(0, 0)->peer == -1 && at(0, 3)->peer == 2 && at(0, 4)->peer == -1 && at(0, 0)->comm == 0);
  CHECK(CTL(b)->coverage == (FALCON_COV_INIT | FALCON_COV_COLL | FALCON_COV_P2P | FALCON_COV_PROFILER));
  CHECK(ncclCommDestroy(c) == 0);
  CHECK(COMM(b, 0)->state == FALCON_COMM_GONE);
}

static void case_v6_calls(void) { case_calls(); }

static void case_groups(void) {
  void *c = first_comm(), *d = comm_of(2, 78, 0);
  for (int round = 0; round < 2; round++) {
    uint64_t i = 6 * (uint64_t)round, n = 2 * (uint64_t)round;
    ncclGroupStart();
    ncclGroupStart();
    ncclSend(NULL, 256, F32, 3, c, STREAM);
    ncclGroupEnd();
    ncclRecv(NULL, 256, F32, 3, d, STREAM);
    CHECK(head(0) == i + 3); /* seen before the group ends */
    ncclGroupEnd();
    CHECK(at(0, i)->op == FALCON_OP_GROUPSTART && at(0, i)->comm == FALCON_COMM_NONE);
    is_call(at(0, i + 1), FALCON_OP_SEND, n, FALCON_REC_GROUPED);
    is_call(at(0, i + 2), FALCON_OP_RECV, n, FALCON_REC_GROUPED);
    CHECK(at(0, i + 1)->comm == 0 && at(0, i + 2)->comm == 1 && at(0, i + 2)->depth == 1);
    CHECK(at(0, i + 3)->op == FALCON_OP_GROUPEND && at(0, i + 3)->enter >= at(0, i + 2)->exit);
    ncclAllReduce(NULL, NULL, 256, F32, 0, d, STREAM); /* not of the group */
    ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
    is_call(at(0, i + 4), FALCON_OP_ALLREDUCE, n + 1, 0);
    is_call(at(0, i + 5), FALCON_OP_ALLREDUCE, n + 1, 0);
  }
}

/* NCCL makes sends and receives of it, in a group of its own that is no group of the program's. */
static void case_parts(void) {
  void *c = first_comm();
  ncclAlltoAll(NULL, NULL, 256, F32, c, STREAM);
  CHECK(head(0) == 8);
  for (uint64_t i = 0; i < 8; i++) is_call(at(0, i), i % 2 ? FALCON_OP_RECV : FALCON_OP_SEND, i, 0);
}

static void case_captured(void) {
  void *c = first_comm();
  fake_captured = 1;
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  is_call(at(0, 0), FALCON_OP_ALLREDUCE, 0, FALCON_REC_CAPTURING);
}

/* A call that fails inside NCCL has no end, nor has its group: the next call is whole. */
static void case_given_up(void) {
  void *c = first_comm();
  ncclGroupStart();
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  fake_give_up();
  for (int i = 0; i < 3; i++) ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  CHECK(LOAD(COMM(b, 0)->gate) == 4);
}

/* What NCCL has of the library is given back with the last communicator, and the library stays. */
static void case_ends(void) {
  for (int i = 0; i < 300; i++) {
    void *c = comm_of(2, i, 0);
    if (!b) CHECK((b = shm_map()));
    ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
    CHECK(head(0) == (uint64_t)i + 1 && at(0, (uint64_t)i)->comm < FALCON_COMMS_MAX);
    CHECK((i % 2 ? ncclCommDestroy : ncclCommAbort)(c) == 0);
  }
  for (int i = 0; i < (int)FALCON_COMMS_MAX; i++) CHECK(COMM(b, i)->state != FALCON_COMM_LIVE);
}

/* More at once than the table and the plug-in have room for. */
static void case_many(void) {
  static void *c[FALCON_CONTEXTS_MAX + 50];
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) c[i] = comm_of(2, (int)i, 0);
  CHECK((b = shm_map()));
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) ncclAllReduce(NULL, NULL, 256, F32, 0, c[i], STREAM);
  CHECK(head(0) == FALCON_CONTEXTS_MAX && LOAD(CTL(b)->records_lost) == 50);
  CHECK(at(0, 255)->comm == 255 && at(0, 256)->comm == FALCON_COMM_NONE);
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) ncclCommDestroy(c[i]);
}

#define THREADS 4
#define CALLS 20000

static void *train(void *arg) {
  void *c = comm_of(2, 100 + (int)(intptr_t)arg, 0);
  for (int i = 0; i < CALLS; i++) {
    if (i % 3 == 0) ncclGroupStart();
    ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
    if (i % 3 == 0) ncclGroupEnd();
  }
  return NULL;
}

static void case_threads(void) {
  pthread_t id[THREADS];
  first_comm();
  for (intptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&id[i], NULL, train, (void *)i));
  for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(id[i], NULL));
  uint64_t all = 0, gates = 0;
  for (int i = 0; i < (int)FALCON_RINGS_MAX; i++) all += head(i);
  for (int i = 1; i <= THREADS; i++) gates += LOAD(COMM(b, i)->gate);
  CHECK(gates == THREADS * CALLS && all == THREADS * (CALLS + 2 * ((CALLS + 2) / 3)) && !LOAD(CTL(b)->records_lost));
}

/* The program's other NCCL, with its own copy of everything but the plug-in. */
typedef struct other { int (*init)(void **, int, nccl_unique_id, int); int (*reduce)(const void *, void *, size_t, int, int, void *, void *); } other;

static other open_other(void) {
  char path[1100];
  snprintf(path, sizeof path, "%s/libnccl-other.so.2", getenv("TEST_DIR"));
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(lib);
  return (other){(int (*)(void **, int, nccl_unique_id, int))dlsym(lib, "ncclCommInitRank"),
                 (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(lib, "ncclAllReduce")};
}

static void case_two(void) {
  void *c = first_comm(), *d = NULL;
  other o = open_other();
  CHECK(o.init(&d, 2, test_id(5), 1) == 0);
  o.reduce(NULL, NULL, 256, F32, 0, d, STREAM);
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  CHECK(head(0) == 2 && at(0, 0)->comm == 1 && at(0, 1)->comm == 0 && COMM(b, 1)->id == 5);
}

static void case_fork(void) {
  void *c = first_comm();
  ncclGroupStart();
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  pid_t pid = fork();
  if (!pid) {
    for (int i = 0; i < 5; i++) ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
    ncclGroupEnd();
    ncclCommDestroy(c);
    exit(0);
  }
  int status = -1;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK(head(0) == 2 && COMM(b, 0)->state == FALCON_COMM_LIVE && access(shm_path(), R_OK) == 0);
  ncclGroupEnd();
  CHECK(head(0) == 3);
}

/* Where nothing can be recorded, NCCL goes on by itself. */
static void absent(void) {
  void *c = comm_of(4, 77, 1);
  CHECK(ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM) == 0 && !shm_map());
  CHECK(ncclCommDestroy(c) == 0);
}

static void case_off(void) {
  setenv("FALCON_HOOK", "off", 1);
  absent();
}

static void case_nowhere(void) {
  setenv("FALCON_SHM_DIR", "/nowhere/at/all", 1);
  absent();
}

static void case_pause(void) {
  void *c = first_comm();
  order(9, 20000);
  CHECK(arm(0, 3));
  rouse();
  for (int i = 0; i < 10; i++) ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  CHECK(head(0) == 10 && count(0) == 10);
  CHECK(await_state(9, FALCON_PAUSE_REFUSED, 5000) && REASON == FALCON_REASON_PROFILER && !(LOAD(COMM(b, 0)->gate) & FALCON_GATE_ARMED));
  CHECK(LOAD(CTL(b)->paused_ns) == 0);
}

/* ---- the device's times ---- */

static void set_mode(uint32_t mode) {
  __atomic_store_n(&CTL(b)->mode, mode, __ATOMIC_RELEASE);
  rouse();
}

/* Until the test ends it: the side thread may be late. */
static void window(uint32_t id) {
  CTL(b)->profile_until_ns = now_ns() + 50000 * MS;
  __atomic_store_n(&CTL(b)->profile_window, id, __ATOMIC_RELEASE);
  set_mode(FALCON_MODE_PROFILE);
}

static void await_done(uint32_t id) {
  set_mode(FALCON_MODE_MONITOR);
  for (uint64_t end = now_ns() + 30000 * MS; now_ns() < end; usleep(1000))
    if (LOAD(CTL(b)->profile_done) == id) return;
  CHECK(!"the window ends");
}

/* Calls until one is timed, or would be if there was room. */
static void await_window(void *c) {
  uint64_t lost = LOAD(CTL(b)->timing_lost);
  for (uint64_t end = now_ns() + 30000 * MS; now_ns() < end; usleep(1000)) {
    ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
    if (at(0, head(0) - 1)->flags & FALCON_REC_TIMED || LOAD(CTL(b)->timing_lost) > lost) return;
  }
  CHECK(!"the window opens");
}

#define GPU 5000000000000ull /* the device's clock is ahead by so much */

static void timed_call(uint64_t lasts) {
  uint64_t from = now_ns() + GPU;
  usleep((useconds_t)(lasts / 1000 + 100));
  fake_device(0, from, from + lasts);
}

static void play_window(void *c, uint32_t id) {
  uint64_t before = LOAD(CTL(b)->timing_head), lost = LOAD(CTL(b)->timing_lost);
  window(id);
  await_window(c); /* of this call NCCL may have read its mask before the window: its channels are not reported */
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  timed_call(2 * MS);
  ncclSend(NULL, 256, F32, 3, c, STREAM);
  timed_call(3 * MS);
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM); /* its work is never reported */
  fake_captured = 1;
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM); /* a graph: not timed */
  fake_captured = 0;
  await_done(id);
  fake_device(0, now_ns() + GPU, now_ns() + GPU + 1); /* too late */
  CHECK(LOAD(CTL(b)->timing_head) == before + 2 && LOAD(CTL(b)->timing_lost) == lost + 2);
  falcon_timing *x = TIMING(b, before), *y = TIMING(b, before + 1);
  CHECK(x->window == id && x->op == FALCON_OP_ALLREDUCE && x->bytes == 1024 && x->comm == 0 && x->start_ns == 0 && x->duration_ns == 2 * (int64_t)MS);
  CHECK(y->op == FALCON_OP_SEND && y->peer == 3 && y->ordinal > x->ordinal && y->duration_ns == 3 * (int64_t)MS && y->start_ns > 2 * (int64_t)MS);
  CHECK(COMM(b, 0)->choices[FALCON_OP_ALLREDUCE] == FALCON_CHOICE(2, 3, 2) && !COMM(b, 0)->choices[FALCON_OP_REDUCE]); /* ring, simple, 2 channels */
  CHECK(x->queue_ns >= 0 && x->queue_ns < 5000 * (int64_t)MS && y->queue_ns >= 0 && y->queue_ns < 5000 * (int64_t)MS);
}

static void case_window(void) {
  void *c = first_comm();
  for (uint32_t id = 1; id <= 2; id++) play_window(c, id);
  uint64_t n = head(0);
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  CHECK(at(0, n)->flags == 0);
}

/* A library that is closed with its communicators alive: its mask is written after that. */
static void case_closed(void) {
  void *c = first_comm(), *d = NULL;
  char path[1100];
  snprintf(path, sizeof path, "%s/libnccl-other.so.2", getenv("TEST_DIR"));
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  other o = open_other();
  CHECK(o.init(&d, 2, test_id(5), 1) == 0);
  CHECK(!dlclose(lib) && !dlclose(lib));
  window(1);
  await_window(c);
  await_done(1);
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
}

/* Two ranks of one communicator: two GPUs, whose timers have nothing in common. */
static void case_several(void) {
  void *c = first_comm(), *d = comm_of(4, 77, 2);
  window(1);
  await_window(c);
  for (int i = 0; i < 10; i++) {
    ncclAllReduce(NULL, NULL, 256, F32, 0, d, STREAM);
    timed_call(1000);
  }
  await_done(1);
  CHECK(LOAD(CTL(b)->timing_head) == 0 && LOAD(CTL(b)->timing_lost) > 0);
}

static void case_v4_window(void) {
  void *c = first_comm();
  window(1);
  await_window(c);
  ncclSend(NULL, 256, F32, 3, c, NULL);
  timed_call(2 * MS);
  await_done(1);
  CHECK(LOAD(CTL(b)->timing_head) == 1 && LOAD(CTL(b)->timing_lost) == 1 && TIMING(b, 0)->peer == 3 && TIMING(b, 0)->duration_ns == 2 * (int64_t)MS);
}

static void case_v4_calls(void) {
  void *c = first_comm();
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  ncclSend(NULL, 256, F32, 3, c, STREAM);
  CHECK(head(0) == 2 && at(0, 0)->op == FALCON_OP_ALLREDUCE && at(0, 1)->op == FALCON_OP_SEND && at(0, 1)->peer == 3);
  CHECK(at(0, 0)->ordinal == 0 && at(0, 1)->ordinal == 1 && at(0, 0)->count == 256 && at(0, 0)->enter <= at(0, 0)->exit);
}

/* ---- beside the hook ---- */

static void case_both_calls(void) {
  void *c = first_comm();
  for (int i = 0; i < 10; i++) ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  ncclGroupStart();
  ncclSend(NULL, 256, F32, 3, c, STREAM);
  ncclGroupEnd();
  CHECK(head(0) == 13 && count(0) == 11 && CTL(b)->bound == FALCON_BOUND_NEEDED && !(CTL(b)->coverage & FALCON_COV_PROFILER));
  CHECK(COMM(b, 1)->state == FALCON_COMM_FREE && COMM(b, 0)->id != 77); /* the hook's, once */
}

static void case_both_v4(void) { case_both_calls(); }

/* An NCCL that the hook does not see is seen by the plug-in, in the same file. */
static void case_both_other(void) {
  void *c = first_comm(), *d = NULL;
  other o = open_other();
  CHECK(o.init(&d, 2, test_id(5), 1) == 0);
  for (int i = 0; i < 3; i++) {
    ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
    o.reduce(NULL, NULL, 256, F32, 0, d, STREAM);
  }
  CHECK(head(0) == 6 && count(0) == 3 && count(1) == 3 && COMM(b, 1)->id == 5 && COMM(b, 1)->size == 2 && COMM(b, 1)->rank == 1);
  CHECK((CTL(b)->coverage & (FALCON_COV_UNHOOKED | FALCON_COV_PROFILER)) == (FALCON_COV_UNHOOKED | FALCON_COV_PROFILER));
}

/* All of NCCL passes by the hook, which is inert: the plug-in makes the file. */
static void case_both_bypassed(void) {
  void *d = NULL;
  other o = open_other();
  CHECK(o.init(&d, 2, test_id(5), 1) == 0);
  o.reduce(NULL, NULL, 256, F32, 0, d, STREAM);
  CHECK((b = shm_map()) && head(0) == 1 && COMM(b, 0)->id == 5 && CTL(b)->coverage & FALCON_COV_PROFILER);
}

/* A hook that comes later finds the file taken, and is inert. */
static void case_late_hook(void) {
  void *c = first_comm();
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM);
  void *hook = dlopen(getenv("TEST_HOOK"), RTLD_NOW | RTLD_GLOBAL);
  CHECK(hook);
  void (*describe)(int, int, int, int) = (void (*)(int, int, int, int))dlsym(hook, "falcon_job_describe");
  describe(1, 2, 1, 4);
  int (*reduce)(const void *, void *, size_t, int, int, void *, void *) = (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(hook, "ncclAllReduce");
  CHECK(reduce(NULL, NULL, 256, F32, 0, c, STREAM) == 0);
  char *again = shm_map();
  CHECK(again && HDR(again)->start_mono_ns == HDR(b)->start_mono_ns && head(0) == 2 && !(CTL(b)->coverage & FALCON_COV_ADAPTER));
}

/* ---- callbacks in any order, with any handle ---- */

static const nccl_profiler_v5 *v5;
static const nccl_profiler_v4 *v4;
static _Atomic int fuzz_over;

typedef struct fuzzer { unsigned seed; void *handles[16], *contexts[4]; int mask; } fuzzer;

static void *any_handle(fuzzer *f) {
  switch (rand_r(&f->seed) % 8) {
    case 0: return (void *)(uintptr_t)rand_r(&f->seed);
    case 1: return falcon_handle((uint32_t)rand_r(&f->seed) % 8, (uint64_t)rand_r(&f->seed) % 64);
    case 2: return f;
  }
  return f->handles[rand_r(&f->seed) % 16];
}

static void *any_context(fuzzer *f) {
  void *c = f->contexts[rand_r(&f->seed) % 4];
  switch (rand_r(&f->seed) % 16) {
    case 0: return NULL;
    case 1: return f;
    case 2: return (char *)c + 1;
  }
  return c;
}

static void fuzz_start(fuzzer *f, bool old) {
  static const char *const funcs[] = {"AllReduce", "Send", "Recv", "", NULL, "Broadcast", "NoSuchThing"};
  nccl_event_descr e = {.parent = any_handle(f)};
  uint64_t type = 1ull << rand_r(&f->seed) % (old ? 8 : 20);
  if (old) e.type4 = (uint8_t)type;
  else e.type = type;
  const char *func = funcs[rand_r(&f->seed) % 7];
  if (type == NCCL_EVENT_COLL) e.coll = (nccl_task_coll){.func = func, .datatype = func, .channels = (uint8_t)rand_r(&f->seed), .algorithm = func, .protocol = NULL};
  else if (type == NCCL_EVENT_P2P) e.p2p = (nccl_task_p2p){.func = func, .channels = 1, .peer = rand_r(&f->seed)};
  else if (type == NCCL_EVENT_COLL_API) e.call.func = func, e.call.count = SIZE_MAX;
  else if (type == NCCL_EVENT_P2P_API) e.p2p_call.func = func;
  else if (type == NCCL_EVENT_KERNEL) e.kernel.timer = (uint64_t)rand_r(&f->seed) << 40;
  else if (type == NCCL_EVENT_GROUP_API) e.group.depth = rand_r(&f->seed) % 4;
  CHECK((old ? v4->start : v5->start)(any_context(f), &f->handles[rand_r(&f->seed) % 16], &e) == 0);
}

static void *fuzz_thread(void *arg) {
  fuzzer f = {.seed = (unsigned)(uintptr_t)arg};
  for (int i = 0; !fuzz_over; i++) {
    bool old = rand_r(&f.seed) % 2;
    switch (rand_r(&f.seed) % 64) {
      case 0: (old ? v4->finalize : v5->finalize)(any_context(&f)); break;
      case 1: CHECK(v5->init(&f.contexts[rand_r(&f.seed) % 4], 1, &f.mask, "fuzz", 1, 2, 0, NULL) == 0); break;
      case 2: CHECK(v4->init(&f.contexts[rand_r(&f.seed) % 4], &f.mask, NULL, 1, 1, 2, 0, NULL) == 0); break;
      default:
        if (rand_r(&f.seed) % 2) fuzz_start(&f, old);
        else if (rand_r(&f.seed) % 2) CHECK(v5->stop(any_handle(&f)) == 0);
        else CHECK(v5->state(any_handle(&f), rand_r(&f.seed) % 40, rand_r(&f.seed) % 4 ? &(nccl_event_args){.kernel = {(uint64_t)rand_r(&f.seed) << 20}} : NULL) == 0);
    }
  }
  while (f.contexts[0] || f.contexts[1] || f.contexts[2] || f.contexts[3])
    for (int i = 0; i < 4; i++) v5->finalize(f.contexts[i]), f.contexts[i] = NULL;
  return NULL;
}

static void case_fuzz(void) {
  pthread_t id[THREADS];
  void *lib = dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW | RTLD_LOCAL), *c = first_comm();
  CHECK(lib && (v5 = dlsym(lib, "ncclProfiler_v6")) && (v4 = dlsym(lib, "ncclProfiler_v4")));
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM); /* ring 0 is this thread's */
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&id[i], NULL, fuzz_thread, (void *)(i + 1)));
  for (uint32_t w = 1; w <= 2; w++) {
    window(w);
    await_window(c);
    usleep(100000);
    await_done(w);
  }
  fuzz_over = 1;
  for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(id[i], NULL));
  ncclAllReduce(NULL, NULL, 256, F32, 0, c, STREAM); /* and it still works */
  CHECK(count(0) >= 1 && LOAD(CTL(b)->timing_head) <= 2 * FALCON_TIMING_SLOTS);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
    CASE(calls), CASE(v6_calls), CASE(groups), CASE(parts), CASE(captured), CASE(given_up), CASE(ends), CASE(many), CASE(threads), CASE(two), CASE(closed), CASE(fork),
    CASE(off), CASE(nowhere), CASE(pause), CASE(window), CASE(several), CASE(v4_window), CASE(v4_calls), CASE(both_calls), CASE(both_v4), CASE(both_other),
    CASE(both_bypassed), CASE(late_hook), CASE(fuzz),
  };
  return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
