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
  CHECK(CTL(b)->coverage & FALCON_COV_ADAPTER && CTL(b)->coverage & FALCON_COV_STAYS);
  FIND(falcon_job_suspended);
  CHECK(!f_falcon_job_suspended() && CTL(b)->coverage & FALCON_COV_STAYS && !CTL(b)->can); /* who asks declares nothing */
  FIND(falcon_job_can);
  f_falcon_job_can(FALCON_CAN_PARK | FALCON_CAN_SPLIT | 1u << 20, 2);
  CHECK(CTL(b)->can == (FALCON_CAN_PARK | FALCON_CAN_SPLIT) && CTL(b)->versions == 2 && !(CTL(b)->coverage & FALCON_COV_STAYS));
  f_falcon_job_can(0, -1);
  CHECK(CTL(b)->can == FALCON_CAN_NOTHING && CTL(b)->versions == 0 && CTL(b)->coverage & FALCON_COV_STAYS);
  f_falcon_job_finish();
  CHECK(access(shm_path(), F_OK));
}

static void case_raised(void) {
  FIND(falcon_job_raised);
  char text[2 * FALCON_RAISED_BYTES];
  memset(text, 'x', sizeof(text));
  text[sizeof(text) - 1] = 0;
  f_falcon_job_raised("ValueError", "train.py:41", text, 0);
  char *b = shm_map();
  CHECK(b && !strcmp(CTL(b)->raised_kind, "ValueError") && !strcmp(CTL(b)->raised_where, "train.py:41") && CTL(b)->raised_seq == 2);
  CHECK(strlen(CTL(b)->raised_text) == FALCON_RAISED_BYTES - 1 && !CTL(b)->raised_of_peers);
  f_falcon_job_raised("RuntimeError", NULL, NULL, 1); /* the first one is why it ends */
  CHECK(!strcmp(CTL(b)->raised_kind, "ValueError") && CTL(b)->raised_seq == 2);
}

static void case_mesh(void) {
  FIND(falcon_job_mesh);
  f_falcon_job_mesh("tp=2,cp=2,dp=4", 8);
  char *b = shm_map();
  CHECK(b && !strcmp(CTL(b)->mesh, "tp=2,cp=2,dp=4") && CTL(b)->mesh_seq == 2 && CTL(b)->micro_batches == 8 && CTL(b)->describe_seq == 1);
  f_falcon_job_mesh("dp=8", -1);
  CHECK(!strcmp(CTL(b)->mesh, "dp=8") && CTL(b)->mesh_seq == 4 && CTL(b)->micro_batches == 0);
  char text[FALCON_MESH_BYTES + 1];
  memset(text, 'x', sizeof(text));
  text[FALCON_MESH_BYTES - 1] = 0; /* the longest */
  f_falcon_job_mesh(text, 1);
  CHECK(!strcmp(CTL(b)->mesh, text));
  text[FALCON_MESH_BYTES - 1] = 'x';
  text[FALCON_MESH_BYTES] = 0;
  f_falcon_job_mesh(text, 1);
  CHECK(!CTL(b)->mesh[0]);
  f_falcon_job_mesh("dp=8", 1);
  f_falcon_job_mesh(NULL, 1);
  CHECK(!CTL(b)->mesh[0] && CTL(b)->mesh_seq == 12);
}

static void put_kind(char *b, uint64_t id, uint32_t kind, int32_t first) {
  falcon_shm_order *o = &CTL(b)->orders[id % FALCON_ORDER_SLOTS];
  __atomic_store_n(&o->seq, o->seq | 1, __ATOMIC_RELEASE);
  o->id = id;
  o->epoch = 9;
  o->kind = kind;
  o->n = 4;
  for (int i = 0; i < 4; i++) o->values[i] = first + i;
  __atomic_store_n(&o->seq, o->seq + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->newest_order, id, __ATOMIC_RELEASE);
}

static void put_order(char *b, uint64_t id, int32_t first) { put_kind(b, id, FALCON_ORDER_MICROBATCHES, first); }

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

/* The iteration of a restart is that of the ack of a checkpoint order that was
 * carried out, and of no other ack. */
static void case_checkpoint(void) {
  FIND(falcon_job_poll);
  FIND(falcon_job_fetch);
  FIND(falcon_job_ack);
  static falcon_job_order o;
  CHECK(f_falcon_job_poll(0) == 0);
  char *b = shm_map();
  CHECK(b && CTL(b)->resume_iteration == 0 && CTL(b)->generation == 3);
  put_kind(b, 4, FALCON_ORDER_CHECKPOINT, 1);
  CHECK(f_falcon_job_poll(10) == 4 && f_falcon_job_fetch(4, &o) == 0 && o.kind == FALCON_ORDER_CHECKPOINT && o.values[0] == 1);
  f_falcon_job_ack(4, 11, 6);
  CHECK(CTL(b)->committed_status == 6 && CTL(b)->resume_iteration == 0);
  put_kind(b, 5, FALCON_ORDER_CHECKPOINT, 0);
  CHECK(f_falcon_job_poll(20) == 5);
  f_falcon_job_ack(5, 21, 0);
  CHECK(CTL(b)->committed_order == 5 && CTL(b)->resume_iteration == 21);
  put_order(b, 6, 100);
  CHECK(f_falcon_job_poll(30) == 6);
  f_falcon_job_ack(6, 31, 0);
  CHECK(CTL(b)->committed_iteration == 31 && CTL(b)->resume_iteration == 21);
  f_falcon_job_ack(5 + FALCON_ORDER_SLOTS, 40, 0); /* never held: says nothing of a checkpoint */
  CHECK(CTL(b)->resume_iteration == 21);
}

static void *placements(void *arg) {
  falcon_control *c = CTL((char *)arg);
  uint64_t last = 0;
  do {
    uint64_t before = LOAD(c->place_seq);
    if (before & 1) continue;
    uint64_t id = LOAD(c->place_order), bytes = LOAD(c->place_bytes), step = LOAD(c->place_step_ns[3]);
    int64_t i = LOAD(c->place_iteration);
    int32_t rank = LOAD(c->place_rank);
    if (LOAD(c->place_seq) != before) continue;
    CHECK(i == (int64_t)(10 * id) && rank == (int32_t)(id % 8) && bytes == 1000 * id && step == 4 * id && id >= last);
    last = id;
  } while (last < 20000);
  return NULL;
}

/* A reader at any moment sees a whole placement or knows that it does not. */
static void case_place(void) {
  FIND(falcon_job_place);
  FIND(falcon_job_poll);
  CHECK(f_falcon_job_poll(0) == 0);
  char *b = shm_map();
  CHECK(b && CTL(b)->place_order == 0 && CTL(b)->place_seq == 0);
  f_falcon_job_place(1, 10, 1, NULL, 0);
  CHECK(CTL(b)->place_order == 0);
  pthread_t reader;
  CHECK(!pthread_create(&reader, NULL, placements, b));
  for (uint64_t id = 1; id <= 20000; id++) {
    uint64_t steps[4] = {id, 2 * id, 3 * id, 4 * id};
    f_falcon_job_place(id, (int64_t)(10 * id), (int)(id % 8), steps, 1000 * id);
  }
  CHECK(!pthread_join(reader, NULL));
  CHECK(CTL(b)->place_step_ns[0] == 20000 && CTL(b)->place_step_ns[1] == 40000 && CTL(b)->place_step_ns[2] == 60000);
  CHECK(HDR(b)->rank == 2 && !(CTL(b)->place_seq & 1));
}
