/*
 * What NCCL looks up in the plug-in: ncclProfiler_v4, _v5 and _v6, of which it
 * takes the newest that it knows. Version 6 adds events that the plug-in does not
 * ask for. Where the hook is in the process everything goes to the hook.
 */
#include "profiler.h"

#include <dlfcn.h>

#define NAME "falcon"

static _Atomic(const falcon_profiler *) chosen;

/* Decided once, by the first communicator. A hook of another build is not spoken to:
 * then the plug-in is absent. */
static const falcon_profiler *choose(void) {
  static const falcon_profiler absent;
  const falcon_profiler *none = NULL, *hook = dlsym(RTLD_DEFAULT, FALCON_PROFILER_SYMBOL), *p = &falcon_profiler_events;
  dlerror(); /* what was not found is no error of the program's */
  if (hook) p = hook->abi == FALCON_PROFILER_ABI && hook->bytes == sizeof *hook ? hook : &absent;
  atomic_compare_exchange_strong(&chosen, &none, p);
  return none ? none : p;
}

static const falcon_profiler *events(void) {
  const falcon_profiler *p = atomic_load_explicit(&chosen, memory_order_acquire);
  return FALCON_UNLIKELY(!p) ? choose() : p;
}

/* The NCCL that calls: it stays in the process, as its event mask is written later on;
 * and its version, where it can be asked. */
static void note_nccl(void *caller) {
  Dl_info info;
  void *nccl = dladdr(caller, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) : NULL;
  int (*get)(int *) = nccl ? (int (*)(int *))dlsym(nccl, "ncclGetVersion") : NULL;
  int version = 0;
  uint32_t *known = &falcon_hook.control->nccl_version;
  if (get && !__atomic_load_n(known, __ATOMIC_RELAXED) && !get(&version) && version > 0) __atomic_store_n(known, (uint32_t)version, __ATOMIC_RELEASE);
  if (nccl) dlclose(nccl);
  dlerror();
}

static int init(void **context, const falcon_profiled *comm) {
  const falcon_profiler *p = events();
  *context = NULL;
  int rc = p->init ? p->init(context, comm) : NCCL_SYSTEM_ERROR;
  if (!rc && p == &falcon_profiler_events) note_nccl(comm->caller);
  return rc;
}

static int init4(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, void *log) {
  (void)nodes, (void)log;
  return init(context, &(falcon_profiled){id, name, mask, ranks, rank, 4, __builtin_return_address(0)});
}

static int init5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log) {
  (void)nodes, (void)log;
  return init(context, &(falcon_profiled){id, name, mask, ranks, rank, 5, __builtin_return_address(0)});
}

static int start(void *context, void **handle, nccl_event_descr *e) {
  const falcon_profiler *p = events();
  *handle = NULL;
  return p->start ? p->start(context, handle, e) : NCCL_SUCCESS;
}

static int start4(void *context, void **handle, nccl_event_descr *e) {
  const falcon_profiler *p = events();
  *handle = NULL;
  return p->start4 ? p->start4(context, handle, e) : NCCL_SUCCESS;
}

static int stop(void *handle) {
  const falcon_profiler *p = events();
  return p->stop ? p->stop(handle) : NCCL_SUCCESS;
}

static int state(void *handle, int s, nccl_event_args *args) {
  const falcon_profiler *p = events();
  return p->state ? p->state(handle, s, args) : NCCL_SUCCESS;
}

static int finalize(void *context) {
  const falcon_profiler *p = events();
  return p->finalize ? p->finalize(context) : NCCL_SUCCESS;
}

FALCON_EXPORT const nccl_profiler_v4 ncclProfiler_v4 = {NAME, init4, start4, stop, state, finalize};
FALCON_EXPORT const nccl_profiler_v5 ncclProfiler_v5 = {NAME, init5, start, stop, state, finalize};
FALCON_EXPORT const nccl_profiler_v5 ncclProfiler_v6 = {NAME, init5, start, stop, state, finalize};
