/* What the cases of a pause (t_pause.c, t_hold.c) share, on the fake NCCL and
 * CUDA runtime: one thread that is held, and the little around it. */
#ifndef FALCON_TEST_PAUSED_H
#define FALCON_TEST_PAUSED_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "../../include/falcon_job.h"
#include "agent.h"
#include "nccl.h"

unsigned long fake_nccl_calls(void *c);
void fake_cuda_work(void *stream, unsigned long ns);
extern _Atomic int fake_cuda_spoils, fake_cuda_elsewhere;
int cudaSetDevice(int device);
int cudaStreamQuery(void *stream);

#define S1 ((void *)0x10)
#define S2 ((void *)0x20)
#define CAPTURING ((void *)0xCAFE0)

static inline void *comm_of(int id) {
  void *c = NULL;
  CHECK(cudaSetDevice(3) == 0 && ncclCommInitRank(&c, 4, test_id(id), 1) == 0 && c);
  b = shm_map();
  CHECK(b);
  return c;
}

static inline int reduce(void *comm, void *stream) { return ncclAllReduce(NULL, NULL, 8, 7, 0, comm, stream); }

static inline void await_trapped(void) {
  for (int i = 0; i < 10000 && !LOAD(CTL(b)->trapped_ns); i++) usleep(500);
  CHECK(LOAD(CTL(b)->trapped_ns));
}

static _Atomic int stopping __attribute__((unused));

static void *comm;
static _Atomic int calls_done, last_rc;
static void *call_stream = S1;

static inline void *call_once(void *unused) {
  (void)unused;
  last_rc = reduce(comm, call_stream);
  calls_done++;
  return NULL;
}

static inline pthread_t call_aside(void) {
  pthread_t id;
  CHECK(!pthread_create(&id, NULL, call_once, NULL));
  return id;
}

/* One communicator at its cut of n calls more; the caller has none of them left. */
static inline void armed(uint64_t id, uint64_t ms, uint64_t n) {
  order(id, ms);
  CHECK(arm(0, count(0) + n));
  rouse();
}

/* Held whole at its start: not a call of it has begun. */
static inline void *group(void *unused) {
  (void)unused;
  CHECK(ncclGroupStart() == 0 && reduce(comm, S1) == 0 && reduce(comm, S2) == 0 && ncclGroupEnd() == 0);
  calls_done++;
  return NULL;
}

#endif
