#include "adapter.h"

#include <dlfcn.h>
#include <string.h>

static struct {
  void (*describe)(int, int, int, int);
  void (*begin_iteration)(int64_t);
  void (*begin_optimizer)(int64_t);
  void (*end_optimizer)(int64_t);
  uint64_t (*poll)(int64_t);
  int (*fetch)(uint64_t, falcon_job_order *);
  void (*ack)(uint64_t, int64_t, int32_t);
  void (*place)(uint64_t, int64_t, int, const uint64_t *, uint64_t);
  uint64_t (*paused_ns)(void);
  void (*finish)(void);
  void (*state)(int, int, uint64_t, uint64_t, int, int, int);
  void (*can)(uint32_t, int);
  void (*checkpoint)(int64_t);
  uint64_t (*suspended)(void);
  int (*park)(int, const int64_t *, const uint64_t *, falcon_job_order *);
  void (*rejoined)(uint64_t, int64_t, int32_t, const uint64_t *, uint64_t);
} job;

/* A void* from dlsym holds a function's address; C forbids only the cast. */
static void look_up(const char *name, void *slot) {
  void *found = dlsym(RTLD_DEFAULT, name);
  memcpy(slot, &found, sizeof found);
}

void trainer_job_find(int all) {
  look_up("falcon_job_paused_ns", &job.paused_ns);
  look_up("falcon_job_finish", &job.finish);
  if (!all) return;
  look_up("falcon_job_describe", &job.describe);
  look_up("falcon_job_begin_iteration", &job.begin_iteration);
  look_up("falcon_job_begin_optimizer", &job.begin_optimizer);
  look_up("falcon_job_end_optimizer", &job.end_optimizer);
  look_up("falcon_job_poll", &job.poll);
  look_up("falcon_job_fetch", &job.fetch);
  look_up("falcon_job_ack", &job.ack);
  look_up("falcon_job_place", &job.place);
  look_up("falcon_job_state", &job.state);
  look_up("falcon_job_can", &job.can);
  look_up("falcon_job_checkpoint", &job.checkpoint);
  look_up("falcon_job_suspended", &job.suspended);
  look_up("falcon_job_park", &job.park);
  look_up("falcon_job_rejoined", &job.rejoined);
}

void trainer_job_describe(int tp, int dp, int pp, int micro_batches) {
  if (job.describe) job.describe(tp, dp, pp, micro_batches);
}

void trainer_job_begin_iteration(int64_t i) {
  if (job.begin_iteration) job.begin_iteration(i);
}

void trainer_job_begin_optimizer(int64_t i) {
  if (job.begin_optimizer) job.begin_optimizer(i);
}

void trainer_job_end_optimizer(int64_t next) {
  if (job.end_optimizer) job.end_optimizer(next);
}

/* Orders need all three: a vote that can't be fetched would bind nobody. */
static int orders(void) { return job.poll && job.fetch && job.ack; }

uint64_t trainer_job_poll(int64_t i) { return orders() ? job.poll(i) : 0; }

int trainer_job_fetch(uint64_t id, falcon_job_order *out) {
  return orders() ? job.fetch(id, out) : -1;
}

void trainer_job_ack(uint64_t id, int64_t i, int32_t status) {
  if (orders()) job.ack(id, i, status);
}

void trainer_job_place(uint64_t id, int64_t i, int rank, const uint64_t step_ns[4], uint64_t bytes) {
  if (orders() && job.place) job.place(id, i, rank, step_ns, bytes);
}

void trainer_job_finish(void) {
  if (job.finish) job.finish();
}

uint64_t trainer_job_paused_ns(void) { return job.paused_ns ? job.paused_ns() : 0; }

void trainer_job_state(int zero_stage, int zero_instances, uint64_t bytes, uint64_t copy_bytes_s, int micro_min, int micro_max,
                       int micro_multiple) {
  if (job.state) job.state(zero_stage, zero_instances, bytes, copy_bytes_s, micro_min, micro_max, micro_multiple);
}

void trainer_job_can(uint32_t can, int versions) {
  if (job.can) job.can(can, versions);
}

void trainer_job_checkpoint(int64_t i) {
  if (job.checkpoint) job.checkpoint(i);
}

/* Parking needs all three: who can't tell what became of a rejoin would be waited for. */
int trainer_job_parks(void) { return job.suspended && job.park && job.rejoined; }

uint64_t trainer_job_suspended(void) { return trainer_job_parks() ? job.suspended() : 0; }

int trainer_job_park(int status, const int64_t steps[2], const uint64_t sums[2], falcon_job_order *out) {
  return trainer_job_parks() ? job.park(status, steps, sums, out) : FALCON_PARK_NO_HOOK;
}

void trainer_job_rejoined(uint64_t id, int64_t i, int32_t status, const uint64_t ns[2], uint64_t bytes) {
  if (trainer_job_parks()) job.rejoined(id, i, status, ns, bytes);
}
