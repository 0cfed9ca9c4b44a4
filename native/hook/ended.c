/*
 * The end in order: what a process records of it before its file is removed. The mark in
 * the control block is for an agent that has the file mapped; the small file in
 * its place is for one that is away, as in an upgrade. A process that is killed,
 * or leaves by _exit, comes by here never: its file stays, without a mark.
 */
#include "clock.h"
#include "guard.h"
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGENT_S 120 /* as for a parked process */

static _Atomic int32_t exit_status = FALCON_ENDED_UNKNOWN;

/* Runs before the destructors of libraries, CUDA's among them. */
static void leaving(int status, void *unused) {
  (void)unused;
  falcon_part_exiting();
  atomic_store(&exit_status, status & 0xff);
}

void falcon_ended_load(void) { on_exit(leaving, NULL); }

uint64_t falcon_env_seconds(const char *name, unsigned long seconds) {
  const char *s = getenv(name);
  char *end = NULL;
  unsigned long v = s && *s >= '0' && *s <= '9' ? strtoul(s, &end, 10) : seconds;
  if ((end && *end) || !v || v > 1000000000ul) v = seconds;
  return v * 1000000000ull;
}

/* An agent is there to take the small file up, or will be soon. */
static bool agent_near(const falcon_control *c, uint64_t now) {
  uint64_t looked = __atomic_load_n(&c->agent_alive_ns, __ATOMIC_ACQUIRE);
  return looked && (looked > now || now - looked < falcon_env_seconds("FALCON_PARK_AGENT_S", AGENT_S));
}

static falcon_ended word(const falcon_header *h, const falcon_control *c, uint64_t now, int32_t status) {
  falcon_ended e = {
    .magic = FALCON_ENDED_MAGIC, .bytes = sizeof e, .pid = h->pid, .start_mono_ns = h->start_mono_ns, .start_unix_ns = h->start_unix_ns,
    .ended_ns = now, .ended_status = status, .rank = h->rank, .world = h->world, .local_rank = h->local_rank,
    .generation = c->generation, .generation_now = c->generation_now, .iteration = c->iteration, .step_tag = c->step_tag,
    .tp = c->tp, .dp = c->dp, .pp = c->pp, .place_rank = c->place_rank, .place_order = c->place_order, .place_iteration = c->place_iteration,
    .committed_order = c->committed_order, .committed_iteration = c->committed_iteration, .committed_status = c->committed_status,
    .resume_iteration = c->resume_iteration, .rejoined = c->rejoin_status ? 0 : c->rejoin_order,
    .proc_start = h->proc_start, .pid_ns = h->pid_ns,
  };
  memcpy(e.job, h->job, sizeof e.job);
  memcpy(e.device, h->device, sizeof e.device);
  e.check = falcon_fnv(FALCON_FNV_START, &e, offsetof(falcon_ended, check));
  return e;
}

static bool put(const char *path, const falcon_ended *e) {
  unlink(path); /* of an attempt that was cut short */
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  bool ok = write(fd, e, sizeof *e) == (ssize_t)sizeof *e;
  return !close(fd) && ok;
}

static void leave(const falcon_ended *e) {
  char path[sizeof falcon_hook.path + sizeof FALCON_ENDED_SUFFIX], next[sizeof path + 4];
  snprintf(path, sizeof path, "%s" FALCON_ENDED_SUFFIX, falcon_hook.path);
  snprintf(next, sizeof next, "%s.new", path);
  falcon_quiet quiet;
  falcon_quiet_begin(&quiet);
  if (!put(next, e) || rename(next, path)) unlink(next);
  falcon_quiet_end(&quiet);
}

/* At falcon_job_finish the status is not known; a later exit() adds it. */
void falcon_ended_mark(void) {
  static _Atomic bool marked;
  falcon_control *c = falcon_hook.control;
  int32_t status = atomic_load(&exit_status);
  if (atomic_exchange(&marked, true) && (status < 0 || __atomic_load_n(&c->ended_status, __ATOMIC_RELAXED) >= 0)) return;
  int saved = errno;
  uint64_t now = falcon_mono_ns();
  __atomic_store_n(&c->ended_status, status, __ATOMIC_RELAXED);
  __atomic_store_n(&c->ended_ns, now, __ATOMIC_RELEASE);
  if (agent_near(c, now)) {
    falcon_ended e = word(falcon_hook.header, c, now, status);
    leave(&e);
  }
  errno = saved;
}
