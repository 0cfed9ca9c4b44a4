/*
 * The job adapter: what a framework tells the hook and asks of it. Exported by
 * libfalcon_hook.so; a framework finds it with dlsym(RTLD_DEFAULT, name), so
 * that it also runs without the hook. No call here ever blocks, but
 * falcon_job_park.
 *
 * Order of calls in one iteration of one rank:
 *   begin_iteration(i) .. forward, backward .. begin_optimizer(i) .. update ..
 *   end_optimizer(i+1) .. poll, world-wide MIN of the polled ids, commit.
 */
#ifndef FALCON_JOB_H
#define FALCON_JOB_H

#include <stdint.h>

#define FALCON_JOB_VALUES_MAX 1024

typedef struct falcon_job_order {
  uint64_t id;
  uint64_t epoch;
  uint32_t kind; /* enum falcon_order_kind */
  uint32_t n;
  /* MICROBATCHES: n counts, one per replica. PLACEMENT: n blocks of world / n
   * ranks; the processes of block b take block values[b] over, each keeping its
   * place in the block. CHECKPOINT: n = 1, values[0] = 1 to leave once it is
   * written, 0 to go on. STOP: n = 0. */
  int32_t  values[FALCON_JOB_VALUES_MAX];
} falcon_job_order;

/* The layout and the micro-batches per iteration of this rank. */
void falcon_job_describe(int tp, int dp, int pp, int micro_batches);

void falcon_job_begin_iteration(int64_t i);
/* Only after a world-wide reduction whose result the host has read. */
void falcon_job_begin_optimizer(int64_t i);
/* Only after the update has finished on the device; next is i+1. */
void falcon_job_end_optimizer(int64_t next);

/* Id of the newest order this rank has prepared, 0 for none. The ranks take
 * the world-wide MIN of these ids: that vote is the commit. */
uint64_t falcon_job_poll(int64_t i);

/* The order with this id, copied out; 0 on success, -1 when it is not (or no
 * longer) in the mailbox. A rank that voted for id still holds it. */
int falcon_job_fetch(uint64_t id, falcon_job_order *out);

/* The voted order holds from iteration i on; status 0 = applied, else refused
 * by the framework on all ranks alike (for a reason the ranks agree on). Of a
 * checkpoint that was written, i is the iteration with which a restart begins. */
void falcon_job_ack(uint64_t id, int64_t i, int32_t status);

/* A placement order was carried out: from iteration i on this process holds
 * `rank`, in new communicators. Called after the vote that made the placement
 * final and before falcon_job_ack of the order. step_ns: pause, dump, swap,
 * restore as this process saw them; bytes: state that it received. */
void falcon_job_place(uint64_t id, int64_t i, int rank, const uint64_t step_ns[4], uint64_t bytes);

/* How long this process's calls have been held by Falcon so far, in ns: to be
 * kept out of the job's own iteration times. */
uint64_t falcon_job_paused_ns(void);

/* The training is over: removes the shared-memory file, as a normal exit() of
 * the process does. For runtimes that end without exit() (Go), so that the
 * agent can tell an end from a crash. */
void falcon_job_finish(void);

#endif
