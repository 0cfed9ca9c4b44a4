/* Cases of parking, with the adapter's functions found as a framework finds
 * them. This program plays the agent as well. */
#include <dlfcn.h>
#include <pthread.h>

#include "../../include/falcon_job.h"
#include "agent.h"
#include "nccl.h"

#define FIND(name) __typeof__(&name) f_##name = (__typeof__(&name))dlsym(RTLD_DEFAULT, #name); CHECK(f_##name)

static struct {
  int status, rc;
  int64_t steps[2];
  uint64_t sums[2];
  falcon_job_order order;
  pthread_t id;
} me;

static void *park(void *unused) {
  FIND(falcon_job_park);
  (void)unused;
  int rc = f_falcon_job_park(me.status, me.steps, me.sums, &me.order);
  __atomic_store_n(&me.rc, rc, __ATOMIC_RELEASE);
  return NULL;
}

static void put_micro(uint64_t id) {
  falcon_shm_order *o = &CTL(b)->orders[id % FALCON_ORDER_SLOTS];
  o->id = id;
  o->epoch = 9;
  o->kind = FALCON_ORDER_MICROBATCHES;
  o->n = 2;
  __atomic_store_n(&o->seq, o->seq + 2, __ATOMIC_RELEASE);
  __atomic_store_n(&CTL(b)->newest_order, id, __ATOMIC_RELEASE);
}

static void start(void) {
  FIND(falcon_job_describe);
  f_falcon_job_describe(1, 2, 1, 4);
  b = shm_map();
  CHECK(b && LOAD(CTL(b)->generation) == 3 && LOAD(CTL(b)->generation_now) == 3 && !read_park().on);
}

static void park_aside(int status, int64_t first, int64_t second) {
  me.status = status;
  me.rc = -9;
  me.steps[0] = first;
  me.steps[1] = second;
  me.sums[0] = 0xabcd;
  me.sums[1] = 0x1234;
  CHECK(!pthread_create(&me.id, NULL, park, NULL));
}

static int outcome(void) {
  CHECK(!pthread_join(me.id, NULL) && !read_park().on);
  return me.rc;
}

/* Parked since a peer died, before anybody said so; then suspended, then ordered to
 * go on; the word is fresh at each moment. */
static void case_word(void) {
  FIND(falcon_job_begin_iteration);
  FIND(falcon_job_suspended);
  start();
  f_falcon_job_begin_iteration(41);
  park_aside(FALCON_PARK_SUSPENDED, 41, 42);
  CHECK(await_parked(3, 10000) && f_falcon_job_suspended() == 0);
  put_suspend(4, 0);
  CHECK(await_parked(4, 10000) && f_falcon_job_suspended() == 4);
  park_word w = read_park();
  CHECK(w.status == FALCON_PARK_SUSPENDED && w.tag == 41 && w.steps[0] == 41 && w.steps[1] == 42 && w.sums[0] == 0xabcd && w.sums[1] == 0x1234);
  put_suspend(6, 0); /* a second fault */
  CHECK(await_parked(6, 10000));
  put_rejoin(4); /* too late */
  await_looks();
  CHECK(read_park().on && LOAD(CTL(b)->generation_now) == 3);
  put_rejoin(6);
  CHECK(outcome() == FALCON_PARK_REJOIN && me.order.id == 6 && me.order.epoch == 6 && me.order.kind == FALCON_ORDER_REJOIN && me.order.n == 9);
  CHECK(me.order.values[1] == 7 && me.order.values[2] == 1 && me.order.values[5] == 3 && me.order.values[7] == 1 && me.order.values[8] == 3);
  CHECK(LOAD(CTL(b)->generation_now) == 6 && f_falcon_job_suspended() == 0);
}

/* Replaced in generation 3: its first rejoin is that one, later ones are not. */
static void case_joining(void) {
  FIND(falcon_job_rejoined);
  start();
  park_aside(FALCON_PARK_JOIN, -1, -1);
  CHECK(await_parked(3, 10000) && read_park().status == FALCON_PARK_JOIN && read_park().steps[0] == -1);
  put_rejoin(3);
  CHECK(outcome() == FALCON_PARK_REJOIN && me.order.id == 3);
  f_falcon_job_rejoined(3, 0, -5, (uint64_t[2]){1, 2}, 0);
  CHECK(LOAD(CTL(b)->rejoin_order) == 3 && LOAD(CTL(b)->rejoin_status) == -5 && LOAD(CTL(b)->step_tag) == -1);
  park_aside(-5, -1, -1);
  CHECK(await_parked(3, 10000) && read_park().status == -5);
  put_rejoin(3); /* it failed already */
  await_looks();
  CHECK(read_park().on);
  put_rejoin(4);
  CHECK(outcome() == FALCON_PARK_REJOIN && me.order.id == 4);
  f_falcon_job_rejoined(4, 57, 0, (uint64_t[2]){1000, 2000}, 1 << 20);
  CHECK(LOAD(CTL(b)->rejoin_order) == 4 && LOAD(CTL(b)->rejoin_iteration) == 57 && LOAD(CTL(b)->rejoin_status) == 0);
  CHECK(LOAD(CTL(b)->rejoin_step_ns[1]) == 2000 && LOAD(CTL(b)->rejoin_bytes) == 1 << 20 && LOAD(CTL(b)->step_tag) == 57);
}

/* An order that lay in the mailbox of the generation before binds no process of this
 * one; a newer one does. */
static void case_orders_void(void) {
  FIND(falcon_job_poll);
  start();
  put_micro(2);
  CHECK(f_falcon_job_poll(1) == 2);
  put_micro(3); /* not seen before the suspension */
  put_suspend(4, 0);
  park_aside(FALCON_PARK_SUSPENDED, 41, -1);
  CHECK(await_parked(4, 10000));
  put_rejoin(4);
  CHECK(outcome() == FALCON_PARK_REJOIN);
  CHECK(f_falcon_job_poll(2) == 0);
  put_micro(5);
  CHECK(f_falcon_job_poll(3) == 5);
}

/* Orders that are none: nothing is taken, and the right one still is. */
static void case_absurd(void) {
  start();
  park_aside(FALCON_PARK_SUSPENDED, 1, 2);
  CHECK(await_parked(3, 10000));
  static const struct { uint32_t kind, epoch, n; int32_t v[8]; } bad[] = {
    {FALCON_ORDER_STOP, 4, 5, {0}},                   /* another kind */
    {FALCON_ORDER_REJOIN, 5, 5, {0}},                 /* of another epoch */
    {FALCON_ORDER_REJOIN, 4, 4, {0}},                 /* too short */
    {FALCON_ORDER_REJOIN, 4, 5, {0, 0, 0, 100}},      /* more replicas than values */
    {FALCON_ORDER_REJOIN, 4, 6, {0, 0, 0, -1}},
    {FALCON_ORDER_REJOIN, 4, 5, {0, -1, 0, 0, 0}},    /* no iteration */
    {FALCON_ORDER_REJOIN, 4, 7, {0, 0, 0, 0, 2, 1}},  /* a move short */
    {FALCON_ORDER_REJOIN, 4, 5, {0, 0, 0, 0, INT32_MAX}},
    {FALCON_ORDER_REJOIN, 4, 5000, {0}},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    static int32_t all[FALCON_ORDER_VALUES];
    memcpy(all, bad[i].v, sizeof bad[i].v);
    put_rejoin_as(4, bad[i].kind, bad[i].epoch, all, bad[i].n);
    await_looks();
    CHECK(read_park().on && LOAD(CTL(b)->generation_now) == 3);
  }
  put_rejoin(4);
  CHECK(outcome() == FALCON_PARK_REJOIN && me.order.n == 9);
}

static void case_stop(void) {
  start();
  park_aside(FALCON_PARK_SUSPENDED, 1, -1);
  CHECK(await_parked(3, 10000));
  __atomic_store_n(&CTL(b)->stop_generation, 4, __ATOMIC_RELEASE);
  rouse();
  CHECK(outcome() == FALCON_PARK_STOP);
}

/* An agent that does not look any more, and one that looks and says nothing. */
static void case_nobody(void) {
  setenv("FALCON_PARK_AGENT_S", "1", 1);
  start();
  park_aside(FALCON_PARK_SUSPENDED, 1, -1);
  CHECK(outcome() == FALCON_PARK_NOBODY);
  setenv("FALCON_PARK_AGENT_S", "100", 1);
  setenv("FALCON_PARK_MAX_S", "3", 1);
  uint64_t begun = now_ns();
  park_aside(FALCON_PARK_SUSPENDED, 1, -1);
  for (; LOAD(me.rc) == -9; usleep(1000)) __atomic_store_n(&CTL(b)->agent_alive_ns, now_ns(), __ATOMIC_RELEASE);
  CHECK(outcome() == FALCON_PARK_NOBODY && now_ns() - begun >= 3000 * MS);
}

/* An agent that hears the engine keeps the wait up, for as long as it does. */
static void case_kept(void) {
  setenv("FALCON_PARK_MAX_S", "1", 1);
  start();
  uint64_t begun = now_ns(), kept = begun + 3000 * MS;
  park_aside(FALCON_PARK_SUSPENDED, 1, -1);
  for (; LOAD(me.rc) == -9; usleep(1000)) {
    __atomic_store_n(&CTL(b)->agent_alive_ns, now_ns(), __ATOMIC_RELEASE);
    if (now_ns() < kept) __atomic_store_n(&CTL(b)->suspend_until_ns, now_ns(), __ATOMIC_RELEASE);
  }
  CHECK(outcome() == FALCON_PARK_NOBODY && now_ns() - begun >= 4000 * MS - 100 * MS);
}

/* A time that no agent writes keeps nothing up. */
static void case_kept_for_ever(void) {
  setenv("FALCON_PARK_MAX_S", "1", 1);
  start();
  park_aside(FALCON_PARK_SUSPENDED, 1, -1);
  for (; LOAD(me.rc) == -9; usleep(1000)) {
    __atomic_store_n(&CTL(b)->agent_alive_ns, now_ns(), __ATOMIC_RELEASE);
    __atomic_store_n(&CTL(b)->suspend_until_ns, UINT64_MAX, __ATOMIC_RELEASE);
  }
  CHECK(outcome() == FALCON_PARK_NOBODY);
}

/* Without a file there is no agent to wait for. */
static void case_no_hook(void) {
  FIND(falcon_job_park);
  FIND(falcon_job_suspended);
  CHECK(f_falcon_job_suspended() == 0 && !shm_map());
  setenv("FALCON_SHM_DIR", "/nowhere", 1);
  CHECK(f_falcon_job_park(FALCON_PARK_JOIN, NULL, NULL, NULL) == FALCON_PARK_NO_HOOK && f_falcon_job_suspended() == 0);
}

static void case_state(void) {
  FIND(falcon_job_state);
  FIND(falcon_job_checkpoint);
  start();
  uint32_t described = LOAD(CTL(b)->describe_seq);
  f_falcon_job_state(1, 2, 1 << 30, 1000000000, 2, 16, 4);
  CHECK(LOAD(CTL(b)->zero_stage) == 1 && LOAD(CTL(b)->zero_instances) == 2 && LOAD(CTL(b)->state_bytes) == 1 << 30);
  CHECK(LOAD(CTL(b)->copy_bytes_s) == 1000000000 && LOAD(CTL(b)->micro_min) == 2 && LOAD(CTL(b)->micro_max) == 16 && LOAD(CTL(b)->micro_multiple) == 4);
  CHECK(LOAD(CTL(b)->describe_seq) == described + 1 && LOAD(CTL(b)->checkpoint_iteration) == 0);
  f_falcon_job_checkpoint(0);
  CHECK(LOAD(CTL(b)->checkpoint_iteration) == 1);
  f_falcon_job_checkpoint(-3);
  f_falcon_job_checkpoint(120);
  CHECK(LOAD(CTL(b)->checkpoint_iteration) == 121);
}

static const test_case cases[] = {
  CASE(word), CASE(joining), CASE(orders_void), CASE(absurd), CASE(stop), CASE(nobody), CASE(kept), CASE(kept_for_ever), CASE(no_hook), CASE(state),
};

int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
