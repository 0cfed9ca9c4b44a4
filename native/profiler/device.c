/*
 * Device times in a profile window: from the first channel of a call that begins
 * to the last that ends, by the GPU's timer, as NCCL's proxy threads report them.
 *
 * A call of the window has an entry of the table, and its number is its handle.
 * NCCL may come with a number long after: it is looked up only between the
 * window's first and last, and the next window begins only when no thread is in a
 * lookup of this one. Those are counted on one of two sides in turn, so that
 * lookups that begin later are not waited for.
 */
#include "device.h"
#include "../hook/clock.h"
#include "../hook/timing.h"

#define SLOTS FALCON_TIMING_SLOTS /* calls of one window; those beyond are lost */
#define SETTLE_NS 500000000ull    /* a call whose channels have all ended and none has come since is done */

typedef struct device_entry {
  _Atomic uint32_t ready;              /* filled in; then the rest of the call is constant */
  _Atomic uint32_t channels;           /* that will be reported, 0 = not known */
  _Atomic uint32_t opened, closed;
  _Atomic uint64_t start, stop;        /* by the device: least and greatest */
  _Atomic int64_t offset;              /* host minus device: the least that was seen */
  _Atomic uint64_t last_ns;            /* host, when the newest channel was reported */
  _Atomic int32_t peer;
  uint64_t enter_ns, ordinal, bytes;
  uint32_t comm;
  uint8_t op, dtype, flags;
} device_entry;

enum phase { IDLE, OPEN, DRAINING, LEAVING };

static device_entry entries[SLOTS];
static _Atomic uint64_t first, next;   /* numbers of the window's entries */
static _Atomic uint32_t side, inside[2]; /* threads in a lookup */
static struct { enum phase phase; falcon_window asked; uint32_t last; uint64_t drain_ns; } win;

static bool wanted(uint32_t comm) {
  return comm < FALCON_COMMS_MAX && (__atomic_load_n(&win.asked.comms[comm / 64], __ATOMIC_RELAXED) >> (comm % 64) & 1);
}

static uint32_t enter(void) {
  uint32_t s = atomic_load(&side) & 1;
  atomic_fetch_add(&inside[s], 1);
  return s;
}

static void leave(uint32_t s) { atomic_fetch_sub(&inside[s], 1); }

/* NULL: not of this window. Between enter and leave. */
static device_entry *look_up(void *handle, uint32_t kind) {
  uint64_t n = falcon_handle_number(handle), from = atomic_load(&first);
  if (!handle || falcon_handle_kind(handle) != kind || n - from >= atomic_load(&next) - from) return NULL;
  return &entries[n % SLOTS];
}

static void reset(device_entry *e, const falcon_record *r) {
  atomic_store_explicit(&e->channels, 0, memory_order_relaxed);
  atomic_store_explicit(&e->opened, 0, memory_order_relaxed);
  atomic_store_explicit(&e->closed, 0, memory_order_relaxed);
  atomic_store_explicit(&e->start, UINT64_MAX, memory_order_relaxed);
  atomic_store_explicit(&e->stop, 0, memory_order_relaxed);
  atomic_store_explicit(&e->offset, INT64_MAX, memory_order_relaxed);
  atomic_store_explicit(&e->peer, r->peer, memory_order_relaxed);
  e->enter_ns = falcon_mono_ns();
  e->ordinal = r->ordinal;
  e->bytes = r->count * nccl_type_bytes(r->dtype);
  e->comm = r->comm;
  e->op = r->op;
  e->dtype = r->dtype;
  e->flags = r->flags;
  atomic_store_explicit(&e->last_ns, e->enter_ns, memory_order_relaxed);
}

static void *take_entry(const falcon_record *r) {
  uint64_t n = atomic_load(&next);
  do {
    if (n - atomic_load(&first) >= SLOTS) return NULL;
  } while (!atomic_compare_exchange_weak(&next, &n, n + 1));
  device_entry *e = &entries[n % SLOTS];
  reset(e, r);
  atomic_store_explicit(&e->ready, 1, memory_order_release);
  return falcon_handle(FALCON_HANDLE_TIMED, n);
}

static void *time_call(const falcon_record *r) {
  void *h = NULL;
  uint32_t s = enter();
  bool open = atomic_load(&falcon_hook.profile) && wanted(r->comm);
  if (open && (atomic_load(&falcon_events_several) || !(h = take_entry(r)))) falcon_timing_lost(1);
  leave(s);
  return h;
}

static void *time_task(void *call, uint32_t channels, int peer) {
  uint32_t s = enter();
  device_entry *e = look_up(call, FALCON_HANDLE_TIMED);
  if (e) atomic_store_explicit(&e->channels, channels, memory_order_relaxed);
  if (e && peer >= 0) atomic_store_explicit(&e->peer, peer, memory_order_relaxed);
  leave(s);
  return e ? falcon_handle(FALCON_HANDLE_TASK, falcon_handle_number(call)) : NULL;
}

static void *time_kernel(void *task, uint64_t timer) {
  uint32_t s = enter();
  device_entry *e = look_up(task, FALCON_HANDLE_TASK);
  if (e) {
    atomic_fetch_add(&e->opened, 1);
    for (uint64_t v = atomic_load(&e->start); timer < v && !atomic_compare_exchange_weak(&e->start, &v, timer);) {}
    atomic_store(&e->last_ns, falcon_mono_ns());
  }
  leave(s);
  return e ? falcon_handle(FALCON_HANDLE_KERNEL, falcon_handle_number(task)) : NULL;
}

static void time_stop(void *kernel, uint64_t timer) {
  uint32_t s = enter();
  device_entry *e = look_up(kernel, FALCON_HANDLE_KERNEL);
  if (e) {
    uint64_t now = falcon_mono_ns();
    int64_t offset = (int64_t)(now - timer);
    for (uint64_t v = atomic_load(&e->stop); timer > v && !atomic_compare_exchange_weak(&e->stop, &v, timer);) {}
    for (int64_t v = atomic_load(&e->offset); offset < v && !atomic_compare_exchange_weak(&e->offset, &v, offset);) {}
    atomic_store(&e->last_ns, now);
    atomic_fetch_add(&e->closed, 1);
  }
  leave(s);
}

const falcon_device falcon_device_times = {.call = time_call, .task = time_task, .kernel = time_kernel, .stop = time_stop};

/* ---- the side thread ---- */

static bool settled(device_entry *e, uint64_t now_ns) {
  if (!atomic_load_explicit(&e->ready, memory_order_acquire)) return false;
  uint32_t closed = atomic_load(&e->closed), channels = atomic_load(&e->channels);
  if (!closed || closed != atomic_load(&e->opened)) return false;
  return closed == channels || now_ns - atomic_load(&e->last_ns) > SETTLE_NS;
}

static bool all_settled(uint64_t now_ns) {
  for (uint64_t n = atomic_load(&first); n < atomic_load(&next); n++)
    if (!settled(&entries[n % SLOTS], now_ns)) return false;
  return true;
}

/* Its times are whole, and can be. */
static bool usable(device_entry *e) {
  return atomic_load_explicit(&e->ready, memory_order_acquire) && atomic_load(&e->closed) && atomic_load(&e->closed) == atomic_load(&e->opened) &&
         atomic_load(&e->start) && atomic_load(&e->stop) >= atomic_load(&e->start);
}

/* Host time of the device's time `base`. */
static int64_t host_of(uint64_t base) {
  falcon_bounds host = FALCON_BOUNDS_OPEN;
  for (uint64_t n = atomic_load(&first); n < atomic_load(&next); n++) {
    device_entry *e = &entries[n % SLOTS];
    if (!usable(e)) continue;
    falcon_bounds_most(&host, atomic_load(&e->offset) + (int64_t)base);
    falcon_bounds_least(&host, (int64_t)(e->enter_ns - (atomic_load(&e->start) - base)));
  }
  return falcon_bounds_middle(&host);
}

static uint64_t earliest(void) {
  uint64_t base = UINT64_MAX;
  for (uint64_t n = atomic_load(&first); n < atomic_load(&next); n++) {
    device_entry *e = &entries[n % SLOTS];
    if (usable(e) && atomic_load(&e->start) < base) base = atomic_load(&e->start);
  }
  return base;
}

static void write_timings(void) {
  uint64_t base = earliest();
  int64_t host = host_of(base);
  for (uint64_t n = atomic_load(&first); n < atomic_load(&next); n++) {
    device_entry *e = &entries[n % SLOTS];
    if (!usable(e)) {
      falcon_timing_lost(1);
      continue;
    }
    int64_t start = (int64_t)(atomic_load(&e->start) - base);
    falcon_timing_put(&(falcon_timing){
      .ordinal = e->ordinal, .bytes = e->bytes, .start_ns = start, .duration_ns = (int64_t)(atomic_load(&e->stop) - atomic_load(&e->start)),
      .queue_ns = host + start - (int64_t)e->enter_ns, .comm = e->comm, .peer = atomic_load(&e->peer), .op = e->op, .dtype = e->dtype,
      .flags = e->flags | FALCON_REC_TIMED, .window = win.asked.id,
    });
  }
}

static void finish(void) {
  win.last = win.asked.id;
  win.phase = IDLE;
  falcon_window_done(win.last);
}

static void open_window(const falcon_window *w) {
  for (int i = 0; i < 4; i++) __atomic_store_n(&win.asked.comms[i], w->comms[i], __ATOMIC_RELAXED);
  win.asked.id = w->id;
  win.asked.until_ns = w->until_ns;
  if (!falcon_timing_reserve()) {
    falcon_timing_lost(1);
    finish();
    return;
  }
  win.phase = OPEN;
  falcon_events_ask(FALCON_EVENTS_TIMED, true); /* first: a call that is taken into the window has its channels reported */
  atomic_store(&falcon_hook.profile, (uint64_t)w->id << 32 | 1);
}

static void close_window(uint64_t now_ns) {
  atomic_store(&falcon_hook.profile, 0);
  falcon_events_ask(FALCON_EVENTS_TIMED, false);
  win.phase = DRAINING;
  win.drain_ns = now_ns + FALCON_DRAIN_NS;
}

/* The numbers of the window mean nothing from now on. */
static void end_window(void) {
  write_timings();
  for (uint64_t n = atomic_load(&first); n < atomic_load(&next); n++) atomic_store(&entries[n % SLOTS].ready, 0);
  atomic_store(&first, atomic_load(&next));
  atomic_fetch_add(&side, 1);
  win.phase = LEAVING;
}

bool falcon_device_tick(uint64_t now_ns) {
  falcon_window w;
  switch (win.phase) {
    case IDLE:
      if (falcon_window_wanted(win.last, now_ns, &w)) open_window(&w);
      break;
    case OPEN:
      if (falcon_window_over(&win.asked, now_ns)) close_window(now_ns);
      break;
    case DRAINING:
      if (all_settled(now_ns) || now_ns >= win.drain_ns) end_window();
      break;
    case LEAVING:
      if (atomic_load(&inside[~atomic_load(&side) & 1])) break;
      finish();
  }
  return win.phase != IDLE;
}
