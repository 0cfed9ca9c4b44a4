/*
 * Inside of the profiler plug-in: what its parts ask of each other.
 *
 * Guarantees. NCCL gets success from every callback but init, and init fails only
 * where nothing can be recorded: then NCCL goes on without the plug-in. No
 * callback of a call waits, allocates, or reads through a handle: handles are
 * numbers, so one that NCCL keeps too long is only unknown. Memory is bounded
 * whatever NCCL does. Outside profile windows NCCL is asked for the events of
 * calls alone.
 *
 * One process writes one file. events.c is part of the hook as well: where the
 * hook is preloaded the plug-in hands everything to it, and a call is recorded by
 * whoever sees it first (falcon_thread.inside).
 */
#ifndef FALCON_PROFILER_H
#define FALCON_PROFILER_H

#include "../hook/hook.h"
#include "nccl_profiler.h"

#define FALCON_PROFILER_ABI 1u
#define FALCON_PROFILER_SYMBOL "falcon_profiler_events"
#define FALCON_CONTEXTS_MAX 1024u /* communicators alive at once; those beyond are not seen */
#define FALCON_NCCLS_MAX 8u       /* in one process */

/* The values of enum nccl_event that NCCL is asked for. */
#define FALCON_EVENTS_CALLS (NCCL_EVENT_GROUP_API | NCCL_EVENT_COLL_API | NCCL_EVENT_P2P_API)
#define FALCON_EVENTS_TASKS (NCCL_EVENT_COLL | NCCL_EVENT_P2P)
#define FALCON_EVENTS_TIMED (FALCON_EVENTS_TASKS | NCCL_EVENT_KERNEL)

/* One communicator as init names it. */
typedef struct falcon_profiled {
  uint64_t id;
  const char *name;
  int *mask; /* NCCL's, for all its communicators */
  int ranks, rank;
  uint32_t version; /* of the interface, 4 to 6 */
  void *caller;     /* code of the NCCL that calls */
} falcon_profiled;

/* What the hook exports to the plug-in under FALCON_PROFILER_SYMBOL. */
typedef struct falcon_profiler {
  uint32_t abi, bytes;
  int (*init)(void **context, const falcon_profiled *comm);
  nccl_profiler_start start;
  nccl_profiler_start start4;
  nccl_profiler_stop stop;
  nccl_profiler_state state;
  nccl_profiler_finalize finalize;
} falcon_profiler;

/* events.c */
#ifndef FALCON_EVENTS_SEEN /* the hook exports it, the plug-in keeps it to itself */
#define FALCON_EVENTS_SEEN "hidden"
#endif
extern const falcon_profiler falcon_profiler_events __attribute__((visibility(FALCON_EVENTS_SEEN)));
void falcon_events_ask(int events, bool on); /* of every NCCL; side thread */
void falcon_events_forked(void);
extern _Atomic bool falcon_events_several __attribute__((visibility("hidden"))); /* the process uses several GPUs, each with a timer of its own */

/* device.c, in the plug-in alone: the device's times in a window. A handle is NULL
 * where the call is not timed. */
typedef struct falcon_device {
  void *(*call)(const falcon_record *r);                    /* it is made now */
  void *(*task)(void *call, uint32_t channels, int peer);   /* it is launched */
  void *(*kernel)(void *task, uint64_t timer);              /* one channel of it begins on the device */
  void (*stop)(void *kernel, uint64_t timer);
} falcon_device;
extern const falcon_device *falcon_events_device; /* NULL in the hook, which has events of its own */

enum falcon_handle { FALCON_HANDLE_GROUP = 1, FALCON_HANDLE_CALL = 2, FALCON_HANDLE_TIMED = 3, FALCON_HANDLE_TASK = 4, FALCON_HANDLE_KERNEL = 5 };
static inline void *falcon_handle(uint32_t kind, uint64_t number) { return (void *)(uintptr_t)(number << 3 | kind); }
static inline uint32_t falcon_handle_kind(void *h) { return (uint32_t)((uintptr_t)h & 7); }
static inline uint64_t falcon_handle_number(void *h) { return (uint64_t)(uintptr_t)h >> 3; }

#endif
