/*
 * Device times of a profile window (timing.c), and the relation of the device's
 * clock to the host's.
 *
 * H0, the host time of the device's time 0, is bounded from above by every
 * completion (it is seen after it happened: H0 <= seen - end) and from below by
 * every start (a call cannot start before it is issued: H0 >= enter - start). The
 * least upper bound is used, raised to the lower bound's side when the two cross.
 * Timings are held back to the end of the window, so that all of them have the
 * final H0.
 */
#ifndef FALCON_TIMING_H
#define FALCON_TIMING_H

#include "hook.h"

typedef struct falcon_bounds { int64_t low, high; } falcon_bounds;
#define FALCON_BOUNDS_OPEN ((falcon_bounds){INT64_MIN, INT64_MAX})

static inline void falcon_bounds_most(falcon_bounds *b, int64_t v) { if (v < b->high) b->high = v; }
static inline void falcon_bounds_least(falcon_bounds *b, int64_t v) { if (v > b->low) b->low = v; }
static inline int64_t falcon_bounds_middle(const falcon_bounds *b) { return b->low > b->high ? b->high + (b->low - b->high) / 2 : b->high; }

/* A window as the agent asks for it. */
typedef struct falcon_window {
  uint32_t id;
  uint64_t until_ns;   /* CLOCK_MONOTONIC, at most a minute ahead */
  uint64_t comms[4];   /* bit i: slot i is wanted */
} falcon_window;

/* By the side thread alone. */
bool falcon_window_wanted(uint32_t last, uint64_t now_ns, falcon_window *w); /* one that is newer than the last */
bool falcon_window_over(const falcon_window *w, uint64_t now_ns);
void falcon_window_done(uint32_t id);
void falcon_timing_put(const falcon_timing *t); /* its seq is given here */
bool falcon_timing_reserve(void);

void falcon_timing_lost(uint64_t n);

#endif
