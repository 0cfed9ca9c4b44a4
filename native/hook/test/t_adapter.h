/* Cases of the job adapter; found by dlsym, as a framework does it. */
#include "../../include/falcon_job.h"

#define FIND(name) __typeof__(&name) f_##name = (__typeof__(&name))dlsym(RTLD_DEFAULT, #name); CHECK(f_##name)

static void case_marks(void) {
  FIND(falcon_job_begin_iteration);
  FIND(falcon_job_begin_optimizer);
  FIND(falcon_job_end_optimizer);
  FIND(falcon_job_describe);
  FIND(falcon_job_finish);
  f_falcon_job_describe(2, 4, 1, 8);
  char *b = shm_map();
  CHECK(b && CTL(b)->iteration == -1 && CTL(b)->step_tag == -1 && CTL(b)->dp == 4 && CTL(b)->micro_batches == 8);
  void *c = comm_of(1, 2, 0);
  for (int64_t i = 0; i < 100; i++) {
    f_falcon_job_begin_iteration(i);
    CHECK(CTL(b)->iteration == i && CTL(b)->step_tag == i);
    ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL);
    f_falcon_job_begin_optimizer(i);
    CHECK(CTL(b)->step_tag == -1);
    f_falcon_job_end_optimizer(i + 1);
    CHECK(CTL(b)->step_tag == i + 1);
  }
  CHECK(CTL(b)->iterations_done == 100 && REC(b, 0, 42)->step == 42);
  for (uint64_t k = 36; k < 100; k++) CHECK(CTL(b)->marks[k % 64].seq == k + 1 && CTL(b)->marks[k % 64].iteration == (int64_t)k);
  CHECK(CTL(b)->marks[37].start_ns >= CTL(b)->marks[36].start_ns);
  CHECK(CTL(b)->coverage & FALCON_COV_ADAPTER);
  f_falcon_job_finish();
  CHECK(access(shm_path(), F_OK));
}

static void put_order(char *b, uint64_t id, int32_t first) {
  falcon_shm_order *o = &CTL(b)->orders[id % FALCON_ORDER_SLOTS];
  __atomic_store_n(&o->seq, o->seq | 1, __ATOMIC_RELEASE);
  o->id = id;
  o->epoch = 9;
  o->kind = FALCON_ORDER_MICROBATCHES;
  o->n = 4;
  for (int i = 0; i < 4; i++) o->values[i] = first + i;
  __atomic_store_n(&o->seq, o->seq + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->newest_order, id, __ATOMIC_RELEASE);
}

static void case_mailbox(void) {
  FIND(falcon_job_poll);
  FIND(falcon_job_fetch);
  FIND(falcon_job_ack);
  static falcon_job_order o;
  CHECK(f_falcon_job_poll(0) == 0);
  char *b = shm_map();
  CHECK(b && f_falcon_job_fetch(0, &o) == -1 && f_falcon_job_fetch(1, &o) == -1);
  put_order(b, 1, 100);
  put_order(b, 2, 200);
  CHECK(f_falcon_job_poll(1) == 2);
  CHECK(f_falcon_job_fetch(1, &o) == 0 && o.values[3] == 103 && o.n == 4 && o.epoch == 9 && o.kind == FALCON_ORDER_MICROBATCHES);
  CHECK(f_falcon_job_fetch(2, &o) == 0 && o.values[0] == 200);
  put_order(b, 6, 600); /* takes the mailbox slot of 2, which this rank voted for */
  CHECK(f_falcon_job_fetch(2, &o) == 0 && o.values[0] == 200);
  CHECK(f_falcon_job_poll(2) == 6);
  CTL(b)->orders[3].seq = 1; /* an agent that died while writing */
  CTL(b)->orders[3].id = 7;
  CTL(b)->newest_order = 7;
  CHECK(f_falcon_job_poll(3) == 6 && f_falcon_job_fetch(7, &o) == -1);
  CTL(b)->orders[0].seq = 2; /* absurd length */
  CTL(b)->orders[0].id = 8;
  CTL(b)->orders[0].n = 5000;
  CTL(b)->newest_order = 8;
  CHECK(f_falcon_job_poll(3) == 6 && f_falcon_job_fetch(8, &o) == -1);
  f_falcon_job_ack(6, 44, 0);
  CHECK(CTL(b)->committed_order == 6 && CTL(b)->committed_iteration == 44 && CTL(b)->committed_status == 0);
}
