/*
 * The side thread's half of profile mode: opens a window when the agent asks,
 * closes it at its deadline whether or not the agent still lives, polls the
 * events and, once all are done, writes the timings and profile_done.
 *
 * Device to host clock: the device's time is known only as milliseconds since
 * the base event. H0, the host time of the base event, is bounded as timing.h has
 * it: its error is the shortest delay of the poll over all calls of the window,
 * well under the poll's interval.
 */
#include "profile.h"
#include "pause.h"
#include "clock.h"
#include "timing.h"

#include <stdlib.h>

#define CUDA_NOT_READY 600
#define CAPTURE_RELAXED 2
#define UNREADY_MAX 64u              /* calls still running that one round asks for, per queue */

enum phase { IDLE, OPEN, DRAINING };

static struct {
  enum phase phase;
  falcon_window asked;
  uint32_t last;
  uint64_t drain_ns;
  falcon_bounds host; /* of H0 */
  profile_entry *results;      /* FALCON_TIMING_SLOTS of them */
  uint32_t count;
  bool prepared;
} win;

static bool resolve(void) {
  profile_state *p = &falcon_profile;
  p->create = (int (*)(void **, unsigned))falcon_cuda("cudaEventCreateWithFlags");
  p->destroy = (int (*)(void *))falcon_cuda("cudaEventDestroy");
  p->record = (int (*)(void *, void *))falcon_cuda("cudaEventRecord");
  p->query = (int (*)(void *))falcon_cuda("cudaEventQuery");
  p->elapsed = (int (*)(float *, void *, void *))falcon_cuda("cudaEventElapsedTime");
  p->capturing = (int (*)(void *, int *))falcon_cuda("cudaStreamIsCapturing");
  p->last_error = (int (*)(void))falcon_cuda("cudaGetLastError");
  return p->create && p->record && p->query && p->elapsed && p->capturing;
}

/* Events are made on the device of the training's communicators, and not before
 * it is known: on any other GPU they would make a context, and take hundreds of
 * megabytes of its memory; so would the change of mode alone. A query while another thread captures is allowed only
 * in relaxed mode. */
static bool enter_device(void) {
  int (*set)(int) = (int (*)(int))falcon_cuda("cudaSetDevice");
  int (*exchange)(int *) = (int (*)(int *))falcon_cuda("cudaThreadExchangeStreamCaptureMode");
  int mode = CAPTURE_RELAXED;
  falcon_profile.device = -1;
  for (uint32_t i = 0; i < FALCON_COMMS_MAX && falcon_profile.device < 0; i++)
    if (__atomic_load_n(&falcon_hook.comms[i].state, __ATOMIC_RELAXED) == FALCON_COMM_LIVE) falcon_profile.device = falcon_comm_device(i);
  if (falcon_profile.device < 0 || (set && set(falcon_profile.device))) return false;
  if (exchange) exchange(&mode);
  return true;
}

/* What fails here is tried again by the next window. */
static bool prepare(void) {
  if (win.prepared) return true;
  if (!resolve() || !enter_device()) return false;
  if (!falcon_timing_reserve()) return false;
  if (!win.results) win.results = calloc(FALCON_TIMING_SLOTS, sizeof *win.results);
  win.prepared = win.results && !falcon_profile.create(&falcon_profile.base_event, 0);
  return win.prepared;
}

/* All events of a queue, or none: a GPU that has no room for them is asked once
 * per ring, not at every look. */
static profile_entry *make_entries(void) {
  profile_entry *e = calloc(QUEUE_SLOTS, sizeof *e);
  bool ok = e != NULL;
  for (uint32_t k = 0; ok && k < QUEUE_SLOTS; k++) ok = !falcon_profile.create(&e[k].start, 0) && !falcon_profile.create(&e[k].end, 0);
  if (ok || !e) return e;
  for (uint32_t k = 0; falcon_profile.destroy && k < QUEUE_SLOTS; k++) {
    if (e[k].start) falcon_profile.destroy(e[k].start);
    if (e[k].end) falcon_profile.destroy(e[k].end);
  }
  free(e);
  return NULL;
}

/* Events for every thread that has a ring by now. */
static void reserve(void) {
  static bool asked[FALCON_RINGS_MAX];
  for (uint32_t i = 0; i < FALCON_RINGS_MAX; i++) {
    profile_queue *q = &falcon_profile.queue[i];
    falcon_ring *ring = (falcon_ring *)(falcon_hook.rings + i * falcon_hook.header->ring_stride);
    if (asked[i] || !__atomic_load_n(&ring->tid, __ATOMIC_ACQUIRE)) continue;
    asked[i] = true;
    atomic_store_explicit(&q->entries, make_entries(), memory_order_release);
  }
}

static void finish(void) {
  win.last = win.asked.id;
  win.phase = IDLE;
  falcon_window_done(win.last);
}

static void open_window(void) {
  win.count = 0;
  win.host = FALCON_BOUNDS_OPEN;
  if (!prepare()) { /* no CUDA runtime to ask: an empty window with a loss */
    falcon_timing_lost(1);
    finish();
    return;
  }
  reserve();
  for (int i = 0; i < 4; i++) atomic_store(&falcon_profile.comms[i], win.asked.comms[i]);
  atomic_store(&falcon_profile.base, BASE_NONE);
  win.phase = OPEN;
  atomic_store_explicit(&falcon_hook.profile, (uint64_t)win.asked.id << 32 | 1, memory_order_release);
}

static void close_window(uint64_t now_ns) {
  atomic_store(&falcon_hook.profile, 0);
  win.phase = DRAINING;
  win.drain_ns = now_ns + FALCON_DRAIN_NS;
}

static bool since(void *from, void *to, int64_t *ns) {
  float ms = 0;
  if (falcon_profile.elapsed(&ms, from, to)) return false;
  *ns = (int64_t)((double)ms * 1e6);
  return true;
}

static void measure(profile_entry *e) {
  int64_t seen = (int64_t)falcon_mono_ns();
  bool based = atomic_load_explicit(&falcon_profile.base, memory_order_acquire) == BASE_RECORDED;
  if (!based || !since(falcon_profile.base_event, e->start, &e->start_ns) || !since(e->start, e->end, &e->duration_ns)) {
    e->bad = 1;
    return;
  }
  falcon_bounds_most(&win.host, seen - e->start_ns - e->duration_ns);
  falcon_bounds_least(&win.host, (int64_t)e->enter_ns - e->start_ns);
}

/* False while the device is not done with the entry. */
static bool settle(profile_entry *entries, uint64_t number) {
  profile_entry *e = profile_at(entries, number), *l = profile_at(entries, e->leader);
  if (e->window != win.asked.id) e->bad = 1;
  else if (e->leader != number) {
    if (!l->done) return false;
    e->start_ns = l->start_ns;
    e->duration_ns = l->duration_ns;
    e->bad |= l->bad || l->window != e->window;
  } else if (!e->bad) {
    int rc = falcon_profile.query(e->end);
    if (rc == CUDA_NOT_READY) return false;
    if (rc) e->bad = 1;
    else measure(e);
  }
  e->done = 1;
  return true;
}

static void keep(const profile_entry *e) {
  if (e->bad || win.count == FALCON_TIMING_SLOTS) falcon_timing_lost(1);
  else win.results[win.count++] = *e;
}

/* One look at one queue; true when it is empty. Groups are published whole and
 * a leader comes before its members, so a leader found done here has all its
 * members done in the same look, before its slot is given back. */
static bool poll_queue(profile_queue *q) {
  profile_entry *entries = atomic_load_explicit(&q->entries, memory_order_acquire);
  if (!entries) return true;
  uint64_t head = atomic_load_explicit(&q->head, memory_order_acquire), tail = atomic_load(&q->tail);
  uint32_t unready = 0;
  for (uint64_t i = tail; i < head && unready < UNREADY_MAX; i++) {
    profile_entry *e = profile_at(entries, i);
    if (e->done) continue;
    if (settle(entries, i)) keep(e);
    else if (e->leader == i) unready++;
  }
  while (tail < head && profile_at(entries, tail)->done) tail++;
  atomic_store_explicit(&q->tail, tail, memory_order_release);
  return tail == head;
}

static bool poll_all(void) {
  bool empty = true;
  for (uint32_t i = 0; i < FALCON_RINGS_MAX; i++) empty &= poll_queue(&falcon_profile.queue[i]);
  return empty;
}

/* What the device has not finished by the end of the drain is lost. */
static void abandon(void) {
  for (uint32_t k = 0; k < FALCON_RINGS_MAX; k++) {
    profile_queue *q = &falcon_profile.queue[k];
    profile_entry *entries = atomic_load(&q->entries);
    uint64_t head = atomic_load(&q->head);
    for (uint64_t i = atomic_load(&q->tail); entries && i < head; i++) falcon_timing_lost(!profile_at(entries, i)->done);
    atomic_store_explicit(&q->tail, head, memory_order_release);
  }
}

static void write_timing(const profile_entry *e, int64_t host_ns) {
  falcon_timing_put(&(falcon_timing){
    .ordinal = e->ordinal, .bytes = e->bytes, .start_ns = e->start_ns, .duration_ns = e->duration_ns,
    .queue_ns = host_ns + e->start_ns - (int64_t)e->enter_ns, .comm = e->comm, .peer = e->peer, .op = e->op, .dtype = e->dtype,
    .flags = e->flags, .window = e->window,
  });
}

static void flush(void) {
  int64_t host = falcon_bounds_middle(&win.host);
  for (uint32_t i = 0; i < win.count; i++) write_timing(&win.results[i], host);
}

bool falcon_profile_tick(uint64_t now_ns) {
  switch (win.phase) {
    case IDLE:
      if (!falcon_pause_held() && falcon_window_wanted(win.last, now_ns, &win.asked)) open_window();
      break;
    case OPEN:
      reserve();
      poll_all();
      if (falcon_pause_held() || falcon_window_over(&win.asked, now_ns)) close_window(now_ns);
      break;
    case DRAINING:
      if (!poll_all()) {
        if (now_ns < win.drain_ns) break;
        abandon();
      }
      flush();
      finish();
      break;
  }
  return win.phase != IDLE;
}
