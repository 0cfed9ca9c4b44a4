/*
 * The job adapter: what a framework reports to the hook and asks of it. Exported by
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

#include "falcon_shm.h" /* enum falcon_order_kind, enum falcon_park_status */

#define FALCON_JOB_VERSION 2u /* of this interface; raised when a call or a value changes its meaning or its shape */
#define FALCON_JOB_VALUES_MAX 1024

typedef struct falcon_job_order {
  uint64_t id;
  uint64_t epoch;
  uint32_t kind; /* enum falcon_order_kind */
  uint32_t n;
  /* MICROBATCHES: n counts, one per replica. PLACEMENT: n blocks of world / n
   * ranks; the processes of block b take block values[b] over, each keeping its
   * place in the block. CHECKPOINT: n = 1, values[0] = 1 to leave once it is
   * written, 0 to go on. STOP: n = 0. REJOIN, which only falcon_job_park
   * gives: [0] 1 = everybody restores from the newest checkpoint, [1] low 31
   * bits of the iteration to resume at, [2] its high bits, [3] s, then s
   * micro-batch counts, one per replica (s = 0: as they were), then m, then m
   * pairs (rank, from): the rank gets its state from that other rank, or from
   * storage where from is -2. Who is not named keeps its own. */
  int32_t  values[FALCON_JOB_VALUES_MAX];
} falcon_job_order;

/* The hook's FALCON_JOB_VERSION. A hook that lacks this call has version 1. */
uint32_t falcon_job_version(void);

/* The layout and the micro-batches per iteration of this rank. */
void falcon_job_describe(int tp, int dp, int pp, int micro_batches);
/* The same for any layout: the dimensions of the ranks, innermost (fastest varying)
 * first, such as "tp=2,cp=2,ep=4,dp=8,pp=4". The ranks are the product of tp, cp, fsdp
 * (shard), dp (of HSDP: replicate) and pp. Experts are spread over ep ranks, each over
 * etp (default: tp); vpp is the virtual stages of a rank. What is not named is 1. At most
 * 127 bytes; a longer text, one that is no mesh, and NULL declare none. Counts before
 * falcon_job_describe. */
void falcon_job_mesh(const char *dims, int micro_batches);

void falcon_job_begin_iteration(int64_t i);
/* Only after a world-wide reduction whose result the host has read. */
void falcon_job_begin_optimizer(int64_t i);
/* Only after the update has finished on the device; next is i+1. */
void falcon_job_end_optimizer(int64_t next);

/* Id of the newest order this rank has prepared, 0 for none: after a rejoin those
 * of before count no more. The ranks take
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

/* The state of this rank: how the optimizer is spread, what moves with it (bytes,
 * and bytes per second between device and host), and the micro-batches that its
 * replica may be given. 0 = unknown, or no limit. Again when it changes. */
void falcon_job_state(int zero_stage, int zero_instances, uint64_t state_bytes, uint64_t copy_bytes_s, int micro_min,
                      int micro_max, int micro_multiple);

/* What this process can do, a set of enum falcon_can; FALCON_CAN_NOTHING where it is
 * empty. versions: how many steps of its state it holds at a time, 0 = not known. Once
 * the job is made, and again when it changes. What was not declared is not ordered, and
 * asking for an order or for a suspension declares nothing. */
void falcon_job_can(uint32_t can, int versions);

/* The program ends because of an error that nothing handles: its type, the file and line that raised
 * it, and its message; each is cut, NULL is empty. of_peers: communication has failed, which a peer's
 * end alone may explain. The first call of a process counts. It orders nothing: people read it, and
 * ranks that all fail by one error of their own are not replaced for it. */
void falcon_job_raised(const char *kind, const char *where, const char *text, int of_peers);

/* Storage holds a complete checkpoint that a restart would begin with iteration i from. */
void falcon_job_checkpoint(int64_t i);

/* 0, or the generation of a suspension that this process has not answered yet:
 * its communicators are being aborted, and it must unwind to falcon_job_park.
 * Any thread; a few loads. A job whose ranks have all declared FALCON_CAN_PARK
 * takes part in recoveries; another one is restarted whole. */
uint64_t falcon_job_suspended(void);

#define FALCON_PARK_REJOIN 0   /* *out is a REJOIN order */
#define FALCON_PARK_STOP 1     /* end with success */
#define FALCON_PARK_NOBODY (-1) /* no agent for FALCON_PARK_AGENT_S (default 120 s), or parked for FALCON_PARK_MAX_S (1800 s) without an engine */
#define FALCON_PARK_NO_HOOK (-2) /* there is no mailbox to wait on */

/* Leaves training and blocks until the agent's order. The device queues must be
 * drained or given up, and no call of NCCL in flight; communicators need not be
 * destroyed before. status: enum falcon_park_status, or a negative one with
 * which the last rejoin failed. steps and sums: the steps of this rank's shard
 * that it holds, -1 = none, each with its checksum; they must stay as they are
 * until a rejoin has succeeded. On FALCON_PARK_REJOIN, communicators made from
 * now on are of generation out->epoch. */
int falcon_job_park(int status, const int64_t steps[2], const uint64_t sums[2], falcon_job_order *out);

/* What became of the rejoin `id`: with status 0 this rank trains again from
 * iteration i. ns: until all new communicators were ready, from then until its
 * state was restored and checked; bytes: state that it received. */
void falcon_job_rejoined(uint64_t id, int64_t i, int32_t status, const uint64_t ns[2], uint64_t bytes);

/* How long this process's calls have been held by Falcon so far, in ns: to be
 * kept out of the job's own iteration times. */
uint64_t falcon_job_paused_ns(void);

/* How long this process has waited for its peers by now, inside one call of NCCL
 * or on the device behind one, in ns; 0 where it does not wait, or that is not
 * known. An adapter that turns a framework's own time limit off applies it by this. */
uint64_t falcon_job_waited_ns(void);

/* The training is over: marks the end and removes the shared-memory file, as a
 * normal exit() of the process does. For runtimes that end without exit() (Go),
 * so that the agent can distinguish an end from a crash. */
void falcon_job_finish(void);

#endif
