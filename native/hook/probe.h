/*
 * Active tests of the devices and links while the job is held (FALCON 4.4):
 * what the parts share.
 *
 * reserve.c, once, on the thread that made the first communicator: memory,
 * streams, events and the cuBLAS handle, so that nothing is allocated later in
 * a full GPU. probe.c: the mailbox (side thread) and the test thread, which is
 * created by the first test and runs one at a time. probe_gemm.c, probe_link.c:
 * the tests, on the test thread only.
 *
 * Every wait is bounded by the test's deadline, and ends with the pause.
 * Nothing of the training is touched: no stream, communicator or memory of its.
 * What the tests call is neither recorded nor held.
 */
#ifndef FALCON_PROBE_H
#define FALCON_PROBE_H

#include "cuda.h"

#define PROBE_REPEATS_MAX 64u
#define PROBE_MESSAGES_MAX 1024u /* of one repeat of a link test */
#define PROBE_POLL_NS 100000l /* between two looks at something that is awaited */

typedef struct falcon_workspace {
  char *memory;
  size_t bytes;
  int device;
  void *sends, *computes; /* streams: sending; multiplying, receiving */
  void *event[PROBE_REPEATS_MAX + 1];
  void *cublas;           /* handle, NULL without the library */
  size_t cublas_bytes;    /* at the end of memory, for cuBLAS itself */
  bool bound;             /* the environment forbids communicators of our own */
} falcon_workspace;

/* One test as it runs. */
typedef struct falcon_trial {
  falcon_test order;        /* a copy, checked */
  uint64_t pause;           /* under which it runs */
  uint64_t until_ns;
  uint64_t start_ns;
  falcon_test_result out;   /* status and reason, and the rest where it is done */
} falcon_trial;

extern falcon_workspace falcon_work __attribute__((visibility("hidden")));
bool falcon_work_ready(void);

/* Is its time or its pause over? A trial that is over ends as LATE. */
bool falcon_trial_over(falcon_trial *t);
bool falcon_trial_nap(falcon_trial *t);            /* one poll interval; false when it is over */
bool falcon_trial_await(falcon_trial *t, void *event);
bool falcon_trial_end(falcon_trial *t, uint32_t status, uint32_t reason); /* false, for return */
bool falcon_trial_times(falcon_trial *t);          /* the repeats, from the events */

void falcon_probe_gemm(falcon_trial *t);
void falcon_probe_id(falcon_trial *t);
void falcon_probe_link(falcon_trial *t);

#endif
