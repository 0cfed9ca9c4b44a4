/* falcon_job.h found at run time: every call is empty where no hook answers. */
#ifndef FALCON_TRAINER_ADAPTER_H
#define FALCON_TRAINER_ADAPTER_H

#include "falcon_job.h"
#include "falcon_shm.h"

/* all: not only what stands in for the runtime, whose exit runs no destructors. */
void trainer_job_find(int all);
void trainer_job_describe(int tp, int dp, int pp, int micro_batches);
void trainer_job_begin_iteration(int64_t i);
void trainer_job_begin_optimizer(int64_t i);
void trainer_job_end_optimizer(int64_t next);
uint64_t trainer_job_poll(int64_t i);
int trainer_job_fetch(uint64_t id, falcon_job_order *out);
void trainer_job_ack(uint64_t id, int64_t i, int32_t status);
void trainer_job_place(uint64_t id, int64_t i, int rank, const uint64_t step_ns[4], uint64_t bytes);
uint64_t trainer_job_paused_ns(void);
void trainer_job_finish(void);
void trainer_job_state(int zero_stage, int zero_instances, uint64_t bytes, uint64_t copy_bytes_s, int micro_min, int micro_max,
                       int micro_multiple);
void trainer_job_can(uint32_t can, int versions);
void trainer_job_checkpoint(int64_t i);
int trainer_job_parks(void);
uint64_t trainer_job_suspended(void);
int trainer_job_park(int status, const int64_t steps[2], const uint64_t sums[2], falcon_job_order *out);
void trainer_job_rejoined(uint64_t id, int64_t i, int32_t status, const uint64_t ns[2], uint64_t bytes);

#endif
