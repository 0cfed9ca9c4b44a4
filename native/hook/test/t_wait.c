/* Cases of what a process says of its own waiting, on the fake NCCL and CUDA runtime. */
#include "paused.h"

#define BLOCKS 777777777 /* an all-reduce of so many elements waits for a dead peer */
#define SECOND 1000000000ul

extern _Atomic int fake_cuda_queries;
static void *comm;

static uint64_t waiting(void) { return LOAD(CTL(b)->waiting_since_ns); }

static void begin(void) {
  comm = comm_of(1);
  CHECK(!reduce(comm, S1));
  for (int i = 0; i < 1000 && !(LOAD(CTL(b)->coverage) & FALCON_COV_WAITING); i++) usleep(10000);
  CHECK(LOAD(CTL(b)->coverage) & FALCON_COV_WAITING);
}

static void await_waiting(int want) {
  for (int i = 0; i < 2000 && (waiting() != 0) != want; i++) usleep(10000);
  CHECK((waiting() != 0) == want);
}

static void await_queries(int n) {
  for (int i = 0; i < 2000 && fake_cuda_queries < n; i++) usleep(10000);
  CHECK(fake_cuda_queries >= n);
}

static void *blocked(void *unused) {
  (void)unused;
  ncclAllReduce(NULL, NULL, BLOCKS, 7, 0, comm, S1);
  return NULL;
}

/* A peer has died: the call does not return, and it is known since when. */
static void case_inside(void) {
  begin();
  pthread_t id;
  uint64_t before = now_ns();
  CHECK(!pthread_create(&id, NULL, blocked, NULL));
  await_waiting(1);
  CHECK(waiting() + 200 * MS >= before && waiting() < now_ns());
  uint64_t (*waited)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "falcon_job_waited_ns");
  uint64_t since = waiting(), first = waited(), then = now_ns();
  CHECK(first && waited() > first && first <= then - since);
  CHECK(!fake_cuda_queries); /* the thread says enough */
  CHECK(!ncclCommAbort(comm) && !pthread_join(id, NULL));
  await_waiting(0);
  CHECK(!waited());
}

/* The same, seen from the device: calls are enqueued and never come to an end. */
static void case_stream(void) {
  begin();
  fake_cuda_work(S1, 4 * SECOND);
  await_waiting(1);
  CHECK(!reduce(comm, S1)); /* a new call is progress */
  await_waiting(0);
  await_waiting(1);
  await_waiting(0); /* the device is done */
  CHECK(now_ns() > 4 * SECOND && fake_cuda_queries <= 5 * 8);
}

/* A rank that reads its data, or writes a checkpoint: its device has nothing to do. */
static void case_host(void) {
  begin();
  await_queries(1);
  int asked = fake_cuda_queries;
  for (uint64_t until = now_ns() + SECOND; now_ns() < until; usleep(5000)) CHECK(!waiting());
  CHECK(fake_cuda_queries == asked); /* drained once is drained, until a new call comes */
  CHECK(!reduce(comm, S1));
  await_queries(asked + 1);
}

/* A stream that captures must not be asked whether it has drained. */
static void case_capture(void) {
  begin();
  CHECK(!reduce(comm, CAPTURING));
  fake_cuda_work(CAPTURING, 4 * SECOND);
  for (int i = 0; i < 2000 && LOAD(CTL(b)->coverage) & FALCON_COV_WAITING; i++) usleep(10000);
  CHECK(!(LOAD(CTL(b)->coverage) & FALCON_COV_WAITING) && !fake_cuda_queries && !waiting());
}

/* Of a communicator that is gone the stream may be gone too. */
static void case_ended(void) {
  begin();
  fake_cuda_work(S1, 4 * SECOND);
  CHECK(!ncclCommDestroy(comm));
  for (int i = 0; i < 15; i++) await_looks();
  CHECK(!fake_cuda_queries && !waiting());
}

/* Who is held by Falcon does not wait for a peer. */
static void case_held(void) {
  begin();
  pthread_t id;
  order(1, 1500);
  CHECK(arm(0, count(0)));
  rouse();
  CHECK(!pthread_create(&id, NULL, blocked, NULL));
  await_trapped();
  for (uint64_t until = now_ns() + SECOND; now_ns() < until; usleep(5000)) CHECK(!waiting());
  CHECK(await_state(1, FALCON_PAUSE_EXPIRED, 10000));
  await_waiting(1); /* inside NCCL from then on */
  CHECK(waiting() >= LOAD(CTL(b)->released_ns));
  CHECK(!ncclCommAbort(comm) && !pthread_join(id, NULL));
}

static const test_case cases[] = {CASE(inside), CASE(stream), CASE(host), CASE(capture), CASE(ended), CASE(held)};

int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
