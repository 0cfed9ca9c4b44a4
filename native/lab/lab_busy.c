#include "lab_busy.h"

#include "lab_state.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (FALCON_LAB_NODES * FALCON_LAB_GPUS * sizeof(lab_busy))

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(lab_busy *) base;

/* The file is made by whoever comes first. */
static lab_busy *map_file(int make) {
  const char *state = getenv("FALCON_LAB_STATE");
  char path[PATH_MAX];
  if (!state || !*state || snprintf(path, sizeof path, "%s.busy", state) >= (int)sizeof path) return NULL;
  int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
  if (fd < 0) return NULL;
  void *p = MAP_FAILED;
  if (!ftruncate(fd, (off_t)BYTES)) p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return p == MAP_FAILED ? NULL : p;
}

static lab_busy *entry(int node, int gpu, int make) {
  if (node < 0 || node >= (int)FALCON_LAB_NODES || gpu < 0 || gpu >= (int)FALCON_LAB_GPUS) return NULL;
  lab_busy *b = base;
  if (!b) {
    pthread_mutex_lock(&mu);
    if (!(b = base)) base = b = map_file(make);
    pthread_mutex_unlock(&mu);
  }
  return b ? b + node * (int)FALCON_LAB_GPUS + gpu : NULL;
}

void lab_busy_add(int gpu, int64_t ns, int computes) {
  if (ns <= 0 || !lab_state()) return;
  lab_busy *b = entry(lab_node(), gpu, 1);
  if (!b) return;
  __atomic_fetch_add(&b->any_ns, (uint64_t)ns, __ATOMIC_RELAXED);
  if (computes) __atomic_fetch_add(&b->sm_ns, (uint64_t)ns, __ATOMIC_RELAXED);
}

lab_busy lab_busy_read(int node, int gpu) {
  lab_busy *b = entry(node, gpu, 0);
  if (!b) return (lab_busy){0, 0};
  return (lab_busy){__atomic_load_n(&b->any_ns, __ATOMIC_RELAXED), __atomic_load_n(&b->sm_ns, __ATOMIC_RELAXED)};
}
