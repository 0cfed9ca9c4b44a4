/*
 * A real NCCL's side of the profiler interface, without a GPU: inside LIBRARY
 * init|calls NAME=OFFSET ... No communicator can be made, so the functions of the
 * library that load a plug-in, open a communicator for it and report a call are
 * called one by one, at the offsets that its symbol table gives, with a
 * communicator that is all zeros. What the plug-in then has is what this NCCL gave
 * it, in its own layouts. Prints what became records.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../test/shm.h"

#define COMM_BYTES (64u << 20) /* more than any NCCL's communicator */

/* A call as NCCL passes it on inside; its layout has not changed since 2.27. */
typedef struct call {
  int coll;
  const char *name;
  const void *send;
  void *recv;
  size_t count;
  int type, op, root;
  void *comm, *stream;
  char rest[512];
} call;

static char *base;
static int args;
static char **arg;

static void *at(const char *name) {
  size_t n = strlen(name);
  for (int i = 3; i < args; i++)
    if (!strncmp(arg[i], name, n) && arg[i][n] == '=') return base + strtoull(arg[i] + n + 1, NULL, 16);
  return NULL;
}

static void *zeros(void) {
  void *p = mmap(NULL, COMM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

typedef int (*plain)(void);
typedef int (*with_comm)(void *comm);
typedef int (*with_call)(call *c, bool captured);
typedef int (*with_state)(int state);

static plain group_start, group_end;

/* As ncclEnqueueCheck and what it calls do. */
static void report(call *c, int p2p) {
  CHECK(group_start() == 0);
  ((with_call)at("StartGroupApi"))(c, false);
  ((with_state)at("RecordGroupApi"))(23);
  ((with_call)at(p2p ? "StartP2pApi" : "StartCollApi"))(c, false);
  ((plain)at(p2p ? "StopP2pApi" : "StopCollApi"))();
  CHECK(group_end() == 0);
}

static void report_calls(void *comm) {
  call c = {.coll = 4, .name = "AllReduce", .count = 256, .type = 7, .comm = comm, .stream = (void *)0x10};
  report(&c, 0);
  CHECK(group_start() == 0);
  report(&c, 0);
  c.coll = 6;
  report(&c, 1);
  CHECK(group_end() == 0);
}

int main(int argc, char **argv) {
  Dl_info info;
  args = argc;
  arg = argv;
  void *nccl = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(nccl && argc > 3);
  group_start = (plain)dlsym(nccl, "ncclGroupStart");
  group_end = (plain)dlsym(nccl, "ncclGroupEnd");
  CHECK(group_start && group_end && dladdr((void *)group_start, &info));
  base = info.dli_fbase;
  void *comm = zeros();
  CHECK(((with_comm)at("PluginInit"))(comm) == 0);
  int *mask = at("EventMask");
  if (!strcmp(argv[2], "calls")) report_calls(comm);
  char *b = shm_map();
  if (b) {
    printf("mask %x, version %u, bound %u, %s;", mask ? *mask : 0, CTL(b)->nccl_version, CTL(b)->bound, COMM(b, 0)->state == FALCON_COMM_LIVE ? "open" : "not open");
    for (uint64_t i = 0; i < LOAD(RING(b, 0)->head); i++) {
      falcon_record *r = REC(b, 0, i);
      printf(" %u:%lu:%u:%lx:%u", r->op, (unsigned long)r->count, r->dtype, (unsigned long)r->stream, r->flags);
    }
    ((with_comm)at("PluginFinalize"))(comm);
    printf("; %s\n", COMM(b, 0)->state == FALCON_COMM_GONE ? "closed" : "not closed");
  } else {
    puts("no file");
  }
  fflush(NULL);
  return 0;
}
