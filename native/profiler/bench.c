/*
 * What the plug-in adds to one call: the same loop of ncclAllReduce on a library
 * that does nothing but call a profiler plug-in as NCCL does, in a process with the
 * plug-in and in one without. Run by `make bench`, which starts this program as its
 * own child in both ways, in turn, and compares the medians. JSON lines as those of
 * the hook's bench: CPU time of a call (CLOCK_THREAD_CPUTIME_ID over a batch).
 * What NCCL spends on describing its events is in it.
 */
#include <sys/wait.h>
#include <time.h>

#include "../hook/test/bench.h"
#include "../hook/test/nccl.h"

#define BATCH 2000
#define BATCHES 200
#define PAIRS 7

/* One process: prints the median ns of a call. It refuses to measure a plug-in that
 * is not there, or one that is and should not. */
static int child(int plugged) {
  static double batch_ns[BATCHES];
  void *comm = NULL;
  CHECK(ncclCommInitRank(&comm, 2, test_id(1), 0) == 0);
  for (int i = 0; i < 2 * (int)FALCON_RING_SLOTS; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL); /* once round the ring */
  for (int k = 0; k < BATCHES; k++) {
    double t = cpu_ns();
    for (int i = 0; i < BATCH; i++) ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL);
    batch_ns[k] = (cpu_ns() - t) / BATCH;
  }
  CHECK(!plugged == !shm_map());
  printf("%.3f\n", median(batch_ns, BATCHES));
  return 0;
}

static double run(const char *self, const char *plugin) {
  char cmd[4096], line[64] = "";
  snprintf(cmd, sizeof cmd, "NCCL_PROFILER_PLUGIN=%s %s %d", *plugin ? plugin : "none", self, *plugin != 0);
  FILE *f = popen(cmd, "r");
  CHECK(f && fgets(line, sizeof line, f));
  CHECK(pclose(f) == 0);
  return atof(line);
}

int main(int argc, char **argv) {
  CHECK(argc == 2 || argc == 3); /* PLUGGED for a child, or: run PLUGIN */
  if (strcmp(argv[1], "run")) return child(atoi(argv[1]));
  double off[PAIRS], on[PAIRS], added[PAIRS];
  for (int i = 0; i < PAIRS; i++) {
    off[i] = run(argv[0], "");
    on[i] = run(argv[0], argv[2]);
    added[i] = on[i] - off[i];
  }
  double middle = median(added, PAIRS);
  printf("{\"bench\":\"profiler_call\",\"threads\":1,\"pairs\":%d,\"calls_per_run\":%d,\"off_ns\":%.1f,\"on_ns\":%.1f,"
         "\"added_ns\":%.1f,\"added_min_ns\":%.1f,\"added_max_ns\":%.1f}\n",
         PAIRS, BATCH * BATCHES, median(off, PAIRS), median(on, PAIRS), middle, added[0], added[PAIRS - 1]);
  return 0;
}
