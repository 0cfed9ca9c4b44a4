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
} job;

/* A void* from dlsym holds a function's address; C forbids only the cast. */
static void look_up(const char *name, void *slot) {
  void *found = dlsym(RTLD_DEFAULT, name);
  memcpy(slot, &found, sizeof found);
}

void trainer_job_find(void) {
  look_up("falcon_job_describe", &job.describe);
  look_up("falcon_job_begin_iteration", &job.begin_iteration);
  look_up("falcon_job_begin_optimizer", &job.begin_optimizer);
  look_up("falcon_job_end_optimizer", &job.end_optimizer);
  look_up("falcon_job_poll", &job.poll);
  look_up("falcon_job_fetch", &job.fetch);
  look_up("falcon_job_ack", &job.ack);
  look_up("falcon_job_place", &job.place);
  look_up("falcon_job_paused_ns", &job.paused_ns);
  look_up("falcon_job_finish", &job.finish);
}

int trainer_job_present(void) { return job.begin_iteration != NULL; }

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
