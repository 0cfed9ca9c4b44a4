/* The harness: a check, and this process's own shared-memory file. */
#ifndef FALCON_TEST_SHM_H
#define FALCON_TEST_SHM_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../include/falcon_shm.h"

#ifndef CHECK
#define CHECK(x) \
  do { \
    if (!(x)) { fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #x); exit(1); } \
  } while (0)
#endif

static inline const char *shm_path(void) {
  static char path[1024];
  const char *dir = getenv("FALCON_SHM_DIR"), *job = getenv("FALCON_JOB");
  snprintf(path, sizeof path, "%s/falcon.%s.%d", dir ? dir : "/dev/shm", job ? job : "job", (int)getpid());
  return path;
}

/* This process's own file, NULL where there is none. */
static inline char *shm_map(void) {
  int fd = open(shm_path(), O_RDWR);
  if (fd < 0) return NULL;
  struct stat st;
  CHECK(!fstat(fd, &st));
  char *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(p != MAP_FAILED);
  close(fd);
  CHECK(((falcon_header *)p)->magic == FALCON_SHM_MAGIC && ((falcon_header *)p)->file_bytes == (uint64_t)st.st_size);
  return p;
}

#define HDR(b) ((falcon_header *)(b))
#define CTL(b) ((falcon_control *)((b) + HDR(b)->control_offset))
#define COMM(b, i) ((falcon_comm *)((b) + HDR(b)->comms_offset) + (i))
#define TIMING(b, i) ((falcon_timing *)((b) + HDR(b)->timings_offset) + (i))
#define RING(b, i) ((falcon_ring *)((b) + HDR(b)->rings_offset + (i) * HDR(b)->ring_stride))
#define REC(b, ring, i) ((falcon_record *)((char *)RING(b, ring) + FALCON_PAGE) + ((i) & (FALCON_RING_SLOTS - 1)))
#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)

/* A program's cases: without an argument it lists them. */
#define CASE(n) {#n, case_##n}
typedef struct { const char *name; void (*run)(void); } test_case;

static inline int run_case(const test_case *cases, size_t n, int argc, char **argv) {
  for (size_t i = 0; i < n; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) { cases[i].run(); return 0; }
  }
  return argc < 2 ? 0 : 2;
}

#endif
