/*
 * What the hook adds to one call: the same loop of ncclAllReduce on a library
 * that does nothing, in a process with the hook and in one without. Run by
 * `make bench`, which starts this program as its own child with and without
 * LD_PRELOAD, in turn, and compares the medians. One JSON line per thread count.
 *
 * Each thread has a communicator of its own, as training threads do. With more
 * threads than cores the threads take turns on a core; what counts is the CPU
 * time of a call (CLOCK_THREAD_CPUTIME_ID over a batch), not the wait for a core.
 *
 * The last line is of one process with the hook, whose recording rests and goes on in turn
 * (falcon_bench_rest): pairs within a millisecond, in random order, which drift and
 * neighbours disturb alike. A call that passes a resting hook is left out of it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "test/bench.h"
#include "test/nccl.h"

#define BATCH 2000
#define BATCHES 400
#define PAIRS 7
#define THREADS_MAX 4

static double batch_ns[THREADS_MAX * BATCHES];
static pthread_barrier_t barrier;

static void *work(void *arg) {
  int me = (int)(intptr_t)arg;
  void *comm = NULL;
  CHECK(ncclCommInitRank(&comm, 2, test_id(me), 0) == 0);
  for (int i = 0; i < 2 * (int)FALCON_RING_SLOTS; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL); /* once round the ring */
  pthread_barrier_wait(&barrier);
  for (int k = 0; k < BATCHES; k++) {
    double t = cpu_ns();
    for (int i = 0; i < BATCH; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL);
    batch_ns[me * BATCHES + k] = (cpu_ns() - t) / BATCH;
  }
  return NULL;
}

/* One process: prints the median ns of a call. It refuses to measure a hook
 * that is not there, or one that is and should not. */
static int child(int threads, int hooked) {
  pthread_t id[THREADS_MAX];
  CHECK(!pthread_barrier_init(&barrier, NULL, (unsigned)threads));
  for (int i = 0; i < threads; i++) CHECK(!pthread_create(&id[i], NULL, work, (void *)(intptr_t)i));
  for (int i = 0; i < threads; i++) CHECK(!pthread_join(id[i], NULL));
  CHECK(!hooked == !shm_map());
  printf("%.3f\n", median(batch_ns, threads * BATCHES));
  return 0;
}

#define TURN 500
#define SWITCHES 400

/* One process with the hook: both states of each pair, in an order that is drawn. */
static int switched(void) {
  static double added[SWITCHES];
  int (*rest)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "falcon_bench_rest");
  void *comm = NULL;
  uint32_t draw = 2463534242u; /* xorshift: the same order each time */
  CHECK(rest && ncclCommInitRank(&comm, 2, test_id(0), 0) == 0);
  for (int i = 0; i < 2 * (int)FALCON_RING_SLOTS; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL);
  for (int k = 0; k < SWITCHES; k++) {
    double ns[2];
    draw ^= draw << 13, draw ^= draw >> 17, draw ^= draw << 5;
    for (int turn = 0; turn < 2; turn++) {
      int resting = turn ^ (int)(draw & 1);
      CHECK(!rest(resting));
      for (int i = 0; i < TURN / 10; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL); /* caches and branches */
      double t = cpu_ns();
      for (int i = 0; i < TURN; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL);
      ns[resting] = (cpu_ns() - t) / TURN;
    }
    added[k] = ns[0] - ns[1];
  }
  double middle = median(added, SWITCHES), from_to[2];
  interval95(added, SWITCHES, from_to);
  printf("{\"bench\":\"hook_switch\",\"pairs\":%d,\"calls_per_turn\":%d,\"added_ns\":%.1f,\"interval95_ns\":[%.1f,%.1f]}\n",
         SWITCHES, TURN, middle, from_to[0], from_to[1]);
  return 0;
}

static double run(const char *self, const char *hook, int threads) {
  char cmd[4096], line[64] = "";
  snprintf(cmd, sizeof cmd, "%s%s %s %d %d", *hook ? "LD_PRELOAD=" : "", hook, self, threads, *hook != 0);
  FILE *f = popen(cmd, "r");
  CHECK(f && fgets(line, sizeof line, f));
  CHECK(pclose(f) == 0);
  return atof(line);
}

int main(int argc, char **argv) {
  CHECK(argc == 3); /* THREADS HOOKED for a child, switched HOOK for that one, or: run HOOK */
  if (!strcmp(argv[1], "switched")) return switched();
  if (strcmp(argv[1], "run")) return child(atoi(argv[1]), atoi(argv[2]));
  for (int threads = 1; threads <= THREADS_MAX; threads += THREADS_MAX - 1) {
    double off[PAIRS], on[PAIRS], added[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
      off[i] = run(argv[0], "", threads);
      on[i] = run(argv[0], argv[2], threads);
      added[i] = on[i] - off[i];
    }
    double middle = median(added, PAIRS);
    printf("{\"bench\":\"hook_call\",\"threads\":%d,\"pairs\":%d,\"calls_per_run\":%d,\"off_ns\":%.1f,\"on_ns\":%.1f,"
           "\"added_ns\":%.1f,\"added_min_ns\":%.1f,\"added_max_ns\":%.1f}\n",
           threads, PAIRS, threads * BATCH * BATCHES, median(off, PAIRS), median(on, PAIRS), middle, added[0], added[PAIRS - 1]);
    fflush(stdout);
  }
  char cmd[4096];
  snprintf(cmd, sizeof cmd, "FALCON_BENCH=1 LD_PRELOAD=%s %s switched %s", argv[2], argv[0], argv[2]);
  return system(cmd) != 0;
}
