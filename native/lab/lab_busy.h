/*
 * How long the GPUs of the lab have worked: a file of counters beside the state file
 * ($FALCON_LAB_STATE.busy), which the CUDA stand-in adds to and the NVML stand-in reads.
 * The state file itself stays read-only for both.
 */
#ifndef FALCON_LAB_BUSY_H
#define FALCON_LAB_BUSY_H

#include <stdint.h>

typedef struct lab_busy {
  uint64_t any_ns; /* something was on the GPU, a collective that waits for its peers included */
  uint64_t sm_ns;  /* kernels that compute */
} lab_busy;

/* Adds an operation on a GPU of this node. Nothing where there is no state file. */
void lab_busy_add(int gpu, int64_t ns, int computes);

/* 0 where nothing was counted yet. */
lab_busy lab_busy_read(int node, int gpu);

#endif
