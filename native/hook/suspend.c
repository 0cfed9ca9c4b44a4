/*
 * Obeying a suspension: when, and the threads that end communicators. NCCL's
 * revoke waits for the device work of its communicator, and for a blocking one
 * in the caller; so no two of them share a thread.
 */
#include "suspend.h"
#include "clock.h"
#include "pause.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (1024u * 1024u) /* NCCL and CUDA run on it */
#define PENDING_MAX 1024u              /* handles in the table */
#define BUSY_NS 50000000ull         /* for threads inside NCCL; one that waits there for a peer does not come out */
#define READY_NAP_NS 1000000l
#define READY_NS 10000000000ull     /* for a revoke in the background to end */

static struct {
  pthread_mutex_t mu;
  _Atomic uint64_t now;    /* generation of the communicators in use */
  _Atomic uint64_t obeyed;
  _Atomic bool updating;
  uint64_t running;        /* generation being obeyed, 0 = none */
  uint32_t left;           /* communicators not ended yet */
  void *todo[PENDING_MAX];    /* without a thread yet */
  uint32_t todo_count;
  uint64_t seen, seen_ns;  /* newest suspension, and since when: the side thread's own */
} s_ = {.mu = PTHREAD_MUTEX_INITIALIZER};

#define PUT(field, v) __atomic_store_n(&falcon_hook.control->field, v, __ATOMIC_RELEASE)
#define GET(field) __atomic_load_n(&falcon_hook.control->field, __ATOMIC_ACQUIRE)

uint64_t falcon_suspend_generation(void) { return atomic_load(&s_.now); }
uint64_t falcon_suspend_obeyed(void) { return atomic_load(&s_.obeyed); }
void falcon_suspend_updating(bool on) { atomic_store(&s_.updating, on); }
void falcon_suspend_load(uint64_t generation) { atomic_store(&s_.now, generation); }

bool falcon_suspend_on(void) { return falcon_active() && GET(suspend_generation) > atomic_load(&s_.now); }

void falcon_suspend_rejoin(uint64_t generation) {
  atomic_store(&s_.now, generation);
  PUT(generation_now, generation);
  falcon_pause_suspend(falcon_suspend_on());
}

/* ---- a thread per communicator ---- */

static int state_of(void *comm, int *state) {
  int (*error)(void *, int *) = (int (*)(void *, int *))falcon_fn(FN_ncclCommGetAsyncError);
  *state = NCCL_SUCCESS;
  return error ? error(comm, state) : NCCL_SUCCESS;
}

/* A revoke of a communicator that never blocks goes on in the background. */
static void settle(void *comm) {
  uint64_t until = falcon_mono_ns() + READY_NS;
  int state;
  while (!state_of(comm, &state) && state == NCCL_IN_PROGRESS && falcon_mono_ns() < until)
    nanosleep(&(struct timespec){0, READY_NAP_NS}, NULL);
}

/* One that is still being made has nothing yet that a revoke could stop. */
static bool revoked_by_nccl(void *comm) {
  int (*real)(void *, int) = (int (*)(void *, int))falcon_fn(FN_ncclCommRevoke), state;
  if (!real || state_of(comm, &state) || state == NCCL_IN_PROGRESS) return false;
  int rc = real(comm, 0);
  if (rc != NCCL_SUCCESS && rc != NCCL_IN_PROGRESS) return false;
  settle(comm);
  return true;
}

static void done(void) {
  pthread_mutex_lock(&s_.mu);
  uint64_t generation = s_.running;
  bool last = !--s_.left;
  if (last) {
    s_.running = 0;
    atomic_store(&s_.obeyed, generation);
    PUT(suspended_ns, falcon_mono_ns());
    PUT(suspended_generation, generation);
  }
  pthread_mutex_unlock(&s_.mu);
  if (last) syscall(SYS_futex, &falcon_hook.control->pause_word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void *end_one(void *comm) {
  int (*abort)(void *) = (int (*)(void *))falcon_fn(FN_ncclCommAbort);
  falcon_thread.inside = 1;
  bool revoked = revoked_by_nccl(comm);
  if (!revoked) {
    falcon_comm_await_answers();
    falcon_busy_await(BUSY_NS);
  }
  if (!revoked && abort) abort(comm);
  falcon_comm_closed_as(comm, revoked ? CLOSED_REVOKED : CLOSED_ABORTED);
  done();
  return NULL;
}

static bool start_thread(void *comm) {
  sigset_t all, old;
  pthread_attr_t attr;
  pthread_t id;
  if (pthread_attr_init(&attr)) return false;
  sigfillset(&all);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int rc = pthread_create(&id, &attr, end_one, comm);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return !rc;
}

/* Under the lock. Who gets no thread now gets one at the next look. */
static void start_threads(void) {
  while (s_.todo_count && start_thread(s_.todo[s_.todo_count - 1])) s_.todo_count--;
}

/* ---- when ---- */

static void add_made(void) {
  uint32_t n = falcon_making_take(s_.todo + s_.todo_count, PENDING_MAX - s_.todo_count);
  s_.todo_count += n;
  s_.left += n;
}

/* Under the lock; left counts this call too, so that it ends here at the earliest. */
static void begin(uint64_t generation) {
  s_.running = generation;
  s_.todo_count = falcon_comm_close_all(s_.todo, PENDING_MAX);
  s_.left = s_.todo_count + 1;
  add_made();
  start_threads();
}

bool falcon_suspend_obey(uint64_t generation) {
  if (atomic_load(&s_.obeyed) >= generation) return true;
  pthread_mutex_lock(&s_.mu);
  bool idle = !s_.running;
  if (idle) begin(generation);
  else start_threads();
  pthread_mutex_unlock(&s_.mu);
  falcon_pause_suspend(true); /* who was held finds its communicator closed */
  if (idle) done();
  return atomic_load(&s_.obeyed) >= generation;
}

/* Creations that blocked, or whose handle became known, since the table was closed. */
static void catch_late(void) {
  pthread_mutex_lock(&s_.mu);
  uint32_t before = s_.left;
  if (!s_.running && falcon_making_any()) {
    add_made();
    if (s_.left > before) s_.running = atomic_load(&s_.obeyed);
  }
  start_threads();
  pthread_mutex_unlock(&s_.mu);
}

static bool left_alone(uint64_t wanted, uint64_t now_ns) {
  if (s_.seen != wanted) {
    s_.seen = wanted;
    s_.seen_ns = now_ns;
  }
  bool wait = atomic_load(&s_.updating) && now_ns < GET(suspend_until_ns) && now_ns < s_.seen_ns + FALCON_SUSPEND_MAX_MS * 1000000ull;
  if (wait) falcon_pause_suspend(true); /* a call of the optimizer may be held: it goes on */
  return wait;
}

bool falcon_suspend_tick(uint64_t now_ns) {
  uint64_t wanted = GET(suspend_generation);
  if (wanted <= atomic_load(&s_.now)) return false;
  if (wanted > atomic_load(&s_.obeyed)) return left_alone(wanted, now_ns) || !falcon_suspend_obey(wanted);
  catch_late();
  return falcon_making_any();
}

void falcon_suspend_forked(void) {
  pthread_mutex_init(&s_.mu, NULL);
  falcon_making_forked();
}
