/*
 * The link test: one peer, both directions at once, each on a communicator and
 * a stream of its own. Both sides do everything with ids[0]'s communicator
 * before they do it with ids[1]'s, so that they meet. The communicators never
 * block (blocking = 0): each step is polled until the deadline.
 */
#include "clock.h"
#include "probe.h"

#include <limits.h>
#include <string.h>

#define FREE_BYTES_MIN (256ull << 20) /* new communicators allocate */
#define BYE_BYTES 4u
#define GREET_BYTES 65536u /* of the untimed exchange, at most: the job is held meanwhile */
#define BYE_NS 500000000ull  /* for the peer's last message, after the measurement */
#define LINGER_NS 2000000l   /* for our own to leave */
#define IDLE_NS 1000000000ull /* for our streams to become idle after an abort */
#define TYPE_INT8 0
#define CONFIG_VERSION 22700 /* which fields nccl_config has */
#define UNUSED_IDS_MAX 64u   /* minted and never used: each keeps a thread and a socket of NCCL's until the end */

static struct {
  int (*unique_id)(nccl_unique_id *);
  int (*init)(void **, int, nccl_unique_id, int, nccl_config *);
  int (*error)(void *, int *);
  int (*send)(const void *, size_t, int, int, void *, void *);
  int (*recv)(void *, size_t, int, int, void *, void *);
  int (*abort)(void *);
} nccl;

#define FIND(field, name) nccl.field = (__typeof__(nccl.field))falcon_fn(FN_##name)

/* Ids that were minted here and whose two ranks have not met. An id that is used
 * is used once, and in the tests that follow. */
static struct { uint64_t id[UNUSED_IDS_MAX]; uint32_t n; } unused;

static uint64_t brief(const void *id) { return falcon_fnv(FALCON_FNV_START, id, sizeof(nccl_unique_id)); }

static void used(const void *id) {
  uint64_t h = brief(id);
  for (uint32_t i = 0; i < unused.n; i++)
    if (unused.id[i] == h) {
      unused.id[i] = unused.id[--unused.n];
      return;
    }
}

static bool find_all(falcon_trial *t) {
  if (falcon_work.bound) return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_ENVIRONMENT);
  FIND(unique_id, ncclGetUniqueId);
  FIND(init, ncclCommInitRankConfig);
  FIND(error, ncclCommGetAsyncError);
  FIND(send, ncclSend);
  FIND(recv, ncclRecv);
  FIND(abort, ncclCommAbort);
  if (nccl.unique_id && nccl.init && nccl.error && nccl.send && nccl.recv && nccl.abort) return true;
  return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_LIBRARY);
}

void falcon_probe_id(falcon_trial *t) {
  nccl_unique_id id;
  if (!find_all(t)) return;
  for (int i = 0; i < 2; i++) {
    if (unused.n == UNUSED_IDS_MAX || nccl.unique_id(&id)) {
      falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
      return;
    }
    unused.id[unused.n++] = brief(&id);
    memcpy(t->out.ids[i], &id, sizeof id);
  }
  t->out.setup_ns = (int64_t)(falcon_mono_ns() - t->start_ns);
  falcon_trial_end(t, FALCON_TEST_DONE, FALCON_REASON_NONE);
}

/* Until the communicator's step is done; rc is what the call returned. */
static bool settle(falcon_trial *t, void *comm, int rc) {
  while (rc == NCCL_IN_PROGRESS) {
    if (!falcon_trial_nap(t)) return false;
    if (nccl.error(comm, &rc)) break;
  }
  return rc == NCCL_SUCCESS || falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
}

static bool make(falcon_trial *t, void **comm, int i) {
  nccl_config config = {.size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = CONFIG_VERSION, .blocking = 0, .cgaClusterSize = INT_MIN,
    .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .splitShare = INT_MIN, .trafficClass = INT_MIN};
  nccl_unique_id id;
  memcpy(&id, t->order.ids[i], sizeof id);
  int rc = nccl.init(comm, 2, id, t->order.side, &config);
  if (rc == NCCL_SUCCESS) rc = NCCL_IN_PROGRESS; /* accepted: is it made, too? */
  if (!*comm) return falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
  if (!settle(t, *comm, rc)) return false;
  used(&id);
  return true;
}

/* One message in each direction, enqueued. */
static bool exchange(falcon_trial *t, void *const comm[2], size_t bytes) {
  int side = t->order.side, peer = 1 - side;
  bool ok = true;
  for (int i = 0; ok && i < 2; i++) {
    int rc = i == side ? nccl.send(falcon_work.memory, bytes, TYPE_INT8, peer, comm[i], falcon_work.sends)
                       : nccl.recv(falcon_work.memory + t->order.bytes, bytes, TYPE_INT8, peer, comm[i], falcon_work.computes);
    ok = settle(t, comm[i], rc);
  }
  return ok;
}

static bool mark(falcon_trial *t, uint32_t i) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  return falcon_cuda_fine(cuda->event_record(falcon_work.event[i], falcon_work.computes)) || falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
}

/* The messages of one repeat, one after the other: many small ones are too short to time alone. */
static bool repeat(falcon_trial *t, void *const comm[2]) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < t->order.n; i++) ok = exchange(t, comm, t->order.bytes);
  return ok;
}

/* One exchange that is not timed: it makes the connections, and the two sides
 * start together. NCCL connects all channels of a peer at the first message of
 * any size. */
static bool measure(falcon_trial *t, void *const comm[2]) {
  size_t greeting = t->order.bytes < GREET_BYTES ? t->order.bytes : GREET_BYTES;
  bool ok = exchange(t, comm, greeting) && mark(t, 0);
  t->out.setup_ns = (int64_t)(falcon_mono_ns() - t->start_ns);
  for (uint32_t i = 1; ok && i <= t->order.repeats; i++) ok = repeat(t, comm) && mark(t, i);
  return ok && falcon_trial_await(t, falcon_work.event[t->order.repeats]) && falcon_trial_times(t);
}

/* An abort cuts off what is still on its way to the peer: so each side first
 * hears that the other has everything. The measurement is valid without it. */
static void say_goodbye(falcon_trial *t, void *const comm[2]) {
  falcon_trial bye = *t;
  uint64_t until = falcon_mono_ns() + BYE_NS;
  bye.until_ns = until < t->until_ns ? until : t->until_ns;
  if (exchange(&bye, comm, BYE_BYTES) && mark(&bye, 0) && falcon_trial_await(&bye, falcon_work.event[0]))
    nanosleep(&(struct timespec){0, LINGER_NS}, NULL);
}

/* After an abort a stream may hold its error: it is read off, which does not
 * wait once the stream is idle. */
static void calm(void *stream) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  uint64_t until = falcon_mono_ns() + IDLE_NS;
  int rc;
  while ((rc = cuda->stream_query(stream)) == CUDA_NOT_READY && falcon_mono_ns() < until) nanosleep(&(struct timespec){0, PROBE_POLL_NS}, NULL);
  if (rc == CUDA_NOT_READY) return;
  falcon_cuda_fine(rc);
  falcon_cuda_fine(cuda->stream_sync(stream));
}

static bool room(falcon_trial *t) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  uint64_t bytes = t->order.bytes, need = 4 * bytes > FREE_BYTES_MIN ? 4 * bytes : FREE_BYTES_MIN;
  size_t free_bytes = 0, total = 0;
  bool fits = bytes >= BYE_BYTES && bytes <= (falcon_work.bytes - falcon_work.cublas_bytes) / 2;
  if (fits && falcon_cuda_fine(cuda->free_info(&free_bytes, &total)) && free_bytes >= need) return true;
  return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_WORKSPACE);
}

void falcon_probe_link(falcon_trial *t) {
  void *comm[2] = {NULL, NULL};
  if (!t->order.n) t->order.n = 1;
  t->out.bytes = t->order.bytes * t->order.n;
  if ((t->order.side != 0 && t->order.side != 1) || t->order.n > PROBE_MESSAGES_MAX) {
    falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
    return;
  }
  if (!find_all(t) || !room(t)) return;
  if (make(t, &comm[0], 0) && make(t, &comm[1], 1) && measure(t, comm)) say_goodbye(t, comm);
  for (int i = 0; i < 2; i++)
    if (comm[i]) nccl.abort(comm[i]);
  calm(falcon_work.sends);
  calm(falcon_work.computes);
}
