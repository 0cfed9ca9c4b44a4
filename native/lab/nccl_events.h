/*
 * NCCL's side of its profiler interface, played as NCCL 2.28 does (2.27 with
 * $FALCON_LAB_PROFILER=4, 2.29 with 6): which callbacks come, in which order, on
 * which thread, and with which handles. That includes what is odd there: the rank
 * in events of calls is always 0, and the handle of a collective's call stays with
 * the thread and is stopped again where its next call asks for no event.
 */
#ifndef FALCON_LAB_NCCL_EVENTS_H
#define FALCON_LAB_NCCL_EVENTS_H

#include <stddef.h>
#include <stdint.h>

/* Of a communicator. */
typedef struct events_comm { void *context; int opened, rank; } events_comm;

/* Of a call, from its issue to its end on the device. */
typedef struct events_task {
  int mask, p2p;
  const char *func, *type;
  size_t count;
  int root;
  void *api, *event, *kernel;
} events_task;

typedef struct events_call {
  const char *func; /* "AllReduce" */
  int p2p, type, root, captured;
  size_t count;
  void *stream;
} events_call;

/* Loads what $NCCL_PROFILER_PLUGIN names at the first communicator, and closes it with the last. */
void events_open(events_comm *c, uint64_t id, int ranks, int rank, const char *name);
void events_close(events_comm *c);

/* Around each call and each group: depth is counted here. */
void events_enter(void);
void events_leave(void (*launch)(void *), void *arg); /* launch runs before the event of the group ends */

void events_issue(events_comm *c, const events_call *k, events_task *t);
void events_launch(events_comm *c, events_task *tasks, int n); /* of one launch */
/* One channel's work on the device, by the device's timer; on any thread. */
void events_begin(events_comm *c, events_task *t, uint64_t timer);
void events_end(events_task *t, uint64_t timer);

#endif
