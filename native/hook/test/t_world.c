/*
 * Many pauses of a whole job at random moments, on the lab's stand-ins without
 * pace: collectives that hang for good if one rank is held before the cut and
 * another beyond it. Each rank is a process; its main thread plays its agent,
 * its training runs on a thread of its own.
 */
#include <pthread.h>
#include <unistd.h>

#include "../../lab/test/world.h"
#include "agent.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RANKS 4
#define PAUSES 30
#else
#define RANKS 16
#define PAUSES 200
#endif
#define WORD_K 63

/* Calls per iteration on the world, on the row and on the column. */
enum { WORLD, ROW, COLUMN, COMMS };
static const uint64_t calls[COMMS] = {3, 2, 3};

typedef struct job {
  board *bd;
  int rank, n;
  ncclComm_t comm[COMMS];
  cudaStream_t s[2];
} job;

static void meet(board *bd, int n) {
  static int times;
  meet_flag(bd, 0, n * ++times);
}

static void iterate(job *j, int x[4], int *over) {
  int next = (j->rank + 1) % j->n, before = (j->rank + j->n - 1) % j->n;
  for (int i = 0; i < 2; i++) OK(ncclAllReduce(&x[0], &x[0], 1, ncclInt, ncclMax, j->comm[ROW], j->s[0]));
  OK(ncclGroupStart());
  OK(ncclSend(&x[1], 1, ncclInt, next, j->comm[WORLD], j->s[1]));
  OK(ncclRecv(&x[2], 1, ncclInt, before, j->comm[WORLD], j->s[1]));
  OK(ncclGroupEnd());
  for (int i = 0; i < 3; i++) OK(ncclAllReduce(&x[3], &x[3], 1, ncclInt, ncclMax, j->comm[COLUMN], j->s[1]));
  OK(ncclAllReduce(over, over, 1, ncclInt, ncclMax, j->comm[WORLD], j->s[0]));
  OK(cudaStreamSynchronize(j->s[0]));
  OK(cudaStreamSynchronize(j->s[1]));
}

/* Rank 0 says when it is over, and all ranks hear it in the same iteration. */
static void *train(void *arg) {
  job *j = arg;
  unsigned seed = (unsigned)j->rank;
  int x[4] = {0}, over = 0;
  while (!over) {
    over = j->rank == 0 && atomic_load(&j->bd->flag[1]);
    x[1] = (int)j->bd->word[j->rank];
    iterate(j, x, &over);
    CHECK(x[2] == x[1]); /* the neighbour is in the same iteration */
    atomic_fetch_add(&j->bd->word[j->rank], 1);
    usleep((unsigned)rand_r(&seed) % 500);
  }
  return NULL;
}

static void check_cut(uint64_t k) {
  for (int c = 0; c < COMMS; c++) CHECK(count(c) == k * calls[c]);
}

/* One pause; 1 when it held, 0 when some rank was beyond the cut already. */
static int pause_once(job *j, uint64_t id, unsigned *seed) {
  board *bd = j->bd;
  meet(bd, j->n);
  if (j->rank == 0) {
    int64_t k = 0;
    for (int r = 0; r < j->n; r++) k = bd->word[r] > k ? bd->word[r] : k;
    bd->word[WORD_K] = k + 2 + (int64_t)((unsigned)rand_r(seed) % 3);
  }
  meet(bd, j->n);
  uint64_t k = (uint64_t)bd->word[WORD_K];
  order(id, 50000);
  int ok = 1;
  for (int c = 0; c < COMMS; c++) ok &= arm(c, k * calls[c]);
  rouse();
  bd->word[RANKS + j->rank] = ok;
  meet(bd, j->n);
  for (int r = 0; r < j->n; r++) ok &= (int)bd->word[RANKS + r];
  if (ok) {
    CHECK(await_state(id, FALCON_PAUSE_QUIET, 40000));
    check_cut(k);
    meet(bd, j->n);
    check_cut(k);
    meet(bd, j->n);
  }
  CHECK(await_seen(id, 40000)); /* one that is taken back before is never taken up */
  release();
  CHECK(await_state(id, FALCON_PAUSE_RELEASED, 10000));
  return ok;
}

static void rank_main(int rank, int n, void *arg) {
  static job j;
  unsigned seed = 5;
  pthread_t id;
  j = (job){.bd = arg, .rank = rank, .n = n};
  j.comm[WORLD] = world(arg, rank, n);
  OK(ncclCommSplit(j.comm[WORLD], rank / 4, rank, &j.comm[ROW], NULL));
  OK(ncclCommSplit(j.comm[WORLD], rank % 4, rank, &j.comm[COLUMN], NULL));
  for (int i = 0; i < 2; i++) OK(cudaStreamCreateWithFlags(&j.s[i], cudaStreamNonBlocking));
  b = shm_map();
  CHECK(b);
  OK(pthread_create(&id, NULL, train, &j));
  int held = 0;
  for (uint64_t i = 1; i <= PAUSES; i++) {
    held += pause_once(&j, i, &seed);
    usleep((unsigned)rand_r(&seed) % 20000);
  }
  atomic_store(&j.bd->flag[1], 1);
  OK(pthread_join(id, NULL));
  CHECK(held >= PAUSES / 2);
  if (rank == 0) printf("     %d ranks held %d of %d times, %ld iterations\n", n, held, PAUSES, (long)j.bd->word[0]);
  for (int c = COMMS - 1; c >= 0; c--) OK(ncclCommDestroy(j.comm[c]));
}

int main(int argc, char **argv) {
  if (argc < 2) puts("pauses");
  else run_ranks(argv[1], RANKS, rank_main, shared(sizeof(board)), 115);
  return 0;
}
