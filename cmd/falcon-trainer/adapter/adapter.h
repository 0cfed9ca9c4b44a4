/* falcon_job.h found at run time: every call is empty where no hook answers. */
#ifndef FALCON_TRAINER_ADAPTER_H
#define FALCON_TRAINER_ADAPTER_H

#include "falcon_job.h"
#include "falcon_shm.h"

void trainer_job_find(void);
int trainer_job_present(void);
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

#endif
