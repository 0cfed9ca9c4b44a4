/*
 * The side thread: heartbeat, calibration, and what the library's parts have to do
 * (parts.h: the profile window, a pause, a suspension). It sleeps on the control block's mode and pause_word (the
 * agent wakes them with a futex call; on kernels before 5.16 on mode alone, so
 * the agent always wakes both), is detached, lives as long as the process and blocks all
 * signals but SIGBUS (guard.c), so that none of the program's handlers runs on it.
 */
#include "clock.h"
#include "parts.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (512u * 1024u) /* CUDA's event queries run on it */
#define SPACING_NS 500000          /* least time between rounds, whatever the agent writes */

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

typedef struct words { uint32_t mode, pause; } words;

static words read_words(void) {
  const falcon_control *c = falcon_hook.control;
  return (words){__atomic_load_n(&c->mode, __ATOMIC_ACQUIRE), __atomic_load_n(&c->pause_word, __ATOMIC_ACQUIRE)};
}

static struct timespec spec(uint64_t ns) { return (struct timespec){(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)}; }

#define SYS_FUTEX_WAITV 449
#define WAITV_32 2 /* 32 bits, shared between processes */

/* One of struct futex_waitv, which older kernel headers lack. */
typedef struct waitv { uint64_t value, address; uint32_t flags, reserved; } waitv;

/* Sleeps until a word differs from what was seen, a wake-up, or `until`. */
static void sleep_on(const words *seen, uint64_t until_ns) {
  static bool no_waitv;
  falcon_control *c = falcon_hook.control;
  struct timespec until = spec(until_ns);
  waitv w[2] = {{seen->mode, (uint64_t)(uintptr_t)&c->mode, WAITV_32, 0}, {seen->pause, (uint64_t)(uintptr_t)&c->pause_word, WAITV_32, 0}};
  if (!no_waitv && syscall(SYS_FUTEX_WAITV, w, 2, 0, &until, CLOCK_MONOTONIC) < 0)
    no_waitv = errno != ETIMEDOUT && errno != EAGAIN && errno != EINTR;
  if (no_waitv) syscall(SYS_futex, &c->mode, FUTEX_WAIT_BITSET, seen->mode, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* The next round begins SPACING_NS after this one at the earliest, whatever the
 * agent writes; a wake-up after a longer sleep is followed at once. */
static void nap(const words *seen, uint64_t round_ns, uint64_t ns) {
  sleep_on(seen, round_ns + ns);
  struct timespec least = spec(round_ns + SPACING_NS);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &least, NULL);
}

static void *side(void *unused) {
  (void)unused;
  falcon_thread.inside = 1; /* nothing that this thread calls is recorded */
  for (uint32_t round = 1;; round++) {
    uint64_t now = falcon_mono_ns();
    words seen = read_words();
    beat();
    nap(&seen, now, falcon_part_tick(now, round));
  }
  return NULL;
}

bool falcon_side_start(void) {
  sigset_t all, old;
  pthread_attr_t attr;
  pthread_t id;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
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
