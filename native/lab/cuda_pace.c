/* Modelled time: what a kernel costs, sleeping up to a modelled end, and the
 * host thread's own clock. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_internal.h"
#include "lab_state.h"

#define OP_SECONDS_MAX 60.0 /* no single operation takes longer, whatever the state file holds */

/* How late this thread last woke up; its launches are dated back by as much,
 * so that the timer's error does not add up over blocking calls. */
static __thread int64_t host_late_ns;
static __thread int64_t host_chain_ns;

LAB_API int64_t falcon_lab_now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

LAB_API int falcon_lab_paced(void) {
  const falcon_lab_header *h = lab_header();
  return h && !lab_u32(&h->unpaced);
}

LAB_API int falcon_lab_hollow(void) {
  static atomic_int known; /* 1 no, 2 yes */
  int v = atomic_load(&known);
  if (!v) atomic_store(&known, v = getenv("FALCON_LAB_HOLLOW") ? 2 : 1);
  return v == 2;
}

LAB_API int falcon_lab_node(void) { return lab_node(); }

LAB_API void falcon_lab_link_now(int a, int b, double *bytes_per_s, double *latency_s) {
  const falcon_lab_header *h = lab_header();
  *bytes_per_s = 1e18;
  *latency_s = 0;
  if (!h) return;
  if (a == b) {
    *bytes_per_s = lab_double(&h->intra_bytes_per_s, 1.0, 1e18);
    *latency_s = lab_double(&h->intra_latency_s, 0, 0);
    return;
  }
  const falcon_lab_link *l = lab_link(a, b);
  double share = l ? lab_double(&l->bandwidth, 1e-4, 1.0) : 1.0;
  double slow = l ? lab_double(&l->latency, 1e-9, 1.0) : 1.0;
  *bytes_per_s = lab_double(&h->inter_bytes_per_s, 1.0, 1e18) * share;
  *latency_s = lab_double(&h->inter_latency_s, 0, 0) * slow;
}

double pace_kernel_s(int device, double flops) {
  const falcon_lab_header *h = lab_header();
  const falcon_lab_gpu *g = lab_gpu(lab_node(), device);
  if (!h || !g || !(flops > 0)) return 0;
  double peak = lab_double(&h->peak_flops, 1.0, 0);
  double clock = lab_double(&g->clock, 1e-3, 1.0);
  double load = lab_double(&g->load, 1e-9, 1.0);
  double s = peak > 0 ? flops * load / (peak * clock) : 0;
  return s < OP_SECONDS_MAX ? s : OP_SECONDS_MAX;
}

static void sleep_until(int64_t ns) {
  struct timespec ts = {ns / 1000000000, ns % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {}
}

void pace_until(int64_t target_ns, atomic_int *cancel) {
  for (;;) {
    int64_t now = falcon_lab_now_ns();
    if (target_ns - now <= FALCON_LAB_NAP_NS) return;
    if (cancel && atomic_load(cancel)) return;
    int64_t next = target_ns;
    if (cancel && next > now + FALCON_LAB_SLICE_NS) next = now + FALCON_LAB_SLICE_NS;
    sleep_until(next);
  }
}

int64_t host_now_ns(void) { return falcon_lab_now_ns() - host_late_ns; }

void host_woke(int64_t should_ns) {
  int64_t late = falcon_lab_now_ns() - should_ns;
  host_late_ns = late > 0 && late <= FALCON_LAB_LATE_NS ? late : 0;
}

LAB_API void falcon_lab_host_launch(void) {
  if (!falcon_lab_paced()) return;
  const falcon_lab_gpu *g = lab_gpu(lab_node(), current_device());
  double share = g ? lab_double(&g->host_share, 1e-3, 1.0) : 1.0;
  if (share >= 1.0) return;
  int64_t now = host_now_ns();
  if (host_chain_ns < now) host_chain_ns = now;
  host_chain_ns += (int64_t)(FALCON_LAB_HOST_COST_NS / share);
  pace_until(host_chain_ns, NULL);
  host_woke(host_chain_ns);
}
