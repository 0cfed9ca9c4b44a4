/* Cases of a suspension on a fake NCCL whose calls can wait for a dead peer. This
 * program plays the agent as well. The cases "revoke_.." run on an NCCL that has
 * ncclCommRevoke, the others on one that has not. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "../../include/falcon_job.h"
#include "agent.h"
#include "nccl.h"

unsigned long fake_nccl_count(int what);
enum { CALLS, ABORTS, REVOKES, DESTROYS, INITS, MEMORY };
#define BLOCKS 777777777
#define NEVER_READY (BLOCKS + 1)
#define FIND(name) __typeof__(&name) f_##name = (__typeof__(&name))dlsym(RTLD_DEFAULT, #name); CHECK(f_##name)

static void *comm_of(int id) {
  void *c = NULL;
  CHECK(ncclCommInitRank(&c, 4, test_id(id), 1) == 0 && c);
  if (!b) b = shm_map();
  CHECK(b);
  return c;
}

static int reduce(void *c, size_t n) { return ncclAllReduce(NULL, NULL, n, 7, 0, c, NULL); }

static uint64_t suspended(void) {
  FIND(falcon_job_suspended);
  return f_falcon_job_suspended();
}

typedef struct blocked { void *comm; int n, rc; pthread_t id; } blocked;

static void *call(void *arg) {
  blocked *k = arg;
  k->rc = reduce(k->comm, BLOCKS);
  return NULL;
}

static void *make(void *arg) {
  blocked *k = arg;
  k->rc = ncclCommInitRank(&k->comm, k->n, test_id(50), 0);
  return NULL;
}

static void *make_in_group(void *arg) {
  blocked *k = arg;
  int one = ncclGroupStart() || ncclCommInitRank(&k->comm, k->n, test_id(51), 0);
  k->rc = ncclGroupEnd();
  return one ? NULL : arg;
}

static void aside(blocked *k, void *(*fn)(void *)) { CHECK(!pthread_create(&k->id, NULL, fn, k)); }
static void join(blocked *k) { CHECK(!pthread_join(k->id, NULL)); }

static void await_count(int what, unsigned long n) {
  for (int i = 0; i < 50000 && fake_nccl_count(what) < n; i++) usleep(200);
  CHECK(fake_nccl_count(what) == n);
}

/* Two threads wait for a dead peer, on a communicator each. */
static void two_blocked(blocked k[2]) {
  for (int i = 0; i < 2; i++) k[i] = (blocked){.comm = comm_of(i)};
  for (int i = 0; i < 2; i++) {
    aside(&k[i], call);
    await_count(CALLS, (unsigned long)i + 1);
  }
  CHECK(!suspended() && LOAD(CTL(b)->generation_now) == 3);
}

static void released(blocked k[2]) {
  put_suspend(4, 0);
  for (int i = 0; i < 2; i++) join(&k[i]);
  CHECK(k[0].rc && k[1].rc && await_suspended(4, 10000) && suspended() == 4 && LOAD(CTL(b)->suspended_ns));
  for (int i = 0; i < 2; i++) CHECK(LOAD(COMM(b, i)->state) == FALCON_COMM_ABORTED);
}

/* Nothing reaches NCCL, and letting go of them is fine. */
static void refused(blocked k[2]) {
  unsigned long calls = fake_nccl_count(CALLS), inits = fake_nccl_count(INITS);
  int async = 0;
  void *c = k;
  CHECK(reduce(k[0].comm, 8) == NCCL_REMOTE_ERROR && reduce(k[1].comm, 8) == NCCL_REMOTE_ERROR);
  CHECK(ncclGroupStart() == 0 && ncclAllGather(NULL, NULL, 8, 7, k[0].comm, NULL) == NCCL_REMOTE_ERROR);
  CHECK(ncclGroupEnd() == NCCL_REMOTE_ERROR && ncclGroupStart() == 0 && ncclGroupEnd() == 0);
  CHECK(ncclCommGetAsyncError(k[0].comm, &async) == 0 && async == NCCL_REMOTE_ERROR);
  CHECK(ncclCommInitRank(&c, 4, test_id(9), 1) == NCCL_REMOTE_ERROR && !c);
  CHECK(ncclCommSplit(k[0].comm, 0, 0, &c, NULL) == NCCL_REMOTE_ERROR);
  CHECK(fake_nccl_count(CALLS) == calls && fake_nccl_count(INITS) == inits);
  CHECK(ncclCommFinalize(k[0].comm) == 0 && ncclCommDestroy(k[0].comm) == 0 && ncclCommAbort(k[1].comm) == 0);
}

static void *park_now(void *arg) {
  FIND(falcon_job_park);
  static const int64_t steps[2] = {41, 42};
  static const uint64_t sums[2] = {7, 8};
  *(int *)arg = f_falcon_job_park(FALCON_PARK_SUSPENDED, steps, sums, NULL);
  return NULL;
}

static void rejoin(uint64_t generation) {
  pthread_t id;
  int rc = -9;
  CHECK(!pthread_create(&id, NULL, park_now, &rc));
  CHECK(await_parked(generation, 10000));
  put_rejoin(generation);
  CHECK(!pthread_join(id, NULL) && rc == FALCON_PARK_REJOIN && LOAD(CTL(b)->generation_now) == generation && !suspended());
}

/* Then all of it once more, with communicators at the same addresses. */
static void again(unsigned long *ended, int what) {
  *ended = fake_nccl_count(what);
  void *c = comm_of(1), *d = comm_of(2);
  CHECK(reduce(c, 8) == 0 && reduce(d, 8) == 0);
  put_suspend(5, 0);
  CHECK(await_suspended(5, 10000) && suspended() == 5 && fake_nccl_count(what) == *ended + 2);
  CHECK(reduce(c, 8) == NCCL_REMOTE_ERROR && reduce(d, 8) == NCCL_REMOTE_ERROR);
  rejoin(5);
  CHECK(reduce(c, 8) == NCCL_REMOTE_ERROR && ncclCommDestroy(c) == 0 && ncclCommDestroy(d) == 0);
  c = comm_of(3);
  CHECK(reduce(c, 8) == 0 && ncclCommDestroy(c) == 0);
}

static void case_abort_blocked(void) {
  blocked k[2];
  unsigned long ended;
  two_blocked(k);
  released(k);
  CHECK(fake_nccl_count(ABORTS) == 2);
  refused(k);
  CHECK(fake_nccl_count(ABORTS) == 2 && fake_nccl_count(DESTROYS) == 0); /* gone already */
  rejoin(4);
  again(&ended, ABORTS);
}

static void case_revoke_blocked(void) {
  blocked k[2];
  unsigned long ended;
  two_blocked(k);
  released(k);
  CHECK(fake_nccl_count(REVOKES) == 2 && fake_nccl_count(ABORTS) == 0);
  refused(k);
  CHECK(fake_nccl_count(DESTROYS) == 1 && fake_nccl_count(ABORTS) == 1); /* their memory was owed */
  rejoin(4);
  again(&ended, REVOKES);
}

/* A framework releases its registrations before it releases the communicator:
 * of an aborted one nothing is left that could be touched. */
static void let_go_of_memory(unsigned long reaching) {
  void *c = comm_of(1), *h = NULL, *w = NULL, *later = NULL;
  int op = 0, n = 0;
  CHECK(ncclCommRegister(c, NULL, 8, &h) == 0 && ncclCommWindowRegister(c, NULL, 8, &w, 1) == 0 && ncclDevCommCreate(c, NULL, NULL) == 0);
  CHECK(ncclRedOpCreatePreMulSum(&op, NULL, 7, 0, c) == 0 && ncclCommCount(c, &n) == 0 && n == 4);
  put_suspend(4, 0);
  CHECK(await_suspended(4, 10000) && fake_nccl_count(MEMORY) == 4);
  CHECK(ncclCommDeregister(c, h) == 0 && ncclCommWindowDeregister(c, w) == 0 && ncclDevCommDestroy(c, NULL) == 0 && ncclRedOpDestroy(op, c) == 0);
  CHECK(fake_nccl_count(MEMORY) == 4 + reaching);
  CHECK(ncclRedOpCreatePreMulSum(&op, NULL, 7, 0, c) == NCCL_REMOTE_ERROR && ncclCommCount(c, &n) == NCCL_REMOTE_ERROR);
  CHECK(ncclCommRegister(c, NULL, 8, &later) == NCCL_REMOTE_ERROR && ncclCommWindowRegister(c, NULL, 8, &later, 1) == NCCL_REMOTE_ERROR);
  CHECK(ncclDevCommCreate(c, NULL, NULL) == NCCL_REMOTE_ERROR && fake_nccl_count(MEMORY) == 4 + reaching);
  CHECK(ncclCommAbort(c) == 0);
}

static void case_memory(void) { let_go_of_memory(0); }
static void case_revoke_memory(void) { let_go_of_memory(4); }

/* A child whose handle came late, and that was not used before its parent ended. */
void fake_nccl_ready(void);
static void late_child(unsigned long owed) {
  void *p = comm_of(1), *c = p;
  int async = 0;
  setenv("FAKE_LATE", "1", 1);
  CHECK(ncclCommSplit(p, 1, 0, &c, NULL) == NCCL_IN_PROGRESS && !c);
  fake_nccl_ready();
  put_suspend(4, 0);
  CHECK(await_suspended(4, 10000) && c);
  unsigned long calls = fake_nccl_count(CALLS);
  CHECK(reduce(c, 8) == NCCL_REMOTE_ERROR && fake_nccl_count(CALLS) == calls);
  CHECK(ncclCommGetAsyncError(c, &async) == 0 && async == NCCL_REMOTE_ERROR);
  CHECK(ncclCommDestroy(c) == 0 && fake_nccl_count(DESTROYS) == 1 && ncclCommDestroy(p) == 0 && fake_nccl_count(DESTROYS) == 1 + owed);
}

static void case_late_child(void) { late_child(0); }
static void case_revoke_late_child(void) { late_child(1); }

/* Where an adapter takes the program to the rejoin, its watchdogs see no error; calls fail. */
static void case_described(void) {
  FIND(falcon_job_describe);
  void *c = comm_of(1);
  int async = 1;
  f_falcon_job_describe(1, 1, 1, 1);
  put_suspend(4, 0);
  CHECK(await_suspended(4, 10000) && ncclCommGetAsyncError(c, &async) == 0 && async == NCCL_SUCCESS);
  CHECK(ncclCommGetAsyncError(c, NULL) == NCCL_INVALID_ARGUMENT && reduce(c, 8) == NCCL_REMOTE_ERROR);
}

static void case_revoke_described(void) { case_described(); }

/* A rank in its optimizer finishes it, calls and all; or its time runs out. */
static void case_optimizer(void) {
  FIND(falcon_job_begin_iteration);
  FIND(falcon_job_begin_optimizer);
  FIND(falcon_job_end_optimizer);
  void *c = comm_of(1);
  f_falcon_job_begin_iteration(41);
  f_falcon_job_begin_optimizer(41);
  put_suspend(4, now_ns() + 60000 * MS);
  await_looks();
  CHECK(suspended() == 4 && LOAD(CTL(b)->suspended_generation) == 0 && reduce(c, 8) == 0);
  f_falcon_job_end_optimizer(42);
  CHECK(await_suspended(4, 10000) && reduce(c, 8) == NCCL_REMOTE_ERROR && LOAD(CTL(b)->step_tag) == 42);
  rejoin(4);
  c = comm_of(2);
  f_falcon_job_begin_optimizer(42);
  put_suspend(5, now_ns() + 100 * MS);
  CHECK(await_suspended(5, 10000) && LOAD(CTL(b)->step_tag) == -1 && LOAD(CTL(b)->suspended_ns) >= LOAD(CTL(b)->suspend_until_ns));
  rejoin(5); /* leaves the optimizer behind */
  c = comm_of(3);
  put_suspend(6, now_ns() + 60000 * MS);
  CHECK(await_suspended(6, 10000) && reduce(c, 8) == NCCL_REMOTE_ERROR);
}

/* Before the first iteration the tag is -1 as well, and nothing is awaited. */
static void case_before_training(void) {
  void *c = comm_of(1);
  CHECK(LOAD(CTL(b)->step_tag) == -1);
  put_suspend(4, now_ns() + 60000 * MS);
  CHECK(await_suspended(4, 10000) && reduce(c, 8) == NCCL_REMOTE_ERROR);
}

/* Creations that wait for a dead peer: alone, in a group, in the background. */
static void case_making(void) {
  comm_of(1);
  blocked k[2] = {{.n = BLOCKS}, {.n = BLOCKS}};
  void *ready = k, *c = k;
  int async = 0;
  aside(&k[0], make);
  await_count(INITS, 2);
  aside(&k[1], make_in_group);
  await_count(INITS, 3);
  nccl_config config = {.size = 48, .magic = NCCL_CONFIG_MAGIC};
  CHECK(ncclCommInitRankConfig(&ready, NEVER_READY, test_id(3), 0, &config) == NCCL_IN_PROGRESS && ready);
  CHECK(ncclCommGetAsyncError(ready, &async) == 0 && async == NCCL_IN_PROGRESS);
  put_suspend(4, 0);
  for (int i = 0; i < 2; i++) join(&k[i]);
  CHECK(k[0].rc == NCCL_REMOTE_ERROR && !k[0].comm && k[1].rc && !k[1].comm);
  CHECK(await_suspended(4, 10000) && fake_nccl_count(ABORTS) == 4);
  CHECK(ncclCommGetAsyncError(ready, &async) == 0 && async == NCCL_REMOTE_ERROR && ncclCommAbort(ready) == 0 && fake_nccl_count(ABORTS) == 4);
  CHECK(ncclCommInitRank(&c, 4, test_id(9), 1) == NCCL_REMOTE_ERROR && fake_nccl_count(INITS) == 4);
}

static void agent_of(pid_t job, const char *path) {
  int fd = -1;
  struct stat st = {0};
  for (int i = 0; i < 50000 && (fd = open(path, O_RDWR)) < 0; i++) usleep(200);
  while (!fstat(fd, &st) && !st.st_size) usleep(200); /* not there yet */
  b = mmap(NULL, sizeof(falcon_header) + FALCON_PAGE + sizeof(falcon_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  while (LOAD(HDR(b)->magic) != FALCON_SHM_MAGIC || LOAD(CTL(b)->iteration) != 5) usleep(200);
  CHECK(!kill(job, SIGSTOP));
  put_suspend(4, 0);
  CHECK(!kill(job, SIGCONT));
  exit(0);
}

/* Stopped when the word comes, it obeys when it goes on. */
static void case_frozen(void) {
  FIND(falcon_job_begin_iteration);
  char path[1024];
  snprintf(path, sizeof path, "%s", shm_path());
  pid_t job = getpid(), agent = fork();
  if (!agent) agent_of(job, path);
  void *c = comm_of(1);
  f_falcon_job_begin_iteration(5);
  int status;
  while (waitpid(agent, &status, 0) < 0) continue;
  CHECK(!status && await_suspended(4, 10000) && reduce(c, 8) == NCCL_REMOTE_ERROR);
}

/* An agent gone mad beside a job that makes, uses and ends communicators, and
 * parks when it has let go of all of them, as falcon_job_park asks. */
static _Atomic int stopping, calls_done;
static pthread_rwlock_t training = PTHREAD_RWLOCK_INITIALIZER;
static void *live(void *arg) {
  unsigned seed = (unsigned)(uintptr_t)arg;
  while (!stopping) {
    void *c = NULL;
    CHECK(!pthread_rwlock_rdlock(&training));
    int rc = ncclCommInitRank(&c, 4, test_id((int)seed), 1), async;
    for (int i = 0; !rc && i < 20; i++) CHECK(reduce(c, 8) != 2);
    CHECK(rc || ncclCommGetAsyncError(c, &async) == 0);
    CHECK(rc ? !c : ncclCommDestroy(c) == 0);
    CHECK(!pthread_rwlock_unlock(&training));
    calls_done++;
    if (rand_r(&seed) % 16 == 0) usleep(100);
  }
  return NULL;
}

static void *park_and_go(void *unused) {
  FIND(falcon_job_park);
  FIND(falcon_job_begin_optimizer);
  static falcon_job_order o;
  (void)unused;
  setenv("FALCON_PARK_MAX_S", "1", 1);
  while (!stopping) {
    f_falcon_job_begin_optimizer(1);
    CHECK(!pthread_rwlock_wrlock(&training));
    int rc = f_falcon_job_park(FALCON_PARK_SUSPENDED, NULL, NULL, &o);
    CHECK(rc == FALCON_PARK_STOP || rc == FALCON_PARK_NOBODY || (rc == FALCON_PARK_REJOIN && o.kind == FALCON_ORDER_REJOIN && o.n <= FALCON_ORDER_VALUES));
    CHECK(!pthread_rwlock_unlock(&training));
    usleep(3000);
  }
  return NULL;
}

static void meddle(unsigned *seed, uint64_t *generation) {
  int32_t v[FALCON_ORDER_VALUES];
  for (int i = 0; i < (int)FALCON_ORDER_VALUES; i++) v[i] = (int32_t)rand_r(seed) % 8 - 1;
  switch (rand_r(seed) % 6) {
    case 0: put_suspend(++*generation, now_ns() + (uint64_t)rand_r(seed) % 20 * MS); break;
    case 1: put_rejoin(*generation + (uint64_t)rand_r(seed) % 2); break;
    case 2: put_rejoin_as(*generation, FALCON_ORDER_REJOIN, *generation, v, (uint32_t)rand_r(seed) % 2000); break;
    case 3: scribble(&CTL(b)->rejoin, 64, seed); break;
    case 4: CTL(b)->agent_alive_ns = (uint64_t)rand_r(seed) << 40; break;
    default: mad_agent(seed, 4);
  }
  rouse();
}

static void case_fuzz(void) {
  unsigned seed = 5;
  uint64_t generation = 3;
  pthread_t id[4];
  comm_of(1);
  for (uintptr_t i = 0; i < 3; i++) CHECK(!pthread_create(&id[i], NULL, live, (void *)(i + 1)));
  CHECK(!pthread_create(&id[3], NULL, park_and_go, NULL));
  for (uint64_t end = now_ns() + 3000 * MS; now_ns() < end; usleep((unsigned)rand_r(&seed) % 2000)) meddle(&seed, &generation);
  stopping = 1;
  CTL(b)->stop_generation = 1;
  release();
  for (int i = 0; i < 4; i++) CHECK(!pthread_join(id[i], NULL));
  CHECK(calls_done > 50);
}

static void case_revoke_fuzz(void) { case_fuzz(); }

static const test_case cases[] = {
  CASE(abort_blocked), CASE(revoke_blocked), CASE(optimizer), CASE(before_training), CASE(making), CASE(frozen),
  CASE(fuzz), CASE(revoke_fuzz), CASE(memory), CASE(revoke_memory), CASE(described), CASE(revoke_described), CASE(late_child), CASE(revoke_late_child),
};

int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
