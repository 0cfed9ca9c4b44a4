/*
 * Life of the library in this process: inert until the first communicator (or the
 * first word of the job adapter), then one shared-memory file until the normal
 * end. A crash leaves the file for the agent to find.
 */
#include "clock.h"
#include "guard.h"
#include "parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RATE_BASE_NS 1000000ull /* the first conversion rate is taken over at least so long */

_Static_assert(sizeof(falcon_record) == 64, "one cache line");
_Static_assert(sizeof(falcon_comm) == 192, "three cache lines");
_Static_assert(sizeof(falcon_timing) == 64, "one cache line");

falcon_state falcon_hook;

static pthread_mutex_t activation = PTHREAD_MUTEX_INITIALIZER;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define SIGNALS_MAX 100 /* interruptions of one reservation by signals */

static uint64_t page_up(uint64_t n) { return (n + FALCON_PAGE - 1) / FALCON_PAGE * FALCON_PAGE; }

static void offsets(falcon_header *h) {
  h->version = FALCON_SHM_VERSION;
  h->header_bytes = sizeof(falcon_header);
  h->rings = FALCON_RINGS_MAX;
  h->ring_slots = FALCON_RING_SLOTS;
  h->comms = FALCON_COMMS_MAX;
  h->timing_slots = FALCON_TIMING_SLOTS;
  h->order_slots = FALCON_ORDER_SLOTS;
  h->control_offset = page_up(sizeof(falcon_header));
  h->comms_offset = h->control_offset + page_up(sizeof(falcon_control));
  h->timings_offset = h->comms_offset + page_up(FALCON_COMMS_MAX * sizeof(falcon_comm));
  h->rings_offset = h->timings_offset + page_up(FALCON_TIMING_SLOTS * sizeof(falcon_timing));
  h->ring_stride = FALCON_PAGE + FALCON_RING_SLOTS * sizeof(falcon_record);
  h->file_bytes = h->rings_offset + FALCON_RINGS_MAX * h->ring_stride;
}

static int32_t env_int(const char *name) {
  const char *s = getenv(name);
  char *end = NULL;
  long v = s && *s ? strtol(s, &end, 10) : -1;
  return end && !*end && v >= 0 && v < INT32_MAX ? (int32_t)v : -1;
}

/* Which launch of the job started this process, 0 when it is not given. */
static uint64_t generation(void) {
  const char *s = getenv("FALCON_GENERATION");
  char *end = NULL;
  errno = 0;
  uint64_t v = s && *s >= '0' && *s <= '9' ? strtoull(s, &end, 10) : 0;
  return end && !*end && !errno ? v : 0;
}

/* What an elastic agent above this process declares in its environment. One that a launch started is not its worker. */
static void declare_elastic(falcon_control *c) {
  const char *run = getenv("TORCHELASTIC_RUN_ID");
  int32_t most = env_int("TORCHELASTIC_MAX_RESTARTS"), count = env_int("TORCHELASTIC_RESTART_COUNT");
  if (!run || c->generation || most <= 0 || count >= most) return;
  c->elastic_restarts = (uint32_t)(most - (count > 0 ? count : 0));
  c->elastic_parent = (uint32_t)getppid();
}

/* Letters, digits, '.', '_' and '-' stay; all else becomes '_'. */
static void clean_name(char *out, size_t size, const char *in) {
  size_t i = 0;
  for (; in && in[i] && i + 1 < size; i++) {
    char c = in[i];
    bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    out[i] = fine ? c : '_';
  }
  out[i] = 0;
}

static void identity(falcon_header *h) {
  const char *job = getenv("FALCON_JOB");
  clean_name(h->job, sizeof h->job, job && *job ? job : "job");
  clean_name(h->device, sizeof h->device, getenv("FALCON_DEVICE"));
  falcon_proof_fill(h);
  h->rank = env_int("RANK");
  h->world = env_int("WORLD_SIZE");
  h->local_rank = env_int("LOCAL_RANK");
}

static void load_clocks(void) {
  struct timespec real;
  clock_gettime(CLOCK_REALTIME, &real);
  falcon_clock_pair(&falcon_hook.load_ticks, &falcon_hook.load_mono_ns);
  falcon_hook.load_unix_ns = (uint64_t)real.tv_sec * 1000000000ull + (uint64_t)real.tv_nsec;
}

static void clocks(falcon_header *h) {
  const char *standby = getenv("FALCON_STANDBY");
  if (standby && *standby) load_clocks(); /* it has waited, of no job; it is a rank from now on */
  h->clock = falcon_hook.clock;
  h->start_ticks = falcon_hook.load_ticks;
  h->start_mono_ns = falcon_hook.load_mono_ns;
  h->start_unix_ns = falcon_hook.load_unix_ns;
  while (falcon_mono_ns() < h->start_mono_ns + RATE_BASE_NS) usleep(200);
  falcon_clock_pair(&h->calib_ticks, &h->calib_mono_ns);
}

static bool populate(void *from, size_t bytes) {
  int rc = -1;
  for (int i = 0; rc && i < SIGNALS_MAX; i++)
    if ((rc = madvise(from, bytes, MADV_POPULATE_WRITE)) && errno != EINTR && errno != EAGAIN) break;
  return !rc;
}

/* Pages are allocated before they are written: a full tmpfs is an error here,
 * not a SIGBUS in a training thread later. */
FALCON_COLD bool falcon_reserve(void *from, size_t bytes) {
  return falcon_hook.reserved || populate(from, bytes);
}

/* Rings and timings are large and mostly never used: they are reserved by their
 * first user, but for the heads of the rings, which the agent reads. */
static bool reserve_first(char *base, const falcon_header *h) {
  bool ok = populate(base, h->timings_offset);
  for (uint32_t i = 0; ok && i < h->rings; i++) ok = populate(base + h->rings_offset + i * h->ring_stride, FALCON_PAGE);
  return ok;
}

static bool reserve_all(int fd, uint64_t bytes) {
  int rc = EINTR;
  for (int i = 0; rc == EINTR && i < SIGNALS_MAX; i++) rc = posix_fallocate(fd, 0, (off_t)bytes);
  return falcon_hook.reserved = !rc;
}

static void *map_file(char *path, size_t size, const falcon_header *h) {
  int fd = falcon_proof_file(path, size, h);
  if (fd < 0) return NULL;
  void *p = MAP_FAILED;
  uint32_t refused = FALCON_REFUSED_SIZE;
  if (!ftruncate(fd, (off_t)h->file_bytes)) {
    p = mmap(NULL, h->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) refused = FALCON_REFUSED_MAP;
  }
  bool ok = p != MAP_FAILED && (reserve_first(p, h) || (errno == EINVAL && reserve_all(fd, h->file_bytes)));
  int error = errno;
  close(fd);
  if (ok) return p;
  if (p != MAP_FAILED) munmap(p, h->file_bytes);
  falcon_proof_refused(path, h, refused, error);
  return NULL;
}

static void publish(char *base, const falcon_header *h) {
  falcon_hook.header = (falcon_header *)base;
  falcon_hook.control = (falcon_control *)(base + h->control_offset);
  falcon_hook.comms = (falcon_comm *)(base + h->comms_offset);
  falcon_hook.timings = (falcon_timing *)(base + h->timings_offset);
  falcon_hook.rings = base + h->rings_offset;
  falcon_hook.control->iteration = -1;
  falcon_hook.control->step_tag = -1;
  falcon_hook.control->committed_iteration = -1;
  falcon_hook.control->generation = falcon_hook.control->generation_now = generation();
  declare_elastic(falcon_hook.control);
  falcon_part_created();
  falcon_hook.control->park_steps[0] = falcon_hook.control->park_steps[1] = -1;
  falcon_hook.control->heartbeat_ns = falcon_mono_ns();
  memcpy(falcon_hook.header, h, sizeof *h);
  __atomic_store_n(&falcon_hook.header->magic, FALCON_SHM_MAGIC, __ATOMIC_RELEASE);
}

static bool create(void) {
  falcon_header h = {0};
  offsets(&h);
  identity(&h);
  clocks(&h);
  char whole[PATH_MAX];
  if (!falcon_folder(whole)) return false;
  int n = snprintf(falcon_hook.path, sizeof falcon_hook.path, "%s/falcon.%s.%u", whole, h.job, h.pid);
  if (n < 0 || (size_t)n >= sizeof falcon_hook.path) return false;
  falcon_quiet quiet;
  falcon_quiet_begin(&quiet);
  char *base = map_file(falcon_hook.path, sizeof falcon_hook.path, &h);
  falcon_quiet_end(&quiet);
  if (!base) return false;
  publish(base, &h);
  falcon_guard_mapping(base, h.file_bytes);
  return true;
}

static void load_once(void);

static void start(void) {
  load_once(); /* another library's constructor may come before ours */
  atomic_store(&falcon_hook.step, 0xffffffffu);
  bool ok = create();
  if (ok && !falcon_side_start()) {
    unlink(falcon_hook.path);
    ok = false;
  }
  if (ok) falcon_ended_load();
  atomic_store_explicit(&falcon_hook.life, ok ? LIFE_ACTIVE : LIFE_OFF, memory_order_release);
  falcon_cover_slow(0);
  if (ok) falcon_part_started();
}

FALCON_COLD bool falcon_activate(void) {
  if (falcon_active()) return true;
  int saved = errno;
  pthread_mutex_lock(&activation);
  if (atomic_load(&falcon_hook.life) == LIFE_INERT) start();
  pthread_mutex_unlock(&activation);
  errno = saved;
  return falcon_active();
}

/* Only the process that made the file removes it: a forked child is LIFE_OFF. */
void falcon_retire(void) {
  falcon_part_closing();
  falcon_proof_retire();
  if (!falcon_active()) return;
  falcon_ended_mark();
  unlink(falcon_hook.path);
}

/* NCCL found mapped is held against the job only until a communicator comes. */
static uint32_t public_coverage(void) {
  uint32_t all = atomic_load(&falcon_hook.coverage), out = all & ~(uint32_t)(FALCON_COV_MAPPED | FALCON_COV_UNASKED);
  bool parks = __atomic_load_n(&falcon_hook.control->can, __ATOMIC_ACQUIRE) & FALCON_CAN_PARK;
  if (all & FALCON_COV_ADAPTER && !parks) out |= FALCON_COV_STAYS;
  if (all & FALCON_COV_UNASKED) out &= ~(uint32_t)FALCON_COV_WAITING;
  return all & FALCON_COV_MAPPED && !(all & FALCON_COV_INIT) ? out | FALCON_COV_UNHOOKED : out;
}

/* Whoever stores a value that is out of date by then stores again. */
FALCON_COLD void falcon_cover_slow(uint32_t bits) {
  uint32_t seen;
  atomic_fetch_or(&falcon_hook.coverage, bits);
  if (!falcon_active()) return; /* start() publishes what came before */
  do {
    seen = public_coverage();
    __atomic_store_n(&falcon_hook.control->coverage, seen, __ATOMIC_SEQ_CST);
  } while (seen != public_coverage());
}

/* A forked child shares the mapping but must not write into its parent's
 * rings. Where the parent was inert the child may become a rank of its own. */
static void forked(void) {
  uint32_t life = LIFE_ACTIVE;
  atomic_compare_exchange_strong(&falcon_hook.life, &life, LIFE_OFF);
  atomic_store(&falcon_hook.profile, 0);
  falcon_thread.ring = NULL;
  falcon_part_forked();
  pthread_mutex_init(&activation, NULL); /* another thread of the parent may have held it */
}

static void load_once(void) {
  static bool loaded;
  Dl_info me;
  if (loaded) return;
  loaded = true;
  if (dladdr((void *)falcon_activate, &me) && me.dli_fname && strlen(me.dli_fname) < sizeof falcon_hook.self)
    strcpy(falcon_hook.self, me.dli_fname);
  const char *off = getenv("FALCON_HOOK");
  if (off && !strcmp(off, "off")) atomic_store(&falcon_hook.life, LIFE_OFF);
  falcon_hook.clock = falcon_clock_pick();
  load_clocks();
  falcon_ring_setup();
  falcon_part_load();
  pthread_atfork(NULL, NULL, forked);
}

__attribute__((constructor)) static void load(void) { load_once(); }

__attribute__((destructor)) static void unload(void) { falcon_retire(); }
