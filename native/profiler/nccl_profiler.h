/*
 * NCCL's profiler interface by its binary shape, versions 4 to 6 (NCCL 2.27 to
 * 2.31 and what is compatible): what this plug-in reads of it. An event's
 * description begins alike in all of them; the type is one byte in version 4.
 * From version 5 on NCCL reports calls where the program makes them; in version 4
 * tasks alone, as they are launched.
 */
#ifndef FALCON_NCCL_PROFILER_H
#define FALCON_NCCL_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nccl_event {
  NCCL_EVENT_GROUP = 1 << 0, NCCL_EVENT_COLL = 1 << 1, NCCL_EVENT_P2P = 1 << 2, NCCL_EVENT_PROXY_OP = 1 << 3,
  NCCL_EVENT_PROXY_STEP = 1 << 4, NCCL_EVENT_PROXY_CTRL = 1 << 5, NCCL_EVENT_KERNEL = 1 << 6, NCCL_EVENT_NET = 1 << 7,
  NCCL_EVENT_GROUP_API = 1 << 8, NCCL_EVENT_COLL_API = 1 << 9, NCCL_EVENT_P2P_API = 1 << 10, NCCL_EVENT_LAUNCH = 1 << 11,
};

enum nccl_event_state { NCCL_STATE_KERNEL_STOP = 22, NCCL_STATE_GROUP_END = 24 };

/* A task: one call, or one part of a call, as it is launched. */
typedef struct nccl_task_coll {
  uint64_t sequence;
  const char *func;
  const void *send;
  void *recv;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
} nccl_task_coll;

typedef struct nccl_task_p2p {
  const char *func;
  void *buffer;
  const char *datatype;
  size_t count;
  int peer;
  uint8_t channels;
} nccl_task_p2p;

typedef struct nccl_event_descr {
  union { uint8_t type4; uint64_t type; };
  void *parent;
  int rank; /* 0 in events of calls, whatever the rank is */
  union {
    struct { bool captured; int depth; } group; /* depth 1: one call, without ncclGroupStart */
    struct { const char *func; size_t count; const char *datatype; int root; void *stream; bool captured; } call;
    struct { const char *func; size_t count; const char *datatype; void *stream; bool captured; } p2p_call; /* the peer is not given */
    nccl_task_coll coll;
    nccl_task_p2p p2p;
    struct { uint8_t channel; uint64_t timer; } kernel; /* the GPU's timer in ns */
  };
} nccl_event_descr;

typedef union nccl_event_args { struct { uint64_t timer; } kernel; } nccl_event_args;

_Static_assert(offsetof(nccl_event_descr, group) == 24, "the union of events lies at 24");
_Static_assert(offsetof(nccl_task_coll, datatype) == 48, "datatype of a collective");
_Static_assert(offsetof(nccl_task_p2p, channels) == 36, "channels of a send or receive");

typedef int (*nccl_profiler_start)(void *context, void **handle, nccl_event_descr *e);
typedef int (*nccl_profiler_stop)(void *handle);
typedef int (*nccl_profiler_state)(void *handle, int state, nccl_event_args *args);
typedef int (*nccl_profiler_finalize)(void *context);

typedef struct nccl_profiler_v4 {
  const char *name;
  int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_id, int nodes, int ranks, int rank, void *log);
  nccl_profiler_start start;
  nccl_profiler_stop stop;
  nccl_profiler_state state;
  nccl_profiler_finalize finalize;
} nccl_profiler_v4;

typedef struct nccl_profiler_v5 {
  const char *name;
  int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes, int ranks, int rank, void *log);
  nccl_profiler_start start;
  nccl_profiler_stop stop;
  nccl_profiler_state state;
  nccl_profiler_finalize finalize;
} nccl_profiler_v5;

#endif
