/*
 * The mailbox of the active tests, and the thread that runs them. The side
 * thread takes a new order out of the mailbox when no test runs; the result is
 * written by whoever ends the test: the side thread where it is refused, else
 * the test thread.
 */
#include "probe.h"
#include "clock.h"
#include "pause.h"
#include "ring.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STACK_BYTES (1024u * 1024u) /* cuBLAS and NCCL run on it */
#define READ_TRIES 8

typedef uint64_t __attribute__((may_alias)) word;

static struct {
  pthread_mutex_t mu;
  pthread_cond_t come;
  bool thread;       /* it was started */
  bool busy;         /* a trial waits or runs */
  falcon_trial next;
  uint64_t last;     /* newest order taken out of the mailbox; side thread only */
} box = {.mu = PTHREAD_MUTEX_INITIALIZER, .come = PTHREAD_COND_INITIALIZER};

static void publish(const falcon_test_result *from) {
  falcon_test_result *to = &falcon_hook.control->result;
  uint64_t seq = __atomic_load_n(&to->seq, __ATOMIC_RELAXED) | 1;
  __atomic_store_n(&to->seq, seq, __ATOMIC_RELAXED);
  falcon_store_fence();
  for (size_t w = 1; w < sizeof *to / sizeof(uint64_t); w++)
    __atomic_store_n(&((word *)to)[w], ((const word *)from)[w], __ATOMIC_RELAXED);
  __atomic_store_n(&to->seq, seq + 1, __ATOMIC_RELEASE);
}

bool falcon_trial_end(falcon_trial *t, uint32_t status, uint32_t reason) {
  t->out.status = status;
  t->out.reason = reason;
  return false;
}

bool falcon_trial_over(falcon_trial *t) {
  bool over = falcon_mono_ns() >= t->until_ns || falcon_pause_quiet(NULL) != t->pause;
  if (over) falcon_trial_end(t, FALCON_TEST_LATE, FALCON_REASON_LATE);
  return over;
}

bool falcon_trial_nap(falcon_trial *t) {
  nanosleep(&(struct timespec){0, PROBE_POLL_NS}, NULL);
  return !falcon_trial_over(t);
}

bool falcon_trial_await(falcon_trial *t, void *event) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  do {
    int rc = cuda->event_query(event);
    if (!rc) return true;
    falcon_cuda_fine(rc);
    if (rc != CUDA_NOT_READY) return falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
  } while (falcon_trial_nap(t));
  return false;
}

static int up(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Repeat i lies between events i and i+1. */
bool falcon_trial_times(falcon_trial *t) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  int64_t ns[PROBE_REPEATS_MAX];
  uint32_t n = t->order.repeats;
  for (uint32_t i = 0; i < n; i++) {
    float ms = 0;
    if (!falcon_cuda_fine(cuda->event_elapsed(&ms, falcon_work.event[i], falcon_work.event[i + 1])))
      return falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
    ns[i] = (int64_t)((double)ms * 1e6);
  }
  qsort(ns, n, sizeof *ns, up);
  t->out.repeats = n;
  t->out.best_ns = ns[0];
  t->out.median_ns = n % 2 ? ns[n / 2] : (ns[n / 2 - 1] + ns[n / 2]) / 2;
  falcon_trial_end(t, FALCON_TEST_DONE, FALCON_REASON_NONE);
  return true;
}

/* ---- the test thread ---- */

static void run(falcon_trial *t) {
  switch (t->order.kind) {
    case FALCON_TEST_GEMM: falcon_probe_gemm(t); break;
    case FALCON_TEST_ID: falcon_probe_id(t); break;
    case FALCON_TEST_LINK: falcon_probe_link(t); break;
    default: falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
  }
}

/* The device of the workspace, where there is one. */
static bool on_device(void) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  return falcon_cuda_enter() >= 0 && (!falcon_work_ready() || falcon_cuda_fine(cuda->set_device(falcon_work.device)));
}

static void *work(void *unused) {
  static falcon_trial now;
  (void)unused;
  falcon_thread.inside = 1; /* nothing that this thread calls is recorded or held */
  for (;;) {
    pthread_mutex_lock(&box.mu);
    while (!box.busy) pthread_cond_wait(&box.come, &box.mu);
    now = box.next;
    pthread_mutex_unlock(&box.mu);
    publish(&now.out);
    if (!falcon_trial_over(&now)) {
      if (on_device()) run(&now);
      else falcon_trial_end(&now, FALCON_TEST_REFUSED, FALCON_REASON_NO_CUDA);
    }
    publish(&now.out);
    pthread_mutex_lock(&box.mu);
    box.busy = false;
    pthread_mutex_unlock(&box.mu);
  }
  return NULL;
}

static bool start_thread(void) {
  sigset_t all, old;
  pthread_attr_t attr;
  pthread_t id;
  if (pthread_attr_init(&attr)) return false;
  sigfillset(&all);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int rc = pthread_create(&id, &attr, work, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  if (!rc) pthread_setname_np(id, "falcon-test");
  return !rc;
}

/* ---- the mailbox, on the side thread ---- */

static bool read_order(falcon_test *to) {
  const falcon_test *from = &falcon_hook.control->test;
  for (int i = 0; i < READ_TRIES; i++) {
    uint64_t before = __atomic_load_n(&from->seq, __ATOMIC_ACQUIRE);
    if (before & 1) continue;
    for (size_t w = 0; w < sizeof *to / sizeof(uint64_t); w++)
      ((word *)to)[w] = __atomic_load_n(&((const word *)from)[w], __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&from->seq, __ATOMIC_RELAXED) == before) return to->id != 0;
  }
  return false;
}

/* What can be said without running it; true when it may run. */
static bool admit(falcon_trial *t, uint64_t now_ns) {
  const falcon_test *o = &t->order;
  uint64_t pause_until = 0;
  bool needs_memory = o->kind != FALCON_TEST_ID;
  t->pause = falcon_pause_quiet(&pause_until);
  t->until_ns = o->until_ns < pause_until ? o->until_ns : pause_until;
  if (!t->pause) return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NOT_QUIET);
  if (now_ns >= t->until_ns) return falcon_trial_end(t, FALCON_TEST_LATE, FALCON_REASON_LATE);
  if (needs_memory && !falcon_work_ready()) return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_WORKSPACE);
  bool sane = !needs_memory || (o->repeats >= 1 && o->repeats <= PROBE_REPEATS_MAX);
  return sane || falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
}

static void hand_over(falcon_trial *t) {
  t->out.status = FALCON_TEST_RUNNING;
  pthread_mutex_lock(&box.mu);
  if (!box.thread) box.thread = start_thread();
  bool ok = box.thread;
  if (ok) {
    box.next = *t;
    box.busy = true;
    pthread_cond_signal(&box.come);
  }
  pthread_mutex_unlock(&box.mu);
  if (ok) return;
  falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
  publish(&t->out);
}

static bool busy(void) {
  pthread_mutex_lock(&box.mu);
  bool b = box.busy;
  pthread_mutex_unlock(&box.mu);
  return b;
}

void falcon_probe_tick(uint64_t now_ns) {
  static falcon_trial t;
  if (__atomic_load_n(&falcon_hook.control->test.id, __ATOMIC_ACQUIRE) == box.last || busy()) return;
  memset(&t, 0, sizeof t);
  if (!read_order(&t.order) || t.order.id == box.last) return;
  box.last = t.order.id;
  t.start_ns = now_ns;
  t.out.id = t.order.id;
  t.out.kind = t.order.kind;
  t.out.bytes = t.order.bytes;
  if (admit(&t, now_ns)) hand_over(&t);
  else publish(&t.out);
}
