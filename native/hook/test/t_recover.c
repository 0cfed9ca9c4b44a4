/*
 * A job that loses a rank three times and goes on in the same processes, on the
 * lab's stand-ins: one is killed and one is stopped while the others wait for it
 * in a collective, one dies before it joins the new group, so that the others
 * wait for it in the creation. Each rank is a process; its main thread plays its
 * agent, its training runs on a thread of its own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "../../include/falcon_job.h"
#include "../../lab/test/world.h"
#include "agent.h"

#define RANKS 5
#define ROUNDS 3
#define FIRST 4 /* generation of the first recovery: the launch's is 3 */
#define ITERATIONS 20

enum { DEAD, PARKED, DONE }; /* flags of a round's board */

typedef struct job {
  board *round; /* a board for each group */
  int rank;
  uint64_t generation;
  _Atomic int slowest_us;
} job;

static int members(uint64_t generation) { return RANKS - (generation < FIRST ? 0 : (int)(generation - FIRST) + 1); }
static board *board_of(const job *j) { return &j->round[j->generation < FIRST ? 0 : j->generation - FIRST + 1]; }

/* The last rank of the first two groups, and the last that is ordered to join the third. */
static int is_victim(const job *j, int joining) {
  return j->rank == members(j->generation) - 1 && (joining ? j->generation == FIRST + 1 : j->generation <= FIRST);
}

static void die(job *j) {
  board *bd = board_of(j);
  CHECK(!unlink(shm_path())); /* what a crash leaves is the agent's to remove, and there is none here */
  bd->word[0] = getpid();
  atomic_store(&bd->flag[DEAD], 1);
  raise(j->generation == FIRST ? SIGSTOP : SIGKILL);
}

static uint64_t suspended(void) {
  static uint64_t (*f)(void);
  if (!f) f = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "falcon_job_suspended");
  return f();
}

/* The group of this generation, NULL when a suspension came between. */
static ncclComm_t build(job *j) {
  board *bd = board_of(j);
  ncclComm_t c = NULL;
  if (is_victim(j, 1)) die(j);
  if (j->rank == 0) {
    OK(ncclGetUniqueId(&bd->id));
    atomic_store(&bd->ready, 1);
  }
  while (!atomic_load(&bd->ready) && !suspended()) usleep(200);
  if (suspended()) return NULL;
  ncclResult_t rc = ncclCommInitRank(&c, members(j->generation), bd->id, j->rank);
  CHECK(rc == ncclSuccess || (suspended() && !c));
  return c;
}

/* Until it fails, or all iterations of the last group are through; then 1. */
static int train(job *j, ncclComm_t c, cudaStream_t s) {
  for (int i = 0; i < ITERATIONS || j->generation < FIRST + ROUNDS - 1; i++) {
    int x = 1, y = 0;
    ncclResult_t rc = ncclAllReduce(&x, &y, 1, ncclInt, ncclSum, c, s);
    if (rc == ncclSuccess && i == ITERATIONS && is_victim(j, 0)) die(j);
    cudaError_t end = cudaStreamSynchronize(s);
    if (rc != ncclSuccess || end != cudaSuccess) return 0;
    CHECK(y == members(j->generation));
  }
  return 1;
}

static void *run(void *arg) {
  job *j = arg;
  __typeof__(&falcon_job_park) park = (__typeof__(&falcon_job_park))dlsym(RTLD_DEFAULT, "falcon_job_park");
  static falcon_job_order order;
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (;;) {
    ncclComm_t c = build(j);
    int through = c && train(j, c, s);
    int x = 7;
    OK(cudaMemsetAsync(&x, 0, sizeof x, s)); /* the stream goes on */
    OK(cudaStreamSynchronize(s));
    CHECK(x == 0);
    if (c) OK(ncclCommDestroy(c));
    if (through) return NULL;
    CHECK(park(FALCON_PARK_SUSPENDED, NULL, NULL, &order) == FALCON_PARK_REJOIN);
    CHECK(order.epoch > j->generation); /* one is left out where the next fault came before it was taken */
    j->generation = order.epoch;
  }
}

/* One recovery, as the agent of a survivor sees it. */
static void recover(job *j, uint64_t generation) {
  board *bd = &j->round[generation - FIRST];
  int left = members(generation);
  while (!atomic_load(&bd->flag[DEAD])) usleep(200);
  uint64_t begun = now_ns();
  put_suspend(generation, 0);
  CHECK(await_parked(generation, 60000));
  int us = (int)((LOAD(CTL(b)->suspended_ns) - begun) / 1000);
  if (us > atomic_load(&j->slowest_us)) atomic_store(&j->slowest_us, us);
  meet_flag(bd, PARKED, left);
  put_rejoin(generation);
}

static void rank_main(int rank, int n, void *arg) {
  static job j;
  pthread_t id;
  (void)n;
  j = (job){.round = arg, .rank = rank, .generation = FIRST - 1};
  __typeof__(&falcon_job_describe) describe = (__typeof__(&falcon_job_describe))dlsym(RTLD_DEFAULT, "falcon_job_describe");
  CHECK(describe);
  describe(1, RANKS, 1, 1);
  b = shm_map();
  CHECK(b);
  OK(pthread_create(&id, NULL, run, &j));
  for (uint64_t g = FIRST; g < FIRST + ROUNDS; g++) recover(&j, g);
  OK(pthread_join(id, NULL));
  meet_flag(&j.round[ROUNDS], DONE, members(FIRST + ROUNDS - 1));
  if (rank) return;
  printf("     released in at most %.1f ms\n", atomic_load(&j.slowest_us) / 1e3);
  OK(kill((pid_t)j.round[1].word[0], SIGKILL)); /* the one that was stopped */
}

int main(int argc, char **argv) {
  setenv("FALCON_LAB_INIT_TIMEOUT_S", "1000", 1);
  if (argc < 2) puts("recover");
  else run_ranks(argv[1], RANKS, rank_main, shared((ROUNDS + 1) * sizeof(board)), 110);
  return 0;
}
