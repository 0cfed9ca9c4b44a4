#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "nccl_events.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../profiler/nccl_profiler.h"

#define NAMES_MAX 1100
#define STATE_START_STOP 23 /* ncclGroupStart is over */
#define CHANNELS 2

static const char *const types[] = {"ncclInt8", "Unknown", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64",
                                    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static int references, failed, version;
static union { const nccl_profiler_v4 *v4; const nccl_profiler_v5 *v5; } plugin;
static nccl_profiler_start start;
static nccl_profiler_stop stop;
static nccl_profiler_state record;
static int mask; /* the plug-in's, at any time */

static __thread struct { int depth, profiled, mask, begun; void *group, *coll, *p2p; } api;

static void *open_library(const char *name) {
  char path[NAMES_MAX];
  void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (lib) return lib;
  snprintf(path, sizeof path, "libnccl-profiler-%s.so", name);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static int pick(void) {
  const char *newest = getenv("FALCON_LAB_PROFILER");
  char name[32];
  for (version = newest ? atoi(newest) : 5; version >= 4; version--) {
    snprintf(name, sizeof name, "ncclProfiler_v%d", version);
    const void *p = dlsym(library, name);
    if (!p) continue;
    if (version == 4) plugin.v4 = p;
    else plugin.v5 = p;
    start = version == 4 ? plugin.v4->start : plugin.v5->start;
    stop = version == 4 ? plugin.v4->stop : plugin.v5->stop;
    record = version == 4 ? plugin.v4->state : plugin.v5->state;
    return 1;
  }
  return 0;
}

/* Under the lock. */
static int load(void) {
  const char *name = getenv("NCCL_PROFILER_PLUGIN");
  if (failed || !name || !*name || !strcasecmp(name, "none")) return 0;
  if (references || ((library = open_library(name)) && pick())) return ++references;
  if (library) dlclose(library);
  library = NULL;
  failed = 1;
  return 0;
}

void events_open(events_comm *c, uint64_t id, int ranks, int rank, const char *name) {
  pthread_mutex_lock(&lock);
  c->rank = rank;
  c->opened = load() > 0;
  pthread_mutex_unlock(&lock);
  if (!c->opened) return;
  if (version == 4) plugin.v4->init(&c->context, &mask, name, id, 1, ranks, rank, NULL);
  else plugin.v5->init(&c->context, id, &mask, name, 1, ranks, rank, NULL);
}

void events_close(events_comm *c) {
  if (!c->opened) return;
  if (c->context) (version == 4 ? plugin.v4->finalize : plugin.v5->finalize)(c->context);
  pthread_mutex_lock(&lock);
  if (!--references) {
    dlclose(library);
    library = NULL;
    start = NULL;
  }
  pthread_mutex_unlock(&lock);
  c->opened = 0;
}

/* ---- calls ---- */

void events_enter(void) {
  if (api.profiled > 0) api.profiled++;
  api.depth++;
}

void events_leave(void (*launch)(void *), void *arg) {
  if (api.profiled > 0) api.profiled--;
  if (!api.profiled && start && api.group && api.begun) record(api.group, NCCL_STATE_GROUP_END, NULL);
  if (!api.profiled) api.begun = 0;
  api.depth--;
  if (launch) launch(arg);
  if (start && api.group && !api.profiled) {
    stop(api.group);
    api.group = NULL;
  }
}

static void start_group(events_comm *c, int captured) {
  api.mask = version == 4 ? 0 : __atomic_load_n(&mask, __ATOMIC_RELAXED);
  if (!api.mask || api.profiled) return;
  nccl_event_descr e = {.type = NCCL_EVENT_GROUP_API, .group = {.captured = captured, .depth = api.depth}};
  start(c->context, &api.group, &e);
  api.profiled = api.depth;
  if (api.group) record(api.group, STATE_START_STOP, NULL);
  api.begun = 1;
}

static void start_p2p(events_comm *c, const events_call *k) {
  nccl_event_descr e = {.type = NCCL_EVENT_P2P_API, .parent = api.group,
                        .p2p_call = {.func = k->func, .count = k->count, .datatype = types[k->type], .stream = k->stream, .captured = k->captured}};
  if (api.mask & (NCCL_EVENT_P2P_API | NCCL_EVENT_P2P | NCCL_EVENT_KERNEL)) start(c->context, &api.p2p, &e);
}

static void start_coll(events_comm *c, const events_call *k) {
  nccl_event_descr e = {.type = NCCL_EVENT_COLL_API, .parent = api.group,
                        .call = {.func = k->func, .count = k->count, .datatype = types[k->type], .root = k->root, .stream = k->stream, .captured = k->captured}};
  if (api.mask & (NCCL_EVENT_COLL_API | NCCL_EVENT_COLL | NCCL_EVENT_KERNEL)) start(c->context, &api.coll, &e);
}

void events_issue(events_comm *c, const events_call *k, events_task *t) {
  *t = (events_task){.p2p = k->p2p, .func = k->func, .type = types[k->type], .count = k->count, .root = k->root};
  if (!c->opened) return;
  start_group(c, k->captured);
  if (api.mask) (k->p2p ? start_p2p : start_coll)(c, k);
  t->mask = version == 4 ? __atomic_load_n(&mask, __ATOMIC_RELAXED) : api.mask;
  t->api = version == 4 ? NULL : k->p2p ? api.p2p : api.coll;
  if (version == 4) return;
  if (k->p2p && api.p2p) {
    stop(api.p2p);
    api.p2p = NULL;
  } else if (!k->p2p && api.coll) {
    stop(api.coll); /* and it stays */
  }
}

static void start_task(events_comm *c, events_task *t) {
  nccl_event_descr e = {.parent = t->api, .rank = c->rank};
  int type = t->p2p ? NCCL_EVENT_P2P : NCCL_EVENT_COLL;
  if (!(t->mask & (type | NCCL_EVENT_KERNEL))) return;
  if (version == 4) e.type4 = (uint8_t)type;
  else e.type = (uint64_t)type;
  if (t->p2p) e.p2p = (nccl_task_p2p){.func = t->func, .datatype = t->type, .count = t->count, .peer = t->root, .channels = CHANNELS};
  else e.coll = (nccl_task_coll){.func = t->func, .datatype = t->type, .count = t->count, .root = t->root, .channels = CHANNELS, .algorithm = "RING", .protocol = "SIMPLE"};
  start(c->context, &t->event, &e);
}

void events_launch(events_comm *c, events_task *tasks, int n) {
  void *group = NULL;
  if (!c->opened || !(tasks[0].mask & (NCCL_EVENT_GROUP | NCCL_EVENT_COLL | NCCL_EVENT_P2P | NCCL_EVENT_KERNEL))) return;
  nccl_event_descr e = {.type = NCCL_EVENT_GROUP};
  start(c->context, &group, &e);
  for (int i = 0; i < n; i++) start_task(c, &tasks[i]);
  for (int i = 0; i < n; i++)
    if (tasks[i].event) stop(tasks[i].event);
  if (group) stop(group);
}

/* ---- the device, as the proxy thread reports it ---- */

void events_begin(events_comm *c, events_task *t, uint64_t timer) {
  nccl_event_descr e = {.parent = t->event, .kernel = {.timer = timer}};
  t->kernel = NULL;
  if (!c->opened || !(t->mask & NCCL_EVENT_KERNEL)) return;
  if (version == 4) e.type4 = NCCL_EVENT_KERNEL;
  else e.type = NCCL_EVENT_KERNEL;
  start(c->context, &t->kernel, &e);
}

void events_end(events_task *t, uint64_t timer) {
  if (!t->kernel) return;
  record(t->kernel, NCCL_STATE_KERNEL_STOP, &(nccl_event_args){.kernel = {.timer = timer}});
  stop(t->kernel);
}
