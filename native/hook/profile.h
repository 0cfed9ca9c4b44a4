/*
 * Profile mode, shared by its two halves: profile.c runs on training threads
 * and only records events, window.c runs on the side thread and does all else
 * (reserves the events, asks whether they are done, writes the timings).
 *
 * Between them lies one queue per ring: written by the ring's thread, emptied
 * by the side thread, each entry with two events of its own for good. Nothing
 * is created or waited for on a training thread, and a full queue costs the
 * timing of that call, which is counted.
 */
#ifndef FALCON_PROFILE_H
#define FALCON_PROFILE_H

#include "hook.h"

#define QUEUE_SLOTS 1024u /* power of two; calls of one thread not yet done on the device */

typedef struct profile_entry {
  void *start, *end;   /* CUDA events */
  uint64_t enter_ns;   /* host, CLOCK_MONOTONIC */
  uint64_t leader;     /* number of the entry whose events time this one: its own, or its group's first on the stream */
  uint64_t ordinal, bytes;
  int64_t start_ns, duration_ns; /* the side thread's answer */
  uint32_t window, comm;
  int32_t peer;
  uint8_t op, dtype, flags, bad, done;
} profile_entry;

typedef struct profile_queue {
  _Atomic uint64_t head __attribute__((aligned(64))); /* published by the thread */
  _Atomic uint64_t tail __attribute__((aligned(64))); /* freed by the side thread */
  _Atomic(profile_entry *) entries;                   /* NULL until the side thread has reserved */
} profile_queue;

enum base_state { BASE_NONE = 0, BASE_TAKEN = 1, BASE_RECORDED = 2 };

typedef struct profile_state {
  profile_queue queue[FALCON_RINGS_MAX];
  _Atomic uint64_t comms[FALCON_COMMS_MAX / 64]; /* wanted communicators */
  _Atomic uint32_t base;                         /* enum base_state of this window */
  void *base_event;
  int device;                                    /* the events belong to it, -1 = any */
  int (*create)(void **, unsigned);
  int (*destroy)(void *);                        /* may be NULL */
  int (*record)(void *, void *);
  int (*query)(void *);
  int (*elapsed)(float *, void *, void *);
  int (*capturing)(void *, int *);
  int (*last_error)(void);                       /* may be NULL */
} profile_state;

extern profile_state falcon_profile __attribute__((visibility("hidden")));

static inline profile_entry *profile_at(profile_entry *entries, uint64_t i) { return &entries[i & (QUEUE_SLOTS - 1)]; }

#endif
