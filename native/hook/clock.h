/*
 * Ticks for the records: the TSC where it is invariant (one rdtsc costs a third
 * of a clock_gettime), else CLOCK_MONOTONIC in nanoseconds. The agent converts.
 */
#ifndef FALCON_CLOCK_H
#define FALCON_CLOCK_H

#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "hook.h"

static inline uint64_t falcon_mono_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static inline uint64_t falcon_ticks(void) {
#if defined(__x86_64__)
  if (__builtin_expect(falcon_hook.clock == FALCON_CLOCK_TSC, 1)) return __rdtsc();
#endif
  return falcon_mono_ns();
}

uint32_t falcon_clock_pick(void);
/* One (ticks, CLOCK_MONOTONIC) pair, the tightest of several tries. */
void falcon_clock_pair(uint64_t *ticks, uint64_t *mono_ns);

#endif
