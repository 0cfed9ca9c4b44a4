#include "lab_state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(falcon_lab_header) <= FALCON_LAB_HEADER_BYTES, "header");
_Static_assert(sizeof(falcon_lab_gpu) == 256 && sizeof(falcon_lab_link) == 32, "entries of the state file");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const unsigned char *base;
static int node;

static void complain(const char *path, const char *why) {
  fprintf(stderr, "falcon lab: state file %s %s; running unpaced\n", path, why);
}

static const unsigned char *map_file(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    complain(path, "can't be opened");
    return NULL;
  }
  struct stat st;
  void *p = MAP_FAILED;
  /* A short file would fault on access later, so its size is checked first. */
  if (fstat(fd, &st) == 0 && st.st_size >= (off_t)FALCON_LAB_FILE_BYTES)
    p = mmap(NULL, FALCON_LAB_FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) {
    complain(path, "is too short");
    return NULL;
  }
  const falcon_lab_header *h = p;
  if (h->magic != FALCON_LAB_MAGIC || h->version != FALCON_LAB_VERSION) {
    complain(path, "has another magic or version");
    munmap(p, FALCON_LAB_FILE_BYTES);
    return NULL;
  }
  return p;
}

static void load(void) {
  const char *n = getenv("FALCON_LAB_NODE");
  if (n && *n) {
    char *end;
    long v = strtol(n, &end, 10);
    if (*end || v < 0 || v >= (long)FALCON_LAB_NODES)
      fprintf(stderr, "falcon lab: FALCON_LAB_NODE must be 0..%u; using 0\n", FALCON_LAB_NODES - 1);
    else
      node = (int)v;
  }
  const char *path = getenv("FALCON_LAB_STATE");
  if (path && *path) base = map_file(path);
}

const unsigned char *lab_state(void) {
  pthread_once(&once, load);
  return base;
}

int lab_node(void) {
  pthread_once(&once, load);
  return node;
}

const falcon_lab_header *lab_header(void) { return (const void *)lab_state(); }

const falcon_lab_gpu *lab_gpu(int n, int gpu) {
  const unsigned char *p = lab_state();
  if (!p || n < 0 || n >= (int)FALCON_LAB_NODES || gpu < 0 || gpu >= (int)FALCON_LAB_GPUS) return NULL;
  return (const falcon_lab_gpu *)(p + FALCON_LAB_GPU_OFFSET) + n * (int)FALCON_LAB_GPUS + gpu;
}

const falcon_lab_link *lab_link(int a, int b) {
  const unsigned char *p = lab_state();
  if (a > b) {
    int t = a;
    a = b;
    b = t;
  }
  if (!p || a < 0 || b >= (int)FALCON_LAB_NODES || a == b) return NULL;
  return (const falcon_lab_link *)(p + FALCON_LAB_LINK_OFFSET) + a * (int)FALCON_LAB_NODES + b;
}

uint64_t lab_u64(const uint64_t *field) { return __atomic_load_n(field, __ATOMIC_RELAXED); }
uint32_t lab_u32(const uint32_t *field) { return __atomic_load_n(field, __ATOMIC_RELAXED); }

/* NaN and values below least fall back: a half-written state must not stall a job. */
double lab_double(const double *field, double least, double fallback) {
  uint64_t bits = __atomic_load_n((const uint64_t *)(const void *)field, __ATOMIC_RELAXED);
  double v;
  memcpy(&v, &bits, sizeof v);
  return v >= least ? v : fallback;
}
