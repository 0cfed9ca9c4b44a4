/* Whether this process waits; see wait.h. */
#include "wait.h"
#include "clock.h"
#include "cuda.h"
#include "suspend.h"

#include <time.h>

#define PER_THREAD_STREAM 2u   /* every thread's own: asked from here it would be ours */
#define SEARCH_NS 200000000ull
#define SEARCH_MAX_NS 60000000000ull
#define CLOSE_NS 50000000ull
#define NAP_NS 200000l

_Atomic uintptr_t falcon_streams[FALCON_COMMS_MAX];

enum answer { DRAINED, RUNNING, UNKNOWN };

static struct {
  uint64_t progress;           /* what all calls so far add up to */
  uint64_t since_ns;           /* when that was first seen */
  uint64_t asked_ns;
  uint64_t search_ns, search_gap_ns; /* for the runtime */
  bool drained, ready;
  _Atomic bool closed, asking;
} w_;

static void publish(uint64_t since_ns) { __atomic_store_n(&falcon_hook.control->waiting_since_ns, since_ns, __ATOMIC_RELEASE); }

/* Grows with each call that enters NCCL, and again as its record is written. */
static uint64_t progress(void) {
  uint64_t sum = __atomic_load_n(&falcon_hook.control->records_lost, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++) sum += FALCON_GATE_COUNT(__atomic_load_n(&falcon_hook.comms[i].gate, __ATOMIC_RELAXED));
  for (uint32_t i = 0; i < FALCON_RINGS_MAX; i++) {
    const falcon_ring *r = (const falcon_ring *)(falcon_hook.rings + i * falcon_hook.header->ring_stride);
    sum += __atomic_load_n(&r->head, __ATOMIC_RELAXED);
  }
  return sum;
}

static bool inside(void) {
  if (falcon_making_any()) return true;
  for (uint32_t i = 0; i < FALCON_BUSY_SLOTS; i++)
    if (atomic_load_explicit(&falcon_busy[i][0], memory_order_relaxed)) return true;
  return false;
}

void falcon_wait_captured(void) { falcon_cover(FALCON_COV_UNASKED); }

/* A question that fails once is never put again. */
static enum answer give_up(int rc) {
  falcon_cuda_fine(rc);
  falcon_wait_captured();
  return UNKNOWN;
}

static enum answer ask_one(const falcon_cuda_api *cuda, void *stream) {
  int capture = 0, rc = cuda->capturing(stream, &capture);
  if (rc || capture || (uintptr_t)stream == PER_THREAD_STREAM) return give_up(rc);
  rc = cuda->stream_query(stream);
  if (rc == CUDA_NOT_READY) falcon_cuda_fine(rc);
  if (rc && rc != CUDA_NOT_READY) return give_up(rc);
  return rc ? RUNNING : DRAINED;
}

static enum answer ask_all(const falcon_cuda_api *cuda) {
  uintptr_t last = 0;
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++) {
    uintptr_t at = atomic_load_explicit(&falcon_streams[i], memory_order_acquire);
    if (!at || at == last) continue;
    enum answer a = ask_one(cuda, (void *)(at - 1));
    if (a != DRAINED) return a;
    last = at;
  }
  return DRAINED;
}

/* Whoever closes waits for a question that began before. */
static enum answer ask(void) {
  atomic_store(&w_.asking, true);
  enum answer a = atomic_load(&w_.closed) || falcon_cuda_enter() < 0 ? UNKNOWN : ask_all(falcon_cuda_find());
  atomic_store(&w_.asking, false);
  return a;
}

/* There is a runtime that can be asked, and the device is known. Where there is
 * none the search reads all mappings: so it comes ever more seldom. */
static bool ready(uint64_t now_ns) {
  if (w_.ready || now_ns < w_.search_ns || !(atomic_load(&falcon_hook.coverage) & FALCON_COV_INIT)) return w_.ready;
  w_.search_gap_ns = w_.search_gap_ns ? w_.search_gap_ns * 2 : SEARCH_NS;
  if (w_.search_gap_ns > SEARCH_MAX_NS) w_.search_gap_ns = SEARCH_MAX_NS;
  w_.search_ns = now_ns + w_.search_gap_ns;
  const falcon_cuda_api *cuda = falcon_cuda_find();
  w_.ready = cuda && cuda->stream_query && falcon_cuda_enter() >= 0;
  if (w_.ready) falcon_cover(FALCON_COV_WAITING);
  return w_.ready;
}

static bool on_device(uint64_t now_ns) {
  if (w_.drained || now_ns < w_.since_ns + FALCON_WAIT_IDLE_NS) return false;
  if (now_ns < w_.asked_ns + FALCON_WAIT_ASK_NS) return __atomic_load_n(&falcon_hook.control->waiting_since_ns, __ATOMIC_RELAXED) != 0;
  w_.asked_ns = now_ns;
  enum answer a = ask();
  w_.drained = a == DRAINED;
  return a == RUNNING;
}

void falcon_wait_tick(bool excluded) {
  if (atomic_load(&w_.closed) || atomic_load(&falcon_hook.coverage) & FALCON_COV_UNASKED || !ready(falcon_mono_ns())) {
    publish(0);
    return;
  }
  uint64_t p = progress(), now_ns = falcon_mono_ns(); /* read after it: a call is never seen before it was made */
  if (excluded || p != w_.progress || !w_.since_ns) {
    w_.progress = p;
    w_.since_ns = now_ns;
    w_.drained = false;
    publish(0);
    return;
  }
  bool waits = inside() ? now_ns >= w_.since_ns + FALCON_WAIT_INSIDE_NS : on_device(now_ns);
  publish(waits ? w_.since_ns : 0);
}

void falcon_wait_close(void) {
  atomic_store(&w_.closed, true);
  uint64_t until = falcon_active() ? falcon_mono_ns() + CLOSE_NS : 0;
  while (atomic_load(&w_.asking) && falcon_mono_ns() < until) nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}
