/* Cases of a program that is linked to NCCL. No argument lists them. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "agent.h"
#include "nccl.h"

static void *comm_of(int id, int n, int rank) {
  void *c = NULL;
  CHECK(ncclCommInitRank(&c, n, test_id(id), rank) == 0 && c);
  return c;
}

static uint64_t fnv(const void *p, size_t n) {
  uint64_t h = 14695981039346656037ull;
  for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
  return h;
}

static void case_inert(void) {
  CHECK(ncclGroupStart() == 0 && ncclGroupEnd() == 0);
  CHECK(!shm_map());
  void *c = comm_of(1, 8, 2);
  CHECK(shm_map());
  CHECK(ncclCommDestroy(c) == 0);
}

static void case_header(void) {
  comm_of(1, 8, 2);
  char *b = shm_map();
  falcon_header *h = HDR(b);
  CHECK(h->pid == (uint32_t)getpid() && h->rank == 2 && h->world == 8 && h->local_rank == -1);
  CHECK(!strcmp(h->job, "t") && !strcmp(h->device, "n1.g0"));
  CHECK(h->calib_mono_ns > h->start_mono_ns && h->calib_ticks > h->start_ticks);
  struct stat st;
  CHECK(!stat(shm_path(), &st) && (st.st_mode & 0777) == 0600);
  uint64_t before = LOAD(CTL(b)->heartbeat_ns);
  for (int i = 0; i < 1000 && LOAD(CTL(b)->heartbeat_ns) == before; i++) usleep(10000);
  CHECK(LOAD(CTL(b)->heartbeat_ns) > before);
}

static void case_records(void) {
  void *c = comm_of(7, 4, 1);
  char *b = shm_map();
  nccl_unique_id id = test_id(7);
  CHECK(COMM(b, 0)->id == fnv(&id, sizeof id) && COMM(b, 0)->size == 4 && COMM(b, 0)->rank == 1 && COMM(b, 0)->device == 3);
  CHECK(COMM(b, 0)->state == FALCON_COMM_LIVE && COMM(b, 0)->generation == 1 && !(COMM(b, 0)->seq & 1));
  CHECK(ncclAllReduce(NULL, NULL, 100, 7, 0, c, (void *)0x55) == 0);
  CHECK(ncclBroadcast(NULL, NULL, 5, 1, 3, c, NULL) == 0);
  CHECK(ncclAllReduce(NULL, NULL, 666, 7, 0, c, NULL) == 2);
  CHECK(LOAD(RING(b, 0)->head) == 3 && RING(b, 0)->tid != 0);
  falcon_record *r = REC(b, 0, 0);
  CHECK(r->seq == 1 && r->op == FALCON_OP_ALLREDUCE && r->dtype == 7 && r->count == 100 && r->stream == 0x55);
  CHECK(r->peer == -1 && r->comm == 0 && r->ordinal == 0 && r->flags == 0 && r->step == 0xffffffffu && r->enter <= r->exit);
  r = REC(b, 0, 1);
  CHECK(r->op == FALCON_OP_BROADCAST && r->peer == 3 && r->ordinal == 1 && r->enter >= REC(b, 0, 0)->exit);
  CHECK(REC(b, 0, 2)->flags == FALCON_REC_FAILED && REC(b, 0, 2)->ordinal == 2);
  CHECK(COMM(b, 0)->gate == 3);
  CHECK(CTL(b)->coverage == (FALCON_COV_INIT | FALCON_COV_COLL));
  CHECK(LOAD(CTL(b)->bound) == FALCON_BOUND_NEEDED && LOAD(CTL(b)->nccl_version) == 22700);
}

/* What NCCL calls itself is not a call of the program. */
static void case_nested(void) {
  void *c = comm_of(7, 4, 1);
  char *b = shm_map();
  CHECK(ncclBcast(NULL, 9, 0, 2, c, NULL) == 0);
  CHECK(ncclAllGather(NULL, NULL, 1, 0, c, NULL) == 0);
  CHECK(LOAD(RING(b, 0)->head) == 2 && REC(b, 0, 0)->op == FALCON_OP_BROADCAST && REC(b, 0, 0)->peer == 2);
  CHECK(REC(b, 0, 1)->ordinal == 1);
}

static void case_group(void) {
  void *c = comm_of(7, 4, 1);
  char *b = shm_map();
  CHECK(ncclGroupStart() == 0 && ncclGroupStart() == 0);
  CHECK(ncclSend(NULL, 10, 7, 2, c, NULL) == 0 && ncclRecv(NULL, 11, 7, 0, c, NULL) == 0);
  CHECK(ncclGroupEnd() == 0 && ncclGroupEnd() == 0);
  CHECK(ncclSend(NULL, 12, 7, 2, c, NULL) == 0);
  static const uint8_t ops[] = {FALCON_OP_GROUPSTART, FALCON_OP_GROUPSTART, FALCON_OP_SEND, FALCON_OP_RECV, FALCON_OP_GROUPEND, FALCON_OP_GROUPEND, FALCON_OP_SEND};
  static const uint8_t depths[] = {0, 1, 2, 2, 1, 0, 0};
  CHECK(LOAD(RING(b, 0)->head) == 7);
  for (int i = 0; i < 7; i++) CHECK(REC(b, 0, i)->op == ops[i] && REC(b, 0, i)->depth == depths[i]);
  CHECK(REC(b, 0, 2)->flags == FALCON_REC_GROUPED && REC(b, 0, 6)->flags == 0);
  CHECK(REC(b, 0, 2)->ordinal == 0 && REC(b, 0, 3)->ordinal == 1 && REC(b, 0, 6)->ordinal == 2);
  CHECK(REC(b, 0, 0)->comm == FALCON_COMM_NONE && REC(b, 0, 3)->peer == 0);
}

/* Made in a group, a communicator exists from the group's end on. */
static void case_group_init(void) {
  void *c[2] = {NULL, NULL};
  char name[] = "PIPELINE";
  nccl_config cfg = {.size = sizeof cfg, .magic = NCCL_CONFIG_MAGIC, .commName = name};
  CHECK(ncclGroupStart() == 0);
  CHECK(ncclCommInitRankConfig(&c[0], 2, test_id(1), 0, &cfg) == 0 && ncclCommInitRank(&c[1], 2, test_id(2), 1) == 0);
  memset(name, 'x', sizeof name - 1); /* the program's string need not live longer */
  char *b = shm_map();
  CHECK(COMM(b, 0)->state == FALCON_COMM_FREE);
  CHECK(ncclGroupEnd() == 0);
  CHECK(COMM(b, 0)->state == FALCON_COMM_LIVE && COMM(b, 1)->state == FALCON_COMM_LIVE && COMM(b, 1)->rank == 1);
  CHECK(!strcmp(COMM(b, 0)->name, "PIPELINE") && !COMM(b, 1)->name[0]);
  CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c[1], NULL) == 0);
  CHECK(COMM(b, 1)->gate == 1 && COMM(b, 0)->gate == 0);
}

static void case_split(void) {
  void *p = comm_of(1, 8, 2), *c[3], *none = p;
  nccl_config cfg = {.size = sizeof cfg, .magic = NCCL_CONFIG_MAGIC, .commName = "DATA_PARALLEL\x1b[31m"};
  char *b = shm_map();
  CHECK(ncclCommSplit(p, 1, 0, &c[0], &cfg) == 0);
  CHECK(ncclCommSplit(p, -1, 0, &none, NULL) == 0 && !none);
  CHECK(ncclCommSplit(p, 1, 0, &c[1], NULL) == 0);
  cfg.size = 48; /* 2.26: no such field */
  CHECK(ncclCommSplit(p, 0, 0, &c[2], &cfg) == 0);
  CHECK(COMM(b, 1)->parent == COMM(b, 0)->id && COMM(b, 1)->size == 4 && COMM(b, 1)->rank == 1);
  CHECK(!strcmp(COMM(b, 1)->name, "DATA_PARALLEL?[31m") && !COMM(b, 2)->name[0] && !COMM(b, 3)->name[0]);
  CHECK(COMM(b, 1)->id != COMM(b, 2)->id && COMM(b, 2)->id != COMM(b, 3)->id && COMM(b, 4)->state == FALCON_COMM_FREE);
  struct { uint64_t parent; uint32_t ordinal; int32_t color; } key = {COMM(b, 0)->id, 2, 1};
  CHECK(COMM(b, 2)->id == fnv(&key, sizeof key)); /* the split without a color counted */
}

static void case_others(void) {
  void *all[3], *s;
  nccl_unique_id ids[2] = {test_id(1), test_id(2)};
  CHECK(ncclCommInitAll(all, 3, NULL) == 0 && ncclCommInitRankScalable(&s, 200, 150, 2, ids, NULL) == 0);
  char *b = shm_map();
  for (int i = 0; i < 3; i++) CHECK(COMM(b, i)->id == COMM(b, 0)->id && COMM(b, i)->rank == i && COMM(b, i)->size == 3);
  CHECK(COMM(b, 3)->id == fnv(ids, sizeof ids) && COMM(b, 3)->rank == 150);
}

/* A pointer that is reused is another communicator. */
static void case_reuse(void) {
  void *c = comm_of(1, 2, 0);
  char *b = shm_map();
  ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL);
  CHECK(ncclCommFinalize(c) == 0 && COMM(b, 0)->state == FALCON_COMM_GONE);
  CHECK(ncclCommDestroy(c) == 0);
  void *d = comm_of(2, 4, 3);
  CHECK(COMM(b, 1)->state == FALCON_COMM_LIVE && COMM(b, 0)->gate == 1 && COMM(b, 1)->gate == 0);
  ncclAllReduce(NULL, NULL, 1, 0, 0, d, NULL);
  CHECK(COMM(b, 1)->gate == 1 && REC(b, 0, 1)->comm == 1);
  CHECK(ncclCommAbort(d) == 0 && COMM(b, 1)->state == FALCON_COMM_ABORTED);
  for (int i = 0; i < 5000; i++) CHECK(ncclCommDestroy(comm_of(3 + i, 2, 0)) == 0);
  CHECK(COMM(b, 0)->generation > 10 && COMM(b, 0)->gate == 0);
  void *last = comm_of(1, 2, 0);
  ncclAllReduce(NULL, NULL, 1, 0, 0, last, NULL);
  CHECK(COMM(b, REC(b, 0, 2)->comm)->handle == (uint64_t)(uintptr_t)last);
}

/* A finalized communicator's slot goes to another before its destruction,
 * which must not end the other. */
static void case_finalize(void) {
  void *old = comm_of(1, 2, 0), *c = NULL;
  char *b = shm_map();
  CHECK(ncclCommFinalize(old) == 0);
  for (int i = 0; i < (int)FALCON_COMMS_MAX; i++) c = comm_of(2 + i, 2, 0);
  CHECK(COMM(b, 0)->generation == 2 && COMM(b, 0)->handle == (uint64_t)(uintptr_t)c);
  CHECK(ncclCommDestroy(old) == 0 && COMM(b, 0)->state == FALCON_COMM_LIVE);
  CHECK(ncclCommDestroy(c) == 0 && COMM(b, 0)->state == FALCON_COMM_GONE);
}

/* 300 communicators at once do not fit: the calls of the last are still recorded. */
static void case_too_many(void) {
  void *c = NULL;
  for (int i = 0; i < 300; i++) c = comm_of(i, 2, 0);
  char *b = shm_map();
  for (int i = 0; i < 3; i++) CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  CHECK(LOAD(RING(b, 0)->head) == 3 && REC(b, 0, 2)->comm == FALCON_COMM_NONE);
}

static void case_async(void) {
  setenv("FAKE_ASYNC", "1", 1);
  void *c = NULL;
  nccl_config cfg = {.size = sizeof cfg, .magic = NCCL_CONFIG_MAGIC, .commName = "x"};
  CHECK(ncclCommInitRankConfig(&c, 4, test_id(1), 1, &cfg) == 7);
  char *b = shm_map();
  CHECK(COMM(b, 0)->size == 4 && COMM(b, 0)->device == -1);
  for (int i = 0; i < 3; i++) ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL);
  CHECK(COMM(b, 0)->size == 4 && COMM(b, 0)->device == 3 && COMM(b, 0)->gate == 3);
}

static void case_overwrite(void) {
  void *c = comm_of(1, 2, 0);
  char *b = shm_map();
  uint64_t n = 3 * FALCON_RING_SLOTS + 5;
  for (uint64_t i = 0; i < n; i++) ncclAllReduce(NULL, NULL, i + 1, 0, 0, c, NULL);
  CHECK(LOAD(RING(b, 0)->head) == n);
  for (uint64_t i = n - FALCON_RING_SLOTS; i < n; i++) CHECK(REC(b, 0, i)->seq == i + 1 && REC(b, 0, i)->ordinal == i && REC(b, 0, i)->count == i + 1);
}

static pthread_barrier_t barrier;
static void *thread_body(void *c) {
  for (int i = 0; i < 100; i++) ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return NULL;
}

static void case_threads(void) {
  enum { N = FALCON_RINGS_MAX + 2 };
  pthread_t id[N];
  void *c = comm_of(1, 2, 0);
  char *b = shm_map();
  for (int round = 0; round < 3; round++) {
    CHECK(!pthread_barrier_init(&barrier, NULL, N + 1));
    for (int i = 0; i < N; i++) CHECK(!pthread_create(&id[i], NULL, thread_body, c));
    pthread_barrier_wait(&barrier);
    uint64_t total = 0;
    for (uint32_t i = 0; i < FALCON_RINGS_MAX; i++) { total += LOAD(RING(b, i)->head); CHECK(LOAD(RING(b, i)->tid)); }
    CHECK(total == (uint64_t)(round + 1) * FALCON_RINGS_MAX * 100);
    CHECK(LOAD(CTL(b)->records_lost) == (uint64_t)(round + 1) * 2 * 100);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < N; i++) CHECK(!pthread_join(id[i], NULL));
    for (uint32_t i = 0; i < FALCON_RINGS_MAX; i++) CHECK(!LOAD(RING(b, i)->tid));
  }
  CHECK(COMM(b, 0)->gate == 3u * N * 100);
}

static void case_fork(void) {
  void *c = comm_of(1, 2, 0);
  char *b = shm_map();
  ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL);
  pid_t child = fork();
  if (!child) {
    for (int i = 0; i < 10; i++) ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL);
    exit(ncclCommDestroy(c)); /* runs the destructor, which must leave the file */
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(LOAD(RING(b, 0)->head) == 1 && COMM(b, 0)->gate == 1 && COMM(b, 0)->state == FALCON_COMM_LIVE);
  CHECK(!access(shm_path(), F_OK));
}

/* A launcher passes the hook on, a training process does not. */
static void case_children(void) {
  const char *hook = getenv("TEST_HOOK");
  char other[2048], cmd[4096];
  CHECK(strstr(getenv("LD_PRELOAD"), hook));
  const char *first = strchr(getenv("LD_PRELOAD"), ':');
  snprintf(cmd, sizeof cmd, "case \"$LD_PRELOAD\" in *libfalcon_hook.so*) exit 0;; *) exit 1;; esac");
  CHECK(system(cmd) == 0);
  comm_of(1, 2, 0);
  CHECK(!strstr(getenv("LD_PRELOAD"), "falcon_hook"));
  CHECK(system(cmd) != 0);
  snprintf(other, sizeof other, "%s", getenv("LD_PRELOAD"));
  CHECK(!first || strlen(other) > 5); /* what else was preloaded stays */
}

static void case_crash(void) {
  pid_t child = fork();
  if (!child) {
    comm_of(1, 2, 0);
    CHECK(!access(shm_path(), F_OK));
    kill(getpid(), SIGKILL);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  char path[1024];
  snprintf(path, sizeof path, "%s/falcon.t.%d", getenv("FALCON_SHM_DIR"), (int)child);
  CHECK(!unlink(path)); /* it was left */
}

/* No directory to write to: as if the hook were absent. */
static void case_no_shm(void) {
  setenv("FALCON_SHM_DIR", "/nonexistent", 1);
  void *c = comm_of(1, 2, 0);
  for (int i = 0; i < 10; i++) CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  CHECK(ncclGroupStart() == 0 && ncclGroupEnd() == 0 && ncclCommDestroy(c) == 0);
}

/* A function that this NCCL lacks is not found, and fails cleanly if it is
 * called all the same (a program linked against a newer header). */
int ncclCommRevoke(void *c, int flags);
static void case_missing(void) {
  CHECK(!dlsym(RTLD_DEFAULT, "ncclCommRevoke") && dlerror());
  CHECK(dlsym(RTLD_DEFAULT, "ncclAllReduce") == (void *)ncclAllReduce);
  CHECK(ncclCommRevoke(NULL, 0) == NCCL_SYSTEM_ERROR);
}

/* What bounds NCCL's choice is noted once, at the first communicator; what is too long is not. */
static void case_environment(void) {
  char big[80] = "";
  for (size_t i = 0; i + 1 < sizeof big; i++) big[i] = 'x';
  setenv("NCCL_ALGO", "allreduce:tree", 1);
  setenv("NCCL_PROTO", big, 1);
  setenv("NCCL_MIN_NCHANNELS", "4", 1);
  setenv("NCCL_MAX_NCHANNELS", "4", 1);
  comm_of(1, 2, 0);
  b = shm_map();
  CHECK(LOAD(CTL(b)->nccl_env) == 1 && !strcmp(CTL(b)->nccl_algo, "allreduce:tree") && !CTL(b)->nccl_proto[0] && CTL(b)->nccl_channels == 4);
  setenv("NCCL_ALGO", "ring", 1);
  comm_of(2, 2, 0);
  CHECK(!strcmp(CTL(b)->nccl_algo, "allreduce:tree"));
}

/* A worker says how often its elastic agent will still start it again; so no process of a launch, and no other. */
static void case_elastic(void) {
  static const struct { const char *run, *most, *count, *generation; uint32_t left; } given[] = {
    {"none", "3", "1", NULL, 2}, {"none", "3", NULL, NULL, 3}, {"none", "3", "3", NULL, 0}, {"none", "0", "0", NULL, 0},
    {NULL, "3", "0", NULL, 0}, {"none", "many", "0", NULL, 0}, {"none", NULL, "0", NULL, 0}, {"none", "3", "0", "7", 0},
  };
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    pid_t child = fork();
    if (!child) {
      const char *names[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "FALCON_GENERATION"};
      const char *values[] = {given[i].run, given[i].most, given[i].count, given[i].generation};
      for (int k = 0; k < 4; k++) values[k] ? setenv(names[k], values[k], 1) : unsetenv(names[k]);
      void *c = comm_of(1, 2, 0);
      falcon_control *ctl = CTL(shm_map());
      CHECK(ctl->elastic_restarts == given[i].left && ctl->elastic_parent == (given[i].left ? (uint32_t)getppid() : 0));
      CHECK(ncclCommDestroy(c) == 0);
      exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

/* An NCCL that can more than the hook knows is reported, any other is not. */
static void case_stranger(void) {
  int strange = getenv("TEST_STRANGE") != NULL;
  void *c = comm_of(1, 2, 0);
  CHECK(!dlsym(RTLD_DEFAULT, "ncclFoldLeft") == !strange);
  CHECK(!(CTL(shm_map())->coverage & FALCON_COV_UNKNOWN) == !strange);
  CHECK(ncclCommDestroy(c) == 0);
  if (strange) return;
  char path[4096], hook[4096];
  snprintf(path, sizeof path, "%s/strange:%s", getenv("TEST_DIR"), getenv("TEST_DIR"));
  snprintf(hook, sizeof hook, "%s%s%s", getenv("LD_PRELOAD"), *getenv("LD_PRELOAD") ? ":" : "", getenv("TEST_HOOK"));
  setenv("LD_LIBRARY_PATH", path, 1);
  setenv("LD_PRELOAD", hook, 1);
  setenv("TEST_STRANGE", "1", 1);
  execl("/proc/self/exe", "t_linked", "stranger", NULL);
  CHECK(!"exec failed");
}

/* Without CUDA it is unknown whether the streams have drained: no pause. */
static void case_no_cuda(void) {
  void *c = comm_of(1, 2, 0);
  b = shm_map();
  order(1, 20000);
  CHECK(arm(0, 0));
  rouse();
  CHECK(await_state(1, FALCON_PAUSE_REFUSED, 10000) && LOAD(CTL(b)->pause_reason) == FALCON_REASON_NO_CUDA);
  CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  CHECK(!LOAD(CTL(b)->test_workspace));
}

/* Recording rests only where a measurement asked for it, and goes on where it was. */
static void case_bench_rest(void) {
  int (*rest)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "falcon_bench_rest");
  CHECK(rest && rest(1) == -1); /* no measurement */
  setenv("FALCON_BENCH", "1", 1);
  CHECK(rest(1) == -1); /* nothing is hooked yet */
  void *c = comm_of(1, 2, 0);
  b = shm_map();
  CHECK(!ncclAllReduce(NULL, NULL, 1, 7, 0, c, NULL));
  uint64_t head = LOAD(RING(b, 0)->head), gate = LOAD(COMM(b, 0)->gate);
  CHECK(head && gate && !rest(1));
  for (int i = 0; i < 10; i++) CHECK(!ncclAllReduce(NULL, NULL, 1, 7, 0, c, NULL));
  CHECK(LOAD(RING(b, 0)->head) == head && LOAD(COMM(b, 0)->gate) == gate && !rest(0));
  CHECK(!(LOAD(CTL(b)->coverage) & FALCON_COV_UNHOOKED));
  CHECK(!ncclAllReduce(NULL, NULL, 1, 7, 0, c, NULL) && LOAD(RING(b, 0)->head) == head + 1 && LOAD(COMM(b, 0)->gate) == gate + 1);
}

#include "t_adapter.h"
#include "t_later.h"

static const struct { const char *name; void (*run)(void); } cases[] = {
#define C(n) {#n, case_##n}
  C(inert), C(header), C(records), C(nested), C(group), C(group_init), C(split), C(others), C(reuse), C(finalize), C(too_many),
  C(async), C(overwrite), C(threads), C(fork), C(children), C(crash), C(no_shm), C(missing), C(environment), C(elastic), C(stranger), C(no_cuda), C(marks), C(mesh), C(raised), C(mailbox), C(checkpoint), C(place),
  C(late_split), C(late_unasked), C(late_reused), C(late_group), C(late_nocolor), C(late_gone), C(traffic), C(bench_rest),
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) { cases[i].run(); return 0; }
  }
  return argc < 2 ? 0 : 2;
}
