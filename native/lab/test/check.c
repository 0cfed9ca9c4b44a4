#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char state_path[64];
static pid_t state_owner;

/* The process that made the state file removes it; its children do not. */
static void remove_state(void) {
  if (getpid() != state_owner) return;
  char busy[sizeof state_path + 8];
  snprintf(busy, sizeof busy, "%s.busy", state_path); /* what the CUDA stand-in counts beside it */
  unlink(state_path);
  unlink(busy);
}

unsigned char *state_create(int nodes, int gpus) {
  if (!state_path[0]) {
    snprintf(state_path, sizeof state_path, "/tmp/falcon-lab-test.XXXXXX");
    int fd = mkstemp(state_path);
    CHECK(fd >= 0);
    close(fd);
    state_owner = getpid();
    atexit(remove_state);
  }
  int fd = open(state_path, O_RDWR);
  CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && ftruncate(fd, FALCON_LAB_FILE_BYTES) == 0);
  unsigned char *p = mmap(NULL, FALCON_LAB_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(p != MAP_FAILED);
  close(fd);
  falcon_lab_header *h = state_header(p);
  *h = (falcon_lab_header){.magic = FALCON_LAB_MAGIC, .version = FALCON_LAB_VERSION, .nodes = (uint32_t)nodes,
                           .gpus_per_node = (uint32_t)gpus, .peak_flops = 1e9, .intra_bytes_per_s = 10e9,
                           .intra_latency_s = 2e-6, .inter_bytes_per_s = 1e9, .inter_latency_s = 10e-6};
  for (int n = 0; n < (int)FALCON_LAB_NODES; n++) {
    for (int g = 0; g < (int)FALCON_LAB_GPUS; g++)
      *state_gpu(p, n, g) = (falcon_lab_gpu){.clock = 1, .host_share = 1, .load = 1, .max_sm_mhz = 1980,
                                             .sm_mhz = 1980, .temperature_c = 45, .power_mw = 400000,
                                             .power_limit_mw = 700000};
    for (int b = n + 1; b < (int)FALCON_LAB_NODES; b++)
      *state_link(p, n, b) = (falcon_lab_link){.bandwidth = 1, .latency = 1};
  }
  setenv("FALCON_LAB_STATE", state_path, 1);
  return p;
}

falcon_lab_header *state_header(unsigned char *state) { return (falcon_lab_header *)(void *)state; }

falcon_lab_gpu *state_gpu(unsigned char *state, int node, int gpu) {
  return (falcon_lab_gpu *)(void *)(state + FALCON_LAB_GPU_OFFSET) + node * (int)FALCON_LAB_GPUS + gpu;
}

falcon_lab_link *state_link(unsigned char *state, int a, int b) {
  return (falcon_lab_link *)(void *)(state + FALCON_LAB_LINK_OFFSET) + a * (int)FALCON_LAB_NODES + b;
}

void state_set(double *field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  __atomic_store_n((uint64_t *)(void *)field, bits, __ATOMIC_RELAXED);
}

void *shared(size_t n) {
  void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

void gate_wait(void *gate) {
  while (!atomic_load((atomic_int *)gate)) usleep(200);
  usleep(3000); /* real time beyond the model's tolerance: the chain restarts now, after every enqueue */
}

void gate_open(void *gate) { atomic_store((atomic_int *)gate, 1); }

static int64_t now_ms(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Reaps n children; 0 when all left well (or by our tests' own SIGKILL). */
static int reap(const char *name, pid_t *pids, int n, int seconds) {
  int64_t until = now_ms() + seconds * 1000;
  int bad = 0, left = n;
  while (left > 0) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      for (int i = 0; i < n; i++)
        if (pids[i] == pid) pids[i] = 0;
      left--;
      int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      if (!killed && status) bad = 1;
      continue;
    }
    if (now_ms() > until) {
      fprintf(stderr, "%s: hung\n", name);
      for (int i = 0; i < n; i++)
        if (pids[i]) kill(pids[i], SIGABRT);
      bad = 1;
      until = INT64_MAX;
    }
    usleep(1000);
  }
  return bad;
}

void run_ranks(const char *name, int n, rank_fn fn, void *arg, int seconds) {
  pid_t pids[64];
  int64_t t = now_ms();
  CHECK(n <= 64);
  fflush(NULL);
  for (int i = 0; i < n; i++) {
    pids[i] = fork();
    CHECK(pids[i] >= 0);
    if (pids[i] == 0) {
      fn(i, n, arg);
      exit(0);
    }
  }
  if (reap(name, pids, n, seconds)) {
    fprintf(stderr, "FAIL %s\n", name);
    exit(1);
  }
  printf("ok   %-44s %5d ms\n", name, (int)(now_ms() - t));
}

static void call(int rank, int n, void *arg) {
  (void)rank;
  (void)n;
  (*(void (**)(void))arg)();
}

void run_alone(const char *name, void (*fn)(void), int seconds) { run_ranks(name, 1, call, &fn, seconds); }
