/* The computation test: single-precision multiplications, back to back. */
#include "clock.h"
#include "probe.h"

#define SIDE_MAX 32768u
#define PATTERN 0x3c /* each float 0.0115: finite sums, and no zeros, which draw less power */
#define FREE_BYTES_MIN (256ull << 20) /* code of a kernel may be loaded at its first launch */

typedef int (*sgemm_fn)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);

static bool room(falcon_trial *t, uint64_t n) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  size_t free_bytes = 0, total = 0;
  bool fits = 3 * n * n * sizeof(float) <= falcon_work.bytes - falcon_work.cublas_bytes;
  if (fits && falcon_cuda_fine(cuda->free_info(&free_bytes, &total)) && free_bytes >= FREE_BYTES_MIN) return true;
  return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_WORKSPACE);
}

/* One untimed, then the repeats with an event between any two. */
static bool launch(falcon_trial *t, sgemm_fn sgemm, int n) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  const float one = 1, zero = 0;
  float *a = (float *)(void *)falcon_work.memory, *b = a + (size_t)n * (size_t)n, *c = b + (size_t)n * (size_t)n;
  bool ok = falcon_cuda_fine(cuda->fill(a, PATTERN, 2 * (size_t)n * (size_t)n * sizeof *a, falcon_work.computes));
  for (uint32_t i = 0; ok && i <= t->order.repeats; i++) {
    ok = !sgemm(falcon_work.cublas, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n) &&
         falcon_cuda_fine(cuda->event_record(falcon_work.event[i], falcon_work.computes));
    if (!i) t->out.setup_ns = (int64_t)(falcon_mono_ns() - t->start_ns);
  }
  return ok || falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
}

void falcon_probe_gemm(falcon_trial *t) {
  sgemm_fn sgemm = (sgemm_fn)falcon_cublas("cublasSgemm_v2");
  if (!falcon_work.cublas || !sgemm) {
    falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_LIBRARY);
    return;
  }
  if (t->order.n < 1 || t->order.n > SIDE_MAX) {
    falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
    return;
  }
  if (room(t, t->order.n) && launch(t, sgemm, (int)t->order.n) && falcon_trial_await(t, falcon_work.event[t->order.repeats]))
    falcon_trial_times(t);
}
