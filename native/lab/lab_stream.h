/*
 * What the lab's libcudart offers to the other stand-ins (and to tests): work
 * on a stream at a modelled pace, and the lab's state. All times are
 * CLOCK_MONOTONIC ns. Resolved at link time.
 *
 * Model: an operation starts at max(modelled end of the one before it on its
 * stream, its enqueue time), does its real work at once, and ends at its
 * modelled end, for which the stream sleeps once. Timer error does not add up
 * because the next start is the modelled end, not the wake-up. When a wake-up
 * is more than FALCON_LAB_LATE_NS late the host is truly short of CPU: the
 * chain restarts at the real time, so that contention shows, and shows as time
 * outside communication (where a starved host would delay a real GPU).
 */
#ifndef FALCON_LAB_STREAM_H
#define FALCON_LAB_STREAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "include/cuda_runtime_api.h"

#define FALCON_LAB_LATE_NS  1000000  /* a later wake-up re-bases the chain */
#define FALCON_LAB_SLICE_NS 5000000  /* longest sleep that a cancel can't cut */
#define FALCON_LAB_NAP_NS   100000   /* shorter waits are left to the chain */
#define FALCON_LAB_QUEUE_MAX 1024    /* operations waiting on a stream; launches block beyond */

/* One run of an operation, filled by the stream before fn is called. */
typedef struct falcon_lab_run {
  int64_t start_ns; /* modelled start on this stream */
  int64_t end_ns;   /* in: start plus the cost of its flops; fn may move it later */
  int     paced;    /* 0: times are real ones, and nothing sleeps */
} falcon_lab_run;

/* The real work. 0, or the cudaError_t that the stream will report. */
typedef int (*falcon_lab_fn)(void *arg, falcon_lab_run *run);

typedef struct falcon_lab_op {
  falcon_lab_fn fn;
  void *arg;
  void (*release)(void *arg); /* called once after the run, or when the enqueue fails; may be NULL */
  double flops;               /* modelled cost on the stream's GPU, 0 = none */
  atomic_int *cancel;         /* non-zero cuts the modelled time short; may be NULL */
  int transfer;               /* communication: an event behind it never carries lost host time */
} falcon_lab_op;

cudaError_t falcon_lab_enqueue(cudaStream_t stream, const falcon_lab_op *op);

/* Charges the calling thread for one launch when its host is starved
 * (host_share < 1): FALCON_LAB_HOST_COST_NS / host_share, chained. */
#define FALCON_LAB_HOST_COST_NS 250000
void falcon_lab_host_launch(void);

/* Device of a stream, -1 for a bad handle. */
int falcon_lab_stream_device(cudaStream_t stream);

int     falcon_lab_paced(void);
int     falcon_lab_hollow(void); /* $FALCON_LAB_HOLLOW: under a framework whose kernels compute nothing, products need not either */
int     falcon_lab_node(void); /* $FALCON_LAB_NODE, 0 when unset */
int64_t falcon_lab_now_ns(void);
/* Modelled bandwidth and latency between two nodes (or inside one), right now. */
void falcon_lab_link_now(int node_a, int node_b, double *bytes_per_s, double *latency_s);

#endif
