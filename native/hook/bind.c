/*
 * Which real function a call goes on to: the one that the dynamic linker would
 * have bound the caller to without the hook. That is the global scope behind the
 * hook, then the caller's own object (NCCL linked into it) and what that needs,
 * as frameworks load NCCL with RTLD_LOCAL. A caller in whose scope there is no
 * NCCL got the function as a pointer: it goes to the NCCL that dlsym was asked
 * of, else to the one that is hooked, else to the only one that can be found.
 *
 * One NCCL is hooked, the one that is called first. Calls that belong to another
 * one in the process reach it untouched and unrecorded, and coverage has it.
 *
 * Reading takes no lock. Entries are only added, and never while a lock of ours
 * is held: the dynamic linker has one of its own, which a constructor that calls
 * NCCL holds.
 */
#include "hook.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLERS_MAX 64u /* objects that call NCCL; those beyond are taken for callers of the hooked one */
#define PAGE_BYTES 4096u

static const char *const names[FN_COUNT] = {
#define X(name, ...) [FN_##name] = #name,
  FALCON_CALLS(X) FALCON_OTHERS(X) FALCON_QUERIES(X)
#undef X
};

falcon_caller falcon_first;
static falcon_caller callers[CALLERS_MAX];
static falcon_binding bindings[2 * CALLERS_MAX];
static _Atomic uint32_t callers_claimed, bindings_claimed;
static _Atomic(falcon_binding *) primary; /* of the NCCL that is hooked */
static _Atomic(falcon_binding *) loose;   /* of callers in whose scope there is none */

int falcon_fn_index(const char *name) {
  for (int i = 0; i < FN_HOOKED; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

/* ---- one binding ---- */

static void *search_scope(const falcon_binding *b, int fn) {
  void *p = b->global ? falcon_symbol(RTLD_NEXT, names[fn]) : NULL;
  if (!p && b->handle) p = falcon_symbol(b->handle, names[fn]);
  return p && !falcon_is_mine(p) ? p : NULL;
}

FALCON_COLD void *falcon_bound_find(falcon_binding *b, int fn) {
  void *p = search_scope(b, fn), *none = NULL;
  dlerror(); /* what was not found is no error of the program's */
  if (p) atomic_compare_exchange_strong(&b->fn[fn], &none, p);
  return none ? none : p;
}

/* Judged by what this library does not wrap, nor do other tools. */
static bool same_nccl(falcon_binding *a, falcon_binding *b) {
  static const int judges[] = {FN_ncclGetVersion, FN_ncclGetUniqueId, FN_ncclCommCount, FN_ncclGroupStart};
  for (size_t i = 0; a != b && i < sizeof judges / sizeof *judges; i++) {
    void *x = falcon_bound_fn(a, judges[i]), *y = falcon_bound_fn(b, judges[i]);
    if (x && y) return x == y;
  }
  return a == b;
}

/* ---- who calls ---- */

typedef struct { uintptr_t at, lo, hi, base; char name[1024]; bool found; } object_of;

static int match_object(struct dl_phdr_info *info, size_t size, void *arg) {
  object_of *o = arg;
  uintptr_t lo = UINTPTR_MAX, hi = 0;
  bool here = false;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD) continue;
    uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;
    here |= o->at >= from && o->at < to;
    lo = from < lo ? from : lo;
    hi = to > hi ? to : hi;
  }
  if (!here) return 0;
  o->lo = lo;
  o->hi = hi;
  o->found = true;
  snprintf(o->name, sizeof o->name, "%s", info->dlpi_name ? info->dlpi_name : "");
  return 1;
}

/* Code that belongs to no object was made at run time: its page stands for it. */
static object_of object_at(void *at) {
  object_of o = {.at = (uintptr_t)at};
  if (dl_iterate_phdr(match_object, &o), o.found) return o;
  o.lo = o.at & ~(uintptr_t)(PAGE_BYTES - 1);
  o.hi = o.lo + PAGE_BYTES;
  return o;
}

static uint32_t bound_how(const object_of *o, void *real) {
  uintptr_t p = (uintptr_t)real;
  return p >= o->lo && p < o->hi ? FALCON_BOUND_STATIC : FALCON_BOUND_NEEDED;
}

/* NULL: too many. One that is not used in the end is not given back. */
static falcon_binding *claim_binding(void *handle, bool global, uint32_t how) {
  uint32_t i = atomic_fetch_add(&bindings_claimed, 1);
  if (i >= 2 * CALLERS_MAX) return NULL;
  bindings[i].handle = handle;
  bindings[i].global = global;
  bindings[i].how = how;
  return &bindings[i];
}

/* The scope of an object, NULL where there is no NCCL in it. */
static falcon_binding *own_scope(const object_of *o, int fn) {
  falcon_binding own = {.global = true, .handle = *o->name ? dlopen(o->name, RTLD_LAZY | RTLD_NOLOAD) : NULL};
  void *p = search_scope(&own, fn);
  if (!p) p = search_scope(&own, FN_ncclCommCount); /* an older NCCL, which lacks fn */
  if (p) return claim_binding(own.handle, true, bound_how(o, p));
  if (own.handle) dlclose(own.handle);
  return NULL;
}

/* Decided once, so that pointers that were handed out lead where they led. */
static falcon_binding *settle_loose(falcon_binding *b) {
  falcon_binding *none = NULL;
  if (b) atomic_compare_exchange_strong(&loose, &none, b);
  return none ? none : b;
}

static falcon_binding *without_scope(int fn) {
  falcon_binding *b = atomic_load(&loose);
  if (!b) b = settle_loose(atomic_load(&primary));
  void *home = b ? NULL : falcon_nccl_handle(names[fn]);
  return home ? settle_loose(claim_binding(home, false, FALCON_BOUND_NEEDED)) : b;
}

static falcon_caller *known_caller(void *at) {
  for (uint32_t i = 0; i < CALLERS_MAX; i++) {
    uintptr_t size = atomic_load_explicit(&callers[i].size, memory_order_acquire);
    if (!size && i >= atomic_load(&callers_claimed)) break;
    if (size && (uintptr_t)at - callers[i].lo < size) return &callers[i];
  }
  return NULL;
}

/* Two threads may enter the same object: then it is there twice, and equal. */
static falcon_caller *add_caller(void *at, int fn) {
  if (atomic_load(&callers_claimed) >= CALLERS_MAX) return NULL;
  object_of o = object_at(at);
  falcon_binding *own = own_scope(&o, fn);
  uint32_t i = atomic_fetch_add(&callers_claimed, 1);
  if (i >= CALLERS_MAX) return NULL;
  callers[i].lo = o.lo;
  callers[i].by = own;
  atomic_store_explicit(&callers[i].size, o.hi - o.lo, memory_order_release);
  return &callers[i];
}

static falcon_caller *find_caller(void *at, int fn) {
  int saved = errno;
  falcon_caller *c = known_caller(at);
  if (!c) c = add_caller(at, fn);
  dlerror(); /* what was not found is no error of the program's */
  errno = saved;
  return c;
}

falcon_binding *falcon_binding_of(void *at, int fn) {
  falcon_caller *c = find_caller(at, fn);
  return c && c->by ? c->by : without_scope(fn);
}

/* The asker's own scope decides; without one the pointer may go to anybody. */
bool falcon_dlsym_leads(void *asker, int fn, void *theirs) {
  falcon_caller *c = find_caller(asker, fn);
  if (c && c->by) return falcon_bound_fn(c->by, fn) == theirs;
  falcon_binding *b = atomic_load(&loose);
  Dl_info info;
  void *home = !b && dladdr(theirs, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (home) b = settle_loose(claim_binding(home, false, FALCON_BOUND_DLSYM));
  return b && falcon_bound_fn(b, fn) == theirs;
}

/* ---- which NCCL is hooked ---- */

static void decide_role(falcon_binding *by) {
  falcon_binding *none = NULL;
  bool first = atomic_compare_exchange_strong(&primary, &none, by);
  uint32_t role = first || same_nccl(by, none) ? FALCON_ROLE_HOOKED : FALCON_ROLE_OTHER;
  if (role == FALCON_ROLE_OTHER) falcon_cover(FALCON_COV_UNHOOKED);
  atomic_store(&by->role, role);
}

/* The first caller is found without a search from then on. */
static void enter_first(const falcon_caller *c, falcon_binding *by) {
  static _Atomic bool entered;
  if (atomic_exchange(&entered, true)) return;
  falcon_first.lo = c->lo;
  falcon_first.by = by;
  atomic_store_explicit(&falcon_first.size, atomic_load(&c->size), memory_order_release);
}

FALCON_COLD falcon_binding *falcon_caller_slow(void *at, int fn) {
  static falcon_binding nothing;
  falcon_caller *c = find_caller(at, fn);
  falcon_binding *by = c && c->by ? c->by : without_scope(fn);
  if (!by) return &nothing;
  if (!atomic_load(&by->role)) decide_role(by);
  if (c && by == atomic_load(&primary)) enter_first(c, by);
  return by;
}

FALCON_COLD int falcon_missing(int fn) {
  static _Atomic bool once;
  if (!atomic_exchange(&once, true)) dprintf(STDERR_FILENO, "falcon: %s: no NCCL in this process has it\n", names[fn]);
  return NCCL_SYSTEM_ERROR;
}

void *falcon_fn(int fn) {
  falcon_binding *b = atomic_load(&primary);
  return b ? falcon_bound_fn(b, fn) : NULL;
}

/* For measurements alone (FALCON_BENCH=1 in the environment): while it rests, calls pass as those of
 * another NCCL do, so that one process can compare both states within milliseconds. The counts of
 * calls stand still meanwhile, which no job whose ranks are held or judged may do. -1: refused. */
FALCON_EXPORT int falcon_bench_rest(int rest) {
  const char *bench = getenv("FALCON_BENCH");
  falcon_binding *b = atomic_load(&primary);
  if (!bench || strcmp(bench, "1") || !b) return -1;
  atomic_store(&b->role, rest ? FALCON_ROLE_OTHER : FALCON_ROLE_HOOKED);
  return 0;
}

/* ---- what the agent is sent ---- */

static uint32_t bound_as(void) {
  const falcon_binding *b = atomic_load(&primary);
  uint32_t all = atomic_load(&falcon_hook.coverage);
  if (b) return b->how;
  return all & FALCON_COV_PROFILER ? FALCON_BOUND_PROFILER : all & FALCON_COV_MAPPED ? FALCON_BOUND_BYPASSED : FALCON_BOUND_NONE;
}

void falcon_bound_publish(void) {
  if (falcon_active()) __atomic_store_n(&falcon_hook.control->bound, bound_as(), __ATOMIC_RELEASE);
}

/* On a thread of the program's that uses this NCCL anyway. */
FALCON_COLD void falcon_bound_version(falcon_tls *t) {
  int (*real)(int *) = (int (*)(int *))falcon_fn(FN_ncclGetVersion), version = 0;
  if (!falcon_active() || !real || __atomic_load_n(&falcon_hook.control->nccl_version, __ATOMIC_RELAXED)) return;
  t->inside++;
  int rc = real(&version);
  t->inside--;
  if (!rc && version > 0) __atomic_store_n(&falcon_hook.control->nccl_version, (uint32_t)version, __ATOMIC_RELEASE);
  falcon_bound_publish();
}
