/*
 * The side thread: heartbeat, calibration, coverage, and the profile window. It
 * sleeps on the mode word of the control block (the agent wakes it with a
 * futex call), is detached, lives as long as the process and blocks all
 * signals, so that none of the program's handlers ever runs on it.
 */
#include "clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (512u * 1024u) /* CUDA's event queries run on it */
#define SPACING_NS 500000          /* least time between rounds, whatever the agent writes */
#define SLACK_NS 1000000ul         /* the kernel may join our wake-ups with others */
#define LOOK_EVERY 20              /* beats between searches for an unhooked NCCL */

static void beat(void) {
  falcon_header *h = falcon_hook.header;
  uint64_t ticks, now;
  falcon_clock_pair(&ticks, &now);
  __atomic_fetch_add(&h->calib_seq, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&h->calib_ticks, ticks, __ATOMIC_RELAXED);
  __atomic_store_n(&h->calib_mono_ns, now, __ATOMIC_RELAXED);
  __atomic_fetch_add(&h->calib_seq, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&falcon_hook.control->heartbeat_ns, now, __ATOMIC_RELEASE);
}

/* NCCL is in the process and yet nobody came by us. */
static void look_for_unhooked(uint32_t round) {
  if (round % LOOK_EVERY || atomic_load(&falcon_hook.coverage) & (FALCON_COV_INIT | FALCON_COV_MAPPED)) return;
  if (falcon_nccl_mapped()) falcon_cover(FALCON_COV_MAPPED);
}

static void nap(uint32_t *word, uint32_t seen, uint64_t ns) {
  struct timespec timeout = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
  if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0) && errno == ETIMEDOUT) return;
  nanosleep(&(struct timespec){0, SPACING_NS}, NULL);
}

static void *side(void *unused) {
  (void)unused;
  falcon_thread.inside = 1; /* nothing that this thread calls is recorded */
  prctl(PR_SET_TIMERSLACK, SLACK_NS);
  uint32_t *mode = &falcon_hook.control->mode;
  for (uint32_t round = 1;; round++) {
    uint32_t seen = __atomic_load_n(mode, __ATOMIC_ACQUIRE);
    beat();
    look_for_unhooked(round);
    bool busy = falcon_profile_tick(falcon_mono_ns());
    nap(mode, seen, busy ? FALCON_BEAT_PROFILE_NS : FALCON_BEAT_NS);
  }
  return NULL;
}

bool falcon_side_start(void) {
  sigset_t all, old;
  pthread_attr_t attr;
  pthread_t id;
  sigfillset(&all);
  if (pthread_attr_init(&attr)) return false;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int rc = pthread_create(&id, &attr, side, NULL);
  if (rc) { /* a process with much thread-local storage needs a larger stack */
    pthread_attr_setstacksize(&attr, 16 * STACK_BYTES);
    rc = pthread_create(&id, &attr, side, NULL);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  if (!rc) pthread_setname_np(id, "falcon-hook");
  return !rc;
}
